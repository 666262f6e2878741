"""The readers of the format ``kafka_once``, one for batch queries and one for streams.

Spark has these objects in several Python processes: the one that checks the options, a long-lived one that plans a
stream's batches, and, pickled, every worker that reads. So a reader holds its options, and a planner only where it
was used to plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from connectors.kafka_once.checkpoint import ranges_between, read_offset, to_document
from connectors.kafka_once.group_commits import GroupCommitter
from connectors.kafka_once.options import FORMAT, SourceOptions
from connectors.kafka_once.planner import Offsets, Planner
from connectors.kafka_once.ranges import KafkaInputPartition
from connectors.options import OptionError
from exactly_once.crash_points import CrashPoint, reach
from offset_store.offsets import OffsetRange, SourceOffset, TopicPartition


class KafkaOnceReader(DataSourceReader):
    """Reads from one set of offsets to another, both fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._rules = options.for_batch()

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the brokers where to begin and end, and cut what lies between into tasks."""
        starting, ending = self._rules
        planner = Planner(self._options)
        try:
            partitions = planner.refresh()
            begin = planner.resolve("startingOffsets", starting, partitions)
            end = planner.resolve("endingOffsets", ending, partitions)
        finally:
            planner.close()
        wrong = [tp for tp in partitions if begin[tp] > end[tp]]
        if wrong:
            tp = wrong[0]
            raise OptionError(
                f"{FORMAT}: partition {tp} would begin at offset {begin[tp]}, behind its end at {end[tp]}: look at "
                "startingOffsets and endingOffsets"
            )
        return list(planner.tasks({tp: OffsetRange(begin[tp], end[tp]) for tp in partitions}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return _read(self._options, partition)


class KafkaOnceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream; every end offset carries where its checkpoint began (see `offset_store.offsets`)."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._starting = options.for_stream()
        self._planner: Planner | None = None
        self._committer: GroupCommitter | None = None
        self._pinned: Offsets | None = None
        self._latest: SourceOffset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the planner behind: workers read, and do not plan."""
        return {**self.__dict__, "_planner": None, "_committer": None, "_pinned": None, "_latest": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Give where a query without a checkpoint begins."""
        return to_document(self._plan().initial(self._starting))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Give the limit of maxOffsetsPerTrigger, if there is one."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now: the query reads up to here, and stops."""
        planner = self._plan()
        self._pinned = planner.ask(dict.fromkeys(planner.refresh(), -1))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Give the end of the batch that begins at ``start``; ``start`` itself if there is nothing to read."""
        planner = self._plan()
        partitions = planner.refresh()
        given = read_offset(start, self._options.source, planner.topics)
        self._commit_group(given, partitions)
        if self._pinned is not None:
            partitions = [tp for tp in partitions if tp in self._pinned or tp in given.positions]
        position = planner.adapt(given, partitions)
        latest = planner.latest(position)
        self._latest = planner.advance(position, latest, None)
        if self._pinned is not None:
            latest = {tp: min(offset, self._pinned.get(tp, offset)) for tp, offset in latest.items()}
        end = planner.advance(position, latest, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        if self._committer is not None:
            self._committer.settle()
        if end == given:
            return start
        reach(CrashPoint.SOURCE_PLANNED, app_id=self._options.app_id)
        return to_document(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Give the latest offsets that the last planning saw, for the query's progress."""
        return None if self._latest is None else to_document(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the batch between two offsets into tasks; a batch without records has none."""
        reach(CrashPoint.SOURCE_SPLIT, app_id=self._options.app_id)
        planner = self._plan()
        if not planner.topics:
            planner.refresh()
        ranges = ranges_between(start, end, self._options.source, planner.topics)
        return planner.tasks(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002
        """Keep nothing: offsets live in Spark's checkpoint and, with the rows, where the sink puts them."""
        reach(CrashPoint.SOURCE_FINISHED, app_id=self._options.app_id)

    def stop(self) -> None:
        """Close connections. PySpark 4.2 rather ends the process, so nothing may be left to do here."""
        if self._committer is not None:
            self._committer.close()
        if self._planner is not None:
            self._planner.close()

    def _commit_group(self, finished: SourceOffset, partitions: Sequence[TopicPartition]) -> None:
        """Have the start of the batch to plan committed to commitGroup: whatever leads to it is finished.

        Spark plans on from a batch only after its sink has committed, and looks again after the last one of a run with
        Trigger.AvailableNow, for which it never calls ``commit``. Before the first batch there is nothing to say.
        """
        group_id, positions = self._options.commit_group, finished.positions
        if group_id is None or all(position.next == position.origin for position in positions.values()):
            return
        if self._committer is None:
            self._committer = GroupCommitter(self._options.settings, group_id)
        here = [tp for tp in partitions if tp in positions]
        self._committer.offer({(tp.topic, tp.partition): positions[tp].next for tp in here})

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark plans one empty task where a batch query has none. The decoder's compiler is loaded in workers only.
    if not isinstance(partition, KafkaInputPartition):
        return iter(())
    from connectors.kafka_once.reading import read_range

    return chain.from_iterable(read_range(options, wanted) for wanted in partition.wanted)
