"""What a query costs in memory, files and connections: ``python -m lab.capacity``.

For each number of partitions an embedded broker gets that many, with records of about a kilobyte, and a query copies
them into a Delta table with `kafka_once` and `delta_once`. While it runs, the Python processes that Spark started are
looked at many times a second; the largest value of each is printed. Memory is what a process has for itself (USS) and
what it shares with the daemon that it was forked from (RSS holds both).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.connectors.runtime import fork_client
from sparkonce.connectors.session import spark_session
from sparkonce.jobs.shared.arguments import positive, show_bytes, show_columns

VALUE_BYTES = 1_000
TOPIC = "capacity"
SAMPLE_S = 0.02
DEADLINE_S = 120
_HEAD = ["partitions", "per batch", "rows", "process", "RSS", "USS", "files", "connections"]


@dataclass(slots=True)
class Peak:
    """The largest values that were seen of one process."""

    role: str
    rss: int = 0
    uss: int = 0
    files: int = 0
    connections: int = 0


@dataclass(slots=True)
class Watch:
    """Looks at the Python processes below this one, and keeps what was largest of each."""

    port: int
    peaks: dict[int, Peak] = field(default_factory=dict)

    def look(self) -> None:
        """Take one sample. Processes that end meanwhile keep what was seen of them."""
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                command = process.cmdline()
                role = next((name for name in ("daemon", "worker", "runner") if name in " ".join(command[:4])), None)
                if role is None or "java" in command[0] or fork_client.__file__ in command:
                    continue
                self._note(process, self._role(process, role))

    def _role(self, process: psutil.Process, role: str) -> str:
        if role == "daemon":
            parent = process.parent()
            forked = parent is not None and parent.cmdline() == process.cmdline()
            return "task" if forked else "daemon"
        return "driver's"

    def _note(self, process: psutil.Process, role: str) -> None:
        peak = self.peaks.setdefault(process.pid, Peak(role))
        memory = process.memory_full_info()
        peak.rss, peak.uss = max(peak.rss, memory.rss), max(peak.uss, memory.uss)
        peak.files = max(peak.files, process.num_fds())
        to_broker = [each for each in process.net_connections("tcp") if each.raddr and each.raddr.port == self.port]
        peak.connections = max(peak.connections, len(to_broker))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample repeatedly while the block runs."""
        done = threading.Event()

        def go_on() -> None:
            while not done.wait(SAMPLE_S):
                self.look()

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m lab.capacity", description=__doc__)
    parser.add_argument("--partitions", type=positive, nargs="+", default=[4, 32], help="of the topic, one run each")
    parser.add_argument("--per-batch", type=positive, nargs="+", default=[10_000, 200_000], help="maxOffsetsPerTrigger")
    parser.add_argument("--records", type=positive, default=400_000, help="in the topic")
    options = parser.parse_args(arguments)
    rows: list[Sequence[object]] = [_HEAD]
    spark = spark_session("capacity", **{"spark.master": "local[2]"})
    spark.sparkContext.setLogLevel("ERROR")
    for partitions in options.partitions:
        for per_batch in options.per_batch:
            rows += _measure(spark, partitions, per_batch, options.records)
    spark.stop()
    print(show_columns(rows, ""))
    return 0


def _measure(spark: SparkSession, partitions: int, per_batch: int, records: int) -> Iterator[Sequence[object]]:
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(process=True) as broker:
        _fill(broker.bootstrap_servers, partitions, records)
        watch = Watch(int(broker.bootstrap_servers.rpartition(":")[2]))
        with watch.watching():
            _copy(spark, broker.bootstrap_servers, per_batch, Path(folder))
    for role in ("task", "daemon", "driver's"):
        peaks = [peak for peak in watch.peaks.values() if peak.role == role]
        if peaks:
            largest = [max(getattr(peak, name) for peak in peaks) for name in ("rss", "uss", "files", "connections")]
            shown = [show_bytes(largest[0]), show_bytes(largest[1]), *largest[2:]]
            yield [partitions, per_batch, records, f"{role} ({len(peaks)})", *shown]


def _fill(servers: str, partitions: int, records: int) -> None:
    admin = AdminClient(
        {"bootstrap.servers": servers}
    )  # which ends, and its requests with it, when nothing refers to it
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000, "linger.ms": 20})
    for number in range(records):
        producer.produce(TOPIC, f"{number:0{VALUE_BYTES}}".encode(), partition=number % partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(DEADLINE_S):
        raise RuntimeError("the records could not be sent in time")


def _copy(spark: SparkSession, servers: str, per_batch: int, folder: Path) -> None:
    reader = spark.readStream.format("kafka_once").option("kafka.bootstrap.servers", servers)
    reader = reader.options(subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=str(per_batch))
    rows = reader.load().selectExpr("value", "partition", "offset")
    writer = rows.writeStream.format("delta_once").option("appId", "capacity").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "table"))
    query.awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
