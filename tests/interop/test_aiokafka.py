"""aiokafka against the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, ProducerFenced, TopicAlreadyExistsError

from sparkonce import EmbeddedBroker

DEADLINE_S = 30.0
PARTITION = TopicPartition("t", 0)


def run(act: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(act(), DEADLINE_S)

    return asyncio.run(bounded())


def producer_of(broker: EmbeddedBroker, **settings: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)


def consumer_of(broker: EmbeddedBroker, *topics: str, **settings: Any) -> AIOKafkaConsumer:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    return AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap_servers, **settings)


async def values_of(broker: EmbeddedBroker, count: int, **settings: Any) -> list[bytes]:
    """Read so many records from the beginning of the partition."""
    consumer = consumer_of(broker, **settings)
    await consumer.start()
    try:
        consumer.assign([PARTITION])
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed_in_order(kafka_broker: EmbeddedBroker, codec: str | None) -> None:
    values = [b"%d-" % number + b"x" * 100 for number in range(1000)]

    async def act() -> list[bytes]:
        async with producer_of(kafka_broker, compression_type=codec, enable_idempotence=True) as producer:
            futures = [await producer.send("t", value, partition=0) for value in values]
            places = [await future for future in futures]
            assert [place.offset for place in places] == [*range(len(values))]
        return await values_of(kafka_broker, len(values))

    assert run(act) == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(kafka_broker: EmbeddedBroker, acks: int | str) -> None:
    async def act() -> list[bytes]:
        async with producer_of(kafka_broker, acks=acks) as producer:
            await producer.send_and_wait("t", b"a", partition=0)
            await producer.send_and_wait("t", b"b", partition=0)
        return await values_of(kafka_broker, 2)

    assert run(act) == [b"a", b"b"]


def test_headers_keys_nulls_and_timestamps_survive(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> Any:
        async with producer_of(kafka_broker) as producer:
            await producer.send_and_wait(
                "t", None, key=b"k", headers=[("h", b"1"), ("empty", b"")], timestamp_ms=1_700_000_000_123
            )
        async with consumer_of(kafka_broker, "t") as consumer:
            return await consumer.getone()

    message = run(act)
    assert (message.key, message.value, message.headers) == (b"k", None, (("h", b"1"), ("empty", b"")))
    assert message.timestamp == 1_700_000_000_123


def test_a_group_commits_and_goes_on(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> None:
        async with producer_of(kafka_broker) as producer:
            for number in range(10):
                await producer.send_and_wait("t", b"%d" % number)
        async with consumer_of(kafka_broker, "t", group_id="g") as consumer:
            assert [(await consumer.getone()).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
            await consumer.commit()
            assert await consumer.committed(PARTITION) == 4
        async with consumer_of(kafka_broker, "t", group_id="g", enable_auto_commit=True) as consumer:
            assert [(await consumer.getone()).value for _ in range(6)] == [b"%d" % number for number in range(4, 10)]
        async with consumer_of(kafka_broker, "t", group_id="g") as consumer:
            assert await consumer.committed(PARTITION) == 10  # committed on leaving

    run(act)


def test_offsets_by_timestamp(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> None:
        async with producer_of(kafka_broker) as producer:
            for number in range(3):
                await producer.send_and_wait("t", b"x", timestamp_ms=1_700_000_000_000 + 1000 * number)
        async with consumer_of(kafka_broker, "t") as consumer:
            found = await consumer.offsets_for_times({PARTITION: 1_700_000_000_001})
            assert (found[PARTITION].offset, found[PARTITION].timestamp) == (1, 1_700_000_001_000)
            assert await consumer.beginning_offsets([PARTITION]) == {PARTITION: 0}
            assert await consumer.end_offsets([PARTITION]) == {PARTITION: 3}

    run(act)


def test_a_transaction_is_seen_when_it_is_committed(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> None:
        async with producer_of(kafka_broker, transactional_id="tx") as producer:
            async with producer.transaction():
                await producer.send_and_wait("t", b"committed", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"aborted", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait("t", b"committed too", partition=0)
        assert await values_of(kafka_broker, 3) == [b"committed", b"aborted", b"committed too"]
        committed = await values_of(kafka_broker, 2, isolation_level="read_committed")
        assert committed == [b"committed", b"committed too"]

    run(act)


def test_offsets_travel_with_a_transaction(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> None:
        async with producer_of(kafka_broker) as producer:
            await producer.send_and_wait("in", b"x")
        async with (
            consumer_of(kafka_broker, "in", group_id="g", isolation_level="read_committed") as consumer,
            producer_of(kafka_broker, transactional_id="tx") as producer,
        ):
            place = TopicPartition("in", 0)
            message = await consumer.getone()
            await producer.begin_transaction()
            await producer.send_and_wait("t", message.value, partition=0)
            await producer.send_offsets_to_transaction({place: 1}, "g")
            await producer.abort_transaction()
            assert await consumer.committed(place) is None
            async with producer.transaction():
                await producer.send_and_wait("t", message.value, partition=0)
                await producer.send_offsets_to_transaction({place: 1}, "g")
            assert await consumer.committed(place) == 1

    run(act)


def test_an_older_producer_is_fenced(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> None:
        old = producer_of(kafka_broker, transactional_id="tx")
        await old.start()
        try:
            await old.begin_transaction()
            await old.send_and_wait("t", b"x")
            async with producer_of(kafka_broker, transactional_id="tx"):
                with pytest.raises(ProducerFenced):
                    await old.commit_transaction()
        finally:
            await old.stop()

    run(act)


def test_topics_partitions_and_groups_are_administered(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap_servers)
        await admin.start()
        try:
            await topics(admin)
            await groups(admin)
        finally:
            await admin.close()

    async def topics(admin: AIOKafkaAdminClient) -> None:
        await admin.create_topics([NewTopic("t", 2, 1, topic_configs={"retention.ms": "1000"})])
        refused = await admin.create_topics([NewTopic("t", 2, 1)])
        assert [(topic, error) for topic, error, _ in refused.topic_errors] == [("t", TopicAlreadyExistsError.errno)]
        assert await admin.list_topics() == ["t"]
        await admin.create_partitions({"t": NewPartitions(3)})
        (described,) = await admin.describe_topics(["t"])
        assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])
        settings = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert settings["retention.ms"] == "1000"

    async def groups(admin: AIOKafkaAdminClient) -> None:
        async with producer_of(kafka_broker) as producer:
            await producer.send_and_wait("t", b"x", partition=0)
        async with consumer_of(kafka_broker, "t", group_id="g") as consumer:
            await consumer.getone()
            await consumer.commit()
            (answer,) = await admin.describe_consumer_groups(["g"])
            ((error, group, state, *_),) = answer.groups
            assert (error, group, state) == (0, "g", "Stable")
        assert await admin.list_consumer_groups() == [("g", "consumer")]
        offsets = await admin.list_consumer_group_offsets("g")
        assert {place.partition: each.offset for place, each in offsets.items()} == {0: 1, 1: 0, 2: 0}
        await admin.delete_topics(["t"])
        assert "t" not in await admin.list_topics()

    run(act)


def test_a_refusal_is_told(kafka_broker: EmbeddedBroker) -> None:
    async def act() -> None:
        with kafka_broker.faults.fail("TOPIC_AUTHORIZATION_FAILED", api="Produce"):
            async with producer_of(kafka_broker) as producer:
                with pytest.raises(KafkaError, match="TopicAuthorizationFailed"):
                    await producer.send_and_wait("t", b"x")

    run(act)
