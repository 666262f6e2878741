"""One ingestion of many topics: CPU, memory and freshness, with one query for all tables and with a query for each.

Each topic gets one record a second. After a warm-up, CPU time is measured of the driver with all its processes over a
while, and their memory at its end, in which what processes share counts once (PSS). Freshness is the time from a
record's acknowledgement until the commit that has it is a file in its table's log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.bench.processes import cpu_s
from lab.bench.results import Bound, Comparison, Results, say
from lab.bench.sessions import SideError
from lab.bench.settings import LIMITS, MANY_TOPICS, Settings
from sparkonce.broker_lite.embedded import EmbeddedBroker

OURS, EACH = "one query for all", "a query for each"
MOST_QUERIES = 40
"""Above this many topics, a query for each is not tried: 45 MB and 2.3 processes for each."""
RECORD = b'{"n": 1, "text": "a record of about a hundred bytes, as many are, in JSON"}'
WARM_UP_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Use:
    """What one ingestion has used, and how fresh its rows were."""

    cores: float
    memory_mb: float
    processes: int
    commit_cpu_ms: float
    """CPU for each commit of a table."""
    freshness_s: Sequence[float]

    @property
    def freshness_p95_s(self) -> float:
        """The time that 95 % of the records needed at most."""
        return quantiles(self.freshness_s, n=20)[-1]


FIGURES: Sequence[tuple[str, str, Callable[[Use], float]]] = (
    ("cores", "cores", lambda use: use.cores),
    ("memory-mb", "MB", lambda use: use.memory_mb),
    ("commit-cpu-ms", "ms", lambda use: use.commit_cpu_ms),
    ("freshness-p95-s", "s", lambda use: use.freshness_p95_s),
)


def run(settings: Settings, results: Results) -> None:
    """Measure each number of topics."""
    for name, (topics, trigger_s) in MANY_TOPICS.items():
        if name not in settings.names:
            continue
        ours = _measured(name, OURS, topics, trigger_s, settings.many_s)
        each = _measured(name, EACH, topics, trigger_s, settings.many_s) if topics <= MOST_QUERIES else None
        for what, unit, figure in FIGURES:
            line, peer = f"{name}-{what}", () if each is None else (figure(each),)
            if line in LIMITS:
                results.bounds.append(Bound(line, unit, (figure(ours),), peer, EACH, LIMITS[line]))
            elif peer:
                results.comparisons.append(Comparison(line, unit, (figure(ours),), peer, EACH, less_is_better=True))


def _measured(name: str, side: str, topics: int, trigger_s: int, seconds: float) -> Use:
    names = [f"many-{number}" for number in range(topics)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as work,
        EmbeddedBroker(process=True) as broker,
        _producing(broker.bootstrap_servers, names) as acknowledged,
        _ingestion(Path(work), broker.bootstrap_servers, side, names, trigger_s) as process,
    ):
        tables = [Path(work, "tables", topic) for topic in names]
        _wait_for_all(tables, process, Path(work, "log"))
        time.sleep(2 * trigger_s)
        commits, began_s, before_s = _commits(tables), time.monotonic(), cpu_s(process.pid)
        from_s = time.time()
        time.sleep(seconds)
        used_s, took_s = cpu_s(process.pid) - before_s, time.monotonic() - began_s
        made = _commits(tables) - commits
        if not made:
            raise SideError(f"{name}: {side}: no table got a commit in {took_s:.0f} s")
        memory, processes = _memory_mb(process.pid)
        of_tables = zip(names, tables, strict=True)
        fresh = [found for topic, table in of_tables for found in _fresh(table, acknowledged[topic], from_s)]
        use = Use(used_s / took_s, memory, processes, 1000 * used_s / made, fresh)
    say(
        f"{name}: {side}, {topics} topics: {use.cores:.2f} cores, {use.memory_mb:,.0f} MB, {use.processes} processes, "
        f"{use.commit_cpu_ms:.1f} ms of CPU a commit, freshness {median(fresh):.1f} s (p95 {use.freshness_p95_s:.1f})"
    )
    return use


@contextmanager
def _producing(servers: str, topics: Sequence[str]) -> Iterator[dict[str, dict[int, float]]]:
    """Create the topics and write a record a second to each, in a thread; yield when each offset was acknowledged."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(60)
    acknowledged: dict[str, dict[int, float]] = {topic: {} for topic in topics}
    ended = threading.Event()

    def note(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            acknowledged[str(message.topic())][offset] = time.time()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        due_s, number = time.monotonic(), 0
        while not ended.wait(max(0.0, due_s - time.monotonic())):
            # Spread over the second, in ten portions.
            for topic in topics[number % 10 :: 10]:
                producer.produce(topic, RECORD, on_delivery=note)
            producer.poll(0)
            number, due_s = number + 1, due_s + 0.1
        producer.flush(10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield acknowledged
    finally:
        ended.set()
        thread.join()


@contextmanager
def _ingestion(work: Path, servers: str, side: str, topics: Sequence[str], trigger_s: int) -> Iterator[psutil.Process]:
    file = work / "ingest.toml"
    file.write_text(_config(work, servers, side, topics, trigger_s))
    with (work / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparkonce.jobs.cli.main", "ingest", str(file)],
            stdout=log,
            stderr=log,
            cwd=work,
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(120)
            process.kill()
            process.wait()


def _config(work: Path, servers: str, side: str, topics: Sequence[str], trigger_s: int) -> str:
    if side == OURS:
        tables = [f'[[tables]]\ntopic_pattern = "^many-"\npath = "{work}/tables/{{topic}}"']
    else:
        tables = [f'[[tables]]\ntopics = "{topic}"\npath = "{work}/tables/{topic}"' for topic in topics]
    head = f"""\
app_id = "many"
checkpoint = "{work}/checkpoints"
trigger = "{trigger_s} seconds"
[kafka]
bootstrap.servers = "{servers}"
[spark]
spark.master = "local[2]"
spark.driver.memory = "1g"
spark.ui.enabled = "false"
"""
    return "\n".join([head, *tables]) + "\n"


def _wait_for_all(tables: Sequence[Path], process: psutil.Process, log: Path) -> None:
    until = time.monotonic() + WARM_UP_LIMIT_S
    while not all((table / "_delta_log" / f"{1:020}.json").exists() for table in tables):
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE or time.monotonic() > until:
            raise SideError(f"the ingestion did not write all tables: {log.read_text()[-2000:]}")
        time.sleep(1)


def _commits(tables: Sequence[Path]) -> int:
    return sum(len(list((table / "_delta_log").glob("0*.json"))) for table in tables)


def _fresh(table: Path, acknowledged: dict[int, float], from_s: float) -> Iterator[float]:
    """Yield for each record that was acknowledged since then how long after that its commit was a file."""
    for commit in sorted((table / "_delta_log").glob("0*.json")):
        info: dict[str, Any] = next(
            (json.loads(line)["commitInfo"] for line in commit.open() if '"commitInfo"' in line), {}
        )
        for topics in info.get("sparkonce", {}).get("ranges", {}).values():
            for start, end in (extent for topic in topics.values() for extent in topic["partitions"].values()):
                for offset in range(start, end):
                    at = acknowledged.get(offset)
                    if at is not None and at >= from_s:
                        yield commit.stat().st_mtime - at


def _memory_mb(pid: int) -> tuple[float, int]:
    """Return the memory of a process and its descendants, and how many they are."""
    root = psutil.Process(pid)
    total, count = 0, 0
    for each in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total, count = total + each.memory_full_info().pss, count + 1
    return total / 1e6, count
