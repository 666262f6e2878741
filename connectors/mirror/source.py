"""A direct query that copies: its tasks pass record batches from the source to the sink as they were fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkonce.connectors.direct.source import DirectReading, DirectSource
from sparkonce.connectors.kafka_source.ranges import ReadCount
from sparkonce.exactly_once.coverage import Part
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.protocol.compression import Compression

if TYPE_CHECKING:
    from sparkonce.connectors.kafka_source.decode import FetchedBatches
    from sparkonce.connectors.mirror.copying import BatchCopier


@dataclass(frozen=True, slots=True)
class MirrorSource:
    """A `connectors.sinks.range_reader.RangeReader` whose rows are `FetchedBatches`."""

    source: DirectSource

    @property
    def rules(self) -> None:
        """See `RangeReader.rules`: records are copied unchanged."""
        return

    def with_rules(self, rules: str) -> None:  # noqa: ARG002
        """See `RangeReader.with_rules`."""
        return

    def open(self, handed_over: Iterable[pa.RecordBatch]) -> MirrorReading:
        """Return the ranges that Spark has passed to a task. Raises HandOverError for a row that is none of ours."""
        return MirrorReading(self.source.open(handed_over))


@dataclass(frozen=True, slots=True)
class MirrorReading:
    """The ranges of one task; a `connectors.sinks.range_reader.Reading`."""

    reading: DirectReading

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the task is to read, in order."""
        return self.reading.parts

    @property
    def count(self) -> ReadCount:
        """What was read so far."""
        return self.reading.count

    def rows(self) -> Iterator[FetchedBatches]:
        """Yield the record batches of the ranges; raises as `connectors.kafka_source.reading.read_range`."""
        from sparkonce.connectors.kafka_source.reading import read_ranges_whole  # loads the compiler: only in workers

        return read_ranges_whole(self.reading.options, self.reading.wanted, self.reading.count)


@dataclass(frozen=True, slots=True)
class MirrorLayout:
    """How fetched batches become those of the target; a `connectors.kafka_sink.tasks.Layout`."""

    topic: str | None
    """None: records keep the name of their topic."""
    keep_partitions: bool
    codec: Compression | None
    """None: batches keep their codec."""

    def encoder(
        self, partition_count: Callable[[str, int | None], int], settings: ProducerSettings, start: int
    ) -> BatchCopier:
        """Return what makes the batches of one task."""
        from sparkonce.connectors.mirror.copying import BatchCopier  # loads the compiler: only in workers

        return BatchCopier(
            self.topic,
            keep_partitions=self.keep_partitions,
            codec=self.codec,
            partition_count=partition_count,
            settings=settings,
            start=start,
        )
