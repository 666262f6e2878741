"""Any order of refusals, mends, crashes, lost checkpoints, dropped and restored tables, and of topics that are created
again: each record is there once.

Spark and the brokers are simulated; planner, sink, tables and what catches up are the product's. A seed is a history of
a hundred steps, after which all is mended and the queries run until nothing is left.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from lab.crash_plans import arm
from sparkonce import crash_points
from sparkonce.connectors.ingest import catching_up, checkpoints, restarts
from sparkonce.connectors.ingest.catching_up import CatchingUp
from sparkonce.connectors.ingest.checkpoints import usable
from sparkonce.connectors.ingest.routing import Flow, Route, routes
from sparkonce.connectors.ingest.settings import IngestSettings, IngestTable
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.ranges import RecreatedTopicError
from sparkonce.crash_points import CrashPlans, InjectedCrashError
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from tests.unit.ingest.fake_queries import FakeQuery
from tests.unit.sink import test_shared_batch as shared_batch
from tests.unit.sink.test_shared_batch import (
    A_PARTITION,
    PARTITIONS,
    TOPICS,
    Ends,
    Pipeline,
    first_of,
    name_of,
    partition,
)

SEEDS = [*range(8), *range(9, 16), *range(17, 20), 129, 170, 186, 197, 270, 355]
POINTS = [each for each in SinkPoint if each is not SinkPoint.WRITING]
KAFKA = {"bootstrap.servers": "localhost:1"}


def route_of(root: Path) -> Route:
    given = IngestTable(topics=",".join(TOPICS), path=f"{root}/{{topic}}")
    settings = IngestSettings.of(given, (), app_id="app", checkpoint=str(root / "checkpoints"), kafka=KAFKA)
    (route,) = routes(settings)
    return route


def flows_of(root: Path) -> dict[str, Flow]:
    return {flow.topics: flow for flow in route_of(root).flows([])}


def shared_of(root: Path) -> Flow:
    (shared,) = route_of(root).queries([])
    return shared


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
        self.may_lack = False
        """Whether failOnDataLoss is false."""
        self.begins = {**dict.fromkeys(PARTITIONS, 0), "a/1": random.choice((0, 5))}
        """Where logs begin: the records before have expired."""
        self.log = dict(self.begins)
        self.anew: set[str] = set()
        """Topics that were created again, which the shared query does not know yet."""
        self.pipeline = Pipeline(root)
        self.pipeline.begin_query("q", self.begins)
        self.pipeline.tables.isolates = True
        self.copies: dict[str, Path] = {}
        """The newest copy of each table."""
        self.batch_id = 0
        self.pending: Ends | None = None
        """The batch that is planned, and was not committed in the checkpoint."""
        source = {"subscribe": ",".join(TOPICS), "kafka.bootstrap.servers": "localhost:1", "handOver": "ranges"}
        stores = {"offsetStore": f"delta:{root}/{{topic}}", "appId": "app", "isolateTables": "true"}
        self.planner = Planner(SourceOptions.read({**source, **stores, "startingOffsets": "earliest"}))
        self.planner.ask = lambda wanted, **_: {tp: self.begins[name_of(tp)] for tp in wanted}  # type: ignore[method-assign]
        self.begin_process()

    def begin_process(self) -> None:
        """Begin the process that looks after the tables: it remembers nothing."""
        self.catching_up = CatchingUp(self.start, {}, str(self.root / "catching-up"))
        self.flows = flows_of(self.root)

    def offset(self, ends: Ends) -> SourceOffset:
        at = {partition(name): Position(self.pipeline.origins.get(name, 0), end) for name, end in ends.items()}
        return SourceOffset("kafka", at)

    def notice(self) -> None:
        """Let the shared query see which topics are others now."""
        anew = [name for name in PARTITIONS if partition(name).topic in self.anew]
        for topic in self.anew:
            shared_batch.lives[topic] += 1
        self.begins |= dict.fromkeys(anew, 0)
        self.pipeline.reached |= dict.fromkeys(anew, 0)
        self.pipeline.origins = {**self.pipeline.origins, **dict.fromkeys(anew, 0)}
        self.anew.clear()

    def plan(self) -> Ends:
        self.notice()
        reached = {name: self.pipeline.reached[name] for name in PARTITIONS}
        latest = {partition(name): self.random.randint(at, self.log[name]) for name, at in reached.items()}
        found = self.planner.without_those_behind(self.offset(reached), latest)
        return {name_of(tp): end for tp, end in found.items()}

    def run(self) -> None:
        """Run one batch of the shared query: the pending one again, once that has started again, or a new one."""
        if self.pending is not None:
            self.begin_query_again()
        ends = self.pending if self.pending is not None else self.plan()
        if all(self.pipeline.reached[name] == end for name, end in ends.items()):
            return
        self.pending = ends
        self.pipeline.run(self.batch_id, ends)
        self.pending, self.batch_id = None, self.batch_id + 1
        self.refused += self.pipeline.stored() != self.pipeline.reached

    def begin_query_again(self) -> None:
        """Begin with the checkpoint that is there, or a new one."""
        shared = replace(shared_of(self.root), checkpoint=str(self.pipeline.checkpoint))
        found = usable(shared, {}, lambda topic: self.catching_up.store_of(self.flows[topic]), self.begun_later)
        if found.checkpoint != shared.checkpoint:
            self.lose_checkpoint()

    def begun_later(self, end: SourceOffset) -> set[TopicPartition]:
        """Return the partitions whose logs have records before where a query began."""
        return {tp for tp, at in end.positions.items() if self.begins.get(name_of(tp), 0) < at.origin}

    def look(self) -> None:
        reached = self.pipeline.reached
        waits = {partition(name).topic for name in PARTITIONS if self.log[name] > reached[name]}
        earlier = self.begun_later(self.offset(reached))
        waiting = waits - self.anew
        self.catching_up.compare(self.offset(reached), self.flows, waiting, earlier)
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
        positions = SourceOffset.from_json(flow.source["untilOffsets"]).positions
        until = {name_of(tp): at.next for tp, at in positions.items()}
        folder = self.root / "own" / str(self.starts)
        folder.mkdir(parents=True)
        own = Pipeline(folder)
        own.tables.root, own.tables.refusing = self.root, self.pipeline.tables.refusing
        begins = {name_of(tp): min(at.origin, self.begins[name_of(tp)]) for tp, at in positions.items()}
        at = {name: self.pipeline.known().get(name, begin) for name, begin in begins.items()}
        if not self.may_lack and any(at[name] < self.begins[name] for name in until):
            return Ended(DataLossError(topic))
        own.begin_query(f"own {self.starts}", at)
        own.gone = self.begins
        batch_id = 0
        while any(at[name] < end for name, end in until.items()):
            at = {name: self.random.randint(each, max(each, until[name])) for name, each in at.items()}
            try:
                own.run(batch_id, at)
            except Exception as error:
                return Ended(error)
            batch_id += 1
        return Ended(None)

    def step(self) -> None:
        """Do one of all the things that may happen."""
        topic = self.random.choice(TOPICS)
        what = self.random.randrange(11)
        if self.random.random() < 0.03:
            self.anew.add(topic)
            self.log |= {name: 0 for name in PARTITIONS if partition(name).topic == topic}
            return
        if what == 0 or (what == 1 and self.random.random() < 0.5):
            self.pipeline.tables.refusing[topic] = self.random.choice(("begin", "write", "finish"))
        elif what <= 2:
            self.pipeline.tables.refusing.pop(topic, None)
        elif what == 3:
            self.begin_process()
        elif what == 4 and self.random.random() < 0.3:
            self.lose_checkpoint()
        elif what == 4:
            self.put_back(topic)
        elif what <= 6:
            self.log[self.random.choice(PARTITIONS)] += self.random.randint(1, 5)
        elif what <= 8:
            self.run()
        elif what <= 9:
            self.look()
        else:
            self.expire(self.random.choice(PARTITIONS))

    def expire(self, name: str) -> None:
        """Let records of a partition expire that the shared query has read."""
        if partition(name).topic not in self.anew and self.random.random() < 0.5:
            begins = self.begins[name]
            self.begins[name] = self.random.randint(begins, max(begins, self.pipeline.reached[name]))

    def drop(self, topic: str) -> None:
        shutil.rmtree(self.root / topic, ignore_errors=True)

    def drop_what_lacks_expired_records(self) -> None:
        """Drop tables whose errors say that records have expired, as a user does who accepts that."""
        for behind in self.catching_up._behind.values():
            if DataLossError.__name__ in behind.why:
                self.drop(behind.flow.topics)
                behind.why, self.may_lack = "", True

    def put_back(self, topic: str) -> None:
        """Copy a table, put its copy back, restore it to an older version, or drop it."""
        table, how = self.root / topic, self.random.random()
        if how < 0.4 and self.pipeline.stored()[topic]:
            self.restore(topic)
        elif how < 0.6 and table.exists():
            self.copies[topic] = shutil.copytree(table, self.root / f"copy-{topic}-{self.random.random()}")
        elif how < 0.8 and topic in self.copies:
            shutil.rmtree(table, ignore_errors=True)
            shutil.copytree(self.copies[topic], table)
        else:
            shutil.rmtree(table, ignore_errors=True)

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
        for name, at in self.pipeline.known().items():
            if at < self.begins[name]:
                self.drop(partition(name).topic)
        begins = self.begins | self.pipeline.known()
        self.pipeline.begin_query(f"shared {self.random.random()}", begins)


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Play a history, and check what the tables have in the end."""
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
    world.log = {name: end + 1 for name, end in world.log.items()}  # a dropped table is noticed when its topic moves
    for _ in range(200):
        world.run()
        world.look()
        world.drop_what_lacks_expired_records()
        if world.pipeline.reached == world.log and not world.catching_up:
            break
    assert world.pipeline.reached == world.log
    assert not world.catching_up
    found = world.pipeline.found()
    for name, end in world.log.items():
        first, numbers = first_of(name), found.get(partition(name).topic, [])
        own = numbers[bisect_left(numbers, first) : bisect_left(numbers, first + A_PARTITION)]
        begins = own[0] - first if own else end
        assert begins <= world.begins[name], "what its log has"
        assert own == [*range(first + begins, first + end)], "without a gap"
        assert len(numbers) == len({*numbers}), "also of those before"
    written = {partition(name).topic for name, end in world.log.items() if end > world.begins[name]}
    assert written <= found.keys()
    assert world.refused, "it must happen"
    assert len([*tmp_path.glob("catching-up/*")]) < max(world.starts, 1), "only a process that dies leaves checkpoints"


