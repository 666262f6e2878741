"""Compiled: where the fields of JSON objects, the elements of arrays and the entries of maps lie.

Values are decoded level by level. A level is a list of spans, ``starts`` and ``ends``: positions in one buffer where a
JSON value begins and ends; a start below zero stands for null, or for nothing. `objects` reads all objects of a level
and returns a level for each field; `lists` and `maps` return the level of all elements. At the leaves, `leaves` turns
spans into numbers and strings. Each span belongs to a record, its owner.

Only unambiguous JSON is read here: by RFC 8259, with NaN and Infinity, each field once, names without escapes.
Any record with something else is marked in ``odd``, and decoded again by `jackson_parser.JacksonParser`. So nothing
here depends on how Spark handles a damaged document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparkonce.connectors.runtime.compiled import (
    WIDTH,
    Bytes,
    Int32s,
    compiled,
    equal_bytes,
    leading_digits,
    ordinary_bytes,
)
from sparkonce.connectors.values.wire_types import is_utf8

MAX_DEPTH = 60
"""Levels of nesting that fit a bit mask; deeper nesting is odd."""
MAX_NUMBER = 1000
"""The maximal number of characters of a number; Jackson rejects longer ones, even of unread fields."""
MAX_NAME = 50_000
"""The maximal number of bytes of a name; Jackson rejects one of more characters."""
ABSENT, NULL = -1, -2
"""Starts of spans that are not values."""
LONGEST_GAP = 2 * WIDTH
UNKNOWN_FIELDS = 64
"""See `Gaps`."""

QUOTE, BACKSLASH, COMMA, COLON, MINUS, POINT = 34, 92, 44, 58, 45, 46
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = 123, 125, 91, 93
SLASH, PLUS, ZERO, NINE = 47, 43, 48, 57
LETTER_B, LETTER_E, LETTER_F, LETTER_N, LETTER_R, LETTER_T, LETTER_U = 98, 101, 102, 110, 114, 116, 117
LETTER_A, LETTER_I, LETTER_L, LETTER_S, LETTER_Y = 97, 105, 108, 115, 121
CAPITAL_E, CAPITAL_I, CAPITAL_N = 69, 73, 78
TAB, LINE_FEED, FORM_FEED, CARRIAGE_RETURN, BACKSPACE, SPACE = 9, 10, 12, 13, 8, 32


class Level(NamedTuple):
    """The values of one position in the schema, in order of their records."""

    starts: Int32s
    ends: Int32s
    owners: Int32s


class Names(NamedTuple):
    """The names of an object's fields, concatenated, each followed by a quote; and `WIDTH` bytes after the last."""

    data: Bytes
    offsets: Int32s
    """The start of each, and the position after the last one's quote."""


def names_of(fields: Sequence[str]) -> Names:
    """Return the names in the form that `objects` takes."""
    quoted = [field.encode() + b'"' for field in fields]
    offsets = np.cumsum([0, *map(len, quoted)], dtype=np.int32)
    return Names(np.frombuffer(b"".join(quoted) + bytes(WIDTH), np.uint8), offsets)


class Fields(NamedTuple):
    """The positions of object fields: a row for each field, a column for each object."""

    starts: NDArray[np.int32]
    ends: NDArray[np.int32]


class Gaps(NamedTuple):
    """The bytes between the values of an object: comma, name, colon and spaces, as in an earlier object.

    Writers repeat them exactly, so that one comparison finds the next value. There is a gap after each field,
    one before the first value, and one after each of the first `UNKNOWN_FIELDS` fields that are not in the schema.
    """

    places: Int32s
    """The position of the same bytes earlier."""
    lengths: Int32s
    """At most `LONGEST_GAP`; 0 if none was seen."""
    fields: Int32s
    """The field whose value comes next, the number of fields for one that is not in the schema."""


def no_gaps(fields: int) -> Gaps:
    """Return empty gaps: they are positions in a buffer, so each buffer has its own."""
    count = fields + 1 + UNKNOWN_FIELDS
    return Gaps(np.zeros(count, np.int32), np.zeros(count, np.int32), np.zeros(count, np.int32))


@compiled
def _skip_space(data: Bytes, position: int, end: int) -> int:
    while position < end and data[position] in (SPACE, LINE_FEED, CARRIAGE_RETURN, TAB):
        position += 1
    return position


@compiled
def _is_hexadecimal(byte: int) -> bool:
    return ZERO <= byte <= NINE or 65 <= byte <= 70 or 97 <= byte <= 102


