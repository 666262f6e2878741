"""Compiled: spans of JSON values to the buffers of Arrow columns, one function for each kind of column.

Each fills ``values`` and ``valid`` (a byte for each row: 1, or 0 for null). Undecided values are marked as odd
in their record; see `scanning`. All others agree with the result of Spark's from_json.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, compiled, copy_bytes
from sparkonce.connectors.values.scanning import (
    BACKSLASH,
    BACKSPACE,
    CAPITAL_E,
    CAPITAL_I,
    CAPITAL_N,
    CARRIAGE_RETURN,
    COLON,
    FORM_FEED,
    LETTER_B,
    LETTER_E,
    LETTER_F,
    LETTER_N,
    LETTER_R,
    LETTER_T,
    LETTER_U,
    LINE_FEED,
    MINUS,
    NINE,
    OPEN_LIST,
    OPEN_OBJECT,
    PLUS,
    POINT,
    QUOTE,
    SLASH,
    SPACE,
    TAB,
    ZERO,
    Level,
)

MAX_EXACT_DIGITS = 18
"""Decimal digits that always fit 64 bits."""
LAST_TENTH = ((1 << 63) - 1) // 10
"""Times ten, and not more than seven added, it still fits 64 bits."""
MAX_EXACT_INTEGER = 1 << 53
MAX_EXACT_POWER = 22
"""Powers of ten up to here are doubles, so that one multiplication or division of such numbers is rounded once."""
MAX_SECONDS = 9_000_000_000_000
"""Seconds that always fit microseconds in 64 bits."""
EQUALS, CAPITAL_T, CAPITAL_Z = 61, 84, 90
FOUR_BYTES = 0xF0
"""The first UTF-8 byte of characters that are surrogate pairs in Java."""
NO_ZONE = 1 << 30
"""Instead of an offset in seconds: a text without a zone needs more than a sum."""
HALF_OF_FLOAT = 1 << 28
"""The bit below the last one of a float, in a double; and what a double keeps below a float."""
BELOW_FLOAT = (1 << 29) - 1

Doubles = NDArray[np.float64]


@compiled
def integers(data: Bytes, level: Level, least: int, most: int, values: Int64s, valid: Bytes, odd: Bytes) -> None:
    """Read whole numbers between ``least`` and ``most``."""
    for row in range(level.starts.shape[0]):
        position, end, owner = level.starts[row], level.ends[row], level.owners[row]
        valid[row] = 0
        values[row] = 0
        if position < 0 or odd[owner]:
            continue
        negative = data[position] == MINUS
        if negative:
            position += 1
        number = 0
        certain = end - position <= MAX_EXACT_DIGITS + 1
        if certain:
            for index in range(position, end):
                digit = data[index] - ZERO
                if digit < 0 or digit > 9 or number > LAST_TENTH or (number == LAST_TENTH and digit > 7):
                    certain = False
                    break
                number = number * 10 + digit
        if negative:
            number = -number
        if certain and least <= number <= most:
            values[row] = number
            valid[row] = 1
        else:
            odd[owner] = 1


@compiled
def booleans(data: Bytes, level: Level, values: Bytes, valid: Bytes, odd: Bytes) -> None:
    """Read true and false."""
    for row in range(level.starts.shape[0]):
        position, owner = level.starts[row], level.owners[row]
        valid[row] = 0
        values[row] = 0
        if position < 0 or odd[owner]:
            continue
        if data[position] == LETTER_T or data[position] == LETTER_F:
            values[row] = 1 if data[position] == LETTER_T else 0
            valid[row] = 1
        else:
            odd[owner] = 1


@compiled
def doubles(
    data: Bytes, level: Level, powers: Doubles, values: Doubles, valid: Bytes, unsure: Bytes, odd: Bytes
) -> int:
    """Read numbers. Those that take more than one rounding are marked in ``unsure``, and counted."""
    more = 0
    for row in range(level.starts.shape[0]):
        position, end, owner = level.starts[row], level.ends[row], level.owners[row]
        valid[row] = 0
        unsure[row] = 0
        values[row] = 0.0
        if position < 0 or odd[owner]:
            continue
        negative = data[position] == MINUS
        if negative:
            position += 1
        if data[position] in (CAPITAL_N, CAPITAL_I):
            values[row] = math.nan if data[position] == CAPITAL_N else -math.inf if negative else math.inf
            valid[row] = 1
            continue
        if data[position] < ZERO or data[position] > NINE:
            odd[owner] = 1
            continue
        number, digits, exponent, whole = 0, 0, 0, True
        while position < end and ZERO <= data[position] <= NINE:
            number = number * 10 + (data[position] - ZERO)
            digits += 1
            position += 1
        if position < end and data[position] == POINT:
            whole = False
            position += 1
            while position < end and ZERO <= data[position] <= NINE:
                number = number * 10 + (data[position] - ZERO)
                digits += 1
                exponent -= 1
                position += 1
        if position < end:  # there is an exponent
            whole = False
            position += 1
            down = data[position] == MINUS
            if down or data[position] == PLUS:
                position += 1
            power = 0
            while position < end and power < 10_000:
                power = power * 10 + (data[position] - ZERO)
                position += 1
            exponent += -power if down else power
        valid[row] = 1
        if (
            digits > MAX_EXACT_DIGITS
            or number > MAX_EXACT_INTEGER
            or not -MAX_EXACT_POWER <= exponent <= MAX_EXACT_POWER
        ):
            unsure[row] = 1
            more += 1
            continue
        value = float(number)
        if exponent < 0:
            value /= powers[-exponent]
        elif exponent > 0:
            value *= powers[exponent]
        values[row] = -value if negative and not (whole and number == 0) else value
    return more


@compiled
def marked_texts(data: Bytes, level: Level, marked: Bytes, offsets: Int32s, target: Bytes) -> None:
    """Copy the marked spans, end to end."""
    used, count = 0, 0
    for row in range(level.starts.shape[0]):
        if marked[row]:
            length = level.ends[row] - level.starts[row]
            copy_bytes(target, used, data, level.starts[row], length)
            used += length
            count += 1
            offsets[count] = used


@compiled
def between_floats(level: Level, bits: Int64s, valid: Bytes, odd: Bytes) -> None:
    """Mark doubles (their ``bits``) half-way between two floats: rounding twice may be wrong."""
    for row in range(level.starts.shape[0]):
        if valid[row] and bits[row] & BELOW_FLOAT == HALF_OF_FLOAT:
            odd[level.owners[row]] = 1


@compiled
def decimals(data: Bytes, level: Level, scale: int, most: int, values: Int64s, valid: Bytes, odd: Bytes) -> None:
    """Read numbers, also in strings, as whole numbers of the last place; half of one is rounded away from zero."""
    for row in range(level.starts.shape[0]):
        position, end, owner = level.starts[row], level.ends[row], level.owners[row]
        valid[row] = 0
        values[row] = 0
        if position < 0 or odd[owner]:
            continue
        if data[position] == QUOTE:
            position += 1
            end -= 1
        negative = position < end and data[position] == MINUS
        if negative:
            position += 1
        number, digits, places, dropped, points, index = 0, 0, 0, 0, 0, position
        while index < end and digits <= MAX_EXACT_DIGITS:
            digit = data[index] - ZERO
            if 0 <= digit <= 9:
                if points and places == scale:
                    if dropped == 0 and digit >= 5:
                        number += 1  # the first place that is dropped decides
                    dropped += 1
                else:
                    number = number * 10 + digit
                    digits += 1
                    places += points
            elif data[index] == POINT and points == 0 and index > position and index + 1 < end:
                points = 1
            else:
                break
            index += 1
        while places < scale and digits <= MAX_EXACT_DIGITS:
            number *= 10
            digits += 1
            places += 1
        if index < end or index == position or digits > MAX_EXACT_DIGITS or number > most:
            odd[owner] = 1
        else:
            values[row] = -number if negative else number
            valid[row] = 1


@compiled
def _put_utf8(target: Bytes, used: int, code: int) -> int:
    if code < 0x80:
        target[used] = code
        return used + 1
    if code < 0x800:
        target[used] = 0xC0 | (code >> 6)
        target[used + 1] = 0x80 | (code & 0x3F)
        return used + 2
    if code < 0x10000:
        target[used] = 0xE0 | (code >> 12)
        target[used + 1] = 0x80 | ((code >> 6) & 0x3F)
        target[used + 2] = 0x80 | (code & 0x3F)
        return used + 3
    target[used] = 0xF0 | (code >> 18)
    target[used + 1] = 0x80 | ((code >> 12) & 0x3F)
    target[used + 2] = 0x80 | ((code >> 6) & 0x3F)
    target[used + 3] = 0x80 | (code & 0x3F)
    return used + 4


@compiled
def _hexadecimal(data: Bytes, position: int) -> int:
    number = 0
    for index in range(position, position + 4):
        byte = data[index]
        digit = byte - ZERO if byte <= NINE else (byte | 32) - 87
        number = number * 16 + digit
    return number


@compiled
def _unescape(data: Bytes, position: int, end: int, target: Bytes, used: int) -> int:
    """Copy the inside of a string that has escapes; return how far the target is used. It never grows."""
    while position < end:
        byte = data[position]
        position += 1
        if byte != BACKSLASH:
            target[used] = byte
            used += 1
            continue
        byte = data[position]
        position += 1
        if byte == LETTER_U:
            code = _hexadecimal(data, position)
            position += 4
            if 0xD800 <= code <= 0xDFFF:
                low = 0
                if (
                    code < 0xDC00
                    and end - position >= 6
                    and data[position] == BACKSLASH
                    and data[position + 1] == LETTER_U
                ):
                    low = _hexadecimal(data, position + 2)
                if 0xDC00 <= low <= 0xDFFF:
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                    position += 6
                else:
                    code = 63  # half a character: Java writes a question mark
            used = _put_utf8(target, used, code)
            continue
        if byte == LETTER_N:
            byte = LINE_FEED
        elif byte == LETTER_T:
            byte = TAB
        elif byte == LETTER_R:
            byte = CARRIAGE_RETURN
        elif byte == LETTER_B:
            byte = BACKSPACE
        elif byte == LETTER_F:
            byte = FORM_FEED
        target[used] = byte
        used += 1
    return used


@compiled
def _compact(data: Bytes, position: int, end: int, target: Bytes, used: int) -> int:
    """Copy JSON without the spaces between its parts, if the result is the same as Jackson's; else return -1."""
    inside = False
    while position < end:
        byte = data[position]
        position += 1
        if inside:
            if byte == BACKSLASH:
                target[used] = byte
                used += 1
                byte = data[position]
                position += 1
                if byte in (LETTER_U, SLASH):
                    return -1
            elif byte == QUOTE:
                inside = False
            elif byte >= FOUR_BYTES:
                return -1  # would be written as two escapes
        elif byte == QUOTE:
            inside = True
        elif byte in (SPACE, LINE_FEED, CARRIAGE_RETURN, TAB):
            continue
        elif byte in (POINT, CAPITAL_E, CAPITAL_N, CAPITAL_I) or (byte == MINUS and data[position] == ZERO):
            return -1  # a fraction, minus zero, and what is no number would be written otherwise
        elif byte == LETTER_E and ZERO <= data[position - 2] <= NINE:
            return -1
        target[used] = byte
        used += 1
    return used


