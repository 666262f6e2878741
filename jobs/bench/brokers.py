"""Kafka's ProducerPerformance and ConsumerPerformance against our broker and against Apache Kafka.

Both brokers run as processes of their own for as long as the benchmarks do; the tools' JVMs are new for each round, on
either side. A produce round writes a new topic with four partitions; a consume round reads a topic of the page cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from broker_lite import EmbeddedBroker
from jobs.bench.load import create_topic
from jobs.bench.progress import say
from jobs.bench.results import BrokerUse, Comparison, Missing, Results
from jobs.bench.settings import BATCH_BYTES, BROKER_BENCHMARKS, PARTITIONS, TARGETS, Settings
from jobs.peers import PeerMissingError, RealKafka, run_tool

_PRODUCED = re.compile(r"records sent, ([\d.]+) records/sec")
_VALUE_BYTES = {"100B": 100, "1KiB": 1024}
KAFKA = "Apache Kafka"
OURS = "sparkonce"


class ToolError(RuntimeError):
    """One of Kafka's tools failed, or said something unexpected."""


@dataclass(slots=True)
class _Side:
    """A broker under measurement."""

    name: str
    bootstrap_servers: str
    process: psutil.Process
    cpu_s: float = 0.0

    def peak_rss_mb(self) -> float:
        """Give the peak of resident memory since the start where the system tells it, else the present one."""
        status = Path(f"/proc/{self.process.pid}/status")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return int(peak[1]) / 1000 if peak else self.process.memory_info().rss / 1e6

    def measured(self, work: Callable[[], float]) -> float:
        """Do the work and add the CPU time that the broker took for it."""
        before = self.process.cpu_times()
        figure = work()
        after = self.process.cpu_times()
        self.cpu_s += after.user + after.system - before.user - before.system
        return figure


def run(settings: Settings, results: Results) -> None:
    """Run the broker benchmarks that were asked for."""
    names = [name for name in BROKER_BENCHMARKS if name in settings.names]
    if not names:
        return
    with ExitStack() as stack:
        try:
            say("starting Apache Kafka and our broker")
            kafka = stack.enter_context(RealKafka())
        except PeerMissingError as error:
            remedy = "its tools are the load: install Java and Maven, or name the folder of its jars in KAFKA_LIBS"
            results.missing.append(Missing("kafka", str(error), remedy))
            return
        ours = stack.enter_context(EmbeddedBroker(process=True))
        assert ours.pid is not None
        sides = [
            _Side(OURS, ours.bootstrap_servers, psutil.Process(ours.pid)),
            _Side(KAFKA, kafka.bootstrap_servers, psutil.Process(kafka.pid)),
        ]
        for name in names:
            _compare(name, sides, settings, results)


def _compare(name: str, sides: list[_Side], settings: Settings, results: Results) -> None:
    _, what, size = name.split("-")
    value_bytes = _VALUE_BYTES[size]
    rows = settings.rows_of(value_bytes)
    for side in sides:
        say(f"{name}: warm-up of {side.name}")
        create_topic(side.bootstrap_servers, f"{name}-warm", PARTITIONS)
        # The topic that is consumed later; for produce, a fifth is enough to warm the broker.
        produce(side.bootstrap_servers, f"{name}-warm", rows if what == "consume" else rows // 5, value_bytes)
        side.cpu_s = 0.0
    figures: dict[str, list[float]] = {side.name: [] for side in sides}
    rounds = settings.rounds_of(what)
    for number in range(rounds):
        for side in sides:
            figure = _round(what, side, name, number, rows, value_bytes)
            figures[side.name].append(figure)
            say(f"{name}: round {number + 1}/{rounds}, {side.name} {figure:,.0f} records/s")
    ours, peer = (tuple(figures[side.name]) for side in sides)
    results.comparisons.append(Comparison(name, "records/s", ours, peer, KAFKA, TARGETS[name]))
    gigabytes = rows * value_bytes * rounds / 1e9
    results.broker_uses.extend(BrokerUse(name, side.name, side.cpu_s, gigabytes, side.peak_rss_mb()) for side in sides)


def _round(what: str, side: _Side, name: str, number: int, rows: int, value_bytes: int) -> float:
    if what == "consume":
        return side.measured(lambda: consume(side.bootstrap_servers, f"{name}-warm", rows, f"{name}-{number}"))
    topic = f"{name}-{number}"
    create_topic(side.bootstrap_servers, topic, PARTITIONS)
    return side.measured(lambda: produce(side.bootstrap_servers, topic, rows, value_bytes))


def produce(bootstrap_servers: str, topic: str, rows: int, value_bytes: int) -> float:
    """Run ProducerPerformance with acks=all and give its records a second.

    Raises:
        ToolError: if the tool fails.
    """
    said = _tool(
        "ProducerPerformance", "--bootstrap-server", bootstrap_servers, "--topic", topic,
        "--num-records", str(rows), "--record-size", str(value_bytes), "--throughput", "-1",
        "--command-property", "acks=all", f"batch.size={BATCH_BYTES}",
    )  # fmt: skip
    return produced_per_second(said)


def consume(bootstrap_servers: str, topic: str, rows: int, group: str) -> float:
    """Run ConsumerPerformance and give its records a second of fetching, without the time to join the group.

    Raises:
        ToolError: if the tool fails or did not get all records.
    """
    said = _tool(
        "ConsumerPerformance", "--bootstrap-server", bootstrap_servers, "--topic", topic,
        "--num-records", str(rows), "--group", group, "--timeout", "60000",
    )  # fmt: skip
    return consumed_per_second(said, rows)


def produced_per_second(said: str) -> float:
    """Read the summary, the last of the lines that ProducerPerformance prints."""
    found = _PRODUCED.findall(said)
    if not found:
        raise ToolError(f"ProducerPerformance printed no figures: {said[-500:]}")
    return float(found[-1])


def consumed_per_second(said: str, rows: int) -> float:
    """Read the table of ConsumerPerformance by its header."""
    lines = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    header = next((line for line in lines if "fetch.nMsg.sec" in line), None)
    last = lines[-1] if lines else []
    if header is None or len(last) != len(header) or last == header:
        raise ToolError(f"ConsumerPerformance printed no figures: {said[-500:]}")
    figures = dict(zip(header, last, strict=True))
    if int(figures["data.consumed.in.nMsg"]) < rows:
        raise ToolError(f"ConsumerPerformance got {figures['data.consumed.in.nMsg']} of {rows} records")
    return float(figures["fetch.nMsg.sec"])


def _tool(name: str, *arguments: str) -> str:
    done = run_tool(f"org.apache.kafka.tools.{name}", *arguments)
    if done.returncode != 0:
        raise ToolError(f"{name} failed with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout.strip()
