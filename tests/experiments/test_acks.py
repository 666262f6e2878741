"""What a crash of the broker loses, by `acks` and by how an application sends.

The articles' claims, and what happens:

- `acks=0` never waits: what the broker had not read when it died is lost, though the application was told it was sent.
- `acks=1` waits for the leader's log, `acks=all` for those of all replicas in sync. Told so, a record outlives the end
  of the broker's process. With one replica, as here, the two are the same; with more, `acks=1` can lose what the leader
  had acknowledged and the followers had not copied. Neither waits for the disk: at a loss of power, a single replica
  loses what was acknowledged unless `flush.messages=1` is set, in Kafka as here. The articles leave that out.
- An acknowledgement that gets lost makes the producer send again: the record is there twice, or once with
  `enable.idempotence` (the default of Java's producer, not of librdkafka's).
- Sending synchronously loses at most the one record that is on its way, and the application knows which. Sending
  asynchronously, with callbacks that nobody looks at, leaves a hole in the middle of what was sent. Whoever looks at
  the callbacks knows the hole exactly; with retries there is none.
- A crash of the producer takes along what was still in its buffer.

The broker is killed by SIGKILL at a request that `broker.faults` names, so that each run is the same. Kafka cannot be
killed so exactly; that what it acknowledged outlives its process is tried on it, too.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason
from lab.sim.disk import SimulatedDisk
from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.reading import AT_ONCE, assign

DEADLINE_S = 30.0
PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""What a consumer says while a broker comes back."""


Killable = EmbeddedBroker | RealKafka


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(process=True) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def real_kafka() -> Iterator[RealKafka]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    with RealKafka(heap="256m", java_options=QUICK_JVM) as kafka:
        yield kafka


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


def producer_of(broker: Killable, **settings: Any) -> Producer:
    quick = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 5, "log_level": 0}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **quick, **settings})