@compiled
def strings(
    data: Bytes, level: Level, texts_only: bool, offsets: Int32s, target: Bytes, valid: Bytes, odd: Bytes
) -> None:
    """Copy strings, and unless ``texts_only`` any other value as its JSON text."""
    used = 0
    for row in range(level.starts.shape[0]):
        offsets[row] = used
        position, end, owner = level.starts[row], level.ends[row], level.owners[row]
        valid[row] = 0
        if position < 0 or odd[owner]:
            continue
        first = data[position]
        if first == QUOTE:
            position += 1
            end -= 1
            escaped = False
            for index in range(position, end):
                if data[index] == BACKSLASH:
                    escaped = True
                    break
            if escaped:
                used = _unescape(data, position, end, target, used)
            else:
                copy_bytes(target, used, data, position, end - position)
                used += end - position
            valid[row] = 1
            continue
        last = -1
        if not texts_only and (first in (OPEN_OBJECT, OPEN_LIST) or end - position <= MAX_EXACT_DIGITS):
            last = _compact(data, position, end, target, used)
        if last < 0:
            odd[owner] = 1
        else:
            used = last
            valid[row] = 1
    offsets[level.starts.shape[0]] = used


@compiled
def base64(data: Bytes, level: Level, table: Bytes, offsets: Int32s, target: Bytes, valid: Bytes, odd: Bytes) -> None:
    """Decode strings of base64 with their padding and nothing else. ``table`` has 255 for other characters."""
    used = 0
    for row in range(level.starts.shape[0]):
        offsets[row] = used
        position, end, owner = level.starts[row], level.ends[row], level.owners[row]
        valid[row] = 0
        if position < 0 or odd[owner]:
            continue
        length = end - position - 2
        certain = data[position] == QUOTE and length % 4 == 0
        begun = used
        position += 1
        end -= 1
        while certain and position < end:
            a, b = int(table[data[position]]), int(table[data[position + 1]])
            c, d = int(table[data[position + 2]]), int(table[data[position + 3]])
            padding = 0
            if end - position == 4 and data[end - 1] == EQUALS:
                padding = 2 if data[end - 2] == EQUALS else 1
                c = 0 if padding == 2 else c
                d = 0
            if a == 255 or b == 255 or c == 255 or d == 255:
                certain = False
                break
            target[used] = (a << 2 | b >> 4) & 255
            if padding < 2:
                target[used + 1] = (b << 4 | c >> 2) & 255
            if padding < 1:
                target[used + 2] = (c << 6 | d) & 255
            used += 3 - padding
            position += 4
        if certain:
            valid[row] = 1
        else:
            used = begun
            odd[owner] = 1
    offsets[level.starts.shape[0]] = used


