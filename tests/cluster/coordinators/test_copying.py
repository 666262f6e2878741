"""Kafka's own transactional copier while coordinators and leaders are killed: each record comes out once, in order.

librdkafka cannot be used for this: its `send_offsets_to_transaction` waits without end for a group's coordinator that
is gone (https://github.com/confluentinc/librdkafka/issues/5511).
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from lab.peers import QUICK_JVM, kafka_classpath, missing_kafka_reason
from sparkonce import EmbeddedCluster
from tests.cluster.coordinators.support import (
    DEADLINE_S,
    QUIET,
    create_topic,
    group_coordinator,
    read,
    ready,
    transaction_coordinator,
    write,
)
from tests.interop.test_java_transactions import COPIER

pytestmark = pytest.mark.java
PER_TRANSACTION = 20
SOAK_DEADLINE_S = 900.0


@pytest.fixture
def topics(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> tuple[str, str]:
    """From where to where is copied."""
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    name = request.node.name.replace("[", "-").replace("]", "")
    for topic in (f"{name}-in", f"{name}-out"):
        create_topic(cluster, topic, [1])
    return f"{name}-in", f"{name}-out"


def values(count: int) -> list[str]:
    return [f"{number:06d}" for number in range(count)]


def fill(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **QUIET})
    write(producer, topic, values(count), 1)


class Copier:
    """A process that copies, and says a line for each transaction."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def read_lines(self, count: int) -> bool:
        """Wait for so many transactions; whether they came before the end."""
        assert self._child.stdout is not None
        with self._patience():
            return all(self._child.stdout.readline() for _ in range(count))

    def finish(self) -> None:
        """Wait until everything is copied."""
        assert self._child.stdout is not None
        with self._patience():
            said = self._child.stdout.read()
            assert self._child.wait() == 0, said

    @contextmanager
    def _patience(self) -> Iterator[None]:
        timer = threading.Timer(DEADLINE_S, self._child.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def copier(cluster: EmbeddedCluster, topics: tuple[str, str], count: int) -> Iterator[Copier]:
    classpath = kafka_classpath()
    assert classpath is not None
    command = [
        *("java", "-Xmx96m", *QUICK_JVM, "-cp", classpath, COPIER),
        *("--broker-list", cluster.bootstrap_servers, "--transactional-id", topics[0], "--consumer-group", topics[0]),
        *("--input-topic", topics[0], "--input-partition", "0", "--output-topic", topics[1]),
        *("--max-messages", str(count), "--transaction-size", str(PER_TRANSACTION)),
        *("--transaction-timeout", "10000", "--enable-random-aborts", "--use-group-metadata"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            yield Copier(child)
        finally:
            if child.poll() is None:
                child.kill()


def check(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    found: list[str] = []

    def all_there() -> bool:
        found[:] = read(cluster, topic, 1)
        return len(found) >= count

    cluster.wait_until(all_there, "records are missing", DEADLINE_S)
    assert found == values(count)


def test_each_record_is_copied_once_through_the_death_of_both_coordinators(
    cluster: EmbeddedCluster, topics: tuple[str, str]
) -> None:
    count = 240
    fill(cluster, topics[0], count)
    with copier(cluster, topics, count) as running:
        for coordinator in (transaction_coordinator, group_coordinator):
            assert running.read_lines(2), "it has ended before anybody died"
            cluster.kill(killed := coordinator(cluster))
            assert running.read_lines(1), "it has ended before the next coordinator was at work"
            cluster.restart(killed)
            cluster.wait_in_sync()
        running.finish()
    check(cluster, topics[1], count)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_DEADLINE_S)
@pytest.mark.parametrize("seed", range(4))
def test_each_record_is_copied_once_while_brokers_die_and_stop_in_turn(
    cluster: EmbeddedCluster, topics: tuple[str, str], seed: int
) -> None:
    count = 4_000
    fill(cluster, topics[0], count)
    chance = random.Random(seed)
    with copier(cluster, topics, count) as running:
        while running.read_lines(chance.randint(1, 10)):
            broker = chance.choice([1, 2, 3])
            end: Callable[[int], None] = chance.choice([cluster.kill, cluster.kill, cluster.stop])
            end(broker)
            if not running.read_lines(chance.randint(1, 5)):
                break
            ready(cluster)
        running.finish()
    check(cluster, topics[1], count)