@pytest.mark.parametrize("seed", SEEDS)
def test_each_table_ends_with_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    play(tmp_path, monkeypatch, seed)


PLANTED = {
    "a dropped table gets the batch that is repeated": (checkpoints, "_can_go_on", lambda *_: True, (127,)),
    "no table is ever behind": (CatchingUp, "_is_behind", lambda *_: False, (0, 1, 2)),
}


@pytest.mark.parametrize("what", PLANTED)
def test_histories_find_planted_bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    place, name, bug, seeds = PLANTED[what]
    monkeypatch.setattr(place, name, bug)
    found = 0
    for seed in seeds:
        (tmp_path / str(seed)).mkdir()
        try:
            play(tmp_path / str(seed), monkeypatch, seed)
        except AssertionError:
            found += 1
    assert found


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
        "startingOffsets": "earliest",
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


def test_the_tables_of_one_query_are_forgotten_and_not_those_of_another(tmp_path: Path) -> None:
    flow = flows_of(tmp_path)["a"]
    other = replace(flow, name="other", path=f"{tmp_path}/other", shared_by="another query")
    made = CatchingUp(lambda *_: cast("Any", FakeQuery()), {}, str(tmp_path))
    for each in (flow, other):
        made.compare(SourceOffset("kafka", {partition("a"): Position(0, 7)}), {"a": each})
    made.look()
    made.stop(flow.query)
    assert [*made._behind] == ["other"]
    made.stop()
    assert not made