@compiled
def _skip_ordinary(data: Bytes, position: int, end: int) -> int:
    """Return the position of the first quote, backslash or control character, or ``end`` or more."""
    while data.shape[0] - position >= WIDTH:
        ordinary = ordinary_bytes(data, position)
        position += ordinary
        if ordinary < WIDTH or position >= end:
            return position
    while position < end and data[position] >= SPACE and data[position] != QUOTE and data[position] != BACKSLASH:
        position += 1
    return position


@compiled
def _skip_string(data: Bytes, position: int, end: int) -> int:
    """Return the position after the closing quote, or -1; ``position`` is after the opening one."""
    while True:
        position = _skip_ordinary(data, position, end)
        if position >= end:
            return -1
        byte = data[position]
        position += 1
        if byte == QUOTE:
            return position
        if byte < SPACE:
            return -1
        if byte == BACKSLASH:
            if position >= end:
                return -1
            escaped = data[position]
            position += 1
            if escaped == LETTER_U:
                if end - position < 4:
                    return -1
                for _ in range(4):
                    if not _is_hexadecimal(data[position]):
                        return -1
                    position += 1
            elif escaped not in (QUOTE, BACKSLASH, SLASH, LETTER_B, LETTER_F, LETTER_N, LETTER_R, LETTER_T):
                return -1


@compiled
def _skip_plain_string(data: Bytes, position: int, end: int) -> int:
    """As `_skip_string`, but return -1 for one with an escape, too."""
    position = _skip_ordinary(data, position, end)
    return position + 1 if position < end and data[position] == QUOTE else -1


@compiled
def _skip_digits(data: Bytes, position: int, end: int) -> int:
    while data.shape[0] - position >= WIDTH:
        digits = leading_digits(data, position)
        position += digits
        if digits < WIDTH or position >= end:
            return min(position, end)
    while position < end and ZERO <= data[position] <= NINE:
        position += 1
    return position


@compiled
def _skip_number(data: Bytes, position: int, end: int) -> int:
    """Return the position after a number, or -1."""
    begin = position
    if data[position] == MINUS:
        position += 1
        if position < end and data[position] == CAPITAL_I:
            return _skip_not_a_number(data, position, end)
    if position >= end:
        return -1
    first = position
    position = _skip_digits(data, position, end)
    if position == first or (data[first] == ZERO and position > first + 1):
        return -1
    if position < end and data[position] == POINT:
        first = position + 1
        position = _skip_digits(data, first, end)
        if position == first:
            return -1
    if position < end and data[position] in (LETTER_E, CAPITAL_E):
        first = position + 1
        if first < end and data[first] in (PLUS, MINUS):
            first += 1
        position = _skip_digits(data, first, end)
        if position == first:
            return -1
    return position if position - begin <= MAX_NUMBER else -1


@compiled
def _skip_not_a_number(data: Bytes, position: int, end: int) -> int:
    """Return the position after NaN or Infinity, which from_json accepts, or -1."""
    if data[position] == CAPITAL_N:
        if end - position >= 3 and data[position + 1] == LETTER_A and data[position + 2] == CAPITAL_N:
            return position + 3
        return -1
    if end - position < 8:
        return -1
    a, b, c, d = data[position + 1], data[position + 2], data[position + 3], data[position + 4]
    e, f, g = data[position + 5], data[position + 6], data[position + 7]
    begins = a == LETTER_N and b == LETTER_F and c == LETTER_I and d == LETTER_N
    return position + 8 if begins and e == LETTER_I and f == LETTER_T and g == LETTER_Y else -1


@compiled
def _skip_word(data: Bytes, position: int, end: int) -> int:
    """Return the position after true, false or null, or -1."""
    first = data[position]
    length = 5 if first == LETTER_F else 4
    if end - position < length:
        return -1
    a, b, c, d = data[position + 1], data[position + 2], data[position + 3], data[position + length - 1]
    if (
        (first == LETTER_T and a == LETTER_R and b == LETTER_U and d == LETTER_E)
        or (first == LETTER_N and a == LETTER_U and b == LETTER_L and d == LETTER_L)
        or (first == LETTER_F and a == LETTER_A and b == LETTER_L and c == LETTER_S and d == LETTER_E)
    ):
        return position + length
    return -1


@compiled
def _skip_scalar(data: Bytes, position: int, end: int) -> int:
    """Return the position after a string, number or word, or -1."""
    first = data[position]
    if first == QUOTE:
        return _skip_string(data, position + 1, end)
    if first == MINUS or ZERO <= first <= NINE:
        return _skip_number(data, position, end)
    if first in (CAPITAL_N, CAPITAL_I):
        return _skip_not_a_number(data, position, end)
    return _skip_word(data, position, end)


