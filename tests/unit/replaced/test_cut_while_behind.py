"""A log that is cut while the table of its topic lacks a part of a shared query's batches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from sparkonce.connectors.ingest.catching_up import CatchingUp
from sparkonce.connectors.ingest.routing import Flow, routes
from sparkonce.connectors.ingest.settings import IngestSettings, IngestTable
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.kafka.client import client as client_module
from sparkonce.offset_store.offsets import SourceOffset
from tests.parity.support import Cluster, source_of
from tests.unit.ingest.fake_queries import FakeQuery
from tests.unit.replaced.brokers import Restorable, restorable
from tests.unit.replaced.pipeline import Pipeline

TOPIC = "app"
"""Also the appId of its table, which `Pipeline` writes."""
DIRECT = {"handOver": "ranges", "kafka.max.partition.fetch.bytes": 1, "fetchOffset.retryIntervalMs": 1}
LENIENT = {"failOnDataLoss": "false"}
OLD, NEW = 30, 15
"""Records of the log before it is cut to `KEPT`, and those that come after these then."""
KEPT = 20
LOG = [*range(KEPT), *range(100, 100 + NEW)]


class Course:
    """A shared query over one topic, and what the ingestion does about its table."""

    def __init__(self, folder: Path, broker: Restorable, *, lenient: bool = True, **more: Any) -> None:
        self.folder, self.broker = folder, broker
        Cluster(broker.bootstrap_servers).create(name=TOPIC)
        (folder / TOPIC).symlink_to(folder / "table")
        stores = {"appId": "{topic}", "offsetStore": f"delta:{folder}/{{topic}}", "isolateTables": "true"}
        loss = LENIENT if lenient else {}
        self.started: list[Flow] = []
        cluster = Cluster(broker.bootstrap_servers)
        given = {"subscribe": TOPIC, "startingOffsets": "earliest", **DIRECT, **stores, **loss, **more}
        self.options = cluster.source_options(**given)
        self.query = Pipeline(folder, self.options, "shared")
        table = IngestTable(
            topics=TOPIC, path=f"{folder}/{{topic}}", name="{topic}", table_app_id="{topic}", source=loss
        )
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        settings = IngestSettings.of(table, (), app_id="x", checkpoint=str(folder / "checkpoints"), kafka=kafka)
        (self.flow,) = routes(settings)[0].flows([])
        self.begin_process()

    def begin_process(self) -> None:
        def start(flow: Flow, _: object) -> Any:
            self.started.append(flow)
            return cast("Any", FakeQuery())

        self.catching_up = CatchingUp(start, {}, str(self.folder / "own"))

    def send(self, first: int, last: int) -> None:
        Cluster(self.broker.bootstrap_servers).send(TOPIC, range(first, last), 0)

    def cut(self) -> None:
        self.broker.put_back()
        self.send(100, 100 + NEW)

    def plan(self) -> bool:
        return self.query.plan()

    @property
    def end(self) -> SourceOffset:
        return SourceOffset.from_json(self.query.stream.offset_log[-1])

    def leave_out(self) -> None:
        """Let Spark commit a batch that the table has refused."""
        self.query.stream.committed = len(self.query.stream.offset_log)

    def compare(self) -> None:
        self.catching_up.compare(self.end, {TOPIC: self.flow}, [TOPIC])

    def begin_own_queries(self) -> list[Flow]:
        self.started.clear()
        self.catching_up.look()
        return [*self.started]

    def catch_up(self, flow: Flow) -> None:
        """Run a query of the table's own; it ends, or has nothing that it may read."""
        names = ("assign", "startingOffsets", "untilOffsets", "failOnDataLoss")
        own = {name: flow.source[name] for name in names if name in flow.source}
        store = f"delta:{self.folder}/table"
        options = Cluster(self.broker.bootstrap_servers).source_options(**own, **DIRECT, appId=TOPIC, offsetStore=store)
        query = Pipeline(self.folder, options, f"own-{flow.sink['checkpointLocation'][-8:]}")
        with closing(query), suppress(DataLossError):
            query.stream.reader.prepareForTriggerAvailableNow()
            query.run()
        self.begin_process()

    def begin_again(self) -> None:
        """Start the shared query again without failOnDataLoss, as its error says."""
        self.query.stream.options |= LENIENT
        self.query.restart()
        self.query.query.source = source_of(
            cast("Any", HandOver.of(self.query.stream.options)), self.query.stream.options
        )

    def begin_elsewhere(self, query_id: str) -> None:
        """Start the shared query with a new checkpoint."""
        self.query.close()
        self.query = Pipeline(self.folder, self.options, query_id)
        self.begin_process()

    def settle(self) -> list[int]:
        """Do what the ingestion does until nothing is left to do, and return the table's rows."""
        for _ in range(4):
            while self.plan():
                self.query.finish()
            self.compare()
            for flow in self.begin_own_queries():
                self.catch_up(flow)
        assert not self.plan()
        self.compare()
        assert not self.catching_up
        return sorted(self.query.values())


