"""How far `fetch.max.bytes` reaches.

The articles' first claim: five messages of 1 KiB in five batches, read with `fetch.max.bytes=3500`, come as three whole
batches and half of the fourth; the client drops the half, and the next fetch brings the two that are left. So it is:
a broker counts bytes and cuts wherever they end. A batch of one message of 1 KiB is 1,094 bytes (61 of header, 9 around
the value), so the fourth one gets 218 bytes.

The second: a batch of a 1 KiB and a 2 KiB message, read with `fetch.max.bytes=10`, comes whole, and a consumer at
offset 1 is given one record. So it is: since KIP-74 the first batch of an answer always comes whole, and a batch is
never cut open on the way: the client decodes both records and drops the one before its offset.

Kafka does both the same; `test_*` on `kafka` shows that. librdkafka cannot be set to 10 bytes: its least is 1,000.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason
from sparkonce import EmbeddedBroker
from sparkonce.kafka.protocol.records import decode_all, read_header, scan
from tests.experiments.raw_client import RawClient, batch_of
from tests.reading import AT_ONCE, assign

KIB = 1024
BATCH_BYTES = 1094
TWO_RECORDS_BYTES = 3151
DEADLINE_S = 30.0
VALUES = [b"%d" % number * KIB for number in range(5)]

Read = Callable[[str, str, int, int, int], list[bytes]]
"""(servers, topic, offset, fetch.max.bytes, count) -> values."""


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        with RawClient(broker.bootstrap_servers) as client:
            fill(client)
        yield broker


@pytest.fixture(scope="module")
def real_kafka() -> Iterator[RealKafka]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    with RealKafka(heap="256m", java_options=QUICK_JVM) as kafka:
        with RawClient(kafka.bootstrap_servers) as client:
            fill(client)
        yield kafka


@pytest.fixture(
    params=["embedded", pytest.param("real_kafka", marks=[pytest.mark.java, pytest.mark.soak])],
    ids=["embedded", "kafka"],
)
def raw(request: pytest.FixtureRequest) -> Iterator[RawClient]:
    with RawClient(request.getfixturevalue(request.param).bootstrap_servers) as client:
        yield client


def fill(client: RawClient) -> None:
    client.create_topic("five")
    for value in VALUES:
        client.append("five", batch_of(value))
    client.create_topic("pair")
    client.append("pair", batch_of(b"a" * KIB, b"b" * 2 * KIB))


def test_three_batches_and_a_piece_then_two(raw: RawClient) -> None:
    first = raw.fetch_bytes("five", 0, max_bytes=3500)
    assert len(first) == 3500
    assert [(position, header.size) for position, header in scan(first)] == [
        (0, BATCH_BYTES),
        (BATCH_BYTES, BATCH_BYTES),
        (2 * BATCH_BYTES, BATCH_BYTES),
    ]
    piece = first[3 * BATCH_BYTES :]
    assert (len(piece), read_header(piece).size) == (218, BATCH_BYTES)
    assert [record.value for record in decode_all(first)] == VALUES[
        :3
    ]  # what a client makes of it: the piece is dropped

    second = raw.fetch_bytes("five", 3, max_bytes=3500)
    assert len(second) == 2 * BATCH_BYTES
    assert [(record.offset, record.value) for record in decode_all(second)] == [(3, VALUES[3]), (4, VALUES[4])]


@pytest.mark.parametrize("offset", [0, 1])
def test_ten_bytes_give_the_whole_batch(raw: RawClient, offset: int) -> None:
    answer = raw.fetch_bytes("pair", offset, max_bytes=10)
    assert len(answer) == TWO_RECORDS_BYTES
    assert read_header(answer).base_offset == 0
    assert [(record.offset, len(record.value or b"")) for record in decode_all(answer)] == [(0, KIB), (1, 2 * KIB)]


def test_the_limit_of_a_partition_gives_way_in_the_same_manner(raw: RawClient) -> None:
    assert len(raw.fetch_bytes("pair", 0, max_bytes=1 << 20, max_partition_bytes=10)) == TWO_RECORDS_BYTES
    assert len(raw.fetch_bytes("five", 0, max_bytes=1 << 20, max_partition_bytes=3500)) == 3500


def read_confluent(servers: str, topic: str, offset: int, max_bytes: int, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "message.max.bytes": 1000,  # fetch.max.bytes is raised to this
            "fetch.max.bytes": max_bytes,
            **AT_ONCE,
        }
    )
    assign(consumer, [TopicPartition(topic, 0, offset)])
    values: list[bytes] = []
    while len(values) < count:
        got = consumer.consume(count - len(values), timeout=DEADLINE_S)
        assert got, f"only {len(values)} of {count} came"
        for message in got:
            assert message.error() is None, message.error()
            values.append(message.value())
    consumer.close()
    return values


def read_kafka_python(servers: str, topic: str, offset: int, max_bytes: int, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        fetch_max_bytes=max_bytes,
        auto_offset_reset="earliest",  # it may begin before it is told to seek
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    partition = PythonTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, offset)
    values = [next(consumer).value for _ in range(count)]
    consumer.close()
    del consumer
    gc.collect()
    return values


def read_aiokafka(servers: str, topic: str, offset: int, max_bytes: int, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=None,
            fetch_max_bytes=max_bytes,
            auto_offset_reset="earliest",  # it may begin before it is told to seek
        )
        partition = AioTopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.start()
        try:
            consumer.seek(partition, offset)
            return [(await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def fetch_offsets(broker: EmbeddedBroker, topic: str, read: Callable[[], Any]) -> list[int]:
    """Return the offsets at which fetches of the topic began, in order, without repetitions, while `read` ran."""
    seen: list[int] = []

    def note(request: Any) -> bool:
        for wanted in request.topics:
            for partition in wanted.partitions:
                if not seen or seen[-1] != partition.fetch_offset:
                    seen.append(partition.fetch_offset)
        return False

    with broker.faults.drop_before(api="Fetch", topic=topic, predicate=note, must_fire=False):
        read()
    return seen


CLIENTS = pytest.mark.parametrize(
    "read",
    [
        pytest.param(read_confluent, id="confluent-kafka"),
        pytest.param(
            read_kafka_python,
            id="kafka-python",
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
        pytest.param(read_aiokafka, id="aiokafka"),
    ],
)


@CLIENTS
def test_clients_read_five_in_two_fetches(embedded: EmbeddedBroker, read: Read) -> None:
    got: list[bytes] = []
    offsets = fetch_offsets(
        embedded, "five", lambda: got.extend(read(embedded.bootstrap_servers, "five", 0, 3500, len(VALUES)))
    )
    assert got == VALUES
    offsets = offsets[offsets.index(0) :]  # before it, what the client of the test before began when it was closed
    assert offsets[:2] == [0, 3]
    assert set(offsets[2:]) <= {5}  # the next poll, which some clients begin before they are closed


@CLIENTS
def test_clients_at_offset_1_are_given_one_record(embedded: EmbeddedBroker, read: Read) -> None:
    least = 1000 if read is read_confluent else 10
    assert read(embedded.bootstrap_servers, "pair", 1, least, 1) == [b"b" * 2 * KIB]
