"""confluent-kafka (librdkafka) against the broker."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from sparkonce import EmbeddedBroker
from tests.reading import assign

DEADLINE_S = 30.0


def produce(broker: EmbeddedBroker, topic: str, values: list[bytes], **settings: Any) -> list[tuple[int, int]]:
    """Produce and give each record's (partition, offset)."""
    places: list[tuple[int, int]] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        places.append((message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    return places


def consume(consumer: Consumer, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        batch = consumer.consume(count - len(messages), timeout=DEADLINE_S)
        assert batch, f"only {len(messages)} of {count} came"
        for message in batch:
            assert message.error() is None, message.error()
        messages += batch
    return messages


def consumer_of(broker: EmbeddedBroker, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,  # how soon a member hears that another one has joined or left
            **settings,
        }
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed_in_order(kafka_broker: EmbeddedBroker, codec: str) -> None:
    values = [b"%d-" % number + b"x" * 100 for number in range(3000)]
    produce(kafka_broker, "t", values, **{"compression.type": codec, "enable.idempotence": True})
    consumer = consumer_of(kafka_broker, "g")
    consumer.subscribe(["t"])
    assert [message.value() for message in consume(consumer, len(values))] == values
    consumer.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(kafka_broker: EmbeddedBroker, acks: str) -> None:
    produce(kafka_broker, "t", [b"a", b"b"], acks=acks)
    consumer = consumer_of(kafka_broker, "g")
    assign(consumer, [TopicPartition("t", 0, 0)])
    assert [message.value() for message in consume(consumer, 2)] == [b"a", b"b"]
    consumer.close()


def test_headers_keys_nulls_and_timestamps_survive(kafka_broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce("t", key=b"k", value=None, headers=[("h", b"1"), ("n", None)], timestamp=1_700_000_000_123)
    assert producer.flush(DEADLINE_S) == 0
    consumer = consumer_of(kafka_broker, "g")
    assign(consumer, [TopicPartition("t", 0, 0)])
    (message,) = consume(consumer, 1)
    assert (message.key(), message.value(), message.headers()) == (b"k", None, [("h", b"1"), ("n", None)])
    assert message.timestamp()[1] == 1_700_000_000_123
    consumer.close()


def test_a_batch_larger_than_the_fetch_still_comes(kafka_broker: EmbeddedBroker) -> None:
    produce(kafka_broker, "t", [b"x" * 500_000, b"y" * 500_000], **{"linger.ms": 0})
    consumer = consumer_of(
        kafka_broker, "g", **{"fetch.max.bytes": 1000, "fetch.message.max.bytes": 1000, "message.max.bytes": 1000}
    )
    assign(consumer, [TopicPartition("t", 0, 0)])
    assert [len(message.value()) for message in consume(consumer, 2)] == [500_000, 500_000]
    consumer.close()


def test_a_fetch_waits_for_records(kafka_broker: EmbeddedBroker) -> None:
    produce(kafka_broker, "t", [b"first"])
    consumer = consumer_of(kafka_broker, "g", **{"fetch.wait.max.ms": 20_000, "socket.timeout.ms": 60_000})
    assign(consumer, [TopicPartition("t", 0, 0)])
    consume(consumer, 1)
    later = threading.Thread(target=produce, args=(kafka_broker, "t", [b"second"]))
    later.start()
    assert [message.value() for message in consume(consumer, 1)] == [b"second"]
    later.join()
    consumer.close()


def test_two_consumers_share_and_take_over(kafka_broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic("t", 4)])["t"].result(DEADLINE_S)
    first, second = consumer_of(kafka_broker, "g"), consumer_of(kafka_broker, "g")
    first.subscribe(["t"])
    while len(first.assignment()) < 4:
        first.poll(0.05)
    second.subscribe(["t"])
    while not (len(first.assignment()) == len(second.assignment()) == 2):
        first.poll(0.05)
        second.poll(0.05)
    second.close()
    while len(first.assignment()) < 4:
        first.poll(0.05)
    first.close()


def test_committed_offsets_survive_a_restart() -> None:
    with EmbeddedBroker(process=True) as broker:
        produce(broker, "t", [b"%d" % number for number in range(10)])
        consumer = consumer_of(broker, "g")
        consumer.subscribe(["t"])
        consume(consumer, 4)
        consumer.commit(offsets=[TopicPartition("t", 0, 4, metadata="note")], asynchronous=False)
        consumer.close()
        for end in (broker.restart, broker.kill):
            end()
            if broker.pid is None:
                broker.restart()
            again = consumer_of(broker, "g")
            (committed,) = again.committed([TopicPartition("t", 0)], timeout=DEADLINE_S)
            assert (committed.offset, committed.metadata) == (4, "note")
            again.subscribe(["t"])
            assert [message.value() for message in consume(again, 6)] == [b"%d" % number for number in range(4, 10)]
            again.close()


def test_offsets_by_timestamp(kafka_broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "linger.ms": 0})
    for number in range(5):
        producer.produce("t", b"%d" % number, timestamp=1_700_000_000_000 + 1000 * number)
        producer.flush(DEADLINE_S)
    consumer = consumer_of(kafka_broker, "g")

    def offset_for(timestamp: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition("t", 0, timestamp)], timeout=DEADLINE_S)
        return int(found.offset)

    assert [offset_for(1_700_000_000_000 + delta) for delta in (-5, 0, 1, 4000)] == [0, 0, 1, 4]
    assert offset_for(1_700_000_004_001) == -1
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=DEADLINE_S) == (0, 5)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    latest = TopicPartition("t", 0)
    assert admin.list_offsets({latest: OffsetSpec.max_timestamp()})[latest].result(DEADLINE_S).offset == 4
    consumer.close()


