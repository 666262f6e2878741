"""The driver's memory over many batches: what planning keeps does not grow with the batches planned."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.datasource import ReadMaxRows

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.source import KafkaOnceStreamReader

DEADLINE_S = 60
ALLOWED_GROWTH_BYTES = 32 << 10
"""A list that kept one small object for each batch would be past this in 1,000 batches; caches of 1,000 partitions,
which are replaced with every batch, are many times as large."""


class Driver:
    """What Spark does in the driver for each batch, over the same JSON, without running the tasks."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        given = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
        self.reader = KafkaOnceStreamReader(SourceOptions.read({**given, "maxOffsetsPerTrigger": "1000000"}))
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "log_level": 0})
        self._topic, self._partitions = topic, partitions
        self._start = json.dumps(self.reader.initialOffset())
        self._planned = 0

    def batch(self) -> None:
        self._producer.produce(self._topic, b"x", partition=self._planned % self._partitions)
        assert self._producer.flush(DEADLINE_S) == 0
        end = json.dumps(self.reader.latestOffset(json.loads(self._start), ReadMaxRows(1_000_000)))
        tasks = self.reader.partitions(json.loads(self._start), json.loads(end))
        assert len(tasks) == 1
        json.dumps(self.reader.reportLatestOffset())
        self.reader.commit(json.loads(end))
        self._start = end
        self._planned += 1


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(process=True) as running:
        yield running


def growth_bytes(broker: EmbeddedBroker, partitions: int, first: int, last: int) -> int:
    """Return how much more is held after ``last`` batches than after ``first``.

    Each batch moves one partition, and what is kept of the others stays the same objects. So a whole round is traced
    before the first look: what later batches replace is counted on both sides.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("many", partitions, 1)])["many"].result(DEADLINE_S)
    driver = Driver(broker.bootstrap_servers, "many", partitions)
    try:
        for _ in range(first - partitions):
            driver.batch()
        tracemalloc.start()
        for _ in range(partitions):
            driver.batch()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(last - first):
            driver.batch()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        driver.reader.stop()
    print(f"{before} bytes after {first} batches, {after} after {last}")
    return after - before


def test_planning_keeps_nothing_of_past_batches(broker: EmbeddedBroker) -> None:
    assert growth_bytes(broker, 20, 30, 130) < ALLOWED_GROWTH_BYTES // 8


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_three_thousand_batches_over_a_thousand_partitions(broker: EmbeddedBroker) -> None:
    """Leader epochs are kept for each partition from its first record on, so all have had one before the first look."""
    assert growth_bytes(broker, 1_000, 2_000, 3_000) < ALLOWED_GROWTH_BYTES
