"""What a crash of a consumer loses or repeats, by how it commits.

The articles' claims: automatic commits may lose records or repeat them; with manual commits the order decides: commit
first, and a crash loses what was not processed yet (at most once); process first, and a crash repeats what was not
committed yet (at least once). So it is: Kafka keeps one number for each group and partition, and knows nothing of what
a consumer has done with a record.

One thing is the client's own. librdkafka commits in the background whatever it has handed out, processed or not, so
automatic commits can lose the record at hand (`enable.auto.offset.store=false` is the cure). Java's consumer of the
classic protocol commits when `poll` is called, by which time an application that works in the same thread has processed
what the poll before gave: it only repeats. Java's consumer of KIP-848 means to do the same, but a thread of its own
reads the positions, and may come too late: with 4.3.0 the record at hand was seen committed (compare KAFKA-18641).

An application in a process of its own reads ten records and ends with `os._exit` at the sixth, as if killed. The next
one comes with the same `group.instance.id`, so that it need not wait for `session.timeout.ms` to pass.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lab.peers import QUICK_JVM, kafka_classpath, missing_kafka_reason
from sparkonce import EmbeddedBroker
from sparkonce.jobs.shared.jars import java_command

RECORDS = 10
DEADLINE_S = 60.0
JAVA_DEADLINE_S = 200.0

SUCCESSOR = "successor"
"""The mode of the application that comes after the crash; it reads what is left, and does not crash."""

APPLICATION = """
import os, sys
from confluent_kafka import Consumer, TopicPartition

servers, topic, mode, last = sys.argv[1:]
INTERVAL_MS = {"auto-quick": 10, "auto-own-store": 10, "auto-slow": 3_600_000, "auto-closed": 3_600_000}
consumer = Consumer({
    "bootstrap.servers": servers,
    "group.id": topic,
    "group.instance.id": "worker",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": mode in INTERVAL_MS,
    "auto.commit.interval.ms": INTERVAL_MS.get(mode, 5_000),
    "enable.auto.offset.store": mode != "auto-own-store",
})
consumer.subscribe([topic])

def wait_for_commit(offset):
    while consumer.committed([TopicPartition(topic, 0)], 30)[0].offset != offset:
        pass

def crash_at(place):
    if value == last and place == CRASHES.get(mode):
        if mode == "auto-quick":
            wait_for_commit(message.offset() + 1)
        if mode == "auto-own-store":
            wait_for_commit(message.offset())
        os._exit(7)

CRASHES = {"auto-quick": "begin", "auto-slow": "begin", "auto-own-store": "begin", "before": "begin", "after": "end"}
value = None
while value != last:
    message = consumer.poll(30)
    assert message is not None and message.error() is None, message
    value = message.value().decode()
    if mode == "before":
        consumer.commit(message, asynchronous=False)
    crash_at("begin")
    print(value, flush=True)  # this is the processing
    crash_at("end")
    if mode == "after":
        consumer.commit(message, asynchronous=False)
    if mode == "auto-own-store":
        consumer.store_offsets(message)
consumer.close()
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as embedded:
        yield embedded


def fill(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(1, RECORDS + 1):
        producer.produce(topic, str(number))
    assert producer.flush(DEADLINE_S) == 0


def run(broker: EmbeddedBroker, topic: str, mode: str, last: int, status: int) -> list[int]:
    """Start the application; returns what it has processed."""
    command = [sys.executable, "-c", APPLICATION, broker.bootstrap_servers, topic, mode, str(last)]
    done = subprocess.run(command, timeout=DEADLINE_S, check=False, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize(
    ("mode", "first", "second"),
    [
        pytest.param("auto-quick", range(1, 6), range(7, 11), id="automatic, committed before processing: 6 is lost"),
        pytest.param("auto-slow", range(1, 6), range(1, 11), id="automatic, not committed yet: 1 to 5 come twice"),
        pytest.param("auto-own-store", range(1, 6), range(6, 11), id="automatic, stored when processed: neither"),
        pytest.param("before", range(1, 6), range(7, 11), id="manual, commit first: 6 is lost"),
        pytest.param("after", range(1, 7), range(6, 11), id="manual, process first: 6 comes twice"),
    ],
)
def test_a_crash_at_the_sixth_record(broker: EmbeddedBroker, mode: str, first: range, second: range) -> None:
    fill(broker, mode)
    assert run(broker, mode, mode, last=6, status=7) == [*first]
    assert run(broker, mode, SUCCESSOR, last=RECORDS, status=0) == [*second]


def test_who_closes_loses_and_repeats_nothing(broker: EmbeddedBroker) -> None:
    fill(broker, "auto-closed")
    assert run(broker, "auto-closed", "auto-closed", last=6, status=0) == [*range(1, 7)]
    assert run(broker, "auto-closed", SUCCESSOR, last=RECORDS, status=0) == [*range(7, 11)]


@pytest.mark.java
@pytest.mark.soak
@pytest.mark.parametrize(("protocol", "committed"), [("classic", ["5"]), ("consumer", ["5", "6"])])
def test_javas_automatic_commits(broker: EmbeddedBroker, protocol: str, committed: list[str]) -> None:
    """Up to which offset, while the record at offset 5, whose value is 6, is being processed."""
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    topic = f"java-{protocol}"
    fill(broker, topic)
    source = Path(__file__).with_name("CrashingConsumer.java")
    command = [
        java_command(),
        *QUICK_JVM,
        "-Xmx128m",
        "-cp",
        str(kafka_classpath()),
        str(source),
    ]
    command += [broker.bootstrap_servers, topic, protocol, "6"]
    done = subprocess.run(command, timeout=JAVA_DEADLINE_S, check=False, capture_output=True, text=True)
    assert done.returncode == 7, done.stdout + done.stderr
    *processed, _, last = done.stdout.split()
    assert processed == ["1", "2", "3", "4", "5"]
    assert last in committed
