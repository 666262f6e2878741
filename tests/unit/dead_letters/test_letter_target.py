"""Two targets with a chain each, and crashes anywhere between: each good row once, and each dead letter once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkonce.connectors.formats.dead_letter_target import DeadLetterTarget, split
from sparkonce.connectors.sinks.dead_letters import DeadLetterPlace
from sparkonce.connectors.sinks.range_reader import Reading
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.connectors.sinks.target import Target, Task, TaskWriter
from sparkonce.connectors.values.letters import COLUMN
from sparkonce.exactly_once import commit as commit_module
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.clipping import Behind, clip, clipped
from sparkonce.exactly_once.commit import DeliveryPlan
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.decision import Stored
from sparkonce.exactly_once.errors import DeliveryError, OffsetMismatchError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.memory import MemoryOffsetStore
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey
from tests.cases import each_case
from tests.unit.dead_letters.memory_target import MemoryTarget

EXACTLY, AT_LEAST, AT_MOST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
PLACE = DeadLetterPlace(table=Location.parse("/lake/dead"))
PARTITIONS, LENGTH = 2, 8


class CrashedError(BaseException):
    """The driver is gone: nothing of ours handles that."""


def key(partition: int) -> PartitionKey:
    return "s", TopicPartition("t", "id", partition)


def batch(number: int, *ranges: tuple[int, int], query: str = "q", stateful: bool = False) -> Batch:
    extents = {key(partition): OffsetRange(*extent) for partition, extent in enumerate(ranges)}
    fingerprint = Fingerprint.of([number, ranges], [])
    return Batch(BatchRecord("app", query, number, f"{query}-{number}", extents, fingerprint), stateful)


def is_dead(partition: int, offset: int) -> bool:
    return (partition + offset) % 3 == 0


class Version:
    """The source of a direct query, as of one version of its schema: each finds other dead letters."""

    def __init__(self, rules: str) -> None:
        self.rules = rules

    def with_rules(self, rules: str) -> Version:
        return Version(rules)

    def open(self, handed_over: Iterable[pa.RecordBatch]) -> Reading:
        raise AssertionError("what the property writes is not read")

    def is_dead(self, partition: int, offset: int) -> bool:
        return (partition + offset + int(self.rules)) % 3 == 0


def rows_of(batch: Batch, is_dead: Callable[[int, int], bool] = is_dead) -> pa.RecordBatch:
    """Return the records of a batch as `mark` gives them: every third is a dead letter."""
    records = [
        (tp.partition, offset)
        for (_, tp), extent in sorted(batch.record.ranges.items())
        for offset in range(extent.start, extent.end)
    ]
    letters = [letter(*record) if is_dead(*record) else None for record in records]
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition for partition, _ in records], pa.int32()),
            "offset": pa.array([offset for _, offset in records], pa.int64()),
            COLUMN: pa.array(letters, LETTERS),
        }
    )


LETTERS = pa.struct(
    [("reason", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
)


def letter(partition: int, offset: int | None, topic: str | None = "t") -> dict[str, Any]:
    return {"reason": "bad", "topic": topic, "partition": partition, "offset": offset}


class Pipeline:
    """What Spark does around the two targets: a log of batches, and a source that begins where the rows stand."""

    def __init__(self, guarantee: Guarantee) -> None:
        self.letters, self.table = MemoryTarget(guarantee), MemoryTarget(guarantee)
        self.targets: tuple[Target, Target] = (DeadLetterTarget(self.letters, PLACE), self.table)
        self.queries = self.attempts = 0
        self.version: Version | None = None
        self.forget()

    def forget(self) -> None:
        """Delete the checkpoint."""
        self.queries += 1
        self.number, self.pending = 0, False
        self.at = [self.table.next_offset(key(partition)) for partition in range(PARTITIONS)]
        self.ends = list(self.at)

    def restore(self, commits: int) -> None:
        """Restore the table to an older version, and delete the checkpoint."""
        del self.table.store.commits[commits:], self.table.store.times_ms[commits:]
        self.forget()

    def run(self, lengths: Sequence[int], crash_at: int | None) -> bool:
        """Run one batch, anew if the last one did not end; False if it crashed, at the n-th point on the way."""
        if not self.pending:
            self.ends = [min(LENGTH, at + length) for at, length in zip(self.at, lengths, strict=True)]
            self.pending = True
        points = iter(range(1_000))

        def reach(*_: object) -> None:
            if next(points) == crash_at:
                raise CrashedError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit_module, "reach", reach)
            try:
                self._deliver(reach)
            except CrashedError:
                return False
        self.number, self.at, self.pending = self.number + 1, self.ends, False
        return True

    def _deliver(self, reach: Any) -> None:
        self.attempts += 1
        current = batch(self.number, *zip(self.at, self.ends, strict=True), query=f"q{self.queries}")
        current = replace(current, record=replace(current.record, attempt_id=str(self.attempts), rules=self._rules))
        plans = [target.begin(current) for target in self.targets]
        sink = StreamSink("delta_once", "/lake/checkpoint", "app", self.targets, split, reader=self.version)
        if plans[-1].writes_rows:
            sink._complete_by(current, frozenset[str]().union(*(plan.written_by for plan in plans)))
        reader = sink._reader
        current = replace(current, record=replace(current.record, rules=sink.rules))
        records = rows_of(current, reader.is_dead if isinstance(reader, Version) else is_dead)
        task = Task(self.number, 0, 0, 0)
        parts = []
        for target, plan, rows in zip(self.targets, plans, split(records), strict=True):
            writer = target.open(plan, task)
            if writer is not None and rows.num_rows:
                writer.write(rows)
            parts.append(None if writer is None else writer.close())
        for target, plan, part in zip(self.targets, plans, parts, strict=True):
            reach(SinkPoint.BETWEEN_TARGETS)
            target.finish(current, plan, [] if part is None else [part])
        reach()

    @property
    def _rules(self) -> str | None:
        return None if self.version is None else self.version.rules

    @property
    def ended(self) -> bool:
        return not self.pending and self.at == [LENGTH] * PARTITIONS


lengths = st.tuples(*[st.integers(0, LENGTH)] * PARTITIONS)
steps = st.lists(st.tuples(lengths, st.none() | st.integers(0, 14), st.booleans()), max_size=12)
AHEAD = 6
"""At this point, with exactly-once, the dead letters are in, and the rows are not."""
IN_THE_MIDDLE_OF_A_BATCH = [((3, 0), AHEAD, True), ((2, 2), None, False), ((4, 6), AHEAD, True), ((1, 1), None, False)]
AHEAD_OF_A_QUERY_THAT_IS_KNOWN = [((1, 6), AHEAD, True), ((3, 2), None, False), ((1, 2), None, False)]


@pytest.mark.parametrize("guarantee", Guarantee)
@given(steps=steps)
@example(steps=IN_THE_MIDDLE_OF_A_BATCH)
@example(steps=AHEAD_OF_A_QUERY_THAT_IS_KNOWN)
def test_any_borders_over_any_crash(
    guarantee: Guarantee, steps: list[tuple[tuple[int, ...], int | None, bool]]
) -> None:
    pipeline = Pipeline(guarantee)
    for each, crash_at, forgets in steps:
        if not pipeline.run(each, crash_at) and forgets:
            pipeline.forget()
    while not pipeline.ended:
        pipeline.run([3] * PARTITIONS, None)
    records = [(partition, offset) for partition in range(PARTITIONS) for offset in range(LENGTH)]
    for rows, wanted in (
        (pipeline.letters.rows, [record for record in records if is_dead(*record)]),
        (pipeline.table.rows, [record for record in records if not is_dead(*record)]),
    ):
        assert set(rows) <= set(wanted)
        if guarantee is not AT_LEAST:
            assert all(times == 1 for times in rows.values())
        if guarantee is not AT_MOST:
            assert set(rows) == set(wanted)
    for target in (pipeline.letters, pipeline.table):
        assert_joined(target.store)


versions = st.integers(0, 2)


@given(st.lists(st.tuples(lengths, st.none() | st.integers(0, 14), st.booleans(), versions, versions), max_size=8))
@example([((4, 0), None, False, 0, 0), ((4, 0), None, False, 0, 1), ((0, 0), AHEAD, True, 1, 1)])
def test_a_record_is_in_one_place_whatever_version_of_the_schema_each_batch_is_read_as(
    steps: list[tuple[tuple[int, ...], int | None, bool, int, int]],
) -> None:
    """Also where the table was restored, and the dead letters were not; or the batch is refused."""
    pipeline, refusal = Pipeline(EXACTLY), None
    try:
        for each, crash_at, forgets, commits, version in steps:
            pipeline.version = Version(f"{version}")
            if not pipeline.run(each, crash_at) and forgets:
                pipeline.restore(commits)
        while not pipeline.ended:
            pipeline.run([LENGTH] * PARTITIONS, None)
    except DeliveryError as error:
        refusal = str(error)
    if refusal is None:
        assert len(pipeline.letters.rows + pipeline.table.rows) == PARTITIONS * LENGTH
    else:
        assert "by different versions of a schema" in refusal
    assert all(times == 1 for times in (pipeline.letters.rows + pipeline.table.rows).values())


def assert_joined(store: MemoryOffsetStore) -> None:
    """See that the ranges of each partition join, as an audit would."""
    reached: dict[PartitionKey, int] = {}
    attempts = {commit.record.attempt_id: commit.record for commit in store.commits if commit.record.moved}
    stored = {commit.record.attempt_id for commit in store.commits if "OFFSETS" in str(commit.writes)}
    for record in (record for attempt, record in attempts.items() if attempt in stored):
        for partition, extent in record.moved.items():
            assert reached.get(partition, 0) == extent.start
            reached[partition] = extent.end


def test_the_crashes_of_the_property_happen() -> None:
    """The first of all examples above leaves the dead letters ahead, in the middle of the next batch."""
    pipeline = Pipeline(EXACTLY)
    assert not pipeline.run((3, 0), AHEAD)
    assert (pipeline.letters.next_offset(key(0)), pipeline.table.next_offset(key(0))) == (3, 0)
    pipeline.forget()
    assert pipeline.run((5, 1), None)
    assert pipeline.letters.begun[-1].record.moved == {key(0): OffsetRange(3, 5), key(1): OffsetRange(0, 1)}
    assert pipeline.letters.rows == Counter([(0, 0), (0, 3)])


def stored(last: int | None = None, **offsets: int) -> Stored:
    return Stored(1, last, {key(int(name[1:])): at for name, at in offsets.items()})


@each_case(
    ("found", "starts"),
    [
        (stored(), {}),
        (stored(p0=10, p1=10), {}),
        (stored(p0=15, p1=10), {0: 15}),
        (stored(p0=20, p1=30), {0: 20, 1: 20}),
        (stored(3, p0=20, p1=20), {}),
        (stored(2, p0=20, p1=20), {0: 20, 1: 20}),
    ],
    ids=["nothing", "at the start", "inside", "at the end and past it", "a replay", "a known query"],
)
def test_where_a_batch_begins(found: Stored, starts: dict[int, int]) -> None:
    assert clip(batch(3, (10, 20), (10, 20), (7, 7)), found) == {key(each): at for each, at in starts.items()}


def test_a_clipped_batch_keeps_its_ends_and_what_does_not_move() -> None:
    whole = batch(3, (10, 20), (10, 20), (7, 7))
    ranges = clipped(whole, {key(0): 15, key(1): 20}).record.ranges
    assert [(each.start, each.end) for each in ranges.values()] == [(15, 20), (20, 20), (7, 7)]


def test_a_target_that_is_behind_is_refused_with_the_way_on() -> None:
    target = MemoryTarget()
    letters = DeadLetterTarget(target, PLACE)
    first = batch(0, (0, 5))
    letters.finish(first, letters.begin(first), [])
    assert clip(batch(0, (8, 9), query="r"), letters.stored(batch(0, (8, 9), query="r"))) == Behind(
        key(0), 5, OffsetRange(8, 9)
    )
    words = r"sparkonce offsets set /lake/dead --app-id app --source s --topic t --topic-id id --partition 0 --offset 8"
    with pytest.raises(OffsetMismatchError, match=rf"offsets 5 to 7 may be missing.*{words} --apply"):
        letters.begin(batch(0, (8, 9), query="r"))
    topic = DeadLetterTarget(target, DeadLetterPlace(topic="dead"))
    with pytest.raises(OffsetMismatchError, match="--group app-dead-letters --reset-offsets --topic t:0 --to-offset 8"):
        topic.begin(batch(0, (8, 9), query="r"))


def test_dead_letters_that_are_taken_back_while_a_batch_begins_stop_it() -> None:
    """As when a decision about a transaction that has timed out is undone."""

    class Undoing(MemoryTarget):
        def begin(self, batch: Batch) -> DeliveryPlan:
            plan = super().begin(batch)
            self.store.commits.clear()
            self.store.times_ms.clear()
            return plan

    target = MemoryTarget()
    letters = DeadLetterTarget(target, PLACE)
    letters.finish(batch(0, (0, 5)), letters.begin(batch(0, (0, 5))), [])
    with pytest.raises(DeliveryError, match="are no longer there"):
        DeadLetterTarget(Undoing(store=target.store), PLACE).begin(batch(0, (0, 8), query="r"))


@each_case(
    ("ranges", "rules", "written_by"),
    [
        (((0, 8), (0, 4)), "new", {"old", "new"}),  # a part of it was found by the old ones, in the commit before
        (((0, 8), (0, 4)), "other", {"old", "new"}),
        (((4, 8), (0, 0)), "new", {"new"}),
        (((4, 8), (2, 4)), "new", {"old", "new"}),
        (((4, 12), (4, 4)), "new", {"new"}),
        (((4, 8), (0, 0)), "old", {"new"}),
        (((0, 4), (0, 0)), "old", {"old"}),
        (((8, 9), (4, 5)), "other", set()),
        (((0, 8), (0, 4)), None, set()),
    ],
)
def test_rules_are_compared_with_those_of_each_commit_that_has_a_part(
    ranges: tuple[tuple[int, int], ...], rules: str | None, written_by: set[str]
) -> None:
    target = DeadLetterTarget(MemoryTarget(), PLACE)
    for number, (was, *extents) in enumerate([("old", (0, 4), (0, 4)), ("new", (4, 8), (4, 4))]):
        written = batch(number, *extents)  # type: ignore[arg-type]
        written = replace(written, record=replace(written.record, rules=was))  # type: ignore[arg-type]
        target.finish(written, target.begin(written), [])
    again = batch(0, *ranges, query="another")
    assert target.begin(replace(again, record=replace(again.record, rules=rules))).written_by == written_by


def test_a_query_with_state_is_refused() -> None:
    letters = DeadLetterTarget(MemoryTarget(), PLACE)
    with pytest.raises(DeliveryError, match="the query keeps state"):
        letters.begin(batch(0, (0, 5), stateful=True))
    plan = letters.begin(batch(0, (0, 5)))
    with pytest.raises(DeliveryError, match="the query keeps state"):
        letters.finish(batch(0, (0, 5), stateful=True), plan, [])


def test_two_sources_of_one_topic_are_refused() -> None:
    two = batch(0, (0, 5))
    ranges = {**two.record.ranges, ("other", key(0)[1]): OffsetRange(0, 3)}
    with pytest.raises(DeliveryError, match="two sources of the query read t-0"):
        DeadLetterTarget(MemoryTarget(), PLACE).begin(replace(two, record=replace(two.record, ranges=ranges)))


@each_case(
    ("bad", "reason"),
    [
        (letter(0, 5), "offset 5 of t-0, which is no record that kafka_once read in this batch"),
        (letter(0, 1), "offset 1 of t-0"),
        (letter(7, 3), "offset 3 of t-7"),
        (letter(0, 3, "u"), "offset 3 of u-0"),
        (letter(0, 3, None), "null as the topic"),
        (letter(0, None), "null as the offset"),
    ],
)
def test_a_letter_that_is_no_record_of_the_batch_is_refused(bad: dict[str, Any], reason: str) -> None:
    writer = opened(batch(0, (2, 5)))
    with pytest.raises(DeliveryError, match=reason):
        writer.write(letters_of([letter(0, 4), bad]))


def test_letters_that_are_there_are_left_out() -> None:
    target = MemoryTarget()
    letters = DeadLetterTarget(target, PLACE)
    letters.finish(batch(0, (0, 3), (0, 9)), letters.begin(batch(0, (0, 3), (0, 9))), [])
    writer = opened(batch(0, (0, 5), (0, 5), query="r"), target)
    writer.write(letters_of([letter(0, 2), letter(1, 4), letter(0, 3), letter(0, 4)]))
    assert writer.close() == [(0, 3), (0, 4)]
    writer = opened(batch(0, (0, 5), (0, 5), query="r"), target)
    writer.write(letters_of([letter(1, 4)]))
    assert writer.close() is None


def opened(batch: Batch, target: MemoryTarget | None = None) -> TaskWriter:
    letters = DeadLetterTarget(target or MemoryTarget(), PLACE)
    writer = letters.open(letters.begin(batch), Task(batch.record.batch_id, 0, 0, 0))
    assert writer is not None
    return writer


def letters_of(letters: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array(list(letters), LETTERS))
