"""A broker that was put back to an older state: what a query that had read further does then.

The first part of the cases is that of offsets: the log ends before what was read. The second cannot be seen by offsets
at all, since the log has grown past it again; leader epochs tell (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from lab.peers import missing_kafka_reason
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.exactly_once.audit_findings import Problem
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.exactly_once.recovery import plan_set
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import HAND_OVER, RANGES
from tests.parity.support import Cluster
from tests.unit.replaced.brokers import Restorable, restorable
from tests.unit.replaced.pipeline import Pipeline

COORDINATES = "partition,offset,topic"

Worlds = Callable[..., "World"]


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restorable]:
    """Yield ours, or by an indirect parameter another."""
    with restorable(getattr(request, "param", "ours"), tmp_path / "broker") as found:
        yield found


both_paths = pytest.mark.parametrize("worlds", ["rows", RANGES], indirect=True)


@pytest.fixture
def worlds(request: pytest.FixtureRequest, broker: Restorable, tmp_path: Path) -> Iterator[Worlds]:
    """Yield what makes a world; an indirect parameter is handOver."""
    with ExitStack() as stack:

        def made(*, strict: bool = False) -> World:
            world = World(broker, tmp_path, strict=strict, hand_over=getattr(request, "param", "rows"))
            stack.callback(world.pipeline.close)
            return world

        yield made


class World:
    """A topic of which thirty records were written to the table, and then the last ten were replaced."""

    def __init__(self, broker: Restorable, root: Path, *, strict: bool = False, hand_over: str = "rows") -> None:
        self.broker, self.root = broker, root
        self.cluster = Cluster(broker.bootstrap_servers)
        self.topic = self.cluster.create()
        self.options = self.cluster.source_options(
            subscribe=self.topic,
            startingOffsets="earliest",
            failOnDataLoss=str(strict).lower(),
            appId="app",
            offsetStore=f"delta:{root / 'table'}",
            **{"fetchOffset.retryIntervalMs": "1", HAND_OVER: hand_over},
        )
        self.cluster.send(self.topic, range(20), 0)
        self.pipeline = Pipeline(root, self.options)
        broker.copy()
        self.cluster.send(self.topic, range(20, 30), 0)
        assert self.pipeline.run() == list(range(30))
        self.pipeline.stream.stop()
        broker.put_back()
        self.cluster = Cluster(broker.bootstrap_servers)

    def send(self, first: int, count: int) -> list[int]:
        values = list(range(first, first + count))
        self.cluster.send(self.topic, values, 0)
        return values


@both_paths
def test_a_log_that_went_back_is_read_on_from_where_it_parted(broker: Restorable, worlds: Worlds) -> None:
    """Thirty were written, the log ends at twenty, five come, then eight: none of the thirteen may be lost."""
    world = worlds()
    five = world.send(100, 5)
    world.pipeline.restart()
    assert world.pipeline.run() == five
    world.pipeline.restart()
    eight = world.send(200, 8)
    assert world.pipeline.run() == eight
    examined = world.pipeline.audit(broker.bootstrap_servers, COORDINATES)
    assert examined.verdict is Verdict.PROVEN
    said = [each.message for each in examined.report.findings if each.problem is Problem.LOG_REPLACED]
    assert len(said) == 1
    assert f"records [20, 30) of {world.topic}-0 that were written" in said[0]


@both_paths
def test_a_log_that_went_back_and_grew_past_what_was_read(broker: Restorable, worlds: Worlds) -> None:
    world = worlds()
    new = world.send(100, 15)
    world.pipeline.restart()
    assert world.pipeline.run() == new


@both_paths
def test_it_stops_and_names_the_records_that_were_replaced(broker: Restorable, worlds: Worlds) -> None:
    world = worlds(strict=True)
    for count in (5, 5, 5):
        world.send(100, count)
        world.pipeline.restart()
        with pytest.raises(DataLossError, match=rf"records \[20, 30\) of {world.topic}-0 .* have been replaced"):
            world.pipeline.run()


def test_an_audit_beside_the_broker_sees_what_grew_to_the_very_offset(broker: Restorable, worlds: Worlds) -> None:
    world = worlds()
    world.send(100, 10)
    examined = world.pipeline.audit(broker.bootstrap_servers)
    assert examined.verdict is Verdict.BROKEN
    assert [each.problem for each in examined.report.findings] == [Problem.LOG_TRUNCATED]
    assert f"records [20, 30) of {world.topic}-0" in examined.report.findings[0].message


@both_paths
def test_a_new_checkpoint_at_the_stored_offsets_sees_it_too(broker: Restorable, worlds: Worlds, tmp_path: Path) -> None:
    world = worlds()
    new = world.send(100, 15)
    with closing(Pipeline(tmp_path, world.options, "r")) as again:
        assert again.run() == new
        assert again.audit(broker.bootstrap_servers, COORDINATES).verdict is Verdict.PROVEN


@pytest.mark.lab  # the tests above on Apache Kafka, which starts three times
@pytest.mark.skipif(missing_kafka_reason() is not None, reason=str(missing_kafka_reason()))
@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_apache_kafka_tells_all_this_too(broker: Restorable, worlds: Worlds, tmp_path: Path) -> None:
    """In one course, since it starts slowly: the audit, the stop, how the query goes on, also within a batch."""
    world = worlds()
    new = world.send(100, 10)
    (found,) = world.pipeline.audit(broker.bootstrap_servers).report.findings
    assert (found.problem, "records [20, 30)" in found.message) == (Problem.LOG_TRUNCATED, True)
    new += world.send(200, 5)
    strict = {**world.options, "failOnDataLoss": "true"}
    with closing(Pipeline(tmp_path, strict, "strict")) as stops, pytest.raises(DataLossError, match=r"\[20, 30\) of"):
        stops.run()
    world.pipeline.restart()
    assert world.pipeline.run() == new
    assert world.pipeline.audit(broker.bootstrap_servers, COORDINATES).verdict is Verdict.PROVEN
    world.send(300, 5)
    assert world.pipeline.plan()
    broker.put_back()
    broker.restart()  # started as often as before, it would lead in the same epoch again
    world.cluster = Cluster(broker.bootstrap_servers)
    newest = world.send(400, 25)
    world.pipeline.finish()
    world.pipeline.run()
    assert world.pipeline.values() == [*range(30), *new, *newest]
    assert world.pipeline.audit(broker.bootstrap_servers, COORDINATES).verdict is Verdict.PROVEN


def test_offsets_that_a_hand_moved_have_no_epoch(broker: Restorable, worlds: Worlds) -> None:
    """The epoch of the offset that was there before says nothing of the new one."""
    world = worlds()
    table = OffsetsTable.open(Location.parse(str(world.pipeline.query.table)))
    stored = table.stored()
    store = DeltaOffsetStore(Location.parse(str(world.pipeline.query.table)), "app")
    (key,) = stored.offsets
    assert store.epochs("kafka", [key.partition]) == {key.partition: 0}
    table.apply(plan_set(stored, {key: 5}))
    assert store.read("kafka", [key.partition]) == {key.partition: 5}
    assert store.epochs("kafka", [key.partition]) == {}
    assert world.pipeline.audit().verdict is Verdict.PROVEN
