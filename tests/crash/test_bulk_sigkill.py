"""The broker is killed by SIGKILL while it makes and deletes topics: what it acknowledged is so, the rest is whole."""

from __future__ import annotations

import random
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedBroker

KILLS = 6
TOPICS = 10
PARTITIONS = 150
WITH_RECORDS = 20
DEADLINE_S = 60.0
SEED = 11


def client(broker: EmbeddedBroker) -> AdminClient:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "reconnect.backoff.ms": 10}
    return AdminClient(settings)


def counts(broker: EmbeddedBroker) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    topics = client(broker).list_topics(timeout=DEADLINE_S).topics
    return {name: len(topic.partitions) for name, topic in topics.items()}


def fill(broker: EmbeddedBroker, name: str) -> None:
    """Write a record to some partitions, so that they have files."""
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for index in range(WITH_RECORDS):
        producer.produce(name, b"v", partition=index, on_delivery=lambda error, _: error and refused.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert not refused


def until_killed(broker: EmbeddedBroker, asked: dict[str, object], most: int) -> set[str]:
    """Kill the broker after so many acknowledgements; returns what was acknowledged."""
    done = set()
    for number, (name, future) in enumerate(asked.items()):
        if number == most:
            broker.kill()
        try:
            future.result(timeout=DEADLINE_S)  # type: ignore[attr-defined]
            done.add(name)
        except KafkaException:
            assert number >= most, "nothing fails while the broker lives"
    broker.restart()
    return done


def test_what_is_acknowledged_of_many_topics_is_so(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    with EmbeddedBroker(tmp_path / "data", process=True) as broker:
        there: set[str] = set()
        for kill in range(KILLS):
            admin = client(broker)
            settings = {"request_timeout": DEADLINE_S, "operation_timeout": DEADLINE_S}
            if kill % 2 == 0:
                names = [f"t{kill}-{number}" for number in range(TOPICS)]
                asked = {}
                for name in names:  # a request for each, on one connection
                    asked |= admin.create_topics([NewTopic(name, PARTITIONS, 1)], **settings)
                done = until_killed(broker, asked, chance.randrange(1, TOPICS))
                found = counts(broker)
                assert there | done <= found.keys() <= there | set(names)
                there = set(found)
            else:
                for name in list(there)[:3]:
                    fill(broker, name)
                asked = {}
                for name in sorted(there):
                    asked |= admin.delete_topics([name], **settings)
                done = until_killed(broker, asked, chance.randrange(1, len(asked)))
                found = counts(broker)
                assert not done & found.keys()
                assert found.keys() <= there
                there = set(found)
            assert set(found.values()) <= {PARTITIONS}, "a topic is there as a whole or not at all"
            for name in sorted(there)[:1]:
                fill(broker, name)