def test_topics_are_created_described_and_deleted(kafka_broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic("a", 3, config={"segment.bytes": "1048576"})])["a"].result(DEADLINE_S)
    assert len(admin.list_topics(timeout=DEADLINE_S).topics["a"].partitions) == 3

    def refusal(topic: NewTopic) -> int:
        future = next(iter(admin.create_topics([topic]).values()))
        with pytest.raises(Exception) as caught:  # noqa: PT011 - KafkaException wraps the code in its argument
            future.result(DEADLINE_S)
        return int(caught.value.args[0].code())

    assert refusal(NewTopic("a", 1)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(NewTopic("b", 0)) == KafkaError.INVALID_PARTITIONS
    assert refusal(NewTopic("b", 1, 3)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal(NewTopic("b/c", 1)) == KafkaError.TOPIC_EXCEPTION
    assert refusal(NewTopic("b", 1, config={"segment.byte": "1"})) == KafkaError.INVALID_CONFIG
    assert refusal(NewTopic("b", 1, replica_assignment=[[7]])) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    admin.create_topics([NewTopic("b", 1)], validate_only=True)["b"].result(DEADLINE_S)
    assert "b" not in admin.list_topics(timeout=DEADLINE_S).topics
    admin.delete_topics(["a"])["a"].result(DEADLINE_S)
    assert "a" not in admin.list_topics(timeout=DEADLINE_S).topics


def test_groups_are_listed_described_and_deleted(kafka_broker: EmbeddedBroker) -> None:
    produce(kafka_broker, "t", [b"x"])
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    consumer = consumer_of(kafka_broker, "g", **{"client.id": "me"})
    consumer.subscribe(["t"])
    consume(consumer, 1)
    consumer.commit(asynchronous=False)
    description = admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
    assert [(member.client_id, len(member.assignment.topic_partitions)) for member in description.members] == [
        ("me", 1)
    ]
    with pytest.raises(Exception, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups(["g"])["g"].result(DEADLINE_S)
    consumer.close()
    assert [each.group_id for each in admin.list_consumer_groups().result(DEADLINE_S).valid] == ["g"]
    request = [ConsumerGroupTopicPartitions("g")]
    (offset,) = admin.list_consumer_group_offsets(request)["g"].result(DEADLINE_S).topic_partitions
    assert (offset.topic, offset.offset) == ("t", 1)
    admin.delete_consumer_groups(["g"])["g"].result(DEADLINE_S)
    assert admin.list_consumer_groups().result(DEADLINE_S).valid == []


def test_offsets_of_a_deleted_topic_are_gone_with_it(kafka_broker: EmbeddedBroker) -> None:
    produce(kafka_broker, "t", [b"x"])
    consumer = consumer_of(kafka_broker, "g")
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.delete_topics(["t"])["t"].result(DEADLINE_S)
    admin.create_topics([NewTopic("t", 1)])["t"].result(DEADLINE_S)
    (committed,) = consumer.committed([TopicPartition("t", 0)], timeout=DEADLINE_S)
    assert committed.offset == -1001
    consumer.close()


def test_a_message_that_is_too_large_is_refused() -> None:
    with EmbeddedBroker(config={"message.max.bytes": 1000}) as broker:
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
