"""A Java producer that aborts a transaction right after it has committed the one before, on a cluster.

The next transaction begins under another epoch as soon as the commit is answered, while its markers are still on their
way to the leaders of other brokers (KAFKA-18464).
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab.peers import RealKafkaCluster, kafka_classpath, missing_kafka_reason
from sparkonce import EmbeddedCluster
from sparkonce.jobs.shared.jars import java_command
from tests.reading import AT_ONCE, assign

pytestmark = pytest.mark.java
PROGRAM = Path(__file__).parent / "AbortRightAfterCommit.java"
DEADLINE_S = 60.0
ROUNDS = 20
SOAK_ROUNDS = 100
PARTITIONS = 6


@pytest.fixture(autouse=True)
def _kafka_is_here() -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)


def commit_and_abort(bootstrap_servers: str, rounds: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic("t", PARTITIONS, replication_factor=3)])["t"].result(DEADLINE_S)
    classpath = kafka_classpath()
    assert classpath is not None
    done = subprocess.run(
        [java_command(), "-Xmx128m", "-cp", classpath, str(PROGRAM), bootstrap_servers, "x", "t", str(rounds)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = read_committed(bootstrap_servers)
    assert read == Counter({b"c%d" % each: PARTITIONS for each in range(rounds)})


def read_committed(bootstrap_servers: str) -> Counter[bytes]:
    """Read the topic to its end."""
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "g", "enable.partition.eof": True, **AT_ONCE}
    consumer = Consumer({**config, "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0})
    assign(consumer, [TopicPartition("t", each, 0) for each in range(PARTITIONS)])
    found: Counter[bytes] = Counter()
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"nothing after {found}"
        if message.error() is None:
            found[message.value()] += 1
        else:
            ends += 1
    consumer.close()
    return found


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_java_aborts_right_after_a_commit(rounds: int) -> None:
    with EmbeddedCluster(3, process=True) as cluster:
        commit_and_abort(cluster.bootstrap_servers, rounds)


@pytest.mark.soak
def test_java_aborts_right_after_a_commit_on_kafka() -> None:
    with RealKafkaCluster(3, heap="300m") as cluster:
        commit_and_abort(cluster.bootstrap_servers, SOAK_ROUNDS)
