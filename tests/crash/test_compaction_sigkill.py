"""The broker is killed by SIGKILL while it compacts and deletes, twenty times: the latest of each key is there."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab.peers import missing_kafka_reason
from sparkonce import EmbeddedBroker
from tests.chance import new_seed
from tests.kafka_files import assert_kafka_finds_nothing_wrong
from tests.reading import AT_ONCE, assign

KILLS = 20
KEYS = 40
ACKNOWLEDGED_BETWEEN_KILLS = 3_000
DEADLINE_S = 60.0
SETTINGS = {"log.cleaner.backoff.ms": 0, "log.retention.check.interval.ms": 50}
TOPICS = {
    "compacted": {
        "cleanup.policy": "compact",
        "segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "10",
    },
    "deleted": {"segment.bytes": "10000", "retention.bytes": "50000", "file.delete.delay.ms": "10"},
}


class Load:
    """Sends numbers to both topics, those of the compacted one under a few keys; every tenth is a tombstone there."""

    def __init__(self, servers: str) -> None:
        self.count = 0
        self.sent = 0
        self.failures: list[Any] = []
        self.expected: dict[bytes, bytes | None] = {}
        self._progress = threading.Condition()
        self._stop = threading.Event()
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1, "batch.size": 3_000}
        quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "log_level": 0}
        self._producer = Producer({**settings, **quick, "message.timeout.ms": 60_000})
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        with self._progress:
            assert self._progress.wait_for(lambda: self.count >= count or self.failures, DEADLINE_S)
        assert not self.failures

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.sent
            key, value = b"%d" % (number * 7 % KEYS), b"%d" % number
            self._send("compacted", key, None if number % 10 == 0 else value)
            self._send("deleted", None, value)
            self.expected[key] = None if number % 10 == 0 else value
            self.sent += 1
        assert self._producer.flush(DEADLINE_S) == 0

    def _send(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition=0, on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _note(self, error: KafkaError | None, _: Any) -> None:
        with self._progress:
            if error is not None:
                self.failures.append(error)
            self.count += 1
            self._progress.notify_all()


def read_all(servers: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of every record."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True, **AT_ONCE})
    place = TopicPartition(topic, 0)
    start, _ = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
    assign(consumer, [TopicPartition(topic, 0, start)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{len(found)} records came, and then nothing"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


def is_compacted(partition: Path) -> bool:
    """Whether a compaction is under way, or was cut short."""
    return any(name.endswith((".cleaned", ".swap")) for name in os.listdir(partition))


def await_compaction(partition: Path) -> None:
    """Return in the middle of a compaction; one takes a few milliseconds."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_compacted(partition):
        assert time.monotonic() < deadline, "nothing is compacted"


@pytest.mark.soak
def test_a_crash_in_the_middle_of_compaction_and_deletion_loses_nothing(tmp_path: Path) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    data = tmp_path / "data"
    with EmbeddedBroker(data, process=True, config=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        made = admin.create_topics([NewTopic(name, 1, config=config) for name, config in TOPICS.items()])
        for future in made.values():
            future.result(DEADLINE_S)
        cut_short = 0
        with Load(broker.bootstrap_servers) as load:
            for _ in range(KILLS):
                load.wait_for(load.count + chance.randrange(1, ACKNOWLEDGED_BETWEEN_KILLS))
                await_compaction(data / "compacted-0")
                broker.kill()
                cut_short += is_compacted(data / "compacted-0")
                broker.restart()
            load.wait_for(load.count + ACKNOWLEDGED_BETWEEN_KILLS)
        assert not load.failures
        assert cut_short, f"no compaction was cut short (seed {seed})"
        compacted = read_all(broker.bootstrap_servers, "compacted")
        kept = read_all(broker.bootstrap_servers, "deleted")
    assert len(compacted) < load.sent
    latest = {key: value for _, key, value in compacted}
    assert {key: value for key, value in latest.items() if value is not None} == {
        key: value for key, value in load.expected.items() if value is not None
    }
    assert all(value is None or int(value) == offset for offset, _, value in compacted)
    assert kept[0][0] > 0
    assert [(offset, int(value or b"-1")) for offset, _, value in kept] == [
        (n, n) for n in range(kept[0][0], load.sent)
    ]
    if missing_kafka_reason() is None:
        assert_kafka_finds_nothing_wrong([data / "compacted-0", data / "deleted-0"], compacted=True)
