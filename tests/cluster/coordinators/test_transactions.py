"""A transactional producer whose coordinator is killed: read_committed sees all of its transaction, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from sparkonce import EmbeddedCluster
from tests.cluster.coordinators.support import (
    DEADLINE_S,
    SETTINGS,
    create_topic,
    make_internal_topics,
    read,
    transaction_coordinator,
    transactional,
    write,
)

PARTITIONS = 4


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A topic that the transactions' coordinator leads no partition of."""
    others = [each for each in cluster.brokers if each != transaction_coordinator(cluster)]
    name = request.node.name.replace("[", "-").replace("]", "")
    create_topic(cluster, name, others * (PARTITIONS // len(others)))
    return name


VALUES = [f"v{number}" for number in range(2 * PARTITIONS)]


@pytest.mark.parametrize("committed", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_the_coordinator_dies_before_the_end(cluster: EmbeddedCluster, topic: str, committed: bool) -> None:
    producer = transactional(cluster, topic)
    producer.begin_transaction()
    write(producer, topic, VALUES, PARTITIONS)
    cluster.kill(transaction_coordinator(cluster))
    if committed:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)
    following(cluster, producer, topic, VALUES if committed else [])


@pytest.mark.parametrize("held", [pytest.param("all", marks=pytest.mark.soak), "half"])
def test_the_coordinator_dies_after_the_decision(cluster: EmbeddedCluster, topic: str, held: str) -> None:
    """The markers are held up on their way to all of the partitions' leaders, or to one of them."""
    producer = transactional(cluster, topic)
    producer.begin_transaction()
    write(producer, topic, VALUES, PARTITIONS)
    coordinator = transaction_coordinator(cluster)
    others = [each for each in cluster.brokers if each != coordinator][: 2 if held == "all" else 1]
    faults = [cluster.brokers[each].faults.pause(api="WriteTxnMarkers") for each in others]
    producer.commit_transaction(DEADLINE_S)
    for fault in faults:
        fault.wait()
    cluster.kill(coordinator)
    for fault in faults:
        fault.remove()  # what the dead coordinator has sent arrives now, beside what the next one sends
    following(cluster, producer, topic, VALUES)


@pytest.mark.soak
def test_a_transaction_is_begun_and_ended_by_three_coordinators(cluster: EmbeddedCluster, topic: str) -> None:
    producer = transactional(cluster, topic)
    for step in range(2):
        producer.begin_transaction()
        write(producer, topic, [f"{step}-{value}" for value in VALUES], PARTITIONS)
        cluster.kill(coordinator := transaction_coordinator(cluster))
        producer.commit_transaction(DEADLINE_S)
        cluster.restart(coordinator)
        cluster.wait_in_sync()
    following(cluster, producer, topic, [f"{step}-{value}" for step in range(2) for value in VALUES])


def test_an_older_instance_is_fenced_by_the_next_coordinator(cluster: EmbeddedCluster, topic: str) -> None:
    old = transactional(cluster, topic)
    old.begin_transaction()
    write(old, topic, ["old"] * PARTITIONS, PARTITIONS)
    cluster.kill(transaction_coordinator(cluster))
    new = transactional(cluster, topic)
    with pytest.raises(Exception, match="_FENCED"):
        old.commit_transaction(DEADLINE_S)
    following(cluster, new, topic, [])


@pytest.mark.soak
def test_a_coordinator_that_hangs_is_replaced_and_then_says_nothing_false(tmp_path: Path) -> None:
    """It does not know for a moment after it goes on that another one has decided meanwhile."""
    settings = {**SETTINGS, "broker.heartbeat.interval.ms": 300, "broker.session.timeout.ms": 1_500}
    with EmbeddedCluster(3, tmp_path / "data", process=True, config=settings) as cluster:
        make_internal_topics(cluster)
        old = transaction_coordinator(cluster)
        create_topic(cluster, "t", [each for each in cluster.brokers if each != old] * (PARTITIONS // 2))
        producer = transactional(cluster, "x", socket_timeout_ms=2_000)
        producer.begin_transaction()
        write(producer, "t", VALUES, PARTITIONS)
        cluster.pause(old)
        cluster.wait_until(lambda: transaction_coordinator(cluster) not in (old, -1), "nobody takes over", DEADLINE_S)
        producer.commit_transaction(DEADLINE_S)
        cluster.resume(old)
        cluster.wait_in_sync()
        following(cluster, producer, "t", VALUES)


def following(cluster: EmbeddedCluster, producer: Producer, topic: str, so_far: list[str]) -> None:
    """Write one more transaction; see it, and what there was before, once its markers are everywhere."""
    producer.begin_transaction()
    write(producer, topic, ["last"] * PARTITIONS, PARTITIONS)
    producer.commit_transaction(DEADLINE_S)
    found: list[str] = []

    def is_there() -> bool:
        found[:] = read(cluster, topic, PARTITIONS)
        return found.count("last") >= PARTITIONS

    cluster.wait_until(is_there, "the last transaction is not to be seen", DEADLINE_S)
    assert found == sorted([*so_far, *["last"] * PARTITIONS])