def test_a_table_that_always_fails_passes_over_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "AT_ONCE", 1)
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    flow, tried = flows_of(tmp_path)["a"], Counter[str]()

    def start(flow: Flow, _: object) -> Any:
        tried[flow.name] += 1
        return Ended(ValueError("it refuses"))

    made = CatchingUp(start, {}, str(tmp_path))
    for number in range(8):
        one = replace(flow, name=f"t{number}", path=f"{tmp_path}/{number}")
        made.compare(SourceOffset("kafka", {partition("a"): Position(0, 7)}), {"a": one})
    for _ in range(80):
        now_s += 100.0  # all are due again
        made.look()
    assert set(tried.values()) == {10}
    made.look(again=False)
    assert sum(tried.values()) == 80, "what has failed is not tried again"


def test_a_table_that_was_dropped_lacks_what_is_before_its_querys_origin(tmp_path: Path) -> None:
    flow, started = flows_of(tmp_path)["a"], list[Flow]()
    made = CatchingUp(lambda flow, _: cast("Any", started.append(flow) or FakeQuery()), {}, str(tmp_path))
    ends = SourceOffset("kafka", {partition("a"): Position(4, 4)})
    made.compare(ends, {"a": flow})
    made.look()
    assert not started, "its log may begin there"
    made.compare(ends, {"a": flow}, ["a"], {partition("a")})
    made.look()
    assert started[0].source["assign"] == '{"a": [0]}'


