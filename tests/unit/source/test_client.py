"""Client, fetcher and planner against an embedded broker: what is found, what is missing, and what breaks midway."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_source import reading
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.decode import CorruptBatchError
from sparkonce.connectors.kafka_source.fetch import OffsetOutOfRangeError, RangeFetcher
from sparkonce.connectors.kafka_source.offset_rules import OffsetRule
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.ranges import FetchRange, RecreatedTopicError
from sparkonce.connectors.kafka_source.reading import read_range
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.client import client as client_module
from sparkonce.kafka.client.client import EARLIEST, LATEST, READING, Client, KafkaUnreachableError, shared_client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.settings import read_settings
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from sparkonce.options import OptionError
from tests.outages import Outages

QUICK = {"kafka.socket.connection.setup.timeout.ms": "300", "kafka.retry.backoff.ms": "10"}


MakePlanner = Callable[[SourceOptions], Planner]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def plan() -> Iterator[MakePlanner]:
    """Make planners that are closed at the end."""
    made: list[Planner] = []

    def make(chosen: SourceOptions) -> Planner:
        made.append(Planner(chosen))
        return made[-1]

    yield make
    for planner in made:
        planner.close()


def create(broker: EmbeddedBroker, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def delete(broker: EmbeddedBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)


def produce(broker: EmbeddedBroker, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "batch.size": 2000})
    for index in range(count):
        producer.produce(topic, b"value %d" % index, partition=partition)
    assert producer.flush(30) == 0


def options(broker: EmbeddedBroker, topic: str, **given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **QUICK}
    return SourceOptions.read({**base, **given})


def whole(planner: Planner, topic: str, end: int, start: int = 0) -> FetchRange:
    found = planner.topics[topic]
    return FetchRange(topic, found.topic_id, 0, start, end, found.partitions[0])


def test_an_unreachable_broker_is_named() -> None:
    settings = read_settings({"kafka.bootstrap.servers": "127.0.0.1:1", **QUICK})
    with pytest.raises(KafkaUnreachableError, match=r"^no answer from Kafka at 127\.0\.0\.1:1 within 300 ms"):
        Client(settings).topics(["t"])


def test_a_host_that_does_not_exist_is_not_tried_again() -> None:
    settings = read_settings({"kafka.bootstrap.servers": "no-such-host.invalid:9092"})
    with pytest.raises(KafkaUnreachableError, match=r"no-such-host\.invalid:9092") as error:
        Client(settings).topics(["t"])
    assert str(error.value).startswith("no resolvable bootstrap urls given in bootstrap.servers: no-such-host.invalid")
    assert " ms" not in str(error.value)


@pytest.mark.parametrize("servers", ["no-such-host.invalid:9092,127.0.0.1:1", "127.0.0.1:1,no-such-host.invalid:9092"])
def test_a_host_that_does_not_exist_beside_one_that_does(servers: str) -> None:
    settings = read_settings({"kafka.bootstrap.servers": servers, **QUICK})
    with pytest.raises(KafkaUnreachableError, match=rf"^no answer from Kafka at {servers} within 300 ms .*refused"):
        Client(settings).topics(["t"])


@pytest.mark.parametrize("second", [ConnectionRefusedError("planted"), TimeoutError("planted")])
def test_a_command_waits_less_for_servers_that_all_refuse(second: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings({"kafka.bootstrap.servers": "first:9092,second:9092", **QUICK})

    def failing(address: tuple[str, int], *args: Any, **kwargs: Any) -> socket.socket:
        raise ConnectionRefusedError("planted") if address[0] == "first" else second

    monkeypatch.setattr(socket, "create_connection", failing)
    limit_ms = 60 if isinstance(second, ConnectionRefusedError) else 300
    with pytest.raises(KafkaUnreachableError, match=f"^no answer from Kafka at .* within {limit_ms} ms"):
        Client(replace(settings, refused_ms=60)).topics(["t"])


@pytest.mark.parametrize(
    "command", [["peek", "t"], ["transactions", "list"], ["doctor", "--without-spark", "--topic", "t"]]
)
def test_commands_report_a_broker_that_is_down_soon(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*command, "--bootstrap-servers", "127.0.0.1:1"])
    written = capsys.readouterr()
    assert "no answer from Kafka at 127.0.0.1:1 within 1500 ms" in " ".join((written.out + written.err).split())


def test_a_host_name_that_goes_away_later_is_tried_again(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the name of a container does while it is started again."""
    create(broker, "named")
    client = Client(read_settings({"kafka.bootstrap.servers": broker.bootstrap_servers, **QUICK}))
    client.topics(["named"])
    client.close()
    original, failures = socket.create_connection, [socket.gaierror(socket.EAI_NONAME, "planted")] * 4

    def unnamed(*args: Any, **kwargs: Any) -> socket.socket:
        if failures:
            raise failures.pop()
        return original(*args, **kwargs)

    monkeypatch.setattr(socket, "create_connection", unnamed)
    assert list(client.topics(["named"])) == ["named"]
    assert not failures
    client.close()


