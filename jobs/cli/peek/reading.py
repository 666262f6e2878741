"""The records to show: from the start of partitions, from their ends, or new ones; read as by the source."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.connectors.kafka_source.reading import read_range
from sparkonce.connectors.kafka_source.resolving import NO_MATCH
from sparkonce.connectors.values.options import HEADERS, KEY, OFFSET, RAW_TIMESTAMP, TIMESTAMP_TYPE, VALUE
from sparkonce.kafka.client.client import EARLIEST, LATEST, Client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.settings import for_command

COLUMNS = (KEY, VALUE, OFFSET, RAW_TIMESTAMP, TIMESTAMP_TYPE, HEADERS)
FETCH_BYTES = 256 << 10
"""The size of one fetch, by default: a few records are needed, not megabytes."""
FETCH = "kafka.max.partition.fetch.bytes"
POLL_S = 0.5
WIDEN = 8
"""The factor for reading more offsets if the last ones have fewer records than requested."""


class PeekError(ValueError):
    """A request that the topic cannot meet; the message says why."""


@dataclass(frozen=True, slots=True)
class FetchedRecord:
    """One record."""

    partition: int
    offset: int
    timestamp_ms: int
    """As Kafka stores it: any number."""
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Start:
    """An offset, or a number of offsets before the end; clamped to the log."""

    offset: int
    from_end: bool = False

    def within(self, first: int, last: int) -> int:
        """Return the offset in a log."""
        return min(max(last - self.offset if self.from_end else self.offset, first), last)


FIRST, LAST = Start(0), Start(0, from_end=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records of a topic to read."""

    partitions: tuple[int, ...] = ()
    """Empty for all."""
    start: Start | None = None
    from_ms: int | None = None
    until_ms: int | None = None


class TopicReader:
    """Reads one topic."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        keep: Callable[[Sequence[FetchedRecord]], Iterable[FetchedRecord]] = lambda records: records,
    ) -> None:
        """``kafka``: options with that prefix; only what ``keep`` returns counts. Raises OptionError."""
        given = {FETCH: str(FETCH_BYTES), **kafka, "failOnDataLoss": "false", "subscribe": topic}
        options = SourceOptions.read(given)
        self._options = replace(options, rows=replace(options.rows, columns=COLUMNS))
        self._topic, self._keep = topic, keep
        settings = for_command(self._options.settings)
        self._client, self._fetching = Client(settings), Client(settings)
        """While records are read it has a request in flight, so no other request may use its connections."""

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
        self._fetching.close()

    def bounds(self, wanted: Wanted) -> dict[int, tuple[int, int]]:
        """Return each partition's first offset, and the end. Raises PeekError if missing, or KafkaUnreachableError."""
        partitions = self._partitions(wanted.partitions)
        first, last = self._offsets(partitions, EARLIEST), self._offsets(partitions, LATEST)
        starts = first if wanted.from_ms is None else self._at(partitions, wanted.from_ms, last)
        ends = last if wanted.until_ms is None else self._at(partitions, wanted.until_ms, last)
        if wanted.start is not None:
            starts = {each: wanted.start.within(first[each], last[each]) for each in partitions}
        return {each: (max(starts[each], first[each]), ends[each]) for each in partitions}

    def first(
        self, bounds: Mapping[int, tuple[int, int]], count: int | None, key: bytes | None
    ) -> Iterator[FetchedRecord]:
        """Yield the first ``count`` records by time; for None all, one partition after the other."""
        every = (self.read(partition, *bounds[partition], key) for partition in sorted(bounds))
        if count is None:
            return chain.from_iterable(every)
        return iter(_in_order(chain.from_iterable(islice(each, count) for each in every), len(bounds))[:count])

    def last(self, bounds: Mapping[int, tuple[int, int]], count: int, key: bytes | None) -> list[FetchedRecord]:
        """Return the last ``count`` records by time."""
        found: list[FetchedRecord] = []
        for partition, (first, end) in sorted(bounds.items()):
            width, records = count, list[FetchedRecord]()
            while True:
                start = max(first, end - width)
                records = list(self.read(partition, start, end, key))
                if len(records) >= count or start == first:
                    break
                width *= WIDEN
            found += records[-count:]
        return _in_order(found, len(bounds))[-count:]

    def follow(
        self, positions: Mapping[int, tuple[int, int]], key: bytes | None, wait: Callable[[float], None] = time.sleep
    ) -> Iterator[list[FetchedRecord]]:
        """Yield existing and new records without end, from the first of each two offsets on."""
        at = {partition: start for partition, (start, _) in positions.items()}
        while True:
            ends = self._offsets(at, LATEST)
            arrived = [self.read(each, at[each], ends[each], key) for each in sorted(at) if at[each] < ends[each]]
            records = _in_order(chain.from_iterable(arrived), len(at))
            if records:
                yield records
            else:
                wait(POLL_S)
            at = {each: max(at[each], ends[each]) for each in at}

    def read(self, partition: int, start: int, end: int, key: bytes | None = None) -> Generator[FetchedRecord]:
        """Yield a partition's records in a range of offsets; with ``key``, only those with that key."""
        if start >= end:
            return
        topic_id = self._client.topics([self._topic])[self._topic].topic_id
        wanted = FetchRange(self._topic, topic_id, partition, start, end)
        for batch in read_range(self._options, wanted, client=self._fetching):
            if key is not None:
                batch = batch.filter(pc.fill_null(pc.equal(batch.column("key"), pa.scalar(key, pa.binary())), False))
            yield from self._keep(list(_records(batch, partition)))

    def _partitions(self, wanted: Collection[int]) -> list[int]:
        try:
            there = self._client.topics([self._topic])[self._topic].partitions
        except MissingTopicError:
            near = difflib.get_close_matches(self._topic, self._client.matching_topics(lambda _: True), 1)
            hint = f": did you mean {near[0]}?" if near else ", or this user may not describe it"
            raise PeekError(f"topic {self._topic} does not exist{hint}") from None
        missing = sorted(set(wanted) - set(there))
        if missing:
            raise PeekError(f"topic {self._topic} has no partition {missing[0]}: it has 0 to {max(there)}")
        return sorted(wanted or there)

    def _offsets(self, partitions: Collection[int], at: int) -> dict[int, int]:
        asked = {(self._topic, each): at for each in partitions}
        found = self._client.offsets(asked, self._client.topics([self._topic]))
        return {partition: offset for (_, partition), offset in found.items()}

    def _at(self, partitions: Collection[int], time_ms: int, last: Mapping[int, int]) -> dict[int, int]:
        found = self._offsets(partitions, time_ms)
        return {each: last[each] if offset == NO_MATCH else offset for each, offset in found.items()}


def _in_order(records: Iterator[FetchedRecord] | list[FetchedRecord], partitions: int) -> list[FetchedRecord]:
    """Sort by time; within a partition by offset, whatever the timestamps are."""
    if partitions == 1:
        return list(records)
    return sorted(records, key=lambda each: (each.timestamp_ms, each.partition, each.offset))


def _records(batch: pa.RecordBatch, partition: int) -> Iterator[FetchedRecord]:
    columns = {name: batch.column(name) for name in COLUMNS}
    for row in range(batch.num_rows):
        key, value, offset, timestamp, kind, headers = (columns[name][row].as_py() for name in COLUMNS)
        pairs = tuple((each["key"], each["value"]) for each in headers or ())
        yield FetchedRecord(partition, offset, timestamp, kind, key, value, pairs)
