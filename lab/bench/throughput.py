"""Kafka's ProducerPerformance and ConsumerPerformance: records per second, and the broker's CPU time per gigabyte.

The tools' JVMs are new for each round, on either side. A produce round writes a new topic with four partitions; a
consume round reads a topic from the page cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.load import create_topic, delete_topic
from lab.bench.results import BrokerUse, Comparison, Results, say
from lab.bench.settings import BATCHES, PARTITIONS, TARGETS, Settings
from lab.bench.sides import KAFKA, Side, in_turn
from lab.bench.tools import consume, produce

_VALUE_BYTES = {"100B": 100, "1KiB": 1024}


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a tool: its speed, and the broker's CPU time."""

    records_per_second: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.records_per_second:,.0f} records/s, {self.cpu_s:.2f} CPU s of the broker"


def compare(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Run one benchmark named ``broker-<produce|consume>-<size of a value>-<size of a batch>``."""
    _, what, size, batch = name.split("-")
    value_bytes, batch_bytes = _VALUE_BYTES[size], BATCHES[batch]
    rows = settings.rows_of(value_bytes)
    for side in sides:
        say(f"{name}: warm-up of {side.name}")
        create_topic(side.bootstrap_servers, f"{name}-warm", PARTITIONS)
        # The topic to consume later; for produce, a fifth is enough to warm the broker.
        written = rows if what == "consume" else max(1, rows // 5)
        produce(side.bootstrap_servers, f"{name}-warm", written, value_bytes, batch_bytes)

    def once(side: Side, number: int) -> Round:
        topic = f"{name}-{number}"
        if what == "produce":
            create_topic(side.bootstrap_servers, topic, PARTITIONS)
        before = side.cpu_s()
        if what == "produce":
            speed = produce(side.bootstrap_servers, topic, rows, value_bytes, batch_bytes)
        else:
            speed = consume(side.bootstrap_servers, f"{name}-warm", rows, topic)
        figure = Round(speed, side.cpu_s() - before)
        if what == "produce":
            delete_topic(side.bootstrap_servers, topic)
        return figure

    rounds = settings.rounds_of(what)
    ours, peer = in_turn(name, sides, rounds, once, str, warm_up=False)
    for side in sides:
        delete_topic(side.bootstrap_servers, f"{name}-warm")
    gigabytes = rows * value_bytes / 1e9
    report(name, ours, peer, gigabytes, results)
    for side, found in zip(sides, (ours, peer), strict=True):
        cpu_s = sum(one.cpu_s for one in found)
        results.broker_uses.append(BrokerUse(name, side.name, cpu_s, gigabytes * rounds, side.peak_rss_mb()))


def report(name: str, ours: Sequence[Round], peer: Sequence[Round], gigabytes: float, results: Results) -> None:
    """Add the two lines of one benchmark: speed, and CPU time per gigabyte of values."""
    speeds = [tuple(one.records_per_second for one in side) for side in (ours, peer)]
    cpus = [tuple(one.cpu_s / gigabytes for one in side) for side in (ours, peer)]
    cpu = f"{name}-cpu"
    results.comparisons += [
        Comparison(name, "records/s", speeds[0], speeds[1], KAFKA, TARGETS[name]),
        Comparison(cpu, "CPU s/GB", cpus[0], cpus[1], KAFKA, TARGETS[cpu], less_is_better=True),
    ]