@pytest.mark.parametrize("servers", ["typo:9092,good:9092", "good:9092,typo:9092"])
def test_a_name_that_may_resolve_later_is_tried_again_beside_one_that_does_not_exist(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def unresolved(address: tuple[str, int], *args: Any, **kwargs: Any) -> socket.socket:
        tried.append(address[0])
        raise socket.gaierror(socket.EAI_NONAME if address[0] == "typo" else socket.EAI_AGAIN, "planted")

    monkeypatch.setattr(socket, "create_connection", unresolved)
    with pytest.raises(KafkaUnreachableError, match="no resolvable bootstrap urls"):
        Client(read_settings({"kafka.bootstrap.servers": servers, **QUICK})).topics(["t"])
    assert tried.count("good") > 1


def test_a_broker_that_advertises_an_unknown_host_is_not_said_to_be_silent(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker, "known")
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **QUICK, "kafka.default.api.timeout.ms": "500"}
    client = Client(read_settings(given))
    client.topics(["known"])
    client.close()

    def unresolved(*args: Any, **kwargs: Any) -> socket.socket:
        raise socket.gaierror(socket.EAI_NONAME, "planted")

    monkeypatch.setattr(socket, "create_connection", unresolved)
    with pytest.raises(KafkaUnreachableError, match=r"host name of a broker is unknown here: check its advertised"):
        client.topics(["known"])


def test_a_missing_topic_and_a_missing_partition(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    missing = "topic 'absent' does not exist: check its name, or create it first"
    with closing(Client(options(broker, "absent").settings)) as client, pytest.raises(MissingTopicError) as error:
        client.topics(["absent"])
    assert str(error.value) == missing, "commands have no options of the source"
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers, **QUICK}
    for option, text in (("subscribe", "absent"), ("assign", '{"absent":[0]}')):
        with pytest.raises(MissingTopicError) as error:
            plan(SourceOptions.read({**servers, option: text})).refresh()
        assert str(error.value) == f"{missing} (option {option}; remove it there if it was deleted)"
    create(broker, "two", 2)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "assign": '{"two":[1,2]}', **QUICK}
    with pytest.raises(MissingTopicError, match="no partition 2, which option assign names; it has partitions 0 to 1"):
        plan(SourceOptions.read(given)).refresh()


def test_offsets_of_several_partitions(broker: EmbeddedBroker) -> None:
    create(broker, "three", 3)
    produce(broker, "three", 5, partition=1)
    client = Client(read_settings({"kafka.bootstrap.servers": broker.bootstrap_servers}))
    wanted = {("three", 0): LATEST, ("three", 1): LATEST, ("three", 2): EARLIEST}
    assert client.offsets(wanted, client.topics(["three"])) == {("three", 0): 0, ("three", 1): 5, ("three", 2): 0}
    client.close()


def test_offsets_are_requested_right_behind_the_topics(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "both", 2)
    produce(broker, "both", 3, partition=1)
    client = Client(read_settings({"kafka.bootstrap.servers": broker.bootstrap_servers}))
    wanted = {("both", 0): LATEST, ("both", 1): LATEST}
    known = client.existing_topics(["both"])
    asked: list[str] = []
    send, receive = BrokerConnection.send, BrokerConnection.receive

    def sending(connection: BrokerConnection, api_key: ApiKey, *rest: Any) -> None:
        asked.append(ApiKey(api_key).name)
        send(connection, api_key, *rest)

    def receiving(connection: BrokerConnection, buffer: bytearray) -> memoryview:
        asked.append("wait")
        return receive(connection, buffer)

    monkeypatch.setattr(BrokerConnection, "send", sending)
    monkeypatch.setattr(BrokerConnection, "receive", receiving)

    def ask() -> tuple[list[str], int]:
        asked.clear()
        client.send_behind(wanted, known)
        known.update(client.existing_topics(["both"]))
        found = client.offsets(wanted, known)
        return list(asked), found["both", 1]

    together = ["METADATA", "LIST_OFFSETS", "wait", "wait"]
    assert ask() == (together, 3)
    produce(broker, "both", 4, partition=1)
    before = known["both"]
    assert ask() == (together, 7), "no older answer is used"
    assert known["both"] is before, "an equal response is not decoded again"
    assert client.offsets(wanted, known) == {("both", 0): 0, ("both", 1): 7}
    assert asked[len(together) :] == ["LIST_OFFSETS", "wait"], "an answer is used once"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions("both", 3)])["both"].result(30)
    assert ask() == ([*together, "LIST_OFFSETS", "wait"], 7), "what was asked before the change is dropped"
    assert ask() == (together, 7)
    wanted["both", 9] = LATEST
    client.send_behind(wanted, known)
    asked.clear()
    client.existing_topics(["both"])
    assert asked == ["METADATA", "wait"], "that fails later, where it is needed"
    with pytest.raises(MissingTopicError, match="no partition 9"):
        client.offsets(wanted, known)
    client.close()


