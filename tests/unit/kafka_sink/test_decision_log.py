"""The topic of decisions: who may make it, what a reader counts, and what it does not wait for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from threading import Event

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.security.acls import Operation, PatternType, Permission, ResourceType
from sparkonce.connectors.kafka_sink.decisions import PARTITION, DecisionLog, DecisionTopicError
from sparkonce.connectors.kafka_sink.transactions import FencedProducerError, TransactionClient
from sparkonce.exactly_once.transactions import (
    Decision,
    PreparedTransaction,
    decision_key,
    following,
)
from sparkonce.kafka.client.client import Client, KafkaUnreachableError
from sparkonce.kafka.client.settings import Sasl, read_settings
from sparkonce.kafka.protocol import apis, records
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.control_records import EndMarker, encode_end_marker
from sparkonce.kafka.protocol.fetch import FetchPartitionResult
from sparkonce.kafka.protocol.records import Record
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord
from tests.unit.kafka_sink.pipeline import create_topics, held_back, impatient_client, settings_of

_numbers = itertools.count()


@pytest.fixture
def topic(observer: Client) -> str:
    name = f"decisions-{next(_numbers)}"
    create_topics(observer, name, partitions=1, cleanup_policy="compact")
    return name


@pytest.fixture
def log(observer: Client, topic: str) -> DecisionLog:
    return DecisionLog(observer, topic, "app")


def record(batch_id: int, app: str = "app") -> BatchRecord:
    ranges = {("kafka", TopicPartition("in", "id", 0)): OffsetRange(5 * batch_id, 5 * batch_id + 5)}
    return BatchRecord(app, "q", batch_id, f"attempt-{batch_id}", ranges)


def decision(number: int, app: str = "app", tasks: int = 1) -> Decision:
    made = [PreparedTransaction(f"sparkonce/{app}/i/{task}", 7, 0, 3) for task in range(tasks)]
    return replace(following(None, record(number - 1, app), made, app, 0), number=number)


class Deciding:
    """A driver's transaction in the topic, step by step."""

    def __init__(self, client: Client, topic: str, app: str = "app") -> None:
        self.transactions = TransactionClient(client)
        self.log = DecisionLog(client, topic, app)
        self.identity = self.transactions.init_producer_id(f"sparkonce/{topic}/{app}/driver", 60_000)

    def begin(self, made: Decision) -> Deciding:
        self.transactions.add_partitions(self.identity, [(self.log.topic, PARTITION)])
        self.log.append_decision(made, self.identity, 0)
        return self

    def end(self, *, commit: bool = True) -> None:
        self.transactions.end(self.identity, commit=commit)


def decide(client: Client, topic: str, made: Decision, *, app: str = "app", commit: bool = True) -> None:
    Deciding(client, topic, app).begin(made).end(commit=commit)


def test_what_cannot_be_reached_is_named_before_the_topic() -> None:
    settings = read_settings(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.socket.connection.setup.timeout.ms": "50"}
    )
    with pytest.raises(KafkaUnreachableError, match=r"^no answer from Kafka at 127\.0\.0\.1:1 .* topics decisions\. "):
        DecisionLog(Client(settings), "decisions", "app").ensure()


def test_the_topic_is_made_with_one_partition_and_compacted(observer: Client) -> None:
    name = f"made-{next(_numbers)}"
    DecisionLog(observer, name, "app").ensure()
    DecisionLog(observer, name, "app").ensure()
    assert list(observer.topics([name])[name].partitions) == [PARTITION]
    assert config_of(observer, name, "cleanup.policy") == "compact"
    assert config_of(observer, name, "message.timestamp.type") == "LogAppendTime"
    assert DecisionLog(observer, name, "app").read().last is None


def config_of(client: Client, topic: str, name: str) -> str:
    connection = client.any_connection()
    version = connection.version(ApiKey.DESCRIBE_CONFIGS)
    resource = apis.request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource
    answer = client.ask(
        connection,
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[resource(version=version, resource_type=2, resource_name=topic, configuration_keys=[name])],
    )
    (found,) = answer.results[0].configs
    return str(found.value)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_whose_records_expire_is_refused(policy: str, observer: Client) -> None:
    name = f"expires-{next(_numbers)}"
    create_topics(observer, name, partitions=1, cleanup_policy=policy)
    log = DecisionLog(observer, name, "app")
    for _ in range(2):
        with pytest.raises(DecisionTopicError, match=rf"cleanup.policy={policy}: .*--entity-name {name} --add-config"):
            log.ensure()


def test_a_topic_that_was_made_anew_is_looked_at_again(observer: Client, topic: str, log: DecisionLog) -> None:
    log.ensure()
    delete_topic(observer, topic)
    create_topics(observer, topic, partitions=1)
    with pytest.raises(DecisionTopicError, match=r"cleanup.policy=delete"):
        log.ensure()


