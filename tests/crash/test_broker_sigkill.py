"""The broker is killed by SIGKILL under load, again and again: what it acknowledged is there, in order, once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from lab.peers import missing_kafka_reason
from sparkonce import EmbeddedBroker
from tests.kafka_files import assert_kafka_finds_nothing_wrong
from tests.reading import AT_ONCE, assign

KILLS = 3
MORE_KILLS = 10
ACKNOWLEDGED_BETWEEN_KILLS = 400
PARTITIONS = 2
DEADLINE_S = 60.0


class Load:
    """An idempotent producer that numbers its records and notes which of them were acknowledged."""

    def __init__(self, servers: str, **more: object) -> None:
        """`more` are settings of the producer with `_` in place of `.`."""
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """For each partition: number -> offset."""
        self.sent = 0
        self.failures: list[Any] = []
        self._progress = threading.Condition()
        self._stop = threading.Event()
        settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.size": 10_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "message.timeout.ms": 60_000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def count(self) -> int:
        return sum(len(each) for each in self.acknowledged)

    def wait_for(self, count: int) -> None:
        with self._progress:
            assert self._progress.wait_for(lambda: self.count >= count or self.failures, DEADLINE_S)
        assert not self.failures

    def _run(self) -> None:
        while not self._stop.is_set():
            number, partition = self.sent, self.sent % PARTITIONS
            try:
                self._producer.produce("t", b"%d" % number, partition=partition, on_delivery=self._note)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
        assert self._producer.flush(DEADLINE_S) == 0

    def _note(self, error: KafkaError | None, message: Any) -> None:
        with self._progress:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged[message.partition()][int(message.value())] = message.offset()
            self._progress.notify_all()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    settings = {"num.partitions": PARTITIONS, "log.segment.bytes": 100_000, "log.index.interval.bytes": 500}
    with EmbeddedBroker(tmp_path / "data", process=True, config=settings) as embedded:
        yield embedded


def read_all(servers: str, partition: int) -> list[tuple[int, int]]:
    """Return (offset, number) of every record of a partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False, **AT_ONCE})
    place = TopicPartition("t", partition, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
    assign(consumer, [place])
    records: list[tuple[int, int]] = []
    while not records or records[-1][0] < end - 1:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{len(records)} of {end} records came"
        records.append((message.offset(), int(message.value())))
    consumer.close()
    return records


@pytest.mark.parametrize("kills", [KILLS, pytest.param(MORE_KILLS, marks=pytest.mark.lab)])
def test_what_was_acknowledged_is_there_in_order_and_once(broker: EmbeddedBroker, kills: int) -> None:
    chance = random.Random(7)
    with Load(broker.bootstrap_servers) as load:
        for _ in range(kills):
            load.wait_for(load.count + chance.randrange(1, ACKNOWLEDGED_BETWEEN_KILLS))
            broker.kill()
            broker.restart()
        load.wait_for(load.count + ACKNOWLEDGED_BETWEEN_KILLS)
    assert not load.failures
    assert load.count == load.sent
    for partition in range(PARTITIONS):
        records = read_all(broker.bootstrap_servers, partition)
        assert [offset for offset, _ in records] == list(range(len(records)))
        assert [number for _, number in records] == list(range(partition, load.sent, PARTITIONS))
        there = {number: offset for offset, number in records}
        wrong = {n: (o, there[n]) for n, o in load.acknowledged[partition].items() if o >= 0 and there[n] != o}
        assert not wrong, f"acknowledged under one offset, found under another: {dict(list(wrong.items())[:5])}"
    if missing_kafka_reason() is None:
        broker.close()
        assert_kafka_finds_nothing_wrong(broker.data_dir / f"t-{partition}" for partition in range(PARTITIONS))
