"""Any order of refusals, mends, crashes, lost checkpoints, dropped and restored tables, and of topics that are created
again: each record is there once.

Spark and the brokers are simulated; planner, sink, tables and what catches up are the product's. A seed is a history of
a hundred steps, after which all is mended and the queries run until nothing is left.
"""

from __future__ import annotations

import json
import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from lab.crash_plans import arm
from sparkonce import crash_points
from sparkonce.connectors.ingest import catching_up, restarts
from sparkonce.connectors.ingest.catching_up import CatchingUp
from sparkonce.connectors.ingest.routing import Flow, routes
from sparkonce.connectors.ingest.settings import IngestSettings, IngestTable
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.ranges import RecreatedTopicError
from sparkonce.crash_points import CrashPlans, InjectedCrashError
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.offsets import Position, SourceOffset
from tests.unit.ingest.fake_queries import FakeQuery
from tests.unit.sink import test_shared_batch as shared_batch
from tests.unit.sink.test_shared_batch import TOPICS, Ends, Pipeline, partition

SEEDS = range(24)
POINTS = [each for each in SinkPoint if each is not SinkPoint.WRITING]
KAFKA = {"bootstrap.servers": "localhost:1"}


def flows_of(root: Path) -> dict[str, Flow]:
    given = IngestTable(topics=",".join(TOPICS), path=f"{root}/{{topic}}")
    settings = IngestSettings.of(given, (), app_id="app", checkpoint=str(root / "checkpoints"), kafka=KAFKA)
    (route,) = routes(settings)
    return {flow.topics: flow for flow in route.flows([])}


class Ended:
    """A query that has run to its end."""

    def __init__(self, error: Exception | None) -> None:
        self.isActive, self.error = False, error

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        """It has ended."""