@compiled
def _skip_nested(data: Bytes, position: int, end: int) -> int:
    """Return the position after an object or array, or -1. Bits of ``kinds`` mark the levels that are objects."""
    kinds = 0
    depth = 0
    while True:
        # Here a value begins.
        byte = data[position]
        if byte in (OPEN_OBJECT, OPEN_LIST):
            if depth >= MAX_DEPTH:
                return -1
            kinds = (kinds << 1) | (1 if byte == OPEN_OBJECT else 0)
            depth += 1
            position = _skip_space(data, position + 1, end)
            if position >= end:
                return -1
            if data[position] == (CLOSE_OBJECT if kinds & 1 else CLOSE_LIST):
                position += 1
                kinds >>= 1
                depth -= 1
            else:
                if kinds & 1:
                    position = _skip_name(data, position, end)
                    if position < 0:
                        return -1
                continue
        else:
            position = _skip_scalar(data, position, end)
            if position < 0:
                return -1
        # Here a value has ended: so may its parent, and the parent's.
        while depth > 0:
            position = _skip_space(data, position, end)
            if position >= end:
                return -1
            if data[position] == COMMA:
                break
            if data[position] != (CLOSE_OBJECT if kinds & 1 else CLOSE_LIST):
                return -1
            position += 1
            kinds >>= 1
            depth -= 1
        if depth == 0:
            return position
        position = _skip_space(data, position + 1, end)
        if position >= end:
            return -1
        if kinds & 1:
            position = _skip_name(data, position, end)
            if position < 0:
                return -1


@compiled
def _skip_name(data: Bytes, position: int, end: int) -> int:
    """Return the position of the value after a name and a colon, or -1."""
    if data[position] != QUOTE:
        return -1
    name = position + 1
    position = _skip_string(data, name, end)
    if position < 0 or position - name > MAX_NAME:
        return -1
    return _behind_colon(data, position, end)


@compiled
def _behind_colon(data: Bytes, position: int, end: int) -> int:
    """Return the position of the value after a colon, or -1."""
    position = _skip_space(data, position, end)
    if position >= end or data[position] != COLON:
        return -1
    position = _skip_space(data, position + 1, end)
    return position if position < end else -1


@compiled
def _skip_value(data: Bytes, position: int, end: int) -> int:
    """Return the position after a value, or -1; ``position`` is below ``end``."""
    if data[position] == OPEN_OBJECT or data[position] == OPEN_LIST:
        return _skip_nested(data, position, end)
    return _skip_scalar(data, position, end)


@compiled
def _is_name(data: Bytes, position: int, end: int, names: Names, field: int) -> bool:
    """Return whether the name of ``field`` and a quote are at ``position``."""
    first = names.offsets[field]
    length = names.offsets[field + 1] - first
    if end - position >= WIDTH >= length:
        return bool(equal_bytes(data, position, names.data, first) >= length)
    if end - position < length:
        return False
    for index in range(length):  # noqa: SIM110 - numba compiles no generators
        if data[position + index] != names.data[first + index]:
            return False
    return True


@compiled
def _find_name(data: Bytes, position: int, end: int, names: Names, first: int) -> int:
    """Return the field whose name begins at ``position``, or the number of fields if there is none.

    The search begins with field ``first``: writers often have the order of the schema, and leave fields out.
    """
    count: int = names.offsets.shape[0] - 1
    for field in range(min(first, count), count):
        if _is_name(data, position, end, names, field):
            return field
    for field in range(min(first, count)):
        if _is_name(data, position, end, names, field):
            return field
    return count


@compiled
def _is_repeated(data: Bytes, position: int, end: int, place: int, length: int) -> bool:
    """Return whether the ``length`` bytes at ``position``, at most `LONGEST_GAP`, are those at ``place``."""
    if end - position <= length or data.shape[0] - max(position, place) < LONGEST_GAP:
        return False
    equal: int = equal_bytes(data, position, data, place)
    if equal == WIDTH:
        equal += equal_bytes(data, position + WIDTH, data, place + WIDTH)
    return equal >= length


