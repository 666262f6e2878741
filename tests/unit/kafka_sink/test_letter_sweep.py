"""Dead letters in a topic beside rows elsewhere: a driver that dies at any request of a batch, and what follows it.

The rows are in memory, so that all requests are those of the dead letters. Whether the checkpoint is there afterwards,
or a new query begins where the rows end, with batches of another size: each record is once in the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from sparkonce.connectors.formats.dead_letter_target import RECORD, DeadLetterTarget, as_records
from sparkonce.connectors.kafka_sink import driver as driver_module
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.connectors.sinks.dead_letters import DeadLetterPlace
from sparkonce.connectors.sinks.target import Target, TargetPlan, Task
from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.batch import Batch
from sparkonce.kafka.client.client import Client
from tests.unit.dead_letters.memory_target import MemoryTarget
from tests.unit.kafka_sink.pipeline import (
    Application,
    Death,
    Machine,
    all_rows,
    check_whole,
    committed_rows,
    die,
    input_keys,
)

SIZES = (2, 3)
"""Records of each partition in a batch: of a query, and of the one that comes after the checkpoint was deleted."""


@dataclass(slots=True)
class Pipeline:
    """A query whose records are all dead letters, and rows, too."""

    application: Application
    table: MemoryTarget = field(default_factory=MemoryTarget)
    queries: int = 0
    batch_id: int = 0
    start: int = 0
    end: int = 0

    def __post_init__(self) -> None:
        name = self.application.name
        self.table.store.app_id = name
        self.application.options["layouts"] = (RowLayout.of(RECORD, self.application.topic),)
        self.begin_query()

    @property
    def size(self) -> int:
        return SIZES[self.queries % 2]

    def begin_query(self) -> None:
        """Begin where the rows end, without a checkpoint."""
        self.queries += 1
        self.batch_id, self.start = 0, self.table.next_offset(input_keys()[0])
        self.end = self.start + self.size

    def run(self) -> None:
        """Run the batch that is due, in a driver that has just started; it is due again until this comes to its end."""
        incarnation = self.application.start(f"query-{self.queries}")
        batch = self.application.batch(incarnation, self.batch_id, self.start, self.end)
        letters = DeadLetterTarget(self.application.target, DeadLetterPlace(topic=self.application.topic), as_records)
        targets: tuple[Target, ...] = (letters, self.table)
        with self.application.machine.process(incarnation.begins):
            plans = [target.begin(batch) for target in targets]
        parts = [self.write(target, plan, batch) for target, plan in zip(targets, plans, strict=True)]
        with self.application.machine.process(incarnation.commits):
            for target, plan, part in zip(targets, plans, parts, strict=True):
                target.finish(batch, plan, part)
        self.batch_id, self.start, self.end = self.batch_id + 1, self.end, self.end + self.size

    def write(self, target: Target, plan: TargetPlan, batch: Batch) -> Sequence[object]:
        with self.application.machine.process(self.application.machine.new_pid()):
            writer = target.open(plan, Task(batch.record.batch_id, 0, 0, 0))
            if writer is None:
                return []
            writer.write(letters_of(batch))
            part = writer.close()
            return [] if part is None else [part]


def letters_of(batch: Batch) -> pa.RecordBatch:
    records = [(tp.partition, at) for (_, tp), each in batch.record.moved.items() for at in range(each.start, each.end)]
    count = len(records)
    return pa.RecordBatch.from_pydict(
        {
            "reason": ["bad"] * count,
            "key": pa.nulls(count, pa.binary()),
            "value": [f"{partition}:{offset}".encode() for partition, offset in records],
            "topic": [input_keys()[0][1].topic] * count,
            "partition": pa.array([partition for partition, _ in records], pa.int32()),
            "offset": pa.array([offset for _, offset in records], pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.mark.parametrize(
    ("after_effect", "deleted", "stride"),
    [
        pytest.param(True, True, 3, id="after some, and the checkpoint is deleted"),
        pytest.param(True, True, 1, id="after it, and the checkpoint is deleted", marks=pytest.mark.lab),
        pytest.param(False, True, 1, id="before it, and the checkpoint is deleted", marks=pytest.mark.soak),
        pytest.param(True, False, 1, id="after it, and the checkpoint is kept", marks=pytest.mark.soak),
        pytest.param(False, False, 1, id="before it, and the checkpoint is kept", marks=pytest.mark.soak),
    ],
)
def test_a_death_at_every_request(
    machine: Machine, application: Application, observer: Client, after_effect: bool, deleted: bool, stride: int
) -> None:
    pipeline, at, ahead = Pipeline(application), 0, 0
    pipeline.run()
    while True:
        happening = machine.plan(at, die, after_effect=after_effect)
        try:
            pipeline.run()
        except Death:
            ahead += len(committed_rows(observer, application.topic)) > 2 * pipeline.start
            if deleted:
                pipeline.begin_query()
        machine.happenings.clear()
        for _ in range(2):
            pipeline.run()
        assert committed_rows(observer, application.topic) == all_rows(pipeline.start), (at, happening.happened)
        assert pipeline.table.next_offset(input_keys()[0]) == pipeline.start
        machine.forget()
        if not happening.happened:
            break
        at += stride
    assert at > 20
    assert ahead > 0, "the dead letters were never ahead of the rows"
    check_whole(observer, application, pipeline.start)


def test_a_decision_that_is_taken_back_while_a_new_query_begins(
    machine: Machine, application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letters were decided, and their transactions timed out: what the group says is there is not."""
    pipeline = Pipeline(application)
    pipeline.run()

    def reach(point: CrashPoint, *_: object) -> None:
        if point is TransactionPoint.DECIDED:
            raise Death

    with monkeypatch.context() as patch:
        patch.setattr(driver_module, "reach", reach)
        with pytest.raises(Death):
            pipeline.run()
    driver = application.driver(observer)
    unfinished = driver.log.read().unfinished
    assert unfinished is not None
    for transaction in unfinished.transactions:
        driver.transactions.init_producer_id(transaction.transactional_id, 10_000)
    pipeline.begin_query()
    pipeline.run()
    check_whole(observer, application, pipeline.start)
