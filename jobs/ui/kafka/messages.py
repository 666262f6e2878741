"""Records of a topic, a page at a time: forward and backward from any position, by key or text.

Within a partition the order is that of offsets, between partitions that of timestamps; so a page ends at an
offset in each partition, from which the next page continues. A search reads a limited part of the topic at a time,
and reports its progress.
"""

from __future__ import annotations

import heapq
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from sparkonce.jobs.cli.peek.decoding import Decoded, Decoder
from sparkonce.jobs.cli.peek.reading import FetchedRecord, TopicReader, Wanted
from sparkonce.jobs.cli.peek.showing import has_text

BUDGET_S = 1.5
"""The time limit of one page."""
FIRST_CHUNK, CHUNK = 100, 2000
"""Offsets searched between two checks of the clock, initially and at most: the records may be large."""
MAX_BYTES = 32 << 20
"""The maximal size of one page's records, over all partitions: it has fewer records if they are large."""
WIDEN = 2
"""The growth factor of reads, while there are too few records: so the last
read of a page takes about as long as all before it."""

Bounds = Mapping[int, tuple[int, int]]
Positions = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Screen:
    """Records, and their end offset in each partition."""

    records: Sequence[Decoded]
    """In order."""
    before: Positions
    """The first offset read in each partition."""
    after: Positions
    """The offset after the last one read."""
    is_whole: bool
    """False if the time limit was reached."""
    looked_at: int
    """The number of offsets read."""


@dataclass(frozen=True, slots=True)
class Search:
    """Conditions on records; None for no condition."""

    key: bytes | None = None
    text: str | None = None
    """A part of the key or the value, as shown."""

    @property
    def is_any(self) -> bool:
        """Whether every record matches."""
        return self.key is None and self.text is None


@dataclass(frozen=True, slots=True)
class _Part:
    """One partition's records for a page."""

    records: Sequence[FetchedRecord]
    """In search order: forward, or backward."""
    at: int
    """The offset at which the search continues."""
    is_whole: bool
    """False if the time limit was reached."""


