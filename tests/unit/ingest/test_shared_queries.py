"""Queries that write many tables: which tables are behind, with which checkpoint one begins, what is never mixed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from sparkonce import EmbeddedBroker, IngestError, Ingestion, IngestTable, OptionError
from sparkonce.connectors.formats.topic_tables import is_of_one_table
from sparkonce.connectors.ingest import ingestion as module
from sparkonce.connectors.ingest.checkpoints import usable
from sparkonce.connectors.ingest.compacting import Compactor
from sparkonce.connectors.ingest.routing import Flow, routes
from sparkonce.connectors.ingest.settings import IngestSettings
from sparkonce.connectors.kafka_source.checkpoint import Line
from sparkonce.connectors.kafka_source.offset_rules import OffsetRule
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.ranges import NoLeaderError, ReadCount
from sparkonce.connectors.kafka_source.reading import read_batches
from sparkonce.connectors.kafka_source.resolving import Offsets
from sparkonce.connectors.kafka_source.tables import TopicsNotReadError
from sparkonce.kafka.client.client import EARLIEST, LATEST, KafkaUnreachableError
from sparkonce.kafka.client.metadata import ForbiddenTopicError, Leader, MissingTopicError, TopicMetadata
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.offset_store import open_store
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from tests.unit.ingest.fake_queries import SPARK, FakeQueries, FakeQuery
from tests.unit.sink.test_shared_batch import Pipeline, partition

KAFKA = {"bootstrap.servers": "localhost:1"}
Made = Callable[..., Ingestion]


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> FakeQueries:
    found = FakeQueries()
    monkeypatch.setattr(module, "start_query", found.start)
    monkeypatch.setattr(module, "STARTING_AT_ONCE", 9)
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.0)
    return found


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = ["a", "b"]
    monkeypatch.setattr(module, "existing_topics", lambda *_: [*found])
    return found


@pytest.fixture
def ingestion(tmp_path: Path) -> Made:
    def make(*tables: IngestTable) -> Ingestion:
        settings = IngestSettings.of(
            IngestTable(),
            tables,
            app_id="app",
            checkpoint=str(tmp_path / "checkpoints"),
            kafka=KAFKA,
            trigger="availableNow",
            stop_timeout_s=0.0,
        )
        return Ingestion(SPARK, settings, routes(settings))

    return make


def checkpoint(folder: Path, *ends: SourceOffset) -> None:
    """Make a checkpoint with a committed batch up to each of the ends."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    for number, end in enumerate(ends):
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{end.to_json()}")
        (folder / "commits" / str(number)).write_text("v1\n{}")


def end(**offsets: int) -> SourceOffset:
    return SourceOffset("kafka", {partition(topic): Position(0, at) for topic, at in offsets.items()})


def test_a_query_that_starts_forgets_no_table_of_another(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made
) -> None:
    """Topic a was read to 5 in a run before, and its table has nothing."""
    made = ingestion(*(IngestTable(topics=topic, path=f"{tmp_path}/{topic}/{{topic}}") for topic in "ab"))
    first = made._routes[0].queries([])[0].name
    checkpoint(tmp_path / "checkpoints" / first, end(a=5))
    made._find_flows()
    made._start_waiting()
    for query in [*queries.by_name.values()]:
        query.end()
    made.look()
    assert [*queries.by_name][2:] == ["a"], "its own query"


def test_with_available_now_a_table_that_cannot_be_read_fails(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made
) -> None:
    made = ingestion(IngestTable(topics="a,b", path=f"{tmp_path}/tables/{{topic}}"))
    log = tmp_path / "tables" / "a" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("damaged")
    made._find_flows()
    made._start_waiting()
    for query in queries.by_name.values():
        query.end()
    made._look_after()
    with pytest.raises(IngestError, match=r"^a \(a -> .*/tables/a\) has failed: .*is no whole JSON object"):
        made.awaitTermination(0)


def test_with_available_now_a_topic_that_was_not_read_fails(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made
) -> None:
    made = ingestion(IngestTable(topics="a,b", path=f"{tmp_path}/tables/{{topic}}"))
    made._find_flows()
    made._start_waiting()
    for query in queries.by_name.values():
        query.fail("sparkonce.connectors.kafka_source.tables.TopicsNotReadError: topic b: b-0 was cut")
    made._look_after()
    with pytest.raises(IngestError, match=r"^tables-\w+ \(.*\) has failed: .*topic b: b-0 was cut"):
        made.awaitTermination(0)