def test_a_topic_that_is_made_anew_while_it_is_read(observer: Client, topic: str, log: DecisionLog) -> None:
    log.ensure()
    decide(observer, topic, decision(1))
    assert log.read().number == 1
    delete_topic(observer, topic)
    create_topics(observer, topic, partitions=1, cleanup_policy="compact")
    with pytest.raises(DecisionTopicError) as error:
        log.read()
    assert "OFFSET_OUT_OF_RANGE" in str(error.value)
    assert "it was deleted and created again" in str(error.value)
    assert "Start the query again" in str(error.value)
    assert log.read().number == 0


def test_a_topic_that_the_brokers_take_a_while_to_tell_of(shared_broker: EmbeddedBroker, observer: Client) -> None:
    """Apache Kafka answers CreateTopics before every broker has heard of the topic."""
    name = f"slow-{next(_numbers)}"
    with shared_broker.faults.fail("UNKNOWN_TOPIC_OR_PARTITION", api="Metadata", topic=name, nth=2, times=3):
        DecisionLog(observer, name, "app").ensure()
    assert DecisionLog(observer, name, "app").read().number == 0


def test_what_was_committed_counts_and_is_read_once(observer: Client, topic: str, log: DecisionLog) -> None:
    assert log.read().number == 0
    for number in (1, 2):
        decide(observer, topic, decision(number))
        assert log.read().last == decision(number)
    assert log.read().unfinished == decision(2)
    log.append_finished(2)
    assert log.read().unfinished is None
    assert [each.number for each in log.read().recent] == [1, 2]


def test_what_was_aborted_does_not_count(observer: Client, topic: str, log: DecisionLog) -> None:
    decide(observer, topic, decision(1))
    decide(observer, topic, decision(2), commit=False)
    assert log.read().last == decision(1)
    assert DecisionLog(observer, topic, "app").read().last == decision(1)
    assert held_back(observer, topic) == {}


def test_nobody_waits_for_another_application(observer: Client, topic: str, log: DecisionLog) -> None:
    other = Deciding(observer, topic, "other").begin(decision(1, "other"))
    decide(observer, topic, decision(1))
    assert held_back(observer, topic)
    assert log.read().last == decision(1)
    other.end()
    assert DecisionLog(observer, topic, "other").read().last == decision(1, "other")
    assert log.read().last == decision(1)


