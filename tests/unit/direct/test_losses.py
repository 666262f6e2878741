"""Records that are gone, with failOnDataLoss=false: both ways to hand over give the same rows and the same warnings.

Each way has a query over the same topic, and what happens to the topic happens to both at the same point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.parity.support import Cluster, Stream
from tests.unit.replaced.brokers import Restorable, restorable

LENIENT = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "false",
    "fetchOffset.retryIntervalMs": "1",
    "kafka.retry.backoff.ms": "1",
    "kafka.retry.backoff.max.ms": "10",
}
CUTS = ({}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "4"})
"""A range in one task, and in several, of which the loss takes some whole and one in part."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restorable]:
    with restorable("ours", tmp_path / "broker") as found:
        yield found


class Pair:
    """Two queries over one topic, one for each way to hand over, and the warnings of each."""

    def __init__(self, broker: Restorable, options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
        self.broker, self.caplog = broker, caplog
        self.cluster = Cluster(broker.bootstrap_servers)
        self.topic = self.cluster.create(2)
        self.cluster.send(self.topic, range(20), 0)
        self.streams = [self._stream(way, options) for way in ("rows", "ranges")]
        self.warnings: dict[Stream, list[str]] = {stream: [] for stream in self.streams}
        self.each(lambda stream: stream.process_all())

    def _stream(self, way: str, options: dict[str, str]) -> Stream:
        return Cluster(self.broker.bootstrap_servers, way).stream(subscribe=self.topic, **LENIENT, **options)

    def each(self, act: Callable[[Stream], object]) -> None:
        for stream in self.streams:
            self.caplog.clear()
            act(stream)
            self.warnings[stream] += [each.message for each in self.caplog.records if each.levelno >= logging.WARNING]

    def read(self) -> list[int]:
        """Read what is left, and give all that one of the queries has read; warnings are as many, and the same."""
        self.each(lambda stream: stream.process_all())
        rows, ranges = self.streams
        assert self.warnings[ranges] == self.warnings[rows] != []
        assert ranges.numbers() == rows.numbers()
        assert [sorted(map(str, batch)) for batch in ranges.batches] == [sorted(map(str, b)) for b in rows.batches]
        return rows.numbers()

    def plan(self, count: int) -> None:
        """Have more records, and a batch of them that is planned but not read."""
        self.cluster.send(self.topic, range(100, 100 + count), 0)
        self.each(lambda stream: stream.plan())


def forget(pair: Pair) -> list[int]:
    """Retention takes all that was planned and some of what comes later."""
    pair.plan(10)
    pair.cluster.send(pair.topic, range(200, 210), 0)
    pair.cluster.forget_records(pair.topic, {0: 33})
    return [*range(20), *range(203, 210)]


def forget_some(pair: Pair) -> list[int]:
    """Retention takes the first records of what was planned."""
    pair.plan(10)
    pair.cluster.forget_records(pair.topic, {0: 26})
    return [*range(20), *range(106, 110)]


def recreate(pair: Pair) -> list[int]:
    """The topic is another one when its batch is planned again after a restart."""
    pair.plan(10)
    pair.cluster.recreate(pair.topic)
    pair.cluster.send(pair.topic, range(300, 304), 0)
    pair.each(lambda stream: stream.start())
    return [*range(20), *range(300, 304)]


def delete(pair: Pair) -> list[int]:
    """The topic is gone when its batch is read."""
    pair.plan(10)
    pair.cluster.delete(pair.topic)
    pair.each(lambda stream: stream.tasks())
    pair.cluster.create(1, pair.topic)
    return [*range(20)]


def truncate(pair: Pair) -> list[int]:
    """The log is put back and grows again, after a batch was planned: half of what was planned is another record."""
    pair.broker.copy()
    pair.plan(10)
    pair.each(lambda stream: stream.stop())
    pair.broker.put_back()
    pair.cluster = Cluster(pair.broker.bootstrap_servers)
    pair.cluster.send(pair.topic, range(400, 415), 0)
    pair.each(lambda stream: stream.start())
    return [*range(20), *range(400, 415)]


@pytest.mark.parametrize("options", CUTS, ids=["whole", "minPartitions", "maxRecordsPerPartition"])
@pytest.mark.parametrize("what", [forget, forget_some, recreate, delete, truncate])
def test_both_ways_skip_and_warn_alike(
    broker: Restorable, caplog: pytest.LogCaptureFixture, what: Callable[[Pair], list[int]], options: dict[str, str]
) -> None:
    with ExitStack() as stack:
        pair = Pair(broker, options, caplog)
        for stream in pair.streams:
            stack.callback(stream.stop)
        expected = what(pair)
        assert pair.read() == expected
