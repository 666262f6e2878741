"""A group whose coordinator is killed keeps its members, its generation and its offsets: nobody rebalances."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from sparkonce import EmbeddedCluster
from tests.cluster.coordinators.support import (
    DEADLINE_S,
    QUIET,
    create_topic,
    group_coordinator,
    ready,
    write,
)

PARTITIONS = 4
FIRST = [f"a{number}" for number in range(2 * PARTITIONS)]
SECOND = [f"b{number}" for number in range(2 * PARTITIONS)]


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic that the groups' coordinator leads no partition of."""
    others = [each for each in cluster.brokers if each != group_coordinator(cluster)]
    name = request.node.name.replace("[", "-").replace("]", "")
    create_topic(cluster, name, others * (PARTITIONS // len(others)))
    return name


class Members:
    """Members of one group, polled in turn; counts what they are told of their assignments."""

    def __init__(self, cluster: EmbeddedCluster, group_id: str, topic: str, stack: ExitStack, protocol: str) -> None:
        self.group_id, self.topic = group_id, topic
        self.assigned = self.revoked = 0
        own = {"heartbeat.interval.ms": 500} if protocol == "classic" else {}
        config = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group_id,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **own,
            **QUIET,
        }
        self.consumers = [stack.enter_context(closing(Consumer(config))) for _ in range(2)]
        for consumer in self.consumers:
            consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += bool(partitions)

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.revoked += 1

    def poll_until(self, done: Callable[[], bool]) -> list[Message]:
        found: list[Message] = []
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, f"{self.group_id} has {len(found)} records"
            for consumer in self.consumers:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    found.append(message)
                    self.values.append(message.value().decode())
        return found

    def read(self, count: int) -> list[str]:
        """Poll until there are so many records; returns their values, sorted."""
        self.values: list[str] = []
        self.poll_until(lambda: len(self.values) >= count)
        return sorted(self.values)

    def commit(self) -> None:
        for consumer in self.consumers:
            consumer.commit(asynchronous=False)

    def settle(self) -> None:
        """Poll until every member has its share."""
        self.values = []
        share = PARTITIONS // len(self.consumers)
        self.poll_until(lambda: all(len(each.assignment()) == share for each in self.consumers))


def committed(cluster: EmbeddedCluster, group_id: str, topic: str) -> list[int]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group_id, **QUIET}
    with closing(Consumer(config)) as consumer:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(places, DEADLINE_S)]


def heard_of(cluster: EmbeddedCluster, group_id: str) -> Callable[[], bool]:
    """Whether the new coordinator, too, sees the group stable."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})

    def is_stable() -> bool:
        described = admin.describe_consumer_groups([group_id])[group_id].result(DEADLINE_S)
        return described.state.name == "STABLE" and len(described.members) == 2

    return is_stable


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.soak)])
def test_members_stay_when_their_coordinator_is_gone(
    cluster: EmbeddedCluster, topic: str, protocol: str, how: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    with ExitStack() as stack:
        members = Members(cluster, topic, topic, stack, protocol)
        members.settle()
        write(producer, topic, FIRST, PARTITIONS)
        assert members.read(len(FIRST)) == FIRST
        members.commit()
        before = (members.assigned, members.revoked)
        (cluster.kill if how == "killed" else cluster.stop)(group_coordinator(cluster))
        write(producer, topic, SECOND, PARTITIONS)
        assert members.read(len(SECOND)) == SECOND
        members.commit()
        cluster.wait_until(heard_of(cluster, topic), f"{topic} is not stable", DEADLINE_S)
        assert (members.assigned, members.revoked) == before, "the group was rebalanced"
        assert committed(cluster, topic, topic) == [4] * PARTITIONS


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_join_while_the_coordinator_dies(cluster: EmbeddedCluster, topic: str, protocol: str) -> None:
    """A rebalance that is under way then begins again; whoever is left reads everything."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    for step in range(4):
        values = [f"{step}-{value}" for value in FIRST]
        with ExitStack() as stack:
            members = Members(cluster, topic, topic, stack, protocol)
            for _ in range(step * 3):
                members.consumers[step % 2].poll(0.05)
            cluster.kill(group_coordinator(cluster))
            members.settle()
            write(producer, topic, values, PARTITIONS)
            assert members.read(len(values)) == values
            members.commit()
        assert committed(cluster, topic, topic) == [2 * (step + 1)] * PARTITIONS
        ready(cluster)


PYTHON_MEMBER = """
import sys
from kafka import KafkaConsumer

servers, topic = sys.argv[1:]
consumer = KafkaConsumer(
    topic,
    bootstrap_servers=servers.split(","),
    group_id=topic,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    heartbeat_interval_ms=500,
)
for line in sys.stdin:
    values = []
    while len(values) < int(line):
        for records in consumer.poll(timeout_ms=30_000).values():
            values += (record.value.decode() for record in records)
    consumer.commit()
    print(consumer._coordinator.generation_if_stable().generation_id, *sorted(values), flush=True)
"""
"""Reads as many records as it is told to, commits, and says in which generation. kafka-python leaves sockets behind
when brokers die, so it has a process of its own. If a poll times out between JoinGroup and SyncGroup, kafka-python 3.0
never takes up its assignment: hence the long time-out."""


def test_kafka_pythons_member_goes_on(cluster: EmbeddedCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    write(producer, topic, FIRST, PARTITIONS)
    command = [sys.executable, "-c", PYTHON_MEMBER, cluster.bootstrap_servers, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as member:
        timer = threading.Timer(DEADLINE_S, member.kill)
        timer.start()
        try:
            generation, *found = _ask(member, len(FIRST))
            assert found == FIRST
            cluster.kill(group_coordinator(cluster))
            write(producer, topic, SECOND, PARTITIONS)
            assert _ask(member, len(SECOND)) == [generation, *SECOND]
        finally:
            timer.cancel()
            member.kill()
    assert committed(cluster, topic, topic) == [4] * PARTITIONS


def _ask(member: subprocess.Popen[str], count: int) -> list[str]:
    assert member.stdin is not None
    assert member.stdout is not None
    print(count, file=member.stdin, flush=True)
    return member.stdout.readline().split()
