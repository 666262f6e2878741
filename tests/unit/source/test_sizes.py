"""What planning learns of the size of records, from a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.connectors.kafka_source.sizes import GUESS, densities
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import Leader
from sparkonce.kafka.client.settings import read_settings

RECORDS = 500


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "linger.ms": 50})
        for size in (10, 1000):
            for _ in range(RECORDS):
                producer.produce(f"of-{size}", b"x" * size, partition=0)
        assert producer.flush(60) == 0
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    found = Client(read_settings({"kafka.bootstrap.servers": broker.bootstrap_servers}))
    yield found
    found.close()


def wanted(client: Client, topic: str, start: int = 0) -> FetchRange:
    found = client.topics([topic])[topic]
    return FetchRange(topic, found.topic_id, 0, start, RECORDS, found.partitions[0])


def test_sizes_are_those_of_the_first_batches(client: Client) -> None:
    found = densities(client, [wanted(client, "of-10"), wanted(client, "of-1000")])
    assert 10 < found["of-10"].bytes_per_offset < 40
    assert 1000 < found["of-1000"].bytes_per_offset < 1040
    assert found["of-10"].records_per_offset == 1


def test_what_cannot_be_read_is_guessed(client: Client) -> None:
    behind_the_end = wanted(client, "of-10", RECORDS)
    assert densities(client, [behind_the_end]) == {"of-10": GUESS}
    nobody = FetchRange("of-10", behind_the_end.topic_id, 0, 0, RECORDS, Leader("127.0.0.1", 1, 0))
    assert densities(client, [nobody]) == {"of-10": GUESS}
    unknown = FetchRange("of-10", behind_the_end.topic_id, 0, 0, RECORDS)
    assert densities(client, [unknown]) == {"of-10": GUESS}
    gone = FetchRange("of-10", "AAAAAAAAAAAAAAAAAAAAAQ", 0, 0, RECORDS, behind_the_end.leader)
    assert densities(client, [gone]) == {"of-10": GUESS}