class World:
    """Topics that grow, the shared query of their tables, and the queries of those that are behind."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root, self.random, self.starts, self.refused = root, random, 0, 0
        self.log = dict.fromkeys(TOPICS, 0)
        self.anew: set[str] = set()
        """Topics that were created again, which the shared query does not know yet."""
        self.pipeline = Pipeline(root)
        self.pipeline.tables.isolates = True
        self.batch_id = 0
        self.pending: Ends | None = None
        """The batch that is planned, and was not committed in the checkpoint."""
        source = {"subscribe": ",".join(TOPICS), "kafka.bootstrap.servers": "localhost:1", "handOver": "ranges"}
        stores = {"offsetStore": f"delta:{root}/{{topic}}", "appId": "app", "isolateTables": "true"}
        self.planner = Planner(SourceOptions.read(source | stores))
        self.begin_process()

    def begin_process(self) -> None:
        """Begin the process that looks after the tables: it remembers nothing."""
        self.catching_up = CatchingUp(self.start, {}, str(self.root / "catching-up"))
        self.flows = flows_of(self.root)

    def offset(self, ends: Ends) -> SourceOffset:
        at = {partition(topic): Position(self.pipeline.origins.get(topic, 0), end) for topic, end in ends.items()}
        return SourceOffset("kafka", at)

    def notice(self) -> None:
        """Let the shared query see which topics are others now."""
        for topic in self.anew:
            shared_batch.lives[topic] += 1
            self.pipeline.reached[topic] = 0
        self.pipeline.origins = {**self.pipeline.origins, **dict.fromkeys(self.anew, 0)}
        self.anew.clear()

    def plan(self) -> Ends:
        self.notice()
        reached = {topic: self.pipeline.reached.get(topic, 0) for topic in TOPICS}
        wanted = {topic: self.random.randint(at, self.log[topic]) for topic, at in reached.items()}
        latest = {partition(topic): end for topic, end in wanted.items()}
        found = self.planner.without_those_behind(self.offset(reached), latest)
        return {tp.topic: end for tp, end in found.items()}

    def run(self) -> None:
        """Run one batch of the shared query: the pending one again, or a new one."""
        ends = self.pending if self.pending is not None else self.plan()
        if all(self.pipeline.reached.get(topic, 0) == end for topic, end in ends.items()):
            return
        self.pending = ends
        self.pipeline.run(self.batch_id, ends)
        self.pending, self.batch_id = None, self.batch_id + 1
        self.refused += self.pipeline.stored() != self.pipeline.reached

    def look(self) -> None:
        reached = self.pipeline.reached
        waiting = [topic for topic in TOPICS if topic not in self.anew and self.log[topic] > reached.get(topic, 0)]
        self.catching_up.compare(self.offset(reached), self.flows, waiting)
        self.catching_up.look()
        self.catching_up.look()

    def start(self, flow: Flow, trigger: Mapping[str, Any]) -> Any:
        """Run the query of a table that is behind, in one batch or several."""
        assert trigger == {"availableNow": True}
        topic = flow.topics
        self.starts += 1
        Path(flow.sink["checkpointLocation"], "offsets").mkdir(parents=True)
        if topic in self.anew:
            return Ended(RecreatedTopicError(topic))
        origin = json.loads(flow.source["startingOffsets"])[topic]["0"]
        until = SourceOffset.from_json(flow.source["untilOffsets"]).positions[partition(topic)].next
        folder = self.root / "own" / str(self.starts)
        folder.mkdir(parents=True)
        own = Pipeline(folder)
        own.tables.root, own.tables.refusing = self.root, self.pipeline.tables.refusing
        at = self.pipeline.stored()[topic] or max(origin, 0)
        own.begin_query(f"own {self.starts}", {topic: at})
        batch_id = 0
        while at < until:
            at = self.random.randint(at + 1, until)
            try:
                own.run(batch_id, {topic: at})
            except Exception as error:
                return Ended(error)
            batch_id += 1
        return Ended(None)

    def step(self) -> None:
        """Do one of all the things that may happen."""
        topic = self.random.choice(TOPICS)
        what = self.random.randrange(10)
        if self.random.random() < 0.03:
            self.anew.add(topic)
            self.log[topic] = 0
            return
        if what == 0 or (what == 1 and self.random.random() < 0.5):
            self.pipeline.tables.refusing[topic] = self.random.choice(("begin", "write", "finish"))
        elif what <= 2:
            self.pipeline.tables.refusing.pop(topic, None)
        elif what == 3:
            self.begin_process()
        elif what == 4 and self.random.random() < 0.3:
            self.lose_checkpoint()
        elif what == 4 and self.pipeline.reached.get(topic, 0) > self.pipeline.origins.get(topic, 0):
            if self.random.random() < 0.5 and self.pipeline.stored()[topic]:
                self.restore(topic)
            else:
                shutil.rmtree(self.root / topic, ignore_errors=True)
        elif what <= 6:
            self.log[topic] += self.random.randint(1, 5)
        elif what <= 8:
            self.run()
        else:
            self.look()

    def restore(self, topic: str) -> None:
        """Take a table back to an older version, with its offsets."""
        table = self.root / topic
        version = self.random.randrange(DeltaTable(table).version())
        rewind = ["offsets", "rewind", str(table), "--to-version", str(version), "--app-id", f"app.{topic}"]
        assert main([*rewind, "--restore", "--apply"]) == 0

    def lose_checkpoint(self) -> None:
        """Begin anew where the tables end."""
        self.begin_process()
        self.notice()
        self.batch_id, self.pending = 0, None
        self.pipeline.begin_query(f"shared {self.random.random()}", self.pipeline.stored())


@pytest.mark.parametrize("seed", SEEDS)
def test_each_table_ends_with_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    monkeypatch.setattr(shared_batch, "lives", Counter())
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(catching_up, "AT_ONCE", 3)
    random = Random(seed)
    world = World(tmp_path, random)
    for number in range(100):
        if random.random() < 0.2:
            point = random.choice(POINTS)
            arm(tmp_path, f"crash-{number}", f"app.{random.choice(TOPICS)}:{point.value}=raise")
        try:
            world.step()
        except InjectedCrashError:
            world.begin_process()
    for plan in tmp_path.glob("crash-*"):
        plan.unlink()
    world.pipeline.tables.refusing.clear()
    for _ in range(200):
        world.run()
        world.look()
        if world.pipeline.reached == world.log and not world.catching_up:
            break
    assert world.pipeline.reached == world.log
    assert not world.catching_up
    for topic, numbers in world.pipeline.found().items():
        first = shared_batch.A_LIFE * shared_batch.lives[topic]
        assert numbers[bisect_left(numbers, first) :] == [*range(first, first + world.log[topic])]
        assert len(numbers) == len({*numbers}), "also of those before"
    assert {topic for topic, end in world.log.items() if end} <= world.pipeline.found().keys()
    assert world.refused, "it must happen"
    assert len([*(tmp_path / "catching-up").iterdir()]) < world.starts, "only a process that dies leaves checkpoints"


def test_where_a_query_ends_and_what_it_reads(tmp_path: Path) -> None:
    flow = flows_of(tmp_path)["a"]
    flow = replace(flow, source={**flow.source, "valueFormat": "avro"})
    started: list[Flow] = []
    made = CatchingUp(lambda flow, _: cast("Any", started.append(flow) or Ended(None)), {}, str(tmp_path))
    made.compare(SourceOffset("kafka", {partition("a"): Position(3, 7)}), {"a": flow})
    made.look()
    (found,) = started
    assert found.app_id == "app.a"
    assert {name: found.source[name] for name in ("assign", "startingOffsets", "untilOffsets")} == {
        "assign": '{"a": [0]}',
        "startingOffsets": '{"a": {"0": -2}}',
        "untilOffsets": SourceOffset("kafka", {partition("a"): Position(3, 7)}).to_json(),
    }
    assert "subscribe" not in found.source
    assert found.source["valueSubject"] == "a-value", "which assign does not say"
    checkpoint = Path(found.sink["checkpointLocation"])
    assert checkpoint.name.startswith("a-")
    (checkpoint / "offsets").mkdir(parents=True)
    made.look()
    assert not checkpoint.exists()
    assert tmp_path.exists()


def test_a_topic_that_is_deleted_or_made_anew_leaves_nothing_to_catch_up(tmp_path: Path) -> None:
    flow, old = flows_of(tmp_path)["a"], partition("a")
    for ends in ({}, {old._replace(topic_id="another"): Position(0, 0)}):
        started: list[FakeQuery] = []

        def start(flow: Flow, _: object, started: list[FakeQuery] = started) -> Any:
            Path(flow.sink["checkpointLocation"], "offsets").mkdir(parents=True)
            started.append(FakeQuery())
            return started[0]

        made = CatchingUp(start, {}, str(tmp_path / "own"))
        made.compare(SourceOffset("kafka", {old: Position(0, 7)}), {"a": flow})
        made.look()
        made.compare(SourceOffset("kafka", {partition("b"): Position(0, 1), **ends}), {"a": flow})
        assert not made
        assert not started[0].isActive
        assert not [*(tmp_path / "own").iterdir()]


def test_two_tables_of_one_topic_catch_up(tmp_path: Path) -> None:
    flow = flows_of(tmp_path)["a"]
    other = replace(flow, name="other", path=f"{tmp_path}/other")
    started: list[Flow] = []
    made = CatchingUp(lambda flow, _: cast("Any", started.append(flow) or FakeQuery()), {}, str(tmp_path))
    for each in (flow, other):
        made.compare(SourceOffset("kafka", {partition("a"): Position(0, 7)}), {"a": each})
    made.look()
    assert [each.name for each in started] == ["a", "other"]


def test_a_topic_that_waits_has_no_share_of_a_batchs_limit(tmp_path: Path) -> None:
    world = World(tmp_path, Random(0))
    world.pipeline.tables.refusing = {"a": "begin"}
    world.pipeline.run(0, {"a": 2, "b": 1})
    start = world.offset(world.pipeline.reached)
    latest = world.planner.without_those_behind(start, {partition("a"): 1_000, partition("b"): 10})
    ends = world.planner.advance(start, latest, 8).positions
    assert {tp.topic: position.next for tp, position in ends.items()} == {"a": 2, "b": 9}