def test_a_topic_that_waits_has_no_share_of_a_batchs_limit(tmp_path: Path) -> None:
    world = World(tmp_path, Random(0))
    world.pipeline.tables.refusing = {"a": "begin"}
    world.pipeline.run(0, {"a": 2, "b": 1})
    start = world.offset(world.pipeline.reached)
    latest = world.planner.without_those_behind(start, {partition("a"): 1_000, partition("b"): 10})
    ends = world.planner.advance(start, latest, 8).positions
    assert {tp.topic: position.next for tp, position in ends.items()} == {"a": 2, "b": 9}


def test_a_table_put_back_from_a_copy_without_a_partition_gets_what_is_before_the_origin(tmp_path: Path) -> None:
    """A query that began with the offsets of the table as it was does not have it: its origin is past that."""
    world = World(tmp_path, Random(0))
    world.begins["a/1"], world.pipeline.reached = 0, dict.fromkeys(PARTITIONS, 0)
    world.log |= {"a": 3}
    world.pipeline.begin_query("q", world.begins)
    world.pipeline.run(0, {"a": 3, "a/1": 0, "b": 0, "c": 0})
    copy = shutil.copytree(tmp_path / "a", tmp_path / "copy")
    world.pipeline.run(1, {"a": 3, "a/1": 4, "b": 0, "c": 0})
    world.log["a/1"] = 4
    world.lose_checkpoint()
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(copy, tmp_path / "a")
    world.log["a/1"] += 2
    for _ in range(6):
        world.run()
        world.look()
    first = first_of("a/1")
    assert world.pipeline.found()["a"] == [0, 1, 2, *range(first, first + 6)]
    assert not world.catching_up


def test_a_dropped_table_does_not_begin_with_the_batch_that_a_query_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query's origin is where the table ended before it was dropped, so nothing shows the sink what is missing."""
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    world = World(tmp_path, Random(1))
    world.begins["a/1"], world.pipeline.reached = 0, dict.fromkeys(PARTITIONS, 0)
    world.pipeline.begin_query("q", world.begins)
    world.pipeline.run(0, {"a": 3, "a/1": 0, "b": 0, "c": 0})
    world.log |= {"a": 9}
    world.lose_checkpoint()
    arm(tmp_path, "crash", f"app.a:{SinkPoint.BEGUN.value}=raise")
    with suppress(InjectedCrashError):
        for _ in range(20):  # until there is anything in a batch
            world.run()
    assert world.pending
    shutil.rmtree(tmp_path / "a")
    for _ in range(20):
        world.run()
        world.look()
    assert world.pipeline.found()["a"] == [*range(9)]


@pytest.mark.parametrize("pending", [False, True])
def test_a_dropped_table_gets_what_is_before_the_origin_of_a_partition_that_does_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pending: bool
) -> None:
    """While another partition, of which it never had anything, does: this one is not taken for one without records."""
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    world = World(tmp_path, Random(1))
    world.begins["a/1"], world.pipeline.reached = 0, dict.fromkeys(PARTITIONS, 0)
    world.pipeline.begin_query("q", world.begins)
    world.pipeline.run(0, {"a": 0, "a/1": 4, "b": 0, "c": 0})
    world.log |= {"a": 2, "a/1": 4}
    world.lose_checkpoint()
    if pending:
        arm(tmp_path, "crash", f"app.a:{SinkPoint.BEGUN.value}=raise")
        with suppress(InjectedCrashError):
            for _ in range(20):  # until there is anything in a batch
                world.run()
        assert world.pending
    shutil.rmtree(tmp_path / "a")
    for _ in range(20):
        world.run()
        world.look()
    assert world.pipeline.found()["a"] == [0, 1, *range(first_of("a/1"), first_of("a/1") + 4)]
