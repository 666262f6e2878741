"""Time zones by Java's names, and their offsets at a local time.

Follows ``ZoneId.of`` with its short names: offsets (``+2``, ``+02:00``, ``-0530``), ``UTC+1`` and such, and regions.
Where clocks were set forward or back, a local time is interpreted as in Java: with the offset before the change.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

SECONDS_PER_DAY = 86_400
MAX_OFFSET_S = 18 * 3600

# java.time.ZoneId.SHORT_IDS
_SHORT = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
}
_OFFSET = re.compile(r"([+-])(\d\d?)(?:(?::(\d\d)(?::(\d\d))?)|(\d\d)(\d\d)?)?", re.ASCII)
_ONE_DIGIT_HOUR = re.compile(r"([+-])(\d):", re.ASCII)
_ONE_DIGIT_MINUTE = re.compile(r"([+-])(\d\d):(\d)$", re.ASCII)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+", re.ASCII)
_NOT_JAVAS = ("posix/", "right/", "posixrules", "localtime")
"""Other entries of the system's folder of zones; some differ between machines."""
_SHOWN_CHARACTERS = 60
_CIVIL_CYCLE_YEARS = 400
"""The period of the calendar in years, weekdays included."""

Zone = int | tzinfo
"""Seconds east of Greenwich, or a region."""


@lru_cache(maxsize=1024)
def parse_zone(name: str) -> Zone:
    """Return the zone of a name. Raises ValueError if there is none."""
    name = _ONE_DIGIT_HOUR.sub(r"\g<1>0\2:", name, count=1)
    name = _ONE_DIGIT_MINUTE.sub(r"\1\2:0\3", name)
    name = _SHORT.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return 0
    for prefix in ("UTC", "GMT", "UT", ""):
        if name.startswith((prefix + "+", prefix + "-")):
            return _offset(name[len(prefix) :])
    if not _REGION.fullmatch(name) or name.startswith(_NOT_JAVAS):
        raise _unknown(name)
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        raise _unknown(name) from None


def _unknown(name: str) -> ValueError:
    shown = name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "…"
    return ValueError(f"there is no time zone {shown!r}")


def _offset(text: str) -> int:
    found = _OFFSET.fullmatch(text)
    if found is None or (len(found[2]) == 1 and len(text) > 2):
        raise _unknown(text)
    hours, minutes, seconds = int(found[2]), int(found[3] or found[5] or 0), int(found[4] or found[6] or 0)
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > MAX_OFFSET_S:
        raise _unknown(text)
    return -total if found[1] == "-" else total


def offset_at(zone: Zone, year: int, month: int, day: int, second_of_day: int) -> int:
    """Return the seconds that a local time is ahead of UTC."""
    if isinstance(zone, int):
        return zone
    if year > 9998:
        year = 9600 - _CIVIL_CYCLE_YEARS + year % _CIVIL_CYCLE_YEARS
    local = datetime(max(year, 1), month, day if year >= 1 else min(day, 28)) + timedelta(seconds=second_of_day)
    offset = zone.utcoffset(local)
    assert offset is not None
    return int(offset.total_seconds())
