"""When a batch is put off, and what Trigger.AvailableNow pins: cases of KafkaMicroBatchSourceSuiteBase with a clock.

The clock is the test's: nothing here waits.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tests.parity.support import Cluster

pytestmark = pytest.mark.kafka

EARLIEST = {"startingOffsets": "earliest"}


class Clock:
    """Stands still until it is moved on."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    played = SimpleNamespace(monotonic=clock.monotonic, time_ns=time.time_ns)
    monkeypatch.setattr("sparkonce.connectors.kafka_source.source.time", played)
    return clock


def three(cluster: Cluster, first_end: int, second_end: int) -> str:
    topic = cluster.create(3)
    cluster.send(topic, range(100, first_end), 0)
    cluster.send(topic, range(10, second_end), 1)
    cluster.send(topic, [1], 2)
    return topic


def check_once(cluster: Cluster, topic: str, options: dict[str, object], expected: list[int]) -> None:
    """A single batch of all that is there heeds neither limit."""
    with cluster.stream(subscribe=topic, **options) as stream:
        assert stream.once() == expected
        stream.stop()
        cluster.send(topic, range(1000, 1011))
        stream.start()
        assert stream.once() == list(range(1000, 1011))


def test_the_least_of_one_batch(cluster: Cluster, clock: Clock) -> None:
    """The first batch never waits; later ones wait for enough records, or for the delay.

    Spark: KafkaMicroBatchSourceSuiteBase "minOffsetsPerTrigger"
    """
    topic = three(cluster, 110, 15)
    options = {"minOffsetsPerTrigger": 15, "maxTriggerDelay": "5s", **EARLIEST}
    with cluster.stream(subscribe=topic, **options) as stream:
        assert stream.trigger() == [1, *range(10, 15), *range(100, 110)]
        cluster.send(topic, range(15, 21), 1)
        clock.now_s += 0.1
        assert stream.trigger() == []
        cluster.send(topic, range(110, 121), 0)
        cluster.send(topic, [2], 2)
        clock.now_s += 0.1
        assert stream.trigger() == [2, *range(15, 21), *range(110, 121)]
        cluster.send(topic, range(121, 126), 0)
        cluster.send(topic, range(21, 26), 1)
        clock.now_s += 4.9
        assert stream.trigger() == []
        clock.now_s += 0.1
        assert stream.trigger() == [*range(21, 26), *range(121, 126)]
    check_once(cluster, topic, options, [1, 2, *range(10, 26), *range(100, 126)])


def test_the_least_and_the_most_of_one_batch(cluster: Cluster, clock: Clock) -> None:
    """Both limits hold: wait for enough records, then read no more than the most.

    Spark: KafkaMicroBatchSourceSuiteBase "compositeReadLimit"
    """
    topic = three(cluster, 121, 21)
    options = {"minOffsetsPerTrigger": 15, "maxTriggerDelay": "5s", "maxOffsetsPerTrigger": 20, **EARLIEST}
    with cluster.stream(subscribe=topic, **options) as stream:
        assert stream.trigger() == [1, *range(10, 16), *range(100, 112)]
        clock.now_s += 0.1
        assert stream.trigger() == []
        cluster.send(topic, range(121, 129), 0)
        cluster.send(topic, range(21, 31), 1)
        cluster.send(topic, [2], 2)
        clock.now_s += 0.1
        assert stream.trigger() == [2, *range(16, 25), *range(112, 122)]
        clock.now_s += 0.1
        assert stream.trigger() == []
        clock.now_s += 5
        assert stream.trigger() == [*range(25, 31), *range(122, 129)]
    check_once(cluster, topic, options, [1, 2, *range(10, 31), *range(100, 129)])


AVAILABLE_NOW = {"maxOffsetsPerTrigger": 5, "failOnDataLoss": "true", **EARLIEST}


def test_available_now_when_partitions_are_gone(cluster: Cluster) -> None:
    """After the first batch the topic is another one, of fewer partitions: ours tells it by the topic's id.

    Spark: KafkaMicroBatchSourceSuiteBase "Query with Trigger.AvailableNow should throw error when topic partitions
        got unavailable during subsequent batches"
    """
    topic = cluster.create(5)
    cluster.send(topic, range(15), 0)
    with cluster.stream(subscribe=topic, **AVAILABLE_NOW) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.trigger() == [0, 1, 2, 3, 4]
        cluster.recreate(topic, 3)
        cluster.send(topic, range(15), 0)
        with pytest.raises(Exception, match=topic):
            stream.trigger()


def test_available_now_when_offsets_are_gone(cluster: Cluster) -> None:
    """After the first batch the topic is another one, with fewer records than were pinned.

    Spark: KafkaMicroBatchSourceSuiteBase "Query with Trigger.AvailableNow should throw error when offset(s) in planned
        topic partitions got unavailable during subsequent batches"
    """
    topic = cluster.create(5)
    cluster.send(topic, range(15), 0)
    with cluster.stream(subscribe=topic, **AVAILABLE_NOW) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.trigger() == [0, 1, 2, 3, 4]
        cluster.recreate(topic, 5)
        cluster.send(topic, range(10), 0)
        with pytest.raises(Exception, match=topic):
            stream.trigger()


def test_a_failed_batch_is_tried_again_on_more_partitions(cluster: Cluster) -> None:
    """The batch that was planned before partitions were added is run as it was planned.

    Spark: KafkaSourceSuiteBase "SPARK-53560: no crash looping during uncommitted batch retry in AvailableNow trigger"
    """
    topic = cluster.create(1)
    cluster.send(topic, range(1, 8), 0)
    with cluster.stream(subscribe=topic, **EARLIEST) as stream:
        stream.reader.prepareForTriggerAvailableNow()
        assert stream.plan()  # and its tasks fail
        cluster.grow(topic, 2)
        for _ in range(2):
            stream.start()
            stream.reader.prepareForTriggerAvailableNow()
            planned = stream.offset_log[0]
            assert stream.offset_log == [planned]
        cluster.send(topic, [8], 1)
        assert stream.available_now() == [[1, 2, 3, 4, 5, 6, 7], [8]]
