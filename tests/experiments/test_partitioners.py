"""Which partition a record goes to is the client's choice.

The articles' claims: a record with a key goes to the partition that a hash of the key gives, so that records of one key
keep their order; without a key, records go round, or stick to one partition for a batch; and an application may have
its own rule. So it is, but for one word: *the* hash. Java's clients, kafka-python and aiokafka take murmur2 by default,
librdkafka CRC32 (`consistent_random`), and a Kafka broker has no say in it. Two services that write the same topic with
different clients tear a key apart, and its order with it, unless librdkafka is told `partitioner=murmur2_random`.

Without a key, nothing goes round any more: Java's producer (KIP-794) and librdkafka (`sticky.partitioning.linger.ms`)
stay with a partition for a while; aiokafka and, unless told otherwise, kafka-python choose anew for each record.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.partitioner import Partitioner
from kafka.partitioner.sticky import StickyPartitioner

from lab.peers import QUICK_JVM, kafka_classpath, missing_kafka_reason
from sparkonce import EmbeddedBroker
from sparkonce.jobs.shared.jars import java_command
from tests.reading import AT_ONCE, assign

PARTITIONS = 5
KEYS = [b"user-%d" % number for number in range(100)]
KEYLESS = 20
APART = 79
"""How many of these keys murmur2 and CRC32 send to different partitions of 5."""
DEADLINE_S = 30.0
TOPIC = "t"

Write = Callable[[str, Sequence[bytes | None]], list[int]]
"""(servers, keys) -> the partition of each record."""

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kafka-python's sockets


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"num.partitions": PARTITIONS}) as embedded:
        yield embedded


def write_confluent(servers: str, keys: Sequence[bytes | None], **settings: Any) -> list[int]:
    places: dict[int, int] = {}
    producer = Producer({"bootstrap.servers": servers, **settings})
    # It sticks to a partition only as long as that is available, which none is before the connection is up.
    producer.produce(TOPIC, b"first", partition=0)
    assert producer.flush(DEADLINE_S) == 0

    def note(number: int, error: Any, message: Any) -> None:
        assert error is None, error
        places[number] = message.partition()

    for number, key in enumerate(keys):
        producer.produce(TOPIC, b"x", key=key, on_delivery=partial(note, number))
    assert producer.flush(DEADLINE_S) == 0
    return [places[number] for number in range(len(keys))]


def write_kafka_python(servers: str, keys: Sequence[bytes | None], **settings: Any) -> list[int]:
    producer = KafkaProducer(bootstrap_servers=servers, **settings)
    futures = [producer.send(TOPIC, b"x", key=key) for key in keys]
    producer.flush(DEADLINE_S)
    places = [future.get(DEADLINE_S).partition for future in futures]
    producer.close()
    del producer, futures
    gc.collect()
    return places


def write_aiokafka(servers: str, keys: Sequence[bytes | None], **settings: Any) -> list[int]:
    async def write() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
            futures = [await producer.send(TOPIC, b"x", key=key) for key in keys]
            return [(await asyncio.wait_for(future, DEADLINE_S)).partition for future in futures]

    return asyncio.run(write())


def places_by_value(servers: str, prefix: str, count: int) -> dict[str, int]:
    """Read the topic and give the partition of each value that begins with `prefix`."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, **AT_ONCE})
    assign(consumer, [TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    places: dict[str, int] = {}
    while len(places) < count:
        messages = consumer.consume(1000, timeout=DEADLINE_S / 100)
        for message in messages:
            assert message.error() is None, message.error()
            if message.value().decode().startswith(prefix):
                places[message.value().decode()] = message.partition()
    consumer.close()
    return places


def crc32(key: bytes) -> int:
    return zlib.crc32(key) % PARTITIONS


@pytest.fixture(scope="module")
def murmur2(broker: EmbeddedBroker) -> list[int]:
    """Where kafka-python's default puts the keys."""
    return write_kafka_python(broker.bootstrap_servers, KEYS)


CLIENTS = pytest.mark.parametrize(
    "write",
    [
        pytest.param(write_confluent, id="confluent-kafka"),
        pytest.param(write_kafka_python, id="kafka-python"),
        pytest.param(write_aiokafka, id="aiokafka"),
    ],
)


@CLIENTS
def test_one_key_one_partition(broker: EmbeddedBroker, write: Write) -> None:
    first = write(broker.bootstrap_servers, KEYS)
    again = write(broker.bootstrap_servers, [*reversed(KEYS)])  # another producer, another order
    assert first == [*reversed(again)]
    assert set(first) == set(range(PARTITIONS))


def test_librdkafkas_default_is_crc32(broker: EmbeddedBroker) -> None:
    assert write_confluent(broker.bootstrap_servers, KEYS) == [crc32(key) for key in KEYS]


def test_one_key_by_two_clients_lands_apart(broker: EmbeddedBroker, murmur2: list[int]) -> None:
    librdkafkas = write_confluent(broker.bootstrap_servers, KEYS)
    assert sum(one != other for one, other in zip(murmur2, librdkafkas, strict=True)) == APART
    assert (murmur2[0], librdkafkas[0]) == (3, 0)  # "user-0"
    told = write_confluent(broker.bootstrap_servers, KEYS, partitioner="murmur2_random")
    assert told == murmur2
    assert write_aiokafka(broker.bootstrap_servers, KEYS) == murmur2


@pytest.mark.java
def test_java_takes_murmur2_and_sticks_without_a_key(broker: EmbeddedBroker, murmur2: list[int]) -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    lines = [f"{key.decode()}\tjava-{number}" for number, key in enumerate(KEYS)]
    lines += [f"NULL\tjava-keyless-{number}" for number in range(KEYLESS)]
    command = [java_command(), *QUICK_JVM, "-Xmx128m", "-cp", str(kafka_classpath())]
    command += ["org.apache.kafka.tools.ConsoleProducer"]
    command += ["--bootstrap-server", broker.bootstrap_servers, "--topic", TOPIC]
    command += ["--reader-property", "parse.key=true", "--reader-property", "null.marker=NULL"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    places = places_by_value(broker.bootstrap_servers, "java-", len(lines))
    assert [places[f"java-{number}"] for number in range(len(KEYS))] == murmur2
    assert len({places[f"java-keyless-{number}"] for number in range(KEYLESS)}) == 1


def test_librdkafka_sticks_to_a_partition_without_a_key(broker: EmbeddedBroker) -> None:
    keyless = [None] * KEYLESS
    sticking = {"sticky.partitioning.linger.ms": 900_000, "linger.ms": 10_000}
    assert len(set(write_confluent(broker.bootstrap_servers, keyless, **sticking))) == 1
    choosing = write_confluent(broker.bootstrap_servers, [None] * 200, **{"sticky.partitioning.linger.ms": 0})
    assert len(set(choosing)) > 1  # all 200 in one partition: once in 10 to the 139


def test_kafka_python_sticks_if_told(broker: EmbeddedBroker) -> None:
    keyless = [None] * KEYLESS
    stuck = write_kafka_python(
        broker.bootstrap_servers, keyless, partitioner=StickyPartitioner(), linger_ms=10_000, batch_size=16_384
    )
    assert len(set(stuck)) == 1
    for write in (write_kafka_python, write_aiokafka):  # untold, both choose anew; all in one: once in 10 to the 139
        assert len(set(write(broker.bootstrap_servers, [None] * 200))) > 1


class Vip(Partitioner):
    """Partition 0 belongs to important keys, the others to everybody else."""

    def partition(
        self, topic: str, key: Any, serialized_key: bytes, value: Any, serialized_value: bytes, cluster: Any
    ) -> int:
        count = len(cluster.partitions_for_topic(topic))
        return 0 if serialized_key.startswith(b"vip-") else 1 + zlib.crc32(serialized_key) % (count - 1)


def vip(key: bytes, all_partitions: list[int], available: list[int]) -> int:
    return 0 if key.startswith(b"vip-") else 1 + zlib.crc32(key) % (len(all_partitions) - 1)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(partial(write_kafka_python, partitioner=Vip()), id="kafka-python"),
        pytest.param(partial(write_aiokafka, partitioner=vip), id="aiokafka"),
    ],
)
def test_an_own_partitioner(broker: EmbeddedBroker, write: Write) -> None:
    keys = [b"vip-1", *KEYS, b"vip-2"]
    places = write(broker.bootstrap_servers, keys)
    assert [key for key, place in zip(keys, places, strict=True) if place == 0] == [b"vip-1", b"vip-2"]
    assert set(places) == set(range(PARTITIONS))
