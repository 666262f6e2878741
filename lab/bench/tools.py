"""Kafka's own load tools: how they are called, and how their output is parsed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.peers import run_tool

_PRODUCED = re.compile(r"records sent, ([\d.]+) records/sec")
_AVERAGE = re.compile(r"Avg latency: ([\d.]+) ms")
_P99 = re.compile(r"Percentiles: .*\b99th = (\d+)")


class ToolError(RuntimeError):
    """One of Kafka's tools failed, or printed something unexpected."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The result of EndToEndLatency, in milliseconds."""

    average_ms: float
    p99_ms: float


def produce(
    bootstrap_servers: str, topic: str, rows: int, value_bytes: int, batch_bytes: int | None, *properties: str
) -> float:
    """Run ProducerPerformance with acks=all and return its records per second.

    ``batch_bytes`` None uses the tool's default; ``properties`` are further producer settings, as NAME=VALUE.

    Raises:
        ToolError: if the tool fails.
    """
    batch = [] if batch_bytes is None else [f"batch.size={batch_bytes}"]
    said = _tool(
        "ProducerPerformance", "--bootstrap-server", bootstrap_servers, "--topic", topic,
        "--num-records", str(rows), "--record-size", str(value_bytes), "--throughput", "-1",
        "--command-property", "acks=all", *batch, *properties,
    )  # fmt: skip
    return produced_per_second(said)


def consume(bootstrap_servers: str, topic: str, rows: int, group: str) -> float:
    """Run ConsumerPerformance and return its records per second of fetching, without the time to join the group.

    Raises:
        ToolError: if the tool fails or did not get all records.
    """
    said = _tool(
        "ConsumerPerformance", "--bootstrap-server", bootstrap_servers, "--topic", topic,
        "--num-records", str(rows), "--group", group, "--timeout", "60000",
    )  # fmt: skip
    return consumed_per_second(said, rows)


def end_to_end(bootstrap_servers: str, topic: str, rows: int, value_bytes: int) -> Latency:
    """Run EndToEndLatency: one record at a time, from send with acks=all to its arrival at a consumer.

    Raises:
        ToolError: if the tool fails.
    """
    said = _tool(
        "EndToEndLatency", "--bootstrap-server", bootstrap_servers, "--topic", topic, "--num-records", str(rows),
        "--producer-acks", "all", "--record-size", str(value_bytes),
    )  # fmt: skip
    return latency(said)


def produced_per_second(said: str) -> float:
    """Parse the summary, the last line of ProducerPerformance."""
    found = _PRODUCED.findall(said)
    if not found:
        raise ToolError(f"ProducerPerformance printed no figures: {said[-500:]}")
    return float(found[-1])


def consumed_per_second(said: str, rows: int) -> float:
    """Parse the table of ConsumerPerformance by its header."""
    lines = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    header = next((line for line in lines if "fetch.nMsg.sec" in line), None)
    last: Sequence[str] = lines[-1] if lines else []
    if header is None or len(last) != len(header) or last == header:
        raise ToolError(f"ConsumerPerformance printed no figures: {said[-500:]}")
    figures = dict(zip(header, last, strict=True))
    if int(figures["data.consumed.in.nMsg"]) < rows:
        raise ToolError(f"ConsumerPerformance got {figures['data.consumed.in.nMsg']} of {rows} records")
    return float(figures["fetch.nMsg.sec"])


def latency(said: str) -> Latency:
    """Parse the summary of EndToEndLatency.

    The tool rounds percentiles down to whole milliseconds, so a p99 below one is 0 and has no ratio: the upper end of
    that millisecond is returned, on either side.
    """
    average, p99 = _AVERAGE.search(said), _P99.search(said)
    if average is None or p99 is None:
        raise ToolError(f"EndToEndLatency printed no figures: {said[-500:]}")
    return Latency(float(average[1]), int(p99[1]) + 1.0)


def _tool(name: str, *arguments: str) -> str:
    done = run_tool(f"org.apache.kafka.tools.{name}", *arguments, java_options=())
    if done.returncode != 0:
        raise ToolError(f"{name} failed with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout.strip()