@compiled
def _two_digits(data: Bytes, position: int) -> int:
    """Return a number of two digits, or a large negative one."""
    tens, ones = int(data[position]) - ZERO, int(data[position + 1]) - ZERO
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        return -1_000_000
    return tens * 10 + ones


@compiled
def _days(data: Bytes, position: int) -> int:
    """Return the days since 1970 of ``yyyy-MM-dd``, or a number below all of them."""
    year = _two_digits(data, position) * 100 + _two_digits(data, position + 2)
    month, day = _two_digits(data, position + 5), _two_digits(data, position + 8)
    none = -(1 << 40)
    if year < 0 or month < 1 or month > 12 or day < 1 or data[position + 4] != MINUS or data[position + 7] != MINUS:
        return none
    longest = 31
    if month == 4 or month == 6 or month == 9 or month == 11:
        longest = 30
    elif month == 2:
        longest = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if day > longest:
        return none
    shifted = year - (1 if month <= 2 else 0) + 400  # never negative; years that begin in March end with the leap day
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468 - 146_097


@compiled
def dates(data: Bytes, level: Level, values: Int32s, valid: Bytes, odd: Bytes) -> None:
    """Read ``"yyyy-MM-dd"`` as days since 1970."""
    for row in range(level.starts.shape[0]):
        position, end, owner = level.starts[row], level.ends[row], level.owners[row]
        valid[row] = 0
        values[row] = 0
        if position < 0 or odd[owner]:
            continue
        days = -(1 << 40)
        if end - position == 12 and data[position] == QUOTE:
            days = _days(data, position + 1)
        if days > -(1 << 40):
            values[row] = days
            valid[row] = 1
        else:
            odd[owner] = 1