def test_many_small_fetches_give_every_record_once_and_in_order(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    create(broker, "long")
    produce(broker, "long", 3000)
    chosen = options(broker, "long", **{"kafka.max.partition.fetch.bytes": "3000"})
    planner = plan(chosen)
    planner.refresh()
    rows = [row for batch in read_range(chosen, whole(planner, "long", 2990, 10)) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(10, 2990))
    assert all(row["value"] == b"value %d" % row["offset"] for row in rows)


def test_a_task_that_stops_early_leaves_a_usable_client(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    create(broker, "early")
    produce(broker, "early", 2000)
    chosen = options(broker, "early", **{"kafka.max.partition.fetch.bytes": "3000"})
    planner = plan(chosen)
    planner.refresh()
    for _ in range(3):
        reading = read_range(chosen, whole(planner, "early", 2000))
        assert len(list(itertools.islice(reading, 2))) == 2
        reading.close()  # type: ignore[attr-defined]
    assert sum(batch.num_rows for batch in read_range(chosen, whole(planner, "early", 2000))) == 2000


def test_a_batch_larger_than_the_fetch_still_comes(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    create(broker, "large")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("large", b"x" * 500_000)
    assert producer.flush(30) == 0
    chosen = options(broker, "large", **{"kafka.max.partition.fetch.bytes": "1000"})
    planner = plan(chosen)
    planner.refresh()
    (batch,) = read_range(chosen, whole(planner, "large", 1))
    assert batch.column("value").to_pylist() == [b"x" * 500_000]


def test_a_restarted_broker_is_ridden_through(plan: MakePlanner) -> None:
    with EmbeddedBroker(process=True) as own:
        create(own, "kept")
        produce(own, "kept", 2000)
        chosen = options(own, "kept", **{"kafka.max.partition.fetch.bytes": "3000"})
        planner = plan(chosen)
        planner.refresh()
        reading = read_range(chosen, whole(planner, "kept", 2000))
        first = next(reading)
        own.kill()
        own.restart()
        rest = [row for batch in reading for row in batch.to_pylist()]
        assert [row["offset"] for row in rest] == list(range(first.num_rows, 2000))
        assert planner.ask({TopicPartition("kept", "", 0): LATEST}) == {TopicPartition("kept", "", 0): 2000}


def test_planning_and_a_worker_that_is_new_wait_for_brokers_that_are_away(
    plan: MakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first contact has no time at all here: the back-off is as long as its deadline."""
    monkeypatch.setattr(client_module, "_shared", {})
    with EmbeddedBroker() as own, Outages(own) as log:
        create(own, "away")
        produce(own, "away", 2000)
        chosen = options(own, "away", **{"kafka.retry.backoff.ms": "300", "kafka.retry.backoff.max.ms": "1"})
        planner = plan(chosen)
        (partition,) = planner.refresh()
        own.stop()
        assert planner.refresh() == [partition]
        own.stop()
        assert planner.ask({partition: LATEST}) == {partition: 2000}
        own.stop()
        rows = [
            row["offset"] for batch in read_range(chosen, whole(planner, "away", 2000)) for row in batch.to_pylist()
        ]
        assert rows == list(range(2000))
        shared_client(chosen.settings, READING).close()
        assert log.count == 3
        line = (
            r"kafka_once: brokers at 127\.0\.0\.1:\d+ not reachable since \d\d:\d\d:\d\d "
            r"\(ConnectionRefusedError: .*\), trying again until \d\d:\d\d:\d\d to "
        )
        (first, second, third) = log.said[::2]
        assert re.fullmatch(line + "ask for the topics away", first)
        assert re.fullmatch(line + "ask for offsets", second)
        assert re.fullmatch(line + "fetch away-0 at offset 0", third)
        assert all(re.search(r"answer again, after \d+ s$", text) for text in log.said[1::2])


def test_records_beyond_the_log_are_lost_data(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    create(broker, "short")
    produce(broker, "short", 5)
    chosen = options(broker, "short")
    planner = plan(chosen)
    planner.refresh()
    with pytest.raises(
        DataLossError,
        match=r"short-0 at offsets 20 to 29 are gone: its log ends at 5.*load the DataFrame again, [^.]*$",
    ):
        list(read_range(chosen, whole(planner, "short", 30, 20)))
    with pytest.MonkeyPatch.context() as in_a_stream:
        in_a_stream.setattr(reading, "_batch_id", lambda: 3)
        with pytest.raises(DataLossError, match=r"its log ends at 5.* or use a new checkpointLocation$"):
            list(read_range(chosen, whole(planner, "short", 30, 20)))
    lenient = options(broker, "short", failOnDataLoss="false")
    assert list(read_range(lenient, whole(planner, "short", 30, 20))) == []


def test_a_leader_that_refuses_an_offset_that_it_has_is_not_asked_for_ever(
    broker: EmbeddedBroker, plan: MakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker, "torn")
    produce(broker, "torn", 5)
    chosen = options(broker, "torn", **{"kafkaConsumer.pollTimeoutMs": "50", "fetchOffset.retryIntervalMs": "5"})
    planner = plan(chosen)
    planner.refresh()
    answers = itertools.repeat(True, 500)

    def refuse(fetcher: RangeFetcher, _answer: object) -> None:
        assert next(answers, False), "asked for ever"
        raise OffsetOutOfRangeError(whole(planner, "torn", 5), 0)

    monkeypatch.setattr(RangeFetcher, "_checked", refuse)
    with pytest.raises(TimeoutError, match="offset 0 is not in the log of torn-0, by the partition's leader, although"):
        list(read_range(chosen, whole(planner, "torn", 5)))


def test_a_checkpoint_ahead_of_the_log_is_lost_data(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    create(broker, "behind")
    produce(broker, "behind", 5)
    planner = plan(options(broker, "behind"))
    (partition,) = planner.refresh()
    ahead = SourceOffset("kafka", {partition: Position(0, 8)})
    with pytest.raises(
        DataLossError, match=r"offset of partition behind-0 was changed from 8 to 5.* cluster's, set it back$"
    ):
        planner.latest(ahead)
    lenient = plan(options(broker, "behind", failOnDataLoss="false"))
    lenient.refresh()
    assert lenient.advance(ahead, lenient.latest(ahead), None).positions == {partition: Position(5, 5, cut_from=8)}


def test_partitions_that_come_and_go(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    create(broker, "grown", 2)
    planner = plan(options(broker, "grown"))
    partitions = planner.refresh()
    before = SourceOffset("kafka", {partitions[0]: Position(4, 9)})
    assert planner.adapt(before, partitions).positions == {partitions[0]: Position(4, 9), partitions[1]: Position(0, 0)}
    with pytest.raises(
        DataLossError,
        match=r"gone: they have been deleted, or subscribe no longer .* or set subscribe back, .* checkpointLocation$",
    ):
        planner.adapt(planner.adapt(before, partitions), partitions[:1])


def test_a_recreated_topic_is_found_by_the_task_too(broker: EmbeddedBroker, plan: MakePlanner) -> None:
    create(broker, "again")
    produce(broker, "again", 3)
    chosen = options(broker, "again")
    planner = plan(chosen)
    planner.refresh()
    planned = whole(planner, "again", 3)
    delete(broker, "again")
    create(broker, "again")
    produce(broker, "again", 3)
    with pytest.raises(RecreatedTopicError, match="again was deleted and created again"):
        list(read_range(chosen, planned))


def test_specific_offsets_must_name_every_partition_and_lie_in_the_log(
    broker: EmbeddedBroker, plan: MakePlanner
) -> None:
    create(broker, "specific", 2)
    produce(broker, "specific", 4)
    planner = plan(options(broker, "specific", startingOffsets='{"specific":{"0":1}}'))
    partitions = planner.refresh()
    rule = rule_of('{"specific":{"0":1}}')
    with pytest.raises(
        OptionError, match=r"must name all partitions.*Specified: specific-0. Assigned: specific-0, specific-1"
    ):
        planner.resolve(rule, partitions)
    mixed = rule_of('{"specific":{"0":-1,"1":-2}}')
    assert planner.resolve(mixed, partitions) == {partitions[0]: 4, partitions[1]: 0}
    outside = rule_of('{"specific":{"0":9,"1":0}}')
    with pytest.raises(
        DataLossError,
        match=r"startingOffsets for specific-0 was 9, but its log holds offsets 0 to 4.*or correct startingOffsets$",
    ):
        planner.resolve(outside, partitions)


def rule_of(text: str) -> OffsetRule:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "specific", "startingOffsets": text}
    rule = SourceOptions.read(given).starting
    assert rule is not None
    return rule


def test_a_damaged_file_is_told_by_topic_partition_and_offset(plan: MakePlanner, tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as own:
        create(own, "damaged")
        produce(own, "damaged", 1)
        (log,) = tmp_path.rglob("damaged-0/00000000000000000000.log")
        with log.open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\xff")
        chosen = options(own, "damaged")
        planner = plan(chosen)
        planner.refresh()
        with pytest.raises(
            CorruptBatchError, match=r"topic damaged, partition 0, in the batch at offset 0: the checksum"
        ):
            list(read_range(chosen, whole(planner, "damaged", 1)))
