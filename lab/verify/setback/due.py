"""The expected rows, computed from the records' numbers only, and not from anything that a query wrote.

Record ``n`` has the event time `at_s(n)`; records come in the order of their numbers and none is late. A row is a key
and a value; the rows of a correct result have different keys.
"""

from __future__ import annotations

from collections import Counter

from lab.verify.setback.cells import Query

BEGIN_S = 1_000_000
STEP_S = 3
"""Event time between two records."""
WINDOW_S = 10
JOIN_WITHIN_S = 5
"""The time limit of a left row's match; no watermark equals that limit, since all are multiples of 3."""
KEYS = 3
"""Keys of arbitrary state."""
LINES = 2
"""Lines of each file."""
REPEATED_AFTER = 4
"""A repeated record equals the one this many before it: never in the same batch."""

Row = tuple[str, str]


def at_s(number: int) -> int:
    """Return the event time of a record."""
    return BEGIN_S + STEP_S * number


def is_repeated(number: int) -> bool:
    """Whether a record repeats an earlier one."""
    return number % 3 == 2 and number >= REPEATED_AFTER


def has_match(pair: int) -> bool:
    """Whether the left row of a pair (records ``2 * pair`` and the next) has a match."""
    return pair % 3 != 0


def due(query: Query, records: int, files: int) -> set[Row]:
    """Return all expected rows after these records and files, when the query has nothing left to do."""
    of_files = {(f"file {number}-{line}", "") for number in range(files) for line in range(LINES)}
    if query is Query.FILES:
        return of_files
    if query is Query.UNION:
        return of_files | _each_record(records)
    return {
        Query.STATELESS: _each_record,
        Query.WINDOW: _closed_windows,
        Query.WINDOW_UPDATE: _windows,
        Query.DEDUPLICATED: _without_repeated,
        Query.JOIN: _joined,
        Query.STATE: _numbered,
    }[query](records)


def _each_record(records: int) -> set[Row]:
    return {(f"record {number}", "") for number in range(records)}


def _without_repeated(records: int) -> set[Row]:
    return {(f"record {number}", "") for number in range(records) if not is_repeated(number)}


def _windows(records: int) -> set[Row]:
    counts = Counter(at_s(number) // WINDOW_S * WINDOW_S for number in range(records))
    return {(f"window {begin}", str(count)) for begin, count in counts.items()}


def _closed_windows(records: int) -> set[Row]:
    watermark_s = at_s(records - 1)
    return {row for row in _windows(records) if int(row[0].split()[1]) + WINDOW_S <= watermark_s}


def _joined(records: int) -> set[Row]:
    pairs = range(records // 2)
    left_s = at_s(2 * pairs[-1])
    right_s = max(at_s(2 * pair + 1) for pair in pairs if has_match(pair))
    watermark_s = min(left_s, right_s)
    matched = {(f"pair {pair}", "match") for pair in pairs if has_match(pair)}
    alone = (pair for pair in pairs if not has_match(pair))
    return matched | {(f"pair {pair}", "alone") for pair in alone if at_s(2 * pair) + JOIN_WITHIN_S < watermark_s}


def _numbered(records: int) -> set[Row]:
    counts = Counter(number % KEYS for number in range(records))
    return {(f"key {key} number {ordinal}", "") for key, count in counts.items() for ordinal in range(1, count + 1)}