Made = Callable[..., Course]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    with restorable("ours", tmp_path / "broker") as broker, ExitStack() as stack:

        def make(**given: Any) -> Course:
            course = Course(tmp_path, broker, **given)
            stack.callback(lambda: course.query.close())
            return course

        yield make
    for kept in client_module._shared.values():
        kept.close()


def left_behind(made: Made, *, lenient: bool = True) -> Course:
    """Return a query whose table has the first 10 records, and has refused all to `OLD`, of a log to be cut."""
    course = made(lenient=lenient)
    course.send(0, 10)
    course.query.run()
    course.send(10, KEPT)
    course.broker.copy()
    course.send(KEPT, OLD)
    assert course.plan()
    course.leave_out()
    course.compare()
    assert course.catching_up
    return course


@pytest.mark.parametrize("lenient", [True, False])
@pytest.mark.parametrize("is_begun", [True, False], ids=["own query begun", "not begun"])
def test_records_of_a_cut_log_are_written_once(made: Made, *, lenient: bool, is_begun: bool) -> None:
    """Before the shared query has seen that the log was cut, or only afterwards."""
    course = left_behind(made, lenient=lenient)
    begun = course.begin_own_queries() if is_begun else []
    course.cut()
    for flow in begun:
        course.catch_up(flow)
    if course.plan():
        course.leave_out()
    course.compare()
    for flow in course.begin_own_queries():
        course.catch_up(flow)
    if not lenient:
        course.begin_again()
    assert course.settle() == LOG


def test_a_table_goes_on_after_a_restart(made: Made) -> None:
    course = left_behind(made)
    course.cut()
    assert course.plan()
    course.leave_out()
    course.begin_process()
    course.query.restart()
    assert course.settle() == LOG


@pytest.mark.parametrize("refused", [25, OLD], ids=["in the middle", "at the old end"])
def test_a_refused_batch_of_a_log_that_was_cut_is_not_lost(made: Made, refused: int) -> None:
    """The table's offset is at or past that batch's end, in the records that are gone."""
    course = made(maxOffsetsPerTrigger=refused - KEPT)
    course.send(0, KEPT)
    course.broker.copy()
    course.send(KEPT, OLD)
    course.query.run()
    course.cut()
    while course.plan():
        if {at.next for at in course.end.positions.values()} == {refused}:
            course.leave_out()
            break
        course.query.finish()
    assert course.settle() == sorted([*range(OLD), *range(100, 100 + NEW)])


@pytest.mark.parametrize("kept", [2, 5, 9], ids=["below the table's end", "at it", "behind it"])
def test_a_table_of_a_log_that_was_cut_before_the_last_cut(made: Made, kept: int) -> None:
    """The query has seen a cut, whose records the table refused, when the log is cut again."""
    course = made()
    course.send(0, 3)
    course.broker.copy()
    course.send(3, 8)
    course.query.run()
    course.broker.put_back()
    course.send(20, 20 + kept)
    shutil.rmtree(course.folder / "broker" / "copy")
    course.broker.copy()
    course.send(30, 33)
    while course.plan():
        course.leave_out()
    assert max(at.next for at in course.end.positions.values()) == 3 + kept + 3
    course.broker.put_back()
    course.send(40, 43)
    assert course.settle() == [*range(8), *range(20, 20 + kept), *range(40, 43)]


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared query", "query of its own"])
@pytest.mark.parametrize("reached", [25, OLD, 33])
def test_what_another_query_has_written_of_the_new_log_is_not_written_again(
    made: Made, reached: int, *, is_shared: bool
) -> None:
    """It is another driver's; the query goes on behind it, or is refused."""
    course = made()
    cluster = Cluster(course.broker.bootstrap_servers)
    plain = {"subscribe": TOPIC, "startingOffsets": "earliest", **DIRECT, **LENIENT, "appId": TOPIC}
    if not is_shared:
        course.query.close()
        course.query = Pipeline(course.folder, cluster.source_options(**plain), "plain")
    course.send(0, KEPT)
    course.broker.copy()
    course.send(KEPT, OLD)
    course.query.run()
    course.cut()
    store = {"offsetStore": f"delta:{course.folder}/table", "maxOffsetsPerTrigger": reached - KEPT}
    other = Pipeline(course.folder, cluster.source_options(**plain, **store), "another")
    with closing(other):
        while other.plan():
            other.finish()
            if max(at["next"] for at in positions(other).values()) >= reached:
                break
    rows = course.query.values()
    assert [number for number in rows if number >= 100] == [*range(100, 100 + reached - KEPT)]
    with suppress(OffsetMismatchError):
        while course.plan():
            course.query.finish()
    after = course.query.values()
    assert len(after) == len(set(after))


def positions(query: Pipeline) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(query.stream.offset_log[-1])["topics"][TOPIC]["partitions"]
    return found
