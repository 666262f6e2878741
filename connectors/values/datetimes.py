"""Dates and timestamps in text, as Spark reads them: without a pattern as CAST does, or by a pattern.

Without a pattern: SparkDateTimeUtils.stringToDate and stringToTimestamp, and JacksonParser's older forms after them.
With one: DateTimeFormatter's patterns, strict, as far as `check_pattern` takes them. Results are days and microseconds
since 1970 in the proleptic Gregorian calendar, which reaches further than Python's own dates do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from sparkonce.connectors.values.zones import SECONDS_PER_DAY, Zone, offset_at, parse_zone

MICROS_PER_SECOND = 1_000_000
MAX_INT64 = (1 << 63) - 1
_MIN_DAYS, _MAX_DAYS = -(1 << 31), (1 << 31) - 1
"""The range of Spark's and Arrow's dates; the patterns accept years beyond it."""
_GREGORIAN_START_DAYS = -141_427
"""1582-10-15; before it, days of Spark before 3.0 are of the Julian calendar."""

# UTF8String trims ASCII white space and control characters.
_TRIMMED = "".join(map(chr, range(0x21))) + "\x7f"

_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*|(?<=\d)\..*)?)?)?"
_TIMESTAMP = re.compile(r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T]" + _TIME + ")?)?)?", re.ASCII | re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d+")


def cast_date(text: str) -> int:
    """Return the days since 1970. Raises ValueError if it is not a date."""
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return _older_date(text)
    sign, year, month, day = found.groups()
    return _date(int(sign + year), int(month or 1), int(day or 1))


def _date(year: int, month: int, day: int) -> int:
    days = days_of(year, month, day)
    if not _MIN_DAYS <= days <= _MAX_DAYS:
        raise ValueError("it is out of the range of dates")
    return days


def _older_date(text: str) -> int:
    """Read the fallback forms of JacksonParser: a date with GMT in it, or the number of days as text."""
    without = text.replace("GMT", "")
    if without != text and _DATE.fullmatch(without.strip(_TRIMMED)):
        return cast_date(without)
    if not _INTEGER.fullmatch(text) or not has_java_digits(text) or not _MIN_DAYS <= int(text) <= _MAX_DAYS:
        raise ValueError("it is not a date")
    days = int(text)
    return days if days >= _GREGORIAN_START_DAYS else days_of(*_julian(days))


def has_java_digits(number: str) -> bool:
    """Return whether Java reads the digits of a number, which may be of any script, but not beyond U+FFFF."""
    return number.isascii() or max(number) <= "\uffff"


def cast_timestamp(text: str, zone: Zone) -> int:
    """Return the microseconds since 1970; ``zone`` is that of texts without one.

    A time without a date is rejected: Spark would use the day on which it is read.

    Raises:
        ValueError: if it is not a timestamp.
    """
    try:
        return _timestamp(text, zone, zoned=True)
    except ValueError:
        without = text.replace("GMT", "")
        if without == text:
            raise
        return _timestamp(without, zone, zoned=True)


def cast_timestamp_ntz(text: str) -> int:
    """Return the microseconds since 1970 of a timestamp that names no zone. Raises ValueError if it is none."""
    return _timestamp(text, 0, zoned=False)


def _timestamp(text: str, zone: Zone, zoned: bool) -> int:
    found = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    if found is None:
        raise ValueError("it is not a timestamp")
    sign, year, month, day, hour, minute, second, fraction, zone_name = found.groups()
    if zone_name is not None:
        if not zoned:
            raise ValueError("it names a time zone")
        zone = parse_zone(zone_name.strip(_TRIMMED[:0x21]))
    micros = int((fraction or "")[:6].ljust(6, "0"))
    return _micros(
        (int(sign + year), int(month or 1), int(day or 1)),
        (int(hour or 0), int(minute or 0), int(second or 0), micros),
        zone,
    )


def _micros(date: tuple[int, int, int], time: tuple[int, int, int, int], zone: Zone) -> int:
    days = days_of(*date)
    hour, minute, second, micros = time
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("there is no such time of the day")
    of_day = hour * 3600 + minute * 60 + second
    seconds = days * SECONDS_PER_DAY + of_day - offset_at(zone, *date, of_day)
    result = seconds * MICROS_PER_SECOND + micros
    if not -MAX_INT64 - 1 <= result <= MAX_INT64:
        raise ValueError("it is out of the range of timestamps")
    return result


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date. Raises ValueError if there is no such date."""
    if not 1 <= month <= 12 or not 1 <= day <= _days_in(year, month):
        raise ValueError("there is no such date")
    shifted = year - (month <= 2)  # years that begin in March end with the leap day
    era, of_era = divmod(shifted, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _julian(days: int) -> tuple[int, int, int]:
    """Return the date in the Julian calendar."""
    shifted = days + 719_470  # days since 0000-03-01 of that calendar
    cycle, of_cycle = divmod(shifted, 1461)
    of_era = min(of_cycle // 365, 3)
    of_year = of_cycle - 365 * of_era
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    return 4 * cycle + of_era + (month <= 2), month, day


Parts = dict[str, str]
_LETTERS = {
    "yyyy": r"(?P<year>\d{4}|-\d{4,9}|\+\d{5,9})",
    "yy": r"(?P<short>\d\d)",
    "y": r"(?P<year>-?\d{1,9})",
    "MM": r"(?P<month>\d\d)",
    "M": r"(?P<month>\d{1,9})",
    "dd": r"(?P<day>\d\d)",
    "d": r"(?P<day>\d{1,9})",
    "HH": r"(?P<hour>\d\d)",
    "H": r"(?P<hour>\d{1,9})",
    "mm": r"(?P<minute>\d\d)",
    "m": r"(?P<minute>\d{1,9})",
    "ss": r"(?P<second>\d\d)",
    "s": r"(?P<second>\d{1,9})",
    "X": r"(?P<zone>Z|[+-]\d\d(?:\d\d)?)",
    "XX": r"(?P<zone>Z|[+-]\d{4})",
    "XXX": r"(?P<zone>Z|[+-]\d\d:\d\d)",
    "x": r"(?P<zone>[+-]\d\d(?:\d\d)?)",
    "xx": r"(?P<zone>[+-]\d{4})",
    "xxx": r"(?P<zone>[+-]\d\d:\d\d)",
    "Z": r"(?P<zone>[+-]\d{4})",
}
_PIECE = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<other>.)", re.DOTALL)
_RESERVED = "{}#"


def check_pattern(text: str) -> str:
    """Return the pattern, if it is supported. Raises ValueError naming the unsupported part."""
    _pattern(text)
    return text


def check_zone(text: str) -> str:
    """Return the name of a time zone, if there is one. Raises ValueError if there is none."""
    parse_zone(text)
    return text


@lru_cache(maxsize=64)
def _pattern(text: str) -> re.Pattern[str]:
    made, depth, seen = "", 0, set()
    for piece in _PIECE.finditer(text):
        letters, quoted, other = piece["letters"], piece["quoted"], piece["other"]
        if letters is not None:
            kind = letters.replace("u", "y")
            fraction = len(letters) if letters[0] == "S" else 0
            if not 0 <= fraction <= 9 or not (fraction or kind in _LETTERS):
                raise ValueError(f"{letters} is not one of yyyy, yy, y, M, MM, d, dd, H, HH, m, mm, s, ss, S…, X, x, Z")
            group = f"(?P<fraction>\\d{{1,{fraction}}})" if fraction else _LETTERS[kind]
            name = group[4 : group.index(">")]
            if name in seen:
                raise ValueError(f"{letters} is there twice")
            seen.add(name)
            made += group
        elif other == "[":
            made, depth = made + "(?:", depth + 1
        elif other == "]" and depth:
            made, depth = made + ")?", depth - 1
        elif other is not None and (other in _RESERVED or other == "]" or other == "'"):
            raise ValueError(f"{other} is not allowed there")
        else:
            made += re.escape(other if other is not None else (quoted.replace("''", "'") or "'"))
    if depth:
        raise ValueError("a [ is not closed")
    return re.compile(made, re.ASCII | re.IGNORECASE)


def pattern_date(pattern: str) -> Callable[[str], int]:
    """Return the function that reads days since 1970 by a pattern."""
    expression = _pattern(pattern)
    return lambda text: _date(*_date_of(_match(expression, text)))


def pattern_timestamp(pattern: str, zone: Zone) -> Callable[[str], int]:
    """Return the function that reads microseconds since 1970 by a pattern."""
    expression = _pattern(pattern)

    def read(text: str) -> int:
        parts = _match(expression, text)
        return _micros(_date_of(parts), _time_of(parts), parse_zone(parts["zone"].upper()) if "zone" in parts else zone)

    return read


def pattern_timestamp_ntz(pattern: str) -> Callable[[str], int]:
    """Return the function that reads microseconds since 1970 by a pattern, of texts that name no zone."""
    expression = _pattern(pattern)

    def read(text: str) -> int:
        parts = _match(expression, text)
        if "zone" in parts:
            raise ValueError("it names a time zone")
        return _micros(_date_of(parts), _time_of(parts), 0)

    return read


def _match(expression: re.Pattern[str], text: str) -> Parts:
    found = expression.fullmatch(text)
    if found is None:
        raise ValueError("it does not have the form of the pattern")
    return {name: part for name, part in found.groupdict().items() if part is not None}


def _date_of(parts: Parts) -> tuple[int, int, int]:
    year = 2000 + int(parts["short"]) if "short" in parts else int(parts.get("year", "1970"))
    return year, int(parts.get("month", "1")), int(parts.get("day", "1"))


def _time_of(parts: Parts) -> tuple[int, int, int, int]:
    fraction = parts.get("fraction", "")[:6].ljust(6, "0")
    return int(parts.get("hour", "0")), int(parts.get("minute", "0")), int(parts.get("second", "0")), int(fraction)