@compiled
def _local_micros(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read ``yyyy-MM-dd[T ]HH:mm:ss[.ffffff]``; return microseconds and the position after it, or -1 for that."""
    if end - position < 19:
        return 0, -1
    days = _days(data, position)
    hour, minute = _two_digits(data, position + 11), _two_digits(data, position + 14)
    second = _two_digits(data, position + 17)
    if (
        days == -(1 << 40)
        or data[position + 10] not in (CAPITAL_T, SPACE)
        or data[position + 13] != COLON
        or data[position + 16] != COLON
        or hour < 0
        or hour > 23
        or minute < 0
        or minute > 59
        or second < 0
        or second > 59
    ):
        return 0, -1
    position += 19
    fraction, places = 0, 0
    if position < end and data[position] == POINT:
        position += 1
        while position < end and ZERO <= data[position] <= NINE:
            if places < 6:
                fraction = fraction * 10 + (data[position] - ZERO)
                places += 1
            position += 1
        while places < 6:
            fraction *= 10
            places += 1
    return ((days * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000) + fraction, position


@compiled
def timestamps(
    data: Bytes,
    level: Level,
    zone_s: int,
    zoned: bool,
    values: Int64s,
    valid: Bytes,
    local: Bytes,
    odd: Bytes,
) -> int:
    """Read timestamps as microseconds since 1970, and if ``zoned`` whole numbers of seconds.

    A text without a zone is taken as ``zone_s`` seconds ahead of UTC. If that is NO_ZONE it is left as it is, marked in
    ``local`` and counted.
    """
    more = 0
    for row in range(level.starts.shape[0]):
        position, end, owner = level.starts[row], level.ends[row], level.owners[row]
        valid[row] = 0
        local[row] = 0
        values[row] = 0
        if position < 0 or odd[owner]:
            continue
        certain = False
        micros = 0
        if data[position] == QUOTE:
            end -= 1
            micros, position = _local_micros(data, position + 1, end)
            if position == end:
                certain = True
                if zone_s == NO_ZONE:
                    local[row] = 1
                    more += 1
                else:
                    micros -= zone_s * 1_000_000
            elif position > 0 and zoned:
                if end - position == 1 and data[position] == CAPITAL_Z:
                    certain = True
                elif end - position == 6 and data[position + 3] == COLON:
                    hours, minutes = _two_digits(data, position + 1), _two_digits(data, position + 4)
                    if 0 <= hours <= 17 and 0 <= minutes <= 59 and data[position] in (PLUS, MINUS):
                        certain = True
                        ahead = (hours * 60 + minutes) * 60_000_000
                        micros += ahead if data[position] == MINUS else -ahead
        elif zoned and end - position <= 13:
            certain = True
            for index in range(position, end):
                digit = data[index] - ZERO
                if digit < 0 or digit > 9:
                    certain = False
                    break
                micros = micros * 10 + digit
            certain = certain and micros < MAX_SECONDS
            micros *= 1_000_000
        if certain:
            values[row] = micros
            valid[row] = 1
        else:
            odd[owner] = 1
    return more
