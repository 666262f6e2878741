"""Transactions, by confluent-kafka (librdkafka), kafka-python, and requests of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC, encode
from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, Transaction, TransactionState
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.records import encode_batch
from tests.interop.plain_client import PlainClient
from tests.reading import AT_ONCE, assign

DEADLINE_S = 30.0
NOW_MS = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 20}
    with EmbeddedBroker(tmp_path / "data", config=settings) as embedded:
        yield embedded


def transactional(broker: EmbeddedBroker, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            **settings,
        }
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Producer, *values: bytes, topic: str = "t", partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def read_until(broker: EmbeddedBroker, last: bytes, isolation: str = "read_committed", topic: str = "t") -> list[bytes]:
    """Read a partition from its beginning until a value comes; returns all values."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            **AT_ONCE,
        }
    )
    assign(consumer, [TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while not values or values[-1] != last:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{values}, but no {last!r}"
        assert message.error() is None, message.error()
        values.append(message.value())
    consumer.close()
    return values


def test_committed_and_aborted(broker: EmbeddedBroker) -> None:
    producer = transactional(broker, "x")
    for number in range(3):
        producer.begin_transaction()
        write(producer, b"committed-%d" % number)
        producer.commit_transaction(DEADLINE_S)
        producer.begin_transaction()
        write(producer, b"aborted-%d" % number)
        producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    write(producer, b"end")
    producer.commit_transaction(DEADLINE_S)
    committed = [b"committed-%d" % number for number in range(3)]
    assert read_until(broker, b"end") == [*committed, b"end"]
    everything = read_until(broker, b"end", "read_uncommitted")
    assert len(everything) == 7
    broker.restart()
    assert read_until(broker, b"end") == [*committed, b"end"]


def test_what_is_open_hides_what_comes_after_it(broker: EmbeddedBroker) -> None:
    first, second = transactional(broker, "first"), transactional(broker, "second")
    first.begin_transaction()
    write(first, b"open")
    second.begin_transaction()
    write(second, b"later")
    second.commit_transaction(DEADLINE_S)
    with PlainClient(broker.bootstrap_servers) as client:
        stable, end = client.list_offset("t", 0, -1, isolation_level=1), client.list_offset("t", 0, -1)
        assert (stable, end) == (0, 3)
        assert client.fetch("t", 0, 0, isolation_level=1).records == b""
    first.abort_transaction(DEADLINE_S)
    assert read_until(broker, b"later") == [b"later"]
    with PlainClient(broker.bootstrap_servers) as client:
        assert client.list_offset("t", 0, -1, isolation_level=1) == 4
        result = client.fetch("t", 0, 0, isolation_level=1)
        assert [each.first_offset for each in result.aborted_transactions or ()] == [0]
        assert not client.fetch("t", 0, 0, isolation_level=0).aborted_transactions


def test_a_waiting_reader_is_woken_by_the_end_of_a_transaction(broker: EmbeddedBroker) -> None:
    producer = transactional(broker, "x")
    producer.begin_transaction()
    write(producer, b"a" * 1000)
    with PlainClient(broker.bootstrap_servers) as client:
        client.send_fetch("t", 0, 0, isolation_level=1, min_bytes=500, max_wait_ms=int(DEADLINE_S * 1000))
        producer.commit_transaction(DEADLINE_S)
        records: Any = client.receive_fetch().records
        assert len(records or b"") > 1000


def test_a_zombie_is_fenced(broker: EmbeddedBroker) -> None:
    zombie = transactional(broker, "x")
    zombie.begin_transaction()
    write(zombie, b"zombie")
    heir = transactional(broker, "x")
    heir.begin_transaction()
    write(heir, b"heir")
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(DEADLINE_S)
    assert caught.value.args[0].fatal()
    heir.commit_transaction(DEADLINE_S)
    assert read_until(broker, b"heir") == [b"heir"]


def test_offsets_travel_with_the_transaction(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("in", 1), NewTopic("t", 1)])["t"].result(DEADLINE_S)
    source = Producer({"bootstrap.servers": broker.bootstrap_servers})
    write(source, b"1", b"2", topic="in")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["in"])
    producer = transactional(broker, "x")
    for number in range(2):
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        producer.begin_transaction()
        write(producer, b"out-" + message.value())
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition("in", 0, number + 1)], metadata, DEADLINE_S)
        with PlainClient(broker.bootstrap_servers) as client:
            assert client.committed("g", "in", 0, require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert client.committed("g", "in", 0) == (ErrorCode.NONE, -1)
        if number == 0:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
        with PlainClient(broker.bootstrap_servers) as client:
            expected = -1 if number == 0 else 2
            assert client.committed("g", "in", 0, require_stable=True) == (ErrorCode.NONE, expected)
    consumer.close()
    assert read_until(broker, b"out-2") == [b"out-2"]
    broker.restart()
    with PlainClient(broker.bootstrap_servers) as client:
        assert client.committed("g", "in", 0, require_stable=True) == (ErrorCode.NONE, 2)


def test_a_member_of_an_old_generation_cannot_commit(broker: EmbeddedBroker) -> None:
    with PlainClient(broker.bootstrap_servers) as client:
        client.create_topic("in")
        client.find_coordinator("g", 0)
        producer_id, epoch = client.init_producer("x")
        common = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch, "group_id": "g"}
        topics = [("in", [(0, 5, -1, None)])]
        gone = client.ask(
            ApiKey.TXN_OFFSET_COMMIT, 5, **common, generation_id=3, member_id="m", group_instance_id=None, topics=topics
        )
        assert gone.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
        stale = client.ask(
            ApiKey.TXN_OFFSET_COMMIT, 5, **{**common, "producer_epoch": epoch - 1}, generation_id=-1, member_id="",
            group_instance_id=None, topics=topics,
        )  # fmt: skip
        assert stale.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        not_added = client.ask(
            ApiKey.TXN_OFFSET_COMMIT, 3, **{**common, "transactional_id": "y"}, generation_id=-1, member_id="",
            group_instance_id=None, topics=topics,
        )  # fmt: skip
        assert not_added.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_time_is_up(broker: EmbeddedBroker) -> None:
    with PlainClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        producer = client.init_producer("x", timeout_ms=50)
        assert client.produce("t", [b"late"], "x", producer) is ErrorCode.NONE
        write(Producer({"bootstrap.servers": broker.bootstrap_servers}), b"end")
        assert read_until(broker, b"end") == [b"end"]  # it comes when the transaction before it has been aborted
        assert client.produce("t", [b"later"], "x", producer, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.end("x", producer, committed=True)[0] is ErrorCode.INVALID_TXN_STATE
        error, *producer_after = client.end("x", producer, committed=False)
        assert (error, producer_after) == (ErrorCode.NONE, [producer[0], producer[1] + 1])


def test_each_transaction_has_its_epoch_and_a_delayed_end_decides_nothing(broker: EmbeddedBroker) -> None:
    """KIP-890 part 2, and KAFKA-17754."""
    with PlainClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        first = client.init_producer("x")
        assert client.produce("t", [b"1"], "x", first) is ErrorCode.NONE
        error, *after = client.end("x", first, committed=True)
        assert (error, after) == (ErrorCode.NONE, [first[0], first[1] + 1])
        second = (after[0], after[1])
        assert client.end("x", first, committed=True) == (ErrorCode.NONE, *second)  # asked again, answered again
        assert client.produce("t", [b"2"], "x", second) is ErrorCode.NONE
        for committed in (True, False):
            assert client.end("x", first, committed)[0] is ErrorCode.PRODUCER_FENCED
        assert client.list_offset("t", 0, -1, isolation_level=1) == 2  # the second is open as before
        assert client.produce("t", [b"late"], "x", first, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.end("x", second, committed=True)[0] is ErrorCode.NONE
        # A batch that comes after its transaction opens no other one.
        assert client.produce("t", [b"late"], "x", second, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.list_offset("t", 0, -1, isolation_level=1) == client.list_offset("t", 0, -1) == 4


def test_a_write_without_a_transaction_is_refused_in_the_words_of_its_version(broker: EmbeddedBroker) -> None:
    """KIP-890 part 1: clients before Produce version 12 add partitions by a request of their own."""
    with PlainClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        producer = client.init_producer("x")
        assert client.produce("t", [b"1"], "x", producer, version=11) is ErrorCode.TRANSACTION_ABORTABLE
        assert client.produce("t", [b"1"], "x", producer, version=10) is ErrorCode.INVALID_TXN_STATE
        assert client.produce("t", [b"1"], "y", producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert client.produce("t", [b"1"], "x", (producer[0], producer[1] + 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.produce("t", [b"1"], "x", producer, sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert client.list_offset("t", 0, -1) == 0
        added = client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="x", v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1], v3_and_below_topics=[("t", [0, 7])],
        )  # fmt: skip
        results = [each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition]
        assert results == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        added = client.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="x", v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1], v3_and_below_topics=[("t", [0]), ("__transaction_state", [0])],
        )  # fmt: skip
        results = [each.results_by_partition[0].partition_error_code for each in added.results_by_topic_v3_and_below]
        assert results == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert client.produce("t", [b"1"], "x", producer, version=10) is ErrorCode.NONE


def test_markers_by_an_administrator(broker: EmbeddedBroker) -> None:
    with PlainClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        producer = client.init_producer("x")
        assert client.produce("t", [b"1"], "x", producer) is ErrorCode.NONE
        assert client.list_offset("t", 0, -1, isolation_level=1) == 0
        marker = (producer[0], producer[1], False, [("t", [0]), ("gone", [0])], 0)
        answer = client.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        errors = [partition.error_code for topic in answer.markers[0].topics for partition in topic.partitions]
        assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert client.list_offset("t", 0, -1, isolation_level=1) == 2
        old = (producer[0], producer[1] - 1, False, [("t", [0])], 0)
        answer = client.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[old])
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_two_phase_commit_from_outside(broker: EmbeddedBroker) -> None:
    task = transactional(broker, "task-1")
    task.begin_transaction()
    write(task, b"a", b"b")
    with PlainClient(broker.bootstrap_servers) as client:
        (found,) = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["task-1"]).transaction_states
        assert (found.error_code, found.transaction_state) == (0, "Ongoing")
        assert [(each.topic, list(each.partitions)) for each in found.topics] == [("t", [0])]
        identity = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
        listed = client.ask(
            ApiKey.LIST_TRANSACTIONS, 2, state_filters=["Ongoing", "Odd"], producer_id_filters=[], duration_filter=-1,
            transactional_id_pattern="task-.*",
        )  # fmt: skip
        assert [each.transactional_id for each in listed.transaction_states] == ["task-1"]
        assert list(listed.unknown_state_filters) == ["Odd"]
        (partition,) = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[("t", [0])]).topics[0].partitions
        assert [each.current_txn_start_offset for each in partition.active_producers] == [0]
        ended = client.ask(ApiKey.END_TXN, 4, transactional_id="task-1", **identity, committed=True)
        assert ended.error_code == 0
        again = client.ask(ApiKey.END_TXN, 4, transactional_id="task-1", **identity, committed=True)
        assert again.error_code == 0
        other = client.ask(ApiKey.END_TXN, 4, transactional_id="task-1", **identity, committed=False)
        assert other.error_code == ErrorCode.INVALID_TXN_STATE
    assert read_until(broker, b"b") == [b"a", b"b"]