@pytest.mark.parametrize("commit", [True, False])
def test_an_application_waits_for_its_own(
    commit: bool, observer: Client, topic: str, log: DecisionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Deciding(observer, topic).begin(decision(1))
    waited = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        own.end(commit=commit)

    monkeypatch.setattr("sparkonce.connectors.kafka_sink.decisions.time.sleep", sleep)
    assert log.read().number == commit
    assert len(waited) == 1


def test_it_does_not_wait_for_ever(shared_broker: EmbeddedBroker, observer: Client, topic: str) -> None:
    Deciding(observer, topic).begin(decision(1))
    impatient = impatient_client(shared_broker)
    try:
        with pytest.raises(TimeoutError, match="neither committed nor aborted for 50 ms"):
            DecisionLog(impatient, topic, "app").read()
    finally:
        impatient.close()


def test_names_of_applications_do_not_mix(observer: Client, topic: str) -> None:
    names = ["a", "a/finished", "a%2Ffinished", "A", "ä", "driver", "a/b", "a%2fb", " "]
    for number, name in enumerate(names, 1):
        decide(observer, topic, decision(number, name), app=name)
        DecisionLog(observer, topic, name).append_finished(number)
    for number, name in enumerate(names, 1):
        found = DecisionLog(observer, topic, name).read()
        assert (found.number, found.finished, found.unfinished) == (number, number, None)


def test_thousands_of_tasks_fit_into_a_message(observer: Client, topic: str, log: DecisionLog) -> None:
    large = decision(1, tasks=20_000)
    assert len(large.to_json()) > 500_000
    decide(observer, topic, large)
    assert log.read().last == large


def test_a_message_that_is_too_large_is_told(observer: Client) -> None:
    name = f"narrow-{next(_numbers)}"
    create_topics(observer, name, partitions=1, cleanup_policy="compact", max_message_bytes="200")
    with pytest.raises(DecisionTopicError, match=r"max\.message\.bytes"):
        decide(observer, name, decision(1))


def test_a_driver_that_lost_its_epoch_is_fenced(observer: Client, topic: str) -> None:
    late = Deciding(observer, topic)
    late.transactions.add_partitions(late.identity, [(topic, PARTITION)])
    late.transactions.init_producer_id(late.identity.name, 60_000)
    with pytest.raises(FencedProducerError):
        late.log.append_decision(decision(1), late.identity, 0)


def test_a_topic_that_is_deleted(observer: Client, topic: str, log: DecisionLog) -> None:
    decide(observer, topic, decision(1))
    assert log.read().number == 1
    delete_topic(observer, topic)
    with pytest.raises(DecisionTopicError, match=f"the topic '{topic}' of decisions no longer exists"):
        log.read()
    log.ensure()
    assert log.read().number == 0
    decide(observer, topic, decision(1))
    assert log.read().last == decision(1)


def delete_topic(client: Client, topic: str) -> None:
    connection = client.any_connection()
    version = min(connection.version(ApiKey.DELETE_TOPICS), 5)
    client.ask(connection, ApiKey.DELETE_TOPICS, version, topic_names=[topic], timeout_ms=30_000)


@pytest.mark.parametrize("decided", [1, 3])
def test_a_topic_that_was_made_anew_unseen(decided: int, observer: Client, topic: str, log: DecisionLog) -> None:
    """The new log is shorter than what was read of the old one, or longer."""
    for number in (7, 8):
        decide(observer, topic, decision(number))
    assert log.read().number == 8
    delete_topic(observer, topic)
    create_topics(observer, topic, partitions=1, cleanup_policy="compact")
    for number in range(1, decided + 1):
        decide(observer, topic, decision(number))
    log.ensure()
    assert [each.number for each in log.read().recent] == list(range(1, decided + 1))


@pytest.mark.parametrize("trouble", ["drop_before", "drop_after"])
def test_lost_requests_and_answers(
    trouble: str, shared_broker: EmbeddedBroker, observer: Client, topic: str, log: DecisionLog
) -> None:
    with getattr(shared_broker.faults, trouble)(api=["Produce", "Fetch", "EndTxn", "AddPartitionsToTxn"], times=2):
        decide(observer, topic, decision(1))
        log.append_finished(1)
    assert (log.read().number, log.read().finished) == (1, 1)


def fetched(*batches: bytearray, high_watermark: int) -> FetchPartitionResult:
    return FetchPartitionResult(PARTITION, 0, high_watermark, records=b"".join(batches))


def data(offset: int, made: Decision, producer_id: int = 1, epoch: int = 0) -> bytearray:
    return records.encode_batch(
        [Record(decision_key("app"), made.to_json().encode(), 0)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )


def marker(offset: int, producer_id: int = 1, epoch: int = 0, *, committed: bool = True) -> bytearray:
    made = encode_end_marker(EndMarker(committed, 0), producer_id, epoch, 0, 0)
    records.set_base_offset(made, offset)
    return made


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[FetchPartitionResult]:
    """What fetches answer; the last one for ever."""
    canned: list[FetchPartitionResult] = []

    def fetch(log: DecisionLog) -> FetchPartitionResult:
        if log._next is None:
            log._next = 0
        return canned.pop(0) if len(canned) > 1 else canned[0]

    monkeypatch.setattr(DecisionLog, "_fetch", fetch)
    return canned


def test_a_log_whose_end_was_compacted_away(log: DecisionLog, answers: list[FetchPartitionResult]) -> None:
    """Nothing lies below the high watermark any more where an aborted decision and its marker were."""
    answers += [fetched(data(0, decision(1)), marker(1), high_watermark=5), fetched(high_watermark=5)]
    assert log.read().last == decision(1)
    answers[:] = [fetched(data(5, decision(2)), marker(6), high_watermark=7)]
    assert log.read().last == decision(2)


def test_a_marker_of_which_compaction_has_left_an_empty_batch(
    log: DecisionLog, answers: list[FetchPartitionResult]
) -> None:
    """Kafka keeps the last batch of a producer, without its record, as long as it remembers the producer."""
    header = records.read_header(marker(0))._replace(record_count=0)
    empty = records.pack_header(header, records.HEADER_BYTES)
    records.write_crc(empty)
    answers += [fetched(empty, data(1, decision(1)), marker(2), high_watermark=3)]
    assert log.read().last == decision(1)


def test_a_decision_that_arrived_after_its_transaction_was_aborted(
    log: DecisionLog, answers: list[FetchPartitionResult]
) -> None:
    """Brokers before KIP-890 let it in; the next transaction of the producer must not commit it."""
    late = replace(decision(1), transactions=())
    answers += [fetched(data(0, late, epoch=3), data(1, decision(1), epoch=5), marker(2, epoch=5), high_watermark=3)]
    assert log.read().last == decision(1)


def test_markers_belong_to_producers(log: DecisionLog, answers: list[FetchPartitionResult]) -> None:
    answers += [
        fetched(
            data(0, decision(1), 1),
            data(1, decision(2), 2),
            marker(2, 2),
            marker(3, 1, committed=False),
            high_watermark=4,
        )
    ]
    assert [each.number for each in log.read().recent] == [2]


USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a";'


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    """A broker with rules, on whose first listener everything is allowed."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedBroker(config=settings) as running:
        yield running


@pytest.fixture
def root(guarded: EmbeddedBroker) -> Iterator[Client]:
    client = Client(settings_of(guarded))
    yield client
    client.close()


@pytest.fixture
def alice(guarded: EmbeddedBroker) -> Iterator[Client]:
    host, _, port = guarded.listeners["SASL_PLAINTEXT"].rpartition(":")
    login = Sasl("PLAIN", "alice", "a")
    client = Client(replace(settings_of(guarded), bootstrap_servers=((host, int(port)),), sasl=login))
    yield client
    client.close()


def allow(root: Client, topic: str, *operations: Operation) -> None:
    connection = root.any_connection()
    version = connection.version(ApiKey.CREATE_ACLS)
    creation = apis.request_class(ApiKey.CREATE_ACLS).AclCreation
    rules = [
        creation(
            version=version,
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=Permission.ALLOW,
        )
        for operation in operations
    ]
    answer = root.ask(connection, ApiKey.CREATE_ACLS, version, creations=rules)
    assert {each.error_code for each in answer.results} == {0}


def test_a_topic_that_may_not_be_seen(alice: Client) -> None:
    with pytest.raises(PermissionError, match="hidden"):
        DecisionLog(alice, "hidden", "app").ensure()


def test_a_topic_that_may_not_be_made(root: Client, alice: Client) -> None:
    allow(root, "missing", Operation.READ, Operation.WRITE)
    with pytest.raises(DecisionTopicError, match=r"may not create it\. Create it with one partition"):
        DecisionLog(alice, "missing", "app").ensure()


def test_a_topic_that_may_be_made(root: Client, alice: Client) -> None:
    allow(root, "allowed", Operation.CREATE, Operation.READ, Operation.WRITE)
    log = DecisionLog(alice, "allowed", "app")
    log.ensure()
    log.append_finished(3)
    assert log.read().finished == 3


def test_whether_a_topic_keeps_decisions_may_be_hidden(
    root: Client, alice: Client, caplog: pytest.LogCaptureFixture
) -> None:
    create_topics(root, "opaque", partitions=1)
    allow(root, "opaque", Operation.READ, Operation.WRITE)
    DecisionLog(alice, "opaque", "app").ensure()
    assert "DESCRIBE_CONFIGS" in caplog.text
    allow(root, "opaque", Operation.DESCRIBE_CONFIGS)
    with pytest.raises(DecisionTopicError, match=r"cleanup.policy=delete"):
        DecisionLog(alice, "opaque", "app").ensure()


def test_a_topic_that_may_not_be_written_to(root: Client, alice: Client) -> None:
    create_topics(root, "read-only", partitions=1)
    allow(root, "read-only", Operation.READ)
    log = DecisionLog(alice, "read-only", "app")
    log.ensure()
    assert log.read().number == 0
    with pytest.raises(DecisionTopicError, match=r"TOPIC_AUTHORIZATION_FAILED.*READ and WRITE"):
        log.append_finished(1)


def test_compaction_keeps_the_last_decision_of_each_application(
    observer: Client, shared_broker: EmbeddedBroker
) -> None:
    """On a broker of its own, which compacts at once."""
    quick = {"log.cleaner.backoff.ms": 10, "log.retention.check.interval.ms": 10_000}
    with EmbeddedBroker(config=quick) as own:
        client = Client(settings_of(own))
        name = "compacted"
        create_topics(
            client,
            name,
            partitions=1,
            cleanup_policy="compact",
            segment_bytes="2000",
            min_cleanable_dirty_ratio="0.001",
            delete_retention_ms="0",
        )
        for number in range(1, 30):
            decide(client, name, decision(number))
            decide(client, name, decision(number + 1), commit=False)
            decide(client, name, decision(1, "old"), app="old") if number == 1 else None
            DecisionLog(client, name, "app").append_finished(number)
        wait_until_compacted(client, name)
        log = DecisionLog(client, name, "app")
        found = log.read()
        assert (found.last, found.finished) == (decision(29), 29)
        assert len(found.recent) < 29
        assert DecisionLog(client, name, "old").read().last == decision(1, "old")
        client.close()


def wait_until_compacted(client: Client, topic: str) -> None:
    """Wait until a reader finds fewer decisions than a log remembers."""
    for _ in range(500):
        if len(DecisionLog(client, topic, "app").read().recent) < 10:
            return
        Event().wait(0.02)
    raise AssertionError("not compacted")