class Told:
    """What an application was told of each record, in the order in which it was told."""

    def __init__(self, producer: Producer, topic: str) -> None:
        producer.list_topics(topic, DEADLINE_S)  # creates it
        self._topic = topic
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._producer = producer

    def send(self, value: str) -> None:
        self._producer.produce(self._topic, value, partition=0, on_delivery=self._note)

    def send_and_wait(self, value: str) -> None:
        """Send synchronously.

        Raises:
            KafkaException: if the record was not acknowledged.
        """
        errors: list[Any] = []
        self._producer.produce(self._topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        self.flush()
        if errors[0] is not None:
            raise KafkaException(errors[0])
        self.acknowledged.append(value)

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0

    def _note(self, error: KafkaError | None, message: Any) -> None:
        (self.acknowledged if error is None else self.failed).append(message.value().decode())


def log_of(broker: Killable, topic: str) -> list[str]:
    """Return what the log holds."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none", "log_level": 0}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True, **AT_ONCE})
    assign(consumer, [TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"the end of the log did not come after {values}"
        error = message.error()
        if error is None:
            values.append(message.value().decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return values
        else:
            assert error.retriable() or error.code() in PASSING, error


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_crash_before_the_record_is_written(broker: EmbeddedBroker, topic: str, acks: str) -> None:
    told = Told(producer_of(broker, acks=acks, retries=0), topic)
    with broker.faults.restart(kill=True, api="Produce", topic=topic, nth=2) as crash:
        told.send("1")
        told.flush()
        told.send("2")
        told.flush()
        crash.wait()
    if acks == "0":
        assert told.acknowledged == ["1", "2"]  # the application was told so, and 2 is lost
    else:
        assert (told.acknowledged, told.failed) == (["1"], ["2"])
    assert log_of(broker, topic) == ["1"]


@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize(
    "kind",
    ["broker", pytest.param("real_kafka", marks=[pytest.mark.java, pytest.mark.soak])],
    ids=["embedded", "kafka"],
)
def test_what_was_acknowledged_outlives_the_process(
    kind: str, topic: str, acks: str, request: pytest.FixtureRequest
) -> None:
    broker: Killable = request.getfixturevalue(kind)
    told = Told(producer_of(broker, acks=acks), topic)
    for number in range(20):
        told.send_and_wait(str(number))
    broker.kill()
    broker.restart()
    assert log_of(broker, topic) == told.acknowledged == [str(number) for number in range(20)]


@pytest.mark.parametrize(("flush_messages", "kept"), [(None, 0), (1, 20)], ids=["default", "flush.messages=1"])
def test_a_loss_of_power_takes_what_was_not_flushed(flush_messages: int | None, kept: int) -> None:
    config = LogConfig() if flush_messages is None else LogConfig(flush_messages=flush_messages)
    storage = SimulatedDisk()
    log = PartitionLog.open(storage, "/t-0", config, 0)
    for number in range(20):
        log.append(encode_batch([Record(None, b"%d" % number, 0)]), 0, 0)
    storage.lose_power(_Everything())
    log = PartitionLog.open(storage, "/t-0", config, 0, clean=False)
    assert log.log_end_offset == kept


class _Everything(random.Random):
    """The worst of all crashes: nothing that was not flushed is on the disk."""

    def randint(self, a: int, b: int) -> int:
        return a

    def choice(self, seq: Any) -> Any:
        return seq[0]


@pytest.mark.parametrize(
    ("settings", "in_the_log", "acknowledged"),
    [
        ({"enable.idempotence": False}, ["1", "2", "2"], ["1", "2"]),
        ({"enable.idempotence": True}, ["1", "2"], ["1", "2"]),
        ({"retries": 0}, ["1", "2"], ["1"]),
    ],
    ids=["twice", "idempotence", "no retries"],
)
def test_a_crash_after_the_record_is_written(
    broker: EmbeddedBroker, topic: str, settings: dict[str, Any], in_the_log: list[str], acknowledged: list[str]
) -> None:
    told = Told(producer_of(broker, acks="all", **settings), topic)
    with broker.faults.restart(kill=True, after_effect=True, api="Produce", topic=topic, nth=2) as crash:
        told.send("1")
        told.flush()
        told.send("2")
        crash.wait()
        told.flush()
    assert log_of(broker, topic) == in_the_log
    assert told.acknowledged == acknowledged


def test_sending_synchronously_loses_the_one_on_its_way(broker: EmbeddedBroker, topic: str) -> None:
    told = Told(producer_of(broker, acks="all", retries=0), topic)
    with broker.faults.restart(kill=True, api="Produce", topic=topic, nth=5) as crash:
        for number in range(1, 5):
            told.send_and_wait(str(number))
        with pytest.raises(KafkaException):
            told.send_and_wait("5")
        crash.wait()
    assert log_of(broker, topic) == told.acknowledged == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("settings", "lost"),
    [({"retries": 0}, ["5", "6"]), ({"enable.idempotence": True}, [])],
    ids=["no retries", "idempotence"],
)
def test_sending_asynchronously_leaves_a_hole(
    broker: EmbeddedBroker, topic: str, settings: dict[str, Any], lost: list[str]
) -> None:
    """Ten records in batches of two, one request at a time; the broker dies at the third."""
    batches = {"batch.num.messages": 2, "linger.ms": 60_000, "max.in.flight": 1}
    told = Told(producer_of(broker, acks="all", **batches, **settings), topic)
    sent = [str(number) for number in range(1, 11)]
    with broker.faults.restart(kill=True, api="Produce", topic=topic, nth=3) as crash:
        for value in sent:
            told.send(value)
        told.flush()
        crash.wait()
    assert log_of(broker, topic) == told.acknowledged == [value for value in sent if value not in lost]
    assert told.failed == lost  # who does not look at the callbacks does not know


APPLICATION = """
import os, sys
from confluent_kafka import Producer
servers, topic, synchronously = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "linger.ms": 60_000})
for number in range(10):
    producer.produce(topic, str(number), partition=0)
    if synchronously == "yes":
        producer.flush()
os._exit(7)  # as a crash would: nothing is flushed
"""


@pytest.mark.parametrize(("synchronously", "kept"), [("yes", 10), ("no", 0)], ids=["synchronously", "asynchronously"])
def test_a_crash_of_the_producer_takes_its_buffer_along(
    broker: EmbeddedBroker, topic: str, synchronously: str, kept: int
) -> None:
    producer_of(broker).list_topics(topic, DEADLINE_S)  # creates it
    command = [sys.executable, "-c", APPLICATION, broker.bootstrap_servers, topic, synchronously]
    done = subprocess.run(command, timeout=60, check=False, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert log_of(broker, topic) == [str(number) for number in range(kept)]
