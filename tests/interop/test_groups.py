"""Consumer groups of both protocols with other clients."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from sparkonce import EmbeddedBroker
from tests.interop.python_consumer import python_consumer

DEADLINE_S = 60.0
QUICK = {"group.consumer.heartbeat.interval.ms": 100}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=QUICK) as embedded:
        yield embedded


@pytest.fixture
def opened() -> Iterator[list[Consumer]]:
    consumers: list[Consumer] = []
    yield consumers
    for consumer in consumers:
        consumer.close()


def create(broker: EmbeddedBroker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)


def consumer_of(broker: EmbeddedBroker, *topics: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            **settings,
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def share(consumer: Consumer) -> set[tuple[str, int]]:
    return {(each.topic, each.partition) for each in consumer.assignment()}


def poll_until(consumers: list[Consumer], holds: Callable[[], bool], what: str) -> None:
    """Let the consumers work until something holds; it is an error if that takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: {[share(each) for each in consumers]}"
        for consumer in consumers:
            consumer.poll(0.02)


def partitions(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, index) for index in range(count)}


def sizes(consumers: list[Consumer]) -> list[int]:
    return sorted(len(share(each)) for each in consumers)


KIP_848 = {"group.protocol": "consumer"}


def test_members_of_kip_848_share_take_over_and_commit(broker: EmbeddedBroker, opened: list[Consumer]) -> None:
    create(broker, "t", 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for index in range(30):
        producer.produce("t", b"%d" % index, partition=index % 3)
    assert producer.flush(DEADLINE_S) == 0
    opened.append(consumer_of(broker, "t", **KIP_848))
    poll_until(opened, lambda: sizes(opened) == [3], "one member has all")
    opened.append(consumer_of(broker, "t", **KIP_848, **{"group.remote.assignor": "range"}))
    poll_until(opened, lambda: sizes(opened) == [1, 2], "two share")
    assert share(opened[0]) | share(opened[1]) == partitions("t", 3)
    opened[0].commit(offsets=[TopicPartition("t", 0, 4)], asynchronous=False)
    opened.pop().close()
    poll_until(opened, lambda: sizes(opened) == [3], "the one that is left has all")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
    assert (described.type.name, described.state.name) == ("CONSUMER", "STABLE")
    (listed,) = admin.list_consumer_groups().result(DEADLINE_S).valid
    assert (listed.group_id, listed.type.name) == ("g", "CONSUMER")


def test_a_pattern_of_kip_848_finds_topics_as_they_come(broker: EmbeddedBroker, opened: list[Consumer]) -> None:
    create(broker, "tp-a", 2)
    create(broker, "other", 1)
    opened.append(consumer_of(broker, "^tp-.*", **KIP_848))
    poll_until(opened, lambda: share(opened[0]) == partitions("tp-a", 2), "what is there")
    create(broker, "tp-b", 1)
    both = partitions("tp-a", 2) | partitions("tp-b", 1)
    poll_until(opened, lambda: share(opened[0]) == both, "what has come")


@pytest.mark.parametrize("protocol", [KIP_848, {"partition.assignment.strategy": "cooperative-sticky"}], ids=str)
def test_a_static_member_comes_back_to_its_share(
    broker: EmbeddedBroker, opened: list[Consumer], protocol: dict[str, str]
) -> None:
    create(broker, "t", 4)
    opened += [consumer_of(broker, "t", **protocol, **{"group.instance.id": name}) for name in ("a", "b")]
    poll_until(opened, lambda: sizes(opened) == [2, 2], "two share")
    mine, others = share(opened[0]), share(opened[1])
    rebalanced: list[object] = []
    opened[1].subscribe(["t"], on_revoke=lambda _, revoked: rebalanced.append(revoked))
    opened.pop(0).close()
    opened.append(consumer_of(broker, "t", **protocol, **{"group.instance.id": "a"}))
    poll_until(opened, lambda: share(opened[1]) == mine, "its own share again")
    assert share(opened[0]) == others
    assert not rebalanced


@pytest.mark.soak  # librdkafka takes its time to find the broker again
def test_members_stay_over_a_restart_of_the_broker(opened: list[Consumer]) -> None:
    with EmbeddedBroker(process=True, config=QUICK) as broker:
        create(broker, "t", 2)
        quick = {"log_level": 0, "reconnect.backoff.max.ms": 200}
        for settings in ({**KIP_848, "group.id": "modern"}, {"group.id": "classic"}):
            opened += [consumer_of(broker, "t", **settings, **quick)]
        poll_until(opened, lambda: sizes(opened) == [2, 2], "both have all")
        ids = [each.memberid() for each in opened]
        broker.kill()
        broker.restart()
        for consumer in opened:
            deadline = time.monotonic() + DEADLINE_S
            offsets = [TopicPartition("t", 0, 7)]
            while True:
                try:
                    consumer.commit(offsets=offsets, asynchronous=False)
                    break
                except KafkaException:  # the connection is not there yet
                    assert time.monotonic() < deadline
                    consumer.poll(0.1)
        assert [each.memberid() for each in opened] == ids
        assert sizes(opened) == [2, 2]
        for consumer in opened:
            consumer.close()
        opened.clear()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_kafka_pythons_static_member_comes_back(broker: EmbeddedBroker) -> None:
    create(broker, "t", 2)

    @contextmanager
    def member() -> Iterator[KafkaConsumer]:
        settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "enable_auto_commit": False}
        with python_consumer("t", group_instance_id="i", **settings) as consumer:
            deadline = time.monotonic() + DEADLINE_S
            while not consumer.assignment():
                assert time.monotonic() < deadline
                consumer.poll(20)
            yield consumer

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with member() as first:
        assert len(first.assignment()) == 2
    with member() as second:
        (described,) = admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S).members
        assert described.group_instance_id == "i"
    del first, second
    gc.collect()
