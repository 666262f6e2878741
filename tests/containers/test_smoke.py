"""Apache Kafka as the tests start it: metadata, produce, consume, transactions, and a life after SIGKILL.

It runs in a container (the stock KafkaContainer on our image) where Docker's engine answers and the image can be built,
else as a plain process from Maven's jars. `KAFKA=container`, which `make integration` sets, accepts the container only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason
from sparkonce.jobs.shared.jars import PeerMissingError
from tests.containers.engine import EngineMissingError
from tests.containers.kafka import ContainerKafka, start_container
from tests.containers.kafka_image import ImageError, image

# Of the Kafka that tests compare with, not of the product: `make lab` and `make integration` run it.
pytestmark = [pytest.mark.kafka, pytest.mark.java, pytest.mark.lab]
DEADLINE_S = 60
SETTINGS = {
    "broker.session.timeout.ms": "2000",  # a restart waits until the killed process has timed out
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
Kafka = ContainerKafka | RealKafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    if reason := missing_kafka_reason():
        pytest.skip(reason)
    with (
        start_container(**as_environment(SETTINGS))
        if in_container()
        else RealKafka(config=SETTINGS, java_options=QUICK_JVM) as running
    ):
        yield running


def as_environment(settings: dict[str, str]) -> dict[str, str]:
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in settings.items()}


def in_container() -> bool:
    if os.environ.get("KAFKA") == "container":
        return True
    try:
        image()
    except (EngineMissingError, ImageError, PeerMissingError):
        return False
    return True


def create(kafka: Kafka, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)


def produce(kafka: Kafka, topic: str, values: list[bytes], codec: str = "none") -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "compression.type": codec}
    )
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []


def consume(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"read-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            messages: list[Message] = consumer.consume(count - len(values), timeout=DEADLINE_S)
            assert messages, f"{topic}: {len(values)} of {count} records within {DEADLINE_S} s"
            for message in messages:
                assert message.error() is None
                values.append(message.value())
    finally:
        consumer.close()
    return values


def test_metadata_names_one_broker_and_the_topics_partitions(kafka: Kafka) -> None:
    create(kafka, "metadata", partitions=3)
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics("metadata", DEADLINE_S)
    (broker,) = metadata.brokers.values()
    assert f"{broker.host}:{broker.port}" == kafka.bootstrap_servers
    assert sorted(metadata.topics["metadata"].partitions) == [0, 1, 2]


def test_what_was_produced_is_consumed_in_order(kafka: Kafka) -> None:
    create(kafka, "values")
    values = [f"value {i}".encode() for i in range(2000)]
    produce(kafka, "values", values)
    assert consume(kafka, "values", len(values)) == values


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_image_has_what_kafkas_compression_needs(kafka: Kafka, codec: str) -> None:
    """Kafka opens each batch to check it, with a native library that only then is unpacked and linked."""
    create(kafka, f"codec-{codec}")
    produce(kafka, f"codec-{codec}", [b"a" * 500], codec)
    assert consume(kafka, f"codec-{codec}", 1) == [b"a" * 500]


def test_a_transaction_commits_on_one_node(kafka: Kafka) -> None:
    create(kafka, "transactions")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "smoke"})
    producer.init_transactions(DEADLINE_S)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("transactions", value)
        end(DEADLINE_S)
    assert consume(kafka, "transactions", 1) == [b"committed"]


def test_kafka_keeps_its_port_and_records_over_a_kill(kafka: Kafka) -> None:
    create(kafka, "killed")
    produce(kafka, "killed", [b"before"])
    kafka.kill()
    kafka.restart()
    produce(kafka, "killed", [b"after"])
    assert consume(kafka, "killed", 2) == [b"before", b"after"]