def test_kafka_python(broker: EmbeddedBroker) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Place

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="py", retry_backoff_ms=10)
    producer.init_transactions()
    for value, commits in ((b"no", False), (b"yes", True)):
        producer.begin_transaction()
        producer.send("t", value, partition=0).get(DEADLINE_S)
        producer.commit_transaction() if commits else producer.abort_transaction()
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    consumer.assign([Place("t", 0)])
    assert next(consumer).value == b"yes"
    consumer.close()


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_that_was_decided_before_a_crash_is_completed_after_it(tmp_path: Path, committed: bool) -> None:
    directory = tmp_path / "data"
    with EmbeddedBroker(directory, process=True) as broker:
        with PlainClient(broker.bootstrap_servers) as client:
            client.create_topic("t")
            assert client.produce("t", [b"a"], "x", client.init_producer("x")) is ErrorCode.NONE
            (found,) = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x"]).transaction_states
        broker.kill()
        put_decision(directory, found, committed)
        broker.restart()
        other = Producer({"bootstrap.servers": broker.bootstrap_servers})
        write(other, b"end")
        assert read_until(broker, b"end") == ([b"a"] if committed else []) + [b"end"]
        with PlainClient(broker.bootstrap_servers) as client:
            (found,) = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x"]).transaction_states
        assert found.transaction_state == ("CompleteCommit" if committed else "CompleteAbort")
        broker.restart()
        assert read_until(broker, b"end") == ([b"a"] if committed else []) + [b"end"]


def put_decision(directory: Path, found: Any, committed: bool) -> None:
    """Leave the log as a broker does that is killed after it has decided a transaction and before any marker."""
    manager = LogManager.open(DiskStorage(), str(directory), BrokerConfig().log, NOW_MS)
    state = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    decision = Transaction(
        "x", found.producer_id, found.transaction_timeout_ms, state, found.producer_epoch + 1,
        previous_producer_id=found.producer_id, partitions=frozenset({("t", 0)}),
        start_ms=found.transaction_start_time_ms, last_update_ms=NOW_MS, client_version=EPOCH_BUMP,
    )  # fmt: skip
    manager.partition(TRANSACTIONS_TOPIC, 0).append(encode_batch([encode(decision, NOW_MS)]), 0, NOW_MS)
    manager.abandon()
