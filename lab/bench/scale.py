"""Scaling: the same load with more connections, more consumers in a group, more partitions.

Each size is compared with Kafka's speed at that size; the chart shows how both change from size to size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError, Event

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lab.bench.load import DEADLINE_S, LoadError, create_topic, delete_topic
from lab.bench.results import Comparison, Results, say
from lab.bench.settings import CONNECTIONS, GROUP_MEMBERS, PARTITION_COUNTS, PARTITIONS, TARGETS, Settings
from lab.bench.sides import KAFKA, Side, in_turn, records_per_second
from lab.bench.tools import consume, produce
from lab.bench.wire import produce_frame, requests_per_second

VALUE_BYTES = 1024
_REQUEST_RECORDS = 16
_BATCH_BYTES = 65536
_GROUP_PARTITIONS = 8
_JOIN_POLL_S = 0.1
_READ_POLL_S = 0.01
_POLL_RECORDS = 1000


def connections(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Send Produce requests of 16 records of 1 KiB by 1, 8 and 64 connections, each with one request under way."""
    for side in sides:
        create_topic(side.bootstrap_servers, name, PARTITIONS)
    frames = [produce_frame(name, partition, _REQUEST_RECORDS, VALUE_BYTES) for partition in range(PARTITIONS)]
    for count in CONNECTIONS:

        def once(side: Side, number: int, count: int = count) -> float:
            requests = settings.broker.requests if number else max(1, settings.broker.requests // 5)
            each = [frames[index % PARTITIONS] for index in range(count)]
            return requests_per_second(side.bootstrap_servers, each, requests) * _REQUEST_RECORDS

        _compare(f"{name}-{count}", sides, settings.rounds, once, results)
    _delete(name, sides)


def groups(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Read a topic of eight partitions by groups of 1 and 8 members, from when all partitions are assigned."""
    rows = settings.rows_of(VALUE_BYTES)
    for side in sides:
        say(f"{name}: filling the topic of {side.name}")
        create_topic(side.bootstrap_servers, name, _GROUP_PARTITIONS)
        produce(side.bootstrap_servers, name, rows, VALUE_BYTES, _BATCH_BYTES)
    for members in GROUP_MEMBERS:

        def once(side: Side, number: int, members: int = members) -> float:
            return group_per_second(side.bootstrap_servers, name, rows, members, f"{name}-{members}-{number}")

        _compare(f"{name}-{members}", sides, settings.rounds, once, results)
    _delete(name, sides)


def partitions(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Run ProducerPerformance and ConsumerPerformance with 1 KiB on topics of 1 and 1,000 partitions."""
    rows = settings.rows_of(VALUE_BYTES)
    for count in PARTITION_COUNTS:
        topic = f"{name}-{count}"
        for side in sides:
            create_topic(side.bootstrap_servers, topic, count)

        def written(side: Side, _: int, topic: str = topic) -> float:
            return produce(side.bootstrap_servers, topic, rows, VALUE_BYTES, _BATCH_BYTES)

        def read(side: Side, number: int, topic: str = topic) -> float:
            return consume(side.bootstrap_servers, topic, rows, f"{topic}-{number}")

        _compare(f"{name}-produce-{count}", sides, settings.rounds, written, results)
        _compare(f"{name}-consume-{count}", sides, settings.rounds, read, results)
        _delete(topic, sides)


def _compare(
    line: str, sides: Sequence[Side], rounds: int, once: Callable[[Side, int], float], results: Results
) -> None:
    ours, peer = in_turn(line, sides, rounds, once, records_per_second)
    results.comparisons.append(Comparison(line, "records/s", ours, peer, KAFKA, TARGETS[line]))


def _delete(topic: str, sides: Sequence[Side]) -> None:
    for side in sides:
        delete_topic(side.bootstrap_servers, topic)


def group_per_second(bootstrap_servers: str, topic: str, rows: int, members: int, group: str) -> float:
    """Let a group of ``members`` read ``rows`` records, and return the records per second of all together.

    Members keep their partitions paused until each has its assignment, so that joining is not in the figure.

    Raises:
        LoadError: if the group does not get its partitions, or its records, in time.
    """
    run = _GroupRun(bootstrap_servers, topic, rows, members, group)
    with ThreadPoolExecutor(members) as pool:
        for future in [pool.submit(run.member, index) for index in range(members)]:
            future.result()
    return rows / (run.ended - run.began)


class _GroupRun:
    """The shared state of one group's members; each is a thread."""

    def __init__(self, bootstrap_servers: str, topic: str, rows: int, members: int, group: str) -> None:
        self._conf = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 4,
        }
        self._topic = topic
        self._rows = rows
        self._share = _GROUP_PARTITIONS // members
        self._settled = [False] * members
        self._read = [0] * members
        self._start = Barrier(members, self._begin)
        self._over = Event()
        self._deadline = time.monotonic() + DEADLINE_S
        self.began = self.ended = 0.0

    def member(self, index: int) -> None:
        """Join, wait for the others, read until the group has everything."""
        consumer = Consumer(self._conf)
        try:
            consumer.subscribe([self._topic], on_assign=self._pause)
            self._settle(consumer, index)
            self._start.wait(DEADLINE_S)
            consumer.resume(consumer.assignment())
            self._consume(consumer, index)
        except (KafkaException, BrokenBarrierError) as error:
            raise LoadError(f"group on {self._topic}: {error!r}") from error
        finally:
            self._over.set()
            consumer.close()

    def _begin(self) -> None:
        self.began = time.perf_counter()
        self._deadline = time.monotonic() + DEADLINE_S

    @staticmethod
    def _pause(consumer: Consumer, assigned: list[TopicPartition]) -> None:
        consumer.assign(assigned)
        consumer.pause(assigned)

    def _settle(self, consumer: Consumer, index: int) -> None:
        """Take part in rebalances until every member has its assignment at the same time."""
        while not all(self._settled):
            if time.monotonic() > self._deadline or self._over.is_set():
                self._start.abort()
                raise LoadError(f"the partitions of {self._topic} were not all assigned within {DEADLINE_S} s")
            consumer.consume(1, _JOIN_POLL_S)
            self._settled[index] = len(consumer.assignment()) == self._share

    def _consume(self, consumer: Consumer, index: int) -> None:
        while not self._over.is_set():
            if time.monotonic() > self._deadline:
                raise LoadError(f"read {sum(self._read)} of {self._rows} records of {self._topic} in {DEADLINE_S} s")
            for message in consumer.consume(_POLL_RECORDS, _READ_POLL_S):
                if message.error() is not None:
                    raise LoadError(f"reading {self._topic}: {message.error()}")
                self._read[index] += 1
            if sum(self._read) >= self._rows:
                self.ended = time.perf_counter()
                self._over.set()
