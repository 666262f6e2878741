"""The readers of the format ``kafka_once``, one for batch queries and one for streams.

Spark has these objects in several Python processes: the one that checks the options, a long-lived one that plans a
stream's batches, and, pickled, every worker that reads. So a reader holds its options, and a planner only where it has
planned.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparkonce.connectors.kafka_source.ahead import STOP_S, Ahead
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.connectors.kafka_source.group_commits import GroupCommitter
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.options import FORMAT, SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner, SettledGroup
from sparkonce.connectors.kafka_source.planning import TopicDelays, TriggerDelay
from sparkonce.connectors.kafka_source.ranges import KafkaInputPartition, ReadCount
from sparkonce.connectors.kafka_source.resolving import Offsets, leave_open
from sparkonce.connectors.telemetry.plans import PlanNotes
from sparkonce.connectors.telemetry.spans import Interval
from sparkonce.connectors.telemetry.switches import traces_are_on
from sparkonce.connectors.telemetry.tasks import of_records, trace_of_task, traced_rows
from sparkonce.crash_points import reach
from sparkonce.kafka.client.client import LATEST
from sparkonce.offset_store.offsets import OffsetRange, SourceOffset, TopicPartition
from sparkonce.options import OptionError
from sparkonce.shipping import Shipped


class KafkaOnceReader(DataSourceReader, metaclass=Shipped):
    """Reads from one set of offsets to another; ``earliest`` and ``latest`` are resolved when it reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._rules = options.for_batch()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks between the starting and the ending offsets, which are requested from the brokers."""
        starting, ending = self._rules
        planner = _planner(self._options)
        try:
            partitions = planner.refresh()
            begin = planner.resolve(starting, partitions)
            end = planner.resolve(ending, partitions)
        finally:
            planner.close()
        wrong = [tp for tp in partitions if begin[tp] > end[tp]]
        if wrong:
            tp = wrong[0]
            raise OptionError(
                f"{FORMAT}: the resolved start offset {begin[tp]} is greater than the resolved end offset {end[tp]} "
                f"for topic {tp.topic} partition {tp.partition}: check {starting.option} and {ending.option}"
            )
        ranges = {tp: OffsetRange(begin[tp], end[tp]) for tp in partitions}
        return leave_open(planner.tasks(ranges), ranges, starting, ending)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task."""
        return _read(self._options, partition)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The end of a batch, and the state when it was planned."""

    end: SourceOffset | None
    """None if there is nothing to read."""
    latest: SourceOffset
    start: SourceOffset
    partitions: Sequence[TopicPartition]
    """Those that the query reads."""

    @property
    def goes_back(self) -> bool:
        """Whether it begins before earlier reads, as a log was truncated."""
        before = self.start.positions
        after = {} if self.end is None else self.end.positions
        return any(after[tp].next < before[tp].next for tp in before if tp in after)


class KafkaOnceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow, metaclass=Shipped):
    """Reads a stream; every end offset carries where its checkpoint began (see `offset_store.offsets`)."""

    def __init__(
        self, options: SourceOptions, hand_over: HandOver | None = None, settled_group: SettledGroup | None = None
    ) -> None:
        """Read records, or with ``hand_over`` only return the ranges in which they are; for the rest see `Planner`."""
        self._options = options
        self._hand_over = hand_over
        self._settled_group = settled_group
        self._starting = options.for_stream()
        self._planner: Planner | None = None
        self._committer: GroupCommitter | None = None
        self._pinned: Offsets | None = None
        self._latest: SourceOffset | None = None
        self._limit: ReadLimit | None = None
        self._ahead: Ahead[_Planned] | None = None
        self._planned_from_ns: int | None = None
        self._notes: PlanNotes | None = None
        self._delay: TriggerDelay | None = None
        if options.min_offsets_per_trigger is not None:
            self._delay = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._topic_delays: TopicDelays | None = None
        if options.min_offsets_per_topic is not None:
            self._topic_delays = TopicDelays(options.min_offsets_per_topic, options.max_trigger_delay_ms)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the planner: workers only read."""
        own = ("_planner", "_committer", "_pinned", "_latest", "_limit", "_ahead", "_notes", "_planned_from_ns")
        return {**self.__dict__, **dict.fromkeys(own)}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the starting offsets of a query without a checkpoint."""
        return self._plan().initial(self._starting).to_document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of maxOffsetsPerTrigger, or else of minOffsetsPerTrigger or minOffsetsPerTopic, if any.

        PySpark has no composite limit. Trigger.Once ignores this and requests all that is available.
        """
        most = self._options.max_offsets_per_trigger
        least = self._options.min_offsets_per_trigger or self._options.min_offsets_per_topic
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the latest offsets: the query reads up to these, and stops."""
        planner, until = self._plan(), self._options.until_offsets
        pinned = planner.while_topics_stay(
            lambda: dict(planner.ask(dict.fromkeys(planner.refresh(lenient=True), LATEST)))
        )
        if until is not None:
            planner.check_until(until)
            pinned |= {tp: min(pinned[tp], at.next) for tp, at in until.positions.items() if tp in pinned}
        self._pinned = pinned

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the batch that begins at ``start``; ``start`` itself if there is nothing to read."""
        self._limit, self._planned_from_ns = limit, time.time_ns()
        if self._options.until_offsets is not None and self._pinned is None:
            raise OptionError(f"{FORMAT}: option untilOffsets is for Trigger.AvailableNow: set that, or leave it out")
        planned = self._ahead.result((start, limit)) if self._ahead is not None else None
        self._ahead = None
        planned = planned or self._planned(self._plan(), start, limit)
        self._latest = planned.latest
        self._commit_group(planned.start, planned.partitions)
        if planned.end is None:
            if self._pinned is not None:
                self._plan().tables.check_read()
            # Spark may end this process now, as after the last batch of Trigger.AvailableNow.
            if self._committer is not None:
                self._committer.settle_once()
            return start
        reach(SourcePoint.PLANNED, app_id=self._options.app_id)
        return self._plan().note(planned.end)

    def _planned(self, planner: Planner, start: dict[str, Any], limit: ReadLimit) -> _Planned:
        return planner.while_topics_stay(lambda: self._end_of_batch(planner, start, limit))

    def _planned_ahead(self, planner: Planner, start: dict[str, Any], limit: ReadLimit) -> _Planned | None:
        """Return the plan, unless it goes back: running tasks may find that the log diverges elsewhere.

        Records that they then read would be read twice. Planned after them, it begins behind that.
        """
        planned = self._planned(planner, start, limit)
        return None if planned.goes_back else planned

    def _end_of_batch(self, planner: Planner, start: dict[str, Any], limit: ReadLimit) -> _Planned:
        given, partitions = planner.survey(start)
        if self._pinned is not None:
            partitions = [tp for tp in partitions if tp in self._pinned or tp in given.offset.positions]
        elif self._options.isolate_tables:
            partitions = planner.with_leaders(partitions, given.offset.positions)
        position = planner.adapt(given.offset, partitions)
        waits_for_leaders = self._pinned is not None or not self._options.isolate_tables
        latest = planner.latest(position, waits_for_leaders=waits_for_leaders)
        if self._pinned is not None:
            # A partition that was missing then ends where it is first seen: otherwise it would be read forever.
            self._pinned = {tp: latest[tp] for tp in planner.visible(position)} | self._pinned
        newest = planner.advance(position, latest, None)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        to_read = self._without_waiting(position, latest, limit)
        if self._options.isolate_tables:
            to_read = planner.without_those_behind(position, to_read, waits_for_leaders=waits_for_leaders)
        is_all = to_read is latest and most is None and self._pinned is None
        end = newest if is_all else planner.advance(position, to_read, most, self._pinned)
        # Without any topic left, the previous position is kept, as in Spark's connector (SPARK-41375).
        is_empty = self._holds_back(position, to_read, limit) or end == given.offset or not end.positions
        reached = None if is_empty else planner.with_epochs(given.offset, end)
        return _Planned(reached, newest, given.offset, partitions)

    def _without_waiting(self, position: SourceOffset, latest: Offsets, limit: ReadLimit) -> Offsets:
        """Return ``latest`` as if there were no more of topics that minOffsetsPerTopic delays."""
        if self._topic_delays is None or self._pinned is not None or isinstance(limit, ReadAllAvailable):
            return latest
        available: Counter[str] = Counter()
        for tp, at in position.positions.items():
            available[tp.topic] += latest[tp] - at.next
        waiting = self._topic_delays.held_back(available, time.monotonic() * 1000)
        # A log that was cut is no backlog: its partition goes back at once.
        held = {tp: min(latest[tp], at.next) for tp, at in position.positions.items() if tp.topic in waiting}
        return {**latest, **held}

    def _holds_back(self, position: SourceOffset, latest: Offsets, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger delays this batch; a run with AvailableNow is never delayed."""
        if self._delay is None or self._pinned is not None or isinstance(limit, ReadAllAvailable):
            return False
        available = sum(latest[tp] - at.next for tp, at in position.positions.items())
        return self._delay.holds_back(available, time.monotonic() * 1000)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the latest offsets of the last planned batch, for the query's progress."""
        return None if self._latest is None else self._plan().document(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of the batch between two offsets; none for a batch without records."""
        reach(SourcePoint.SPLIT, app_id=self._options.app_id)
        planner, limit = self._plan(), self._limit
        start_ns = self._planned_from_ns or time.time_ns()  # a repeated batch has its end from the checkpoint
        self._planned_from_ns = None
        tasks = planner.batch(start, end)
        if traces_are_on():
            self._notes = self._notes or PlanNotes()
            self._notes.write(end, Interval.since(start_ns))
        # A query that reads this source twice, as a union with itself, asks twice for one batch. Tables have this batch
        # only when it is complete, so nothing is planned ahead by what they have.
        if self._pinned is not None and not self._options.isolate_tables and limit is not None and self._ahead is None:
            self._ahead = Ahead((end, limit), lambda: self._planned_ahead(planner, end, limit))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, or the ranges to read."""
        if self._hand_over is not None and isinstance(partition, KafkaInputPartition):
            return iter([self._hand_over.rows(partition.wanted)])
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002
        """Do nothing: offsets are in Spark's checkpoint and, with the rows, in the sink."""
        reach(SourcePoint.FINISHED, app_id=self._options.app_id)

    def stop(self) -> None:
        """Close connections. PySpark 4.2 kills the process instead, so nothing required may depend on this."""
        if self._committer is not None:
            self._committer.close()
        if self._ahead is not None:
            self._ahead.wait(STOP_S)
        if self._planner is not None:
            self._planner.close()

    def _commit_group(self, finished: SourceOffset, partitions: Sequence[TopicPartition]) -> None:
        """Commit the start of the next batch to commitGroup: all batches before it are finished.

        Spark plans the next batch only after the sink has committed the previous one, and asks again after the last one
        of a run with Trigger.AvailableNow, for which it never calls ``commit``. Before the first batch nothing is
        committed.
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
            self._planner = _planner(self._options, self._settled_group)
        if self._ahead is not None:
            self._ahead.wait()
        return self._planner


def _planner(options: SourceOptions, settled_group: SettledGroup | None = None) -> Planner:
    options.warn_of_group()
    return Planner(options, settled_group)


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark plans one empty task where a batch query has none. The decoder's compiler is loaded in workers only.
    if not isinstance(partition, KafkaInputPartition):
        return iter(())
    from sparkonce.connectors.kafka_source.reading import read_ranges

    trace = trace_of_task()
    if trace is None:
        return read_ranges(options, partition.wanted)
    count = ReadCount()
    topics = {each.topic for each in partition.wanted}
    return traced_rows(read_ranges(options, partition.wanted, count), trace, lambda: of_records(topics, count))