def begun(made: Ingestion, queries: FakeQueries) -> FakeQuery:
    """Start the only query of an ingestion."""
    made._find_flows()
    made._start_waiting()
    (query,) = queries.by_name.values()
    return query


def one_end(monkeypatch: pytest.MonkeyPatch, *ends: SourceOffset) -> None:
    """Let the shared query stand at these ends after its batches."""
    after = lambda query: [] if query.lastProgress is None else [ends[query.lastProgress["batchId"]]]  # noqa: E731
    monkeypatch.setattr(module, "ends_of", after)


def test_a_table_dropped_between_two_batches_of_available_now_is_filled(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path)
    made = ingestion(IngestTable(topics="a,b", path=f"{tmp_path}/{{topic}}"))
    one_end(monkeypatch, end(a=4, b=2), end(a=4, b=9))
    query = begun(made, queries)
    pipeline.run(0, {"a": 4, "b": 2})
    query.complete()
    made.look()
    shutil.rmtree(tmp_path / "a")
    pipeline.run(1, {"a": 4, "b": 9})
    query.complete()
    query.end()
    made.look()
    assert [*queries.by_name][1:] == ["a"], "its own query"


def test_a_table_dropped_before_its_querys_first_batch_is_filled(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query has read nothing of its topic: only the log shows what the table lacks."""
    Pipeline(tmp_path).run(0, {"b": 2})
    made = ingestion(IngestTable(topics="a,b", path=f"{tmp_path}/{{topic}}"))
    one_end(monkeypatch, SourceOffset("kafka", {partition("a"): Position(5, 5), partition("b"): Position(2, 2)}))
    monkeypatch.setattr(module, "unread", lambda *_: (set(), {partition("a")}))
    query = begun(made, queries)
    query.complete()
    query.end()
    made.look()
    assert [*queries.by_name][1:] == ["a"], "its own query"


def test_an_outage_right_after_the_last_batch_begins_the_query_again(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out(*_: object) -> None:
        raise KafkaUnreachableError("no broker answers")

    Pipeline(tmp_path).run(0, {"b": 2})
    made = ingestion(IngestTable(topics="a,b", path=f"{tmp_path}/{{topic}}"))
    one_end(monkeypatch, SourceOffset("kafka", {partition("a"): Position(5, 5), partition("b"): Position(0, 2)}))
    monkeypatch.setattr(module, "unread", out)
    query = begun(made, queries)
    query.complete()
    query.end()
    query.fail("sparkonce.connectors.kafka_source.tables.TopicsNotReadError: topic b: b-0 was cut")
    made.look()
    assert made._waiting
    assert made.exception() is None, "the query reports unread topics after its next run"


def test_a_topic_created_before_the_query_looked_is_compared(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.tables.isolates, pipeline.tables.refusing = True, {"c": "write"}
    made = ingestion(IngestTable(topic_pattern="^.$", path=f"{tmp_path}/{{topic}}"))
    one_end(monkeypatch, end(a=2, b=2, c=5))
    made._find_flows()
    made._start_waiting()
    topics.append("c")
    (query,) = queries.by_name.values()
    pipeline.run(0, {"a": 2, "b": 2, "c": 5})
    query.complete()
    query.end()
    made.look()
    assert [*queries.by_name][1:] == ["c"]


@pytest.mark.parametrize("written", [{"a": 6, "b": 1}, {"a": 9, "b": 3}], ids=["in part", "whole"])
def test_a_planned_batch_that_another_query_has_written_is_left(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made, written: dict[str, int]
) -> None:
    """It would overlap at each start."""
    pipeline = Pipeline(tmp_path)
    pipeline.run(0, {"a": 4, "b": 1})
    made = ingestion(IngestTable(topics="a,b", path=f"{tmp_path}/{{topic}}"))
    made._find_flows()
    (flow,) = made._waiting.values()
    folder = tmp_path / "checkpoints" / flow.name
    checkpoint(folder, end(a=4, b=1))
    (folder / "offsets" / "1").write_text(f"v1\n{{}}\n{end(a=9, b=3).to_json()}")
    assert made._with_checkpoint(flow).checkpoint == str(folder)
    other = Pipeline(tmp_path)
    other.begin_query("another", {"a": 4, "b": 1})
    other.run(0, written)
    assert made._with_checkpoint(flow).checkpoint == f"{folder}~2"


def test_tables_with_new_files_are_compacted_the_neediest_first(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topic c has no record, and so no table; what had two commits when the first compaction was due has none since."""
    topics.append("c")
    submitted: list[tuple[str, int]] = []
    monkeypatch.setattr(Compactor, "submit", lambda _, path, *more: submitted.append((Path(path).name, more[-1])))
    made = ingestion(IngestTable(topics="a,b,c", path=f"{tmp_path}/tables/{{topic}}", compact_every=2))
    ends = [end(a=1, b=1, c=0), end(a=2, b=1, c=0), end(a=2, b=2, c=0), end(a=2, b=3, c=0)]
    monkeypatch.setattr(module, "ends_of", lambda query: [ends[query.lastProgress["batchId"]]])
    monkeypatch.setattr(made._catching_up, "compare", lambda *_: None)
    made._find_flows()
    made._start_waiting()
    for _ in ends:
        next(iter(queries.by_name.values())).complete()
        made.look()
    assert sorted(submitted[:2]) == [("a", 2), ("b", 1)]
    assert submitted[2:] == [("b", 2)]


def test_a_query_is_started_again_with_the_topics_that_exist(
    tmp_path: Path, queries: FakeQueries, topics: list[str], ingestion: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "made_table", lambda _, flow: f"{tmp_path}/{flow.topics}")
    made = ingestion(IngestTable(topic_pattern="[ab]", table="db.{topic}"))
    made._find_flows()
    (shared,) = made._waiting.values()
    assert [*shared.tables] == ["a", "b"]
    topics.remove("a")
    assert [*made._with_checkpoint(shared).tables] == ["b"]


@pytest.mark.parametrize("place", ["path", "table"])
def test_a_table_that_another_query_wrote_gets_a_new_checkpoint(
    tmp_path: Path, topics: list[str], ingestion: Made, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    Pipeline(tmp_path).run(0, {"a": 4})
    monkeypatch.setattr(module, "table_path_of", lambda *_: str(tmp_path / "a"))
    checkpoint(tmp_path / "checkpoints" / "tables-12345678")
    checkpoint(tmp_path / "checkpoints" / "a", end(a=2))
    path, table = (f"{tmp_path}/{{topic}}", None) if place == "path" else (None, "db.{topic}")
    made = ingestion(IngestTable(topics="a", path=path, table=table, direct=False))
    (flow,) = made._routes[0].flows([])
    assert made._with_checkpoint(flow).checkpoint == f"{tmp_path}/checkpoints/a~2"


def test_the_next_checkpoint_of_a_topic_is_not_that_of_another(tmp_path: Path, ingestion: Made) -> None:
    Pipeline(tmp_path).run(0, {"a": 4})
    made = ingestion(IngestTable(topics="a,a-2", path=f"{tmp_path}/{{topic}}", direct=False))
    flows: Mapping[str, Flow] = {flow.topics: flow for flow in made._routes[0].flows([])}
    checkpoint(tmp_path / "checkpoints" / "a", end(a=2))
    store = open_store(f"delta:{tmp_path}/a", "app.a")
    assert usable(flows["a"], {}, lambda _: store).checkpoint not in {flow.checkpoint for flow in flows.values()}


class Brokers:
    """A planner of queries with a table for each topic, and what the brokers say of their logs."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, place: str, isolate: str = "true", **logs: tuple[int, int]
    ) -> None:
        which = "subscribePattern" if "{1}" in place else "subscribe"
        source = {which: "^(.)" if "{1}" in place else ",".join(logs), "handOver": "ranges"}
        stores = {"offsetStore": f"delta:{place}", "appId": "app", "isolateTables": isolate}
        given = {**source, **stores, "kafka.bootstrap.servers": "localhost:1", "startingOffsets": "earliest"}
        self.planner = Planner(SourceOptions.read(given))
        self.logs = {partition(topic): extent for topic, extent in logs.items()}
        monkeypatch.setattr(self.planner, "refresh", lambda *_, **__: sorted(self.logs))
        monkeypatch.setattr(self.planner, "ask", self._ask)
        monkeypatch.setattr(self.planner, "_parted", lambda *_: {})

    def _ask(self, wanted: Mapping[TopicPartition, int], **_: bool) -> Offsets:
        return {tp: self.logs[tp][{EARLIEST: 0, LATEST: 1}[word]] for tp, word in wanted.items()}

    def read(self, topics: Sequence[str], origin: int) -> dict[str, int]:
        """Return to where the next batch reads, which begins at the origin."""
        start = SourceOffset("kafka", {partition(topic): Position(origin, origin) for topic in topics})
        ends = self.planner.without_those_behind(start, {tp: self.logs[tp][1] for tp in start.positions})
        return {tp.topic: at for tp, at in ends.items()}


def test_a_new_topic_with_the_table_of_another_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers(monkeypatch, f"{tmp_path}/{{1}}", a=(0, 9), ab=(0, 9), b=(0, 9))
    known = SourceOffset("kafka", {partition("a"): Position(0, 3)})
    for _ in range(2):
        begun = brokers.planner.adapt(known, [partition(topic) for topic in ("a", "ab", "b")])
        assert {tp.topic for tp in begun.positions} == {"a", "b"}
    assert caplog.text.count("topic ab is not read: kafka_once: topics a and ab have one table") == 1


def test_a_dropped_table_is_not_begun_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query began at 4, where the tables ended then; a log may also begin there."""
    brokers = Brokers(monkeypatch, f"{tmp_path}/{{topic}}", a=(0, 9), b=(4, 9))
    assert brokers.read(["a", "b"], 4) == {"a": 4, "b": 9}


def test_topics_of_one_table_are_refused_before_either_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, f"{tmp_path}/{{1}}", isolate="false", a=(0, 9), ab=(0, 9), b=(0, 9))
    with pytest.raises(OptionError, match=f"topics a and ab have one table, {tmp_path}/a"):
        brokers.planner.initial(OffsetRule(EARLIEST))
    others = Brokers(monkeypatch, f"{tmp_path}/{{1}}", a=(0, 9), ab=(0, 9), b=(0, 9))
    monkeypatch.setattr(others.planner.tables, "_has_begun", lambda topic, _: topic == "ab")
    assert {tp.topic for tp in others.planner.initial(OffsetRule(EARLIEST)).positions} == {"ab", "b"}
    monkeypatch.setattr(others.planner.tables, "_has_begun", lambda *_: False)
    del brokers.logs[partition("ab")]
    for each in (brokers, others):  # with isolateTables one of the two is left out
        assert {tp.topic for tp in each.planner.initial(OffsetRule(EARLIEST)).positions} == {"a", "b"}


def test_what_is_stored_does_not_have_to_be_in_the_log_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0 is stored at 4, and retention has removed what is before 2; nothing is stored of partition 1."""
    Pipeline(tmp_path).run(0, {"a": 4})
    first, second = partition("a"), partition("a")._replace(partition=1)
    source = {"subscribe": "a", "kafka.bootstrap.servers": "localhost:1"}
    rule = '{"a": {"0": 0, "1": 0}}'
    planner = Planner(
        SourceOptions.read({**source, "offsetStore": f"delta:{tmp_path}/a", "appId": "app.a", "startingOffsets": rule})
    )
    logs = {first: {EARLIEST: 2, LATEST: 4}, second: {EARLIEST: 0, LATEST: 3}}
    monkeypatch.setattr(planner, "refresh", lambda *_, **__: [first, second])
    monkeypatch.setattr(planner, "ask", lambda wanted, **_: {tp: logs[tp][word] for tp, word in wanted.items()})
    monkeypatch.setattr(planner, "_parted", lambda *_: {})
    found = planner.initial(planner._options.for_stream()).positions
    assert {tp.partition: position.next for tp, position in found.items()} == {0: 4, 1: 0}


def test_a_topic_that_must_not_be_read_is_left_out_alone() -> None:
    assert is_of_one_table(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "fetch a-0"))
    assert not is_of_one_table(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "fetch a-0"))


def test_a_batch_that_is_repeated_does_not_wait_for_a_partition_without_a_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task has waited before: else one partition would hold up all tables through each restart."""
    brokers = Brokers(monkeypatch, f"{tmp_path}/{{topic}}", a=(0, 9), b=(0, 9))
    monkeypatch.setattr("time.sleep", lambda _: None)
    planner, leaders = brokers.planner, {"a": None, "b": Leader("localhost", 1, 0)}
    planner.topics = {name: TopicMetadata(name, partition(name).topic_id, {0: leaders[name]}) for name in leaders}
    monkeypatch.setattr(planner, "_pieces", lambda ranges: [[*ranges.items()]])
    ends = {partition(name): Position(0, 9) for name in leaders}
    tasks = planner.batch(SourceOffset("kafka", {}).to_document(), SourceOffset("kafka", ends).to_document())
    wanted = {each.topic: each for task in tasks for each in task.wanted}
    assert {name: each.leaderless for name, each in wanted.items()} == {"a": True, "b": False}
    with pytest.raises(NoLeaderError, match="a-0 has no leader") as found:
        next(read_batches(planner._options, wanted["a"], ReadCount()))
    assert is_of_one_table(found.value)
    leader = TopicMetadata("a", partition("a").topic_id, {0: Leader("localhost", 1, 1)})
    monkeypatch.setattr(planner, "refresh", lambda _: [planner.topics.update(a=leader)])
    tasks = planner.batch(SourceOffset("kafka", {}).to_document(), SourceOffset("kafka", ends).to_document())
    assert not any(each.leaderless for task in tasks for each in task.wanted), "it is elected meanwhile"


APART = {"handOver": "ranges", "offsetStore": "delta:/nowhere/{topic}", "appId": "app", "isolateTables": "true"}


LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
RIGHT = (
    ResourceType.TOPIC,
    ResourcePatternType.LITERAL,
    "User:bob",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


class Guarded:
    """Topics a and b on a broker with ACLs, and its client bob, who may read b."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for each in self.admin.create_topics([NewTopic("a", 1), NewTopic("b", 1)]).values():
            each.result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic in ("a", "b") * 5:
            producer.produce(topic, b"")
        producer.flush()
        expired = [KafkaPartition(topic, 0, 2) for topic in ("a", "b")]
        for gone in self.admin.delete_records(expired).values():
            gone.result()
        self.allow("b")
        self.plain = broker.bootstrap_servers
        self.given = {
            "kafka.bootstrap.servers": broker.listeners["SASL_PLAINTEXT"],
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{LOGIN}username="bob" password="of-bob";',
        }

    def allow(self, topic: str) -> None:
        acl = AclBinding(*RIGHT[:1], topic, *RIGHT[1:])
        for each in self.admin.create_acls([acl]).values():
            each.result()

    def deny(self, topic: str) -> None:
        acl = AclBindingFilter(*RIGHT[:1], topic, *RIGHT[1:])
        for each in self.admin.delete_acls([acl]).values():
            each.result()

    def planner(self, **more: str) -> Planner:
        return Planner(SourceOptions.read({**self.given, **more}))


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{LOGIN}user_bob="of-bob";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedBroker(config=config) as broker:
        yield Guarded(broker)


def test_a_topic_that_must_not_be_described_is_left_out_alone(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        closing(guarded.planner(subscribe="a,b", **APART)) as alone,
        closing(guarded.planner(subscribe="a,b")) as together,
    ):
        begun = SourceOffset("kafka", {partition("a"): Position(0, 3)})
        assert [tp.topic for tp in alone.refresh(Line(begun, ours=True))] == ["b"]
        assert not alone.tables.unknown, "it goes on where it was"
        assert [tp.topic for tp in alone.refresh()] == ["b"]
        assert alone.tables.unknown == {"a"}
        assert "a: not read until the client may describe the topic" in caplog.text
        with pytest.raises(TopicsNotReadError, match="topic a: not read until"):
            alone.tables.check_read()
        with pytest.raises(PermissionError):
            together.refresh()


@pytest.mark.parametrize("chosen", [{"subscribe": "a,b"}, {"subscribePattern": "[ab]"}], ids=["by name", "by pattern"])
def test_a_topic_that_is_not_seen_for_a_time_goes_on_where_it_was(guarded: Guarded, chosen: dict[str, str]) -> None:
    """Also one of which nothing was read, since its records had expired, and whose table has nothing."""
    everything = Planner(SourceOptions.read({**chosen, "kafka.bootstrap.servers": guarded.plain}))
    with closing(everything):
        begun = SourceOffset("kafka", dict.fromkeys(everything.refresh(), Position(2, 2)))
    for _ in range(2):  # the second time by another process
        with closing(guarded.planner(**chosen, **APART)) as planner:
            for may_see in (False, True):
                if may_see:
                    guarded.allow("a")
                line, partitions = planner.survey(begun.to_document())
                assert {tp.topic for tp in partitions} == ({"a", "b"} if may_see else {"b"})
                position = planner.adapt(line.offset, partitions)
                assert position == begun
                latest = planner.latest(position)
                assert {tp.topic: end for tp, end in latest.items()} == {"a": 5 if may_see else 2, "b": 5}
            assert not planner.tables.lost
        guarded.deny("a")


def test_topics_that_are_missing_after_the_start_hold_up_no_other(guarded: Guarded) -> None:
    given = {"kafka.bootstrap.servers": guarded.plain, "subscribe": "a,b,gone", **APART}
    with closing(Planner(SourceOptions.read(given))) as planner:
        with pytest.raises(MissingTopicError, match="gone"):
            planner.refresh()
        begun = SourceOffset("kafka", {partition("a"): Position(2, 2)})
        assert [tp.topic for tp in planner.refresh(Line(begun, ours=True))] == ["a", "b"]
        with pytest.raises(TopicsNotReadError, match="topic gone: not read, since the topic does not exist"):
            planner.tables.check_read()


def test_what_is_known_of_topics_does_not_outlive_them(guarded: Guarded) -> None:
    """The log of topic a begins at 2."""
    given = {"kafka.bootstrap.servers": guarded.plain, "subscribe": "a", **APART, "startingOffsets": "earliest"}
    with closing(Planner(SourceOptions.read(given))) as planner:
        (tp,) = planner.refresh()
        known, added = SourceOffset("kafka", {tp._replace(partition=1): Position(0, 0)}), [tp, tp._replace(partition=1)]
        planner.tables.unknown.add("a")
        planner.adapt(SourceOffset("kafka", {}), [tp])
        assert not planner.tables.lost, "it is begun wherever its log is"
        planner.adapt(known, added)
        assert "should be read from offset 0" in str(planner.tables.lost["a"]), "a partition that was added since"
        planner.adapt(SourceOffset("kafka", {tp._replace(topic_id=partition("b").topic_id): Position(0, 3)}), [tp])
        assert not planner.tables.lost, "it was created again"
        asked: list[bool] = []
        planner.ask = lambda *_, waits_for_leaders: asked.append(waits_for_leaders) or {}  # type: ignore[method-assign,assignment,func-returns-value]
        for waits in (False, True):
            assert planner._begun_later(SourceOffset("kafka", {tp: Position(2, 2)}), [tp], waits) == [tp], "it may have"
        assert asked == [False, True]


def test_a_plan_is_made_again_when_a_topic_must_not_be_described_any_more(guarded: Guarded) -> None:
    errors = [ForbiddenTopicError("not allowed to read topic 'a'")]

    def plan() -> str:
        if errors:
            raise errors.pop()
        return "planned"

    with closing(guarded.planner(subscribe="a,b", **APART)) as planner:
        assert planner.while_topics_stay(plan) == "planned"
    errors.append(ForbiddenTopicError("not allowed to read topic 'a'"))
    with closing(guarded.planner(subscribe="a,b")) as planner, pytest.raises(ForbiddenTopicError):
        planner.while_topics_stay(plan)


@pytest.mark.parametrize(("name", "why"), [("isolateTables", "holds up no"), ("untilOffsets", "catch up")])
def test_what_the_ingestion_sets_itself_is_refused(tmp_path: Path, ingestion: Made, name: str, why: str) -> None:
    with pytest.raises(OptionError, match=f"{name}.*{why}"):
        ingestion(IngestTable(topics="a", path=f"{tmp_path}/{{topic}}", source={name: "false"}))