class Messages:
    """Reads pages of one topic."""

    def __init__(self, reader: TopicReader, decoder: Decoder, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader, self._decoder, self._clock = reader, decoder, clock

    def bounds(self, wanted: Wanted) -> dict[int, tuple[int, int]]:
        """Return the range of each requested partition: `TopicReader.bounds`."""
        return self._reader.bounds(wanted)

    def forward(self, bounds: Bounds, count: int, search: Search) -> Screen:
        """Return the first records."""
        return self._screen(bounds, count, search, forward=True)

    def backward(self, bounds: Bounds, count: int, search: Search) -> Screen:
        """Return the last records."""
        return self._screen(bounds, count, search, forward=False)

    def _screen(self, bounds: Bounds, count: int, search: Search, *, forward: bool) -> Screen:
        if not search.is_any:
            return self._searched(bounds, count, search, forward=forward)
        share, deadline = MAX_BYTES // max(len(bounds), 1), self._clock() + BUDGET_S
        parts = {
            partition: self._part(partition, extent, count, share, deadline, forward=forward)
            for partition, extent in bounds.items()
        }
        found = heapq.merge(*(part.records for part in parts.values()), key=_time, reverse=not forward)
        records = list(islice(found, count))
        start = {partition: extent[0 if forward else 1] for partition, extent in bounds.items()}
        at = start | {partition: part.at for partition, part in parts.items() if not part.records}
        at |= {each.partition: each.offset + forward for each in records}
        before, after = (start, at) if forward else (at, start)
        looked_at = sum(abs(part.at - start[partition]) for partition, part in parts.items())
        is_whole = all(part.is_whole for part in parts.values())
        return Screen(self._decoder.decode(records if forward else records[::-1]), before, after, is_whole, looked_at)

    def _part(
        self, partition: int, extent: tuple[int, int], count: int, most_bytes: int, deadline: float, *, forward: bool
    ) -> _Part:
        """Read the first or last records of a partition. If few offsets have a record, it stops at the deadline."""
        (at, end), found, width = extent if forward else extent[::-1], list[FetchedRecord](), count
        while at != end and not (found and (len(found) >= count or most_bytes <= 0)):
            if width > count and self._clock() > deadline:
                return _Part(found, at, is_whole=False)
            chunk = _chunk(at, extent, width, forward)
            with closing(self._reader.read(partition, *chunk)) as records:
                take = _limited if forward else _last
                more = list(take(records, count - len(found), most_bytes))
            found += more
            most_bytes -= sum(map(_size, more))
            at, width = chunk[forward], width * WIDEN
        return _Part(found, at, is_whole=True)

    def _searched(self, bounds: Bounds, count: int, search: Search, *, forward: bool) -> Screen:
        """Search all partitions in turns, until there are enough records or the time limit is reached."""
        start = {partition: extent[0 if forward else 1] for partition, extent in bounds.items()}
        at, found, deadline = dict(start), list[Decoded](), self._clock() + BUDGET_S
        width = FIRST_CHUNK
        while len(found) < count and self._clock() < deadline:
            left = [each for each in sorted(bounds) if at[each] != bounds[each][1 if forward else 0]]
            if not left:
                break
            for partition in left:
                begin, end = _chunk(at[partition], bounds[partition], width, forward)
                matching = self._matching(partition, begin, end, search)
                missing = count - len(found)
                taken = list(islice(matching, missing) if forward else reversed(deque(matching, missing)))
                found += taken
                if len(found) >= count:  # the chunk may have more
                    at[partition] = taken[-1].record.offset + forward
                    break
                at[partition] = end if forward else begin
                if self._clock() > deadline:
                    break
            width = min(2 * width, CHUNK)
        whole = all(at[each] == bounds[each][1 if forward else 0] for each in bounds)
        looked_at = sum(abs(at[each] - start[each]) for each in bounds)
        by_partition: dict[int, list[Decoded]] = defaultdict(list)
        for each in found if forward else reversed(found):
            by_partition[each.record.partition].append(each)
        records = list(heapq.merge(*by_partition.values(), key=lambda each: _time(each.record)))
        before, after = (start, at) if forward else (at, start)
        return Screen(records, before, after, whole or len(found) >= count, looked_at)

    def _matching(self, partition: int, begin: int, end: int, search: Search) -> Iterator[Decoded]:
        records = self._reader.read(partition, begin, end, search.key)
        while part := list(_limited(records, CHUNK, MAX_BYTES)):
            for each in self._decoder.decode(part):
                if search.text is None or has_text(each, search.text):
                    yield each


def _limited(records: Iterable[FetchedRecord], count: int, most_bytes: int) -> Iterator[FetchedRecord]:
    """Yield the first records, at least one and otherwise within these limits."""
    for each in islice(records, count):
        yield each
        most_bytes -= _size(each)
        if most_bytes <= 0:
            return


def _last(records: Iterable[FetchedRecord], count: int, most_bytes: int) -> Iterator[FetchedRecord]:
    """Yield the last records, the last one first, at least one and otherwise within these limits."""
    kept, size = deque[FetchedRecord](), 0
    for each in records:
        kept.append(each)
        size += _size(each)
        while len(kept) > 1 and (len(kept) > count or size > most_bytes):
            size -= _size(kept.popleft())
    yield from reversed(kept)


def _size(record: FetchedRecord) -> int:
    headers = sum(len(key) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _chunk(at: int, extent: tuple[int, int], width: int, forward: bool) -> tuple[int, int]:
    first, end = extent
    return (at, min(at + width, end)) if forward else (max(at - width, first), at)


def _time(record: FetchedRecord) -> int:
    return record.timestamp_ms


def positions_text(positions: Positions) -> str:
    """Format positions for an address."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def read_positions(text: str) -> dict[int, int] | None:
    """Parse the result of `positions_text`; None for anything else."""
    found = {}
    for each in text.split(","):
        partition, colon, offset = each.partition(":")
        if not (colon and partition.isdecimal() and offset.isdecimal()):
            return None
        found[int(partition)] = int(offset)
    return found