@compiled
def _object(data: Bytes, level: Level, row: int, names: Names, found: Fields, gaps: Gaps) -> bool:
    """Read one object; return whether all of it was unambiguous."""
    count = names.offsets.shape[0] - 1
    end = level.ends[row]
    position = _skip_space(data, level.starts[row], end)
    if position >= end or data[position] != OPEN_OBJECT:
        return False
    inner = _skip_space(data, position + 1, end)
    if inner < end and data[inner] == CLOSE_OBJECT:
        return True
    here, unknown = count, count
    while data[position] != CLOSE_OBJECT:
        if data[position] != COMMA and here != count:
            return False
        gap, length = position, gaps.lengths[here]
        if length and _is_repeated(data, position, end, gaps.places[here], length):
            field = gaps.fields[here]
            position += length
        else:
            position = _skip_space(data, position + 1, end)
            if position >= end or data[position] != QUOTE:
                return False
            field = _find_name(data, position + 1, end, names, here + 1)
            if field < count:
                position += 1 + names.offsets[field + 1] - names.offsets[field]
            else:
                name = position + 1
                position = _skip_plain_string(data, name, end)
                if position < 0 or position - name > MAX_NAME:
                    return False  # an escape may hide the name of a field
            position = _behind_colon(data, position, end)
            if position < 0:
                return False
            if position - gap <= LONGEST_GAP:
                gaps.places[here] = gap
                gaps.lengths[here] = position - gap
                gaps.fields[here] = field
        if field < count:
            here = field
        else:
            unknown = min(unknown + 1, gaps.lengths.shape[0] - 1)
            here = unknown
        value = _skip_space(data, position, end)
        position = _skip_value(data, value, end) if value < end else -1
        if position < 0:
            return False
        if field < count:
            if found.starts[field, row] != ABSENT:
                return False
            found.starts[field, row] = NULL if data[value] == LETTER_N else value
            found.ends[field, row] = position
        position = _skip_space(data, position, end)
        if position >= end:
            return False
    return True


@compiled
def objects(data: Bytes, level: Level, names: Names, found: Fields, gaps: Gaps, odd: Bytes) -> None:
    """Find the fields of all objects of a level; ``gaps`` is changed."""
    for row in range(level.starts.shape[0]):
        for field in range(found.starts.shape[0]):
            found.starts[field, row] = ABSENT
            found.ends[field, row] = ABSENT
        if level.starts[row] < 0 or odd[level.owners[row]]:
            continue
        if not _object(data, level, row, names, found, gaps):
            odd[level.owners[row]] = 1
            for field in range(found.starts.shape[0]):
                found.starts[field, row] = ABSENT


@compiled
def lists(data: Bytes, level: Level, offsets: Int32s, elements: Level, odd: Bytes) -> None:
    """Find the elements of all arrays of a level. ``offsets``, one more than arrays, delimit each array's."""
    count = 0
    for row in range(level.starts.shape[0]):
        offsets[row] = count
        position = level.starts[row]
        owner = level.owners[row]
        if position < 0 or odd[owner]:
            continue
        if data[position] != OPEN_LIST:
            odd[owner] = 1
            continue
        end = level.ends[row]
        position = _skip_space(data, position + 1, end)
        while data[position] != CLOSE_LIST:  # all was read once, so it ends correctly
            elements.starts[count] = NULL if data[position] == LETTER_N else position
            elements.owners[count] = owner
            position = _skip_value(data, position, end)
            elements.ends[count] = position
            count += 1
            position = _skip_space(data, position, end)
            if data[position] == COMMA:
                position = _skip_space(data, position + 1, end)
    offsets[level.starts.shape[0]] = count


@compiled
def maps(data: Bytes, level: Level, offsets: Int32s, keys: Level, values: Level, odd: Bytes) -> None:
    """Find the entries of all objects of a level that are read as maps; duplicate keys are kept."""
    count = 0
    for row in range(level.starts.shape[0]):
        offsets[row] = count
        position = level.starts[row]
        owner = level.owners[row]
        if position < 0 or odd[owner]:
            continue
        if data[position] != OPEN_OBJECT:
            odd[owner] = 1
            continue
        end = level.ends[row]
        position = _skip_space(data, position + 1, end)
        while data[position] != CLOSE_OBJECT:
            keys.starts[count] = position
            keys.owners[count] = owner
            values.owners[count] = owner
            position = _skip_string(data, position + 1, end)
            keys.ends[count] = position
            position = _behind_colon(data, position, end)
            values.starts[count] = NULL if data[position] == LETTER_N else position
            position = _skip_value(data, position, end)
            values.ends[count] = position
            count += 1
            position = _skip_space(data, position, end)
            if data[position] == COMMA:
                position = _skip_space(data, position + 1, end)
    offsets[level.starts.shape[0]] = count


@compiled
def check_utf8(data: Bytes, level: Level, odd: Bytes) -> None:
    """Mark the records that are not UTF-8, such as surrogates, overlong forms and numbers beyond Unicode."""
    for row in range(level.starts.shape[0]):
        start = level.starts[row]
        if start >= 0 and not is_utf8(data, start, level.ends[row]):
            odd[level.owners[row]] = 1
