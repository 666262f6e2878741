"""Log lines about batches: one for each slow batch, one for many fast ones."""

from __future__ import annotations

from collections import OrderedDict

from sparkonce.connectors.lag.state import MAX_QUERIES, QueryLag
from sparkonce.offset_store.record import BatchCounts
from sparkonce.words import counted

EVERY_S = 10.0
"""The minimal interval of a query's lines, except the one at its end."""
_UNITS = ("KiB", "MiB", "GiB", "TiB")


class BatchLines:
    """Decides when to log a line, and its text; all times in seconds of one clock."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._last: OrderedDict[str, tuple[float, QueryLag]] = OrderedDict()
        """By query: the time of its last line, and its state then."""

    def heard(self, query: QueryLag, now: float) -> str | None:
        """Return the line about the batches since the last one; None if there are none, or it is too early."""
        at, before = self._last.get(query.query_id, (None, None))
        too_early = at is not None and now - at < self._every_s
        if too_early or query.batches == (0 if before is None else before.batches):
            return None
        self._last[query.query_id] = now, query
        self._last.move_to_end(query.query_id)
        while len(self._last) > MAX_QUERIES:
            self._last.popitem(last=False)
        return f"{query.name}: {_numbers(query, before)}: {_amounts(query, before)}{_behind(query)}"

    def ended(self, query: QueryLag) -> str | None:
        """Return the line about all batches of a query that has ended; None if it had none."""
        self._last.pop(query.query_id, None)
        if not query.batches:
            return None
        how = "failed" if query.failed else "ended"
        return f"{query.name}: {how} after {counted(query.batches, 'batch')}: {_amounts(query, None)}{_behind(query)}"


def _numbers(query: QueryLag, before: QueryLag | None) -> str:
    first = query.batch_id - query.batches + (0 if before is None else before.batches) + 1
    return f"batch {query.batch_id}" if first == query.batch_id else f"batches {first} to {query.batch_id}"


def _amounts(query: QueryLag, before: QueryLag | None) -> str:
    """Return the amounts read and written since ``before``, or in total."""
    rows, counts = query.rows, query.counts
    batches, are_counted, took_ms = query.batches, query.counted_batches, query.duration_sum_ms
    if before is not None:
        rows, counts = rows - before.rows, counts - before.counts
        batches, are_counted = batches - before.batches, are_counted - before.counted_batches
        took_ms -= before.duration_sum_ms
    is_counted = batches == are_counted
    read = _size(counts.read_bytes) if is_counted and counts.read_bytes is not None else None
    rate = f"{1000 * rows / max(took_ms, 1):,.0f} records/s"
    text = f"{counted(rows, 'record')} {f'({read}) ' if read else ''}read in {took_ms / 1000:,.1f} s ({rate})"
    return f"{text}, {_written(counts)} written" if is_counted else text


def _written(counts: BatchCounts) -> str:
    rows = counted(counts.rows, "row")
    if counts.dead_letters:
        rows += f" and {counted(counts.dead_letters, 'dead letter')}"
    files = f" in {counted(counts.files, 'file')}" if counts.files else ""
    return f"{rows}{files} ({_size(counts.written_bytes)})"


def _behind(query: QueryLag) -> str:
    behind = query.offsets_behind_latest
    return "" if behind is None else f"; {behind:,} behind"


def _size(number: int) -> str:
    """Format a number of bytes: "512 B", "1.4 MiB"."""
    size, unit = float(number), "B"
    for larger in _UNITS:
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{number} B" if unit == "B" else f"{size:.1f} {unit}"
