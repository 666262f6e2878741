"""One ingestion of many topics: CPU, memory and freshness, with one query for all tables and with a query for each.

Each topic gets one record a second. After a warm-up, CPU time is measured of the driver with all its processes over a
while, and their memory at its end, in which what processes share counts once (PSS). Freshness is the time from a
record's acknowledgement until the commit that has it is a file in its table's log.

Peers are a query for each topic, by this ingestion or by Spark's own connectors, and a loop over the topics in
foreachBatch; Delta is tuned for small tables. The same is measured of one busy topic. A backlog is what many topics
hold before the ingestion starts.
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
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import median, quantiles

import psutil
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.bench.load import fill, random_bytes
from lab.bench.many_spark import Job
from lab.bench.micro_batches import TUNED_CONF
from lab.bench.processes import cpu_s
from lab.bench.results import Bound, Comparison, Results, say
from lab.bench.sessions import SideError, session_settings
from lab.bench.settings import BACKLOG, BACKLOG_TOPICS, FRESHNESS, LIMITS, MANY_TOPICS, TARGETS, Load, Settings
from sparkonce.broker_lite.embedded import EmbeddedBroker

OURS, EACH = "one query for all", "a query for each"
SPARK, LOOP = "Spark's, a query for each", "Spark's, a loop in foreachBatch"
WORDS = {EACH: "", SPARK: "spark-", LOOP: "loop-"}
"""What a peer is in the name of a line."""
MOST_QUERIES = 40
"""Above this many topics, a query for each is not tried: 45 MB and 2.3 processes for each."""
RECORD = b'{"n": 1, "text": "a record of about a hundred bytes, as many are, in JSON"}'
WARM_UP_LIMIT_S = 300.0
BACKLOG_LIMIT_S = 1800.0
BUSY_RECORDS = 1_000
SETTLE_S = 10
"""How long one waits at least once all tables are there: the first batches are slow."""


@dataclass(frozen=True, slots=True)
class Use:
    """What one ingestion has used, and how fresh its rows were."""

    cores: float
    memory_mb: float
    processes: int
    commit_cpu_ms: float
    """CPU for each commit of a table."""
    freshness_s: Sequence[float]
    """In the order in which the records were acknowledged."""

    def freshness(self, percent: int) -> float:
        """Return the time in seconds that so many of a hundred records needed at most."""
        return quantiles(self.freshness_s, n=100)[percent - 1]

    @property
    def growth_s(self) -> float:
        """How much older rows are in the last third than in the first, by their medians: lag that grows."""
        third = len(self.freshness_s) // 3
        return median(self.freshness_s[-third:]) - median(self.freshness_s[:third])


FIGURES: Sequence[tuple[str, str, Callable[[Use], float]]] = (
    ("cores", "cores", lambda use: use.cores),
    ("memory-mb", "MB", lambda use: use.memory_mb),
    ("commit-cpu-ms", "ms", lambda use: use.commit_cpu_ms),
    ("freshness-p95-s", "s", lambda use: use.freshness(95)),
)
GROWTH = ("freshness-growth-s", "s", lambda use: use.growth_s)
"""A figure of ours alone: that of a peer may be nothing."""


def run(settings: Settings, results: Results) -> None:
    """Measure each number of topics."""
    if not any(name in settings.names for name in (*MANY_TOPICS, FRESHNESS, BACKLOG)):
        return
    conf, with_jvm = session_settings(results)
    conf |= TUNED_CONF
    for name, load in MANY_TOPICS.items():
        if name in settings.names:
            peers = [EACH, *([SPARK, LOOP] if with_jvm else [])] if load.topics <= MOST_QUERIES else []
            _compare(name, load, peers, conf, settings, results)
    if FRESHNESS in settings.names:
        _compare_freshness(with_jvm, conf, settings, results)
    if BACKLOG in settings.names:
        _compare_backlogs(settings, results)


def _compare(
    name: str, load: Load, peers: Sequence[str], conf: dict[str, str], settings: Settings, results: Results
) -> None:
    ours = _measured(name, OURS, load, settings.many_s * load.times, conf)
    for line, unit, figure in ((f"{name}-{what}", unit, figure) for what, unit, figure in (*FIGURES, GROWTH)):
        if line in LIMITS:
            results.bounds.append(Bound(line, unit, (figure(ours),), (), "", LIMITS[line]))
    measured = {peer: _measured(name, peer, load, settings.many_s, conf) for peer in peers}
    for peer in peers or [EACH]:
        other = measured.get(peer)
        for what, unit, figure in FIGURES:
            line, there = f"{name}-{WORDS[peer]}{what}-ratio", () if other is None else (figure(other),)
            target = TARGETS.get(line)
            results.comparisons.append(
                Comparison(line, unit, (figure(ours),), there, peer, target, less_is_better=True)
            )


def _compare_freshness(with_jvm: bool, conf: dict[str, str], settings: Settings, results: Results) -> None:
    """Compare one busy table, whose batches follow each other without a pause."""
    load = Load(topics=1, trigger_s=0, busy=1)
    ours = _measured(FRESHNESS, OURS, load, settings.many_s, conf)
    peer = _measured(FRESHNESS, SPARK, load, settings.many_s, conf) if with_jvm else None
    for percent in (50, 99):
        line, there = f"{FRESHNESS}-p{percent}", () if peer is None else (peer.freshness(percent),)
        results.comparisons.append(
            Comparison(line, "s", (ours.freshness(percent),), there, SPARK, TARGETS[line], less_is_better=True)
        )


def _compare_backlogs(settings: Settings, results: Results) -> None:
    """Compare how fast many topics are read, and one that holds as much as all of them."""
    records = settings.backlog_records
    many = _read_backlog(BACKLOG_TOPICS, records)
    one = _read_backlog(1, records * BACKLOG_TOPICS)
    results.comparisons.append(Comparison(BACKLOG, "rows/s", (many,), (one,), "one topic", TARGETS[BACKLOG]))


def _read_backlog(topics: int, records: int) -> float:
    """Return how many records of 100 bytes an ingestion reads and writes in a second, from start to end."""
    names = [f"many-{number}" for number in range(topics)]
    with tempfile.TemporaryDirectory(prefix="bench-") as work, EmbeddedBroker(process=True) as broker:
        _create(broker.bootstrap_servers, names)
        for topic in names:
            fill(broker.bootstrap_servers, topic, records, random_bytes(100), 1)
        began_s = time.monotonic()
        with _ingestion(Path(work), broker.bootstrap_servers, OURS, names, 0, {}, "--available-now") as process:
            if code := process.wait(BACKLOG_LIMIT_S):
                raise SideError(f"the ingestion ended with {code}: {Path(work, 'log').read_text()[-2000:]}")
        took_s = time.monotonic() - began_s
        rows = sum(_rows_of(Path(work, "tables", topic)) for topic in names)
    if rows != topics * records:
        raise SideError(f"{topics} topics hold {topics * records:,} records, and their tables {rows:,}")
    say(f"{BACKLOG}: {topics} topics with {records:,} records each in {took_s:.1f} s")
    return rows / took_s


def _measured(name: str, side: str, load: Load, seconds: float, conf: dict[str, str]) -> Use:
    names = [f"many-{number}" for number in range(load.topics)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as work,
        EmbeddedBroker(process=True) as broker,
        _producing(broker.bootstrap_servers, names, load.busy) as acknowledged,
        _ingestion(Path(work), broker.bootstrap_servers, side, names, load.trigger_s, conf) as process,
    ):
        tables = [Path(work, "tables", topic) for topic in names]
        _wait_for_all(tables, process, Path(work, "log"))
        time.sleep(max(2 * load.trigger_s, SETTLE_S))
        commits, began_s, before_s = _commits(tables), time.monotonic(), cpu_s(process.pid)
        from_s = time.time()
        time.sleep(seconds)
        used_s, took_s = cpu_s(process.pid) - before_s, time.monotonic() - began_s
        made = _commits(tables) - commits
        if not made:
            raise SideError(f"{name}: {side}: no table got a commit in {took_s:.0f} s")
        memory, processes = _memory_mb(process.pid)
        of_tables = zip(names, tables, strict=True)
        found = [each for topic, table in of_tables for each in _fresh(table, acknowledged[topic], from_s)]
        fresh = [took_s for _, took_s in sorted(found)]
        use = Use(used_s / took_s, memory, processes, 1000 * used_s / made, fresh)
    say(
        f"{name}: {side}, {load.topics} topics: {use.cores:.2f} cores, {use.memory_mb:,.0f} MB, "
        f"{use.processes} processes, {use.commit_cpu_ms:.1f} ms of CPU a commit, "
        f"freshness {median(fresh):.2f} s (p95 {use.freshness(95):.2f}; {use.growth_s:+.2f} s from first to last third)"
    )
    return use


@contextmanager
def _producing(servers: str, topics: Sequence[str], busy: int) -> Iterator[dict[str, dict[int, float]]]:
    """Create the topics and write a record a second to each, in a thread; yield when each offset was acknowledged.

    The first ``busy`` ones get `BUSY_RECORDS` a second.
    """
    _create(servers, topics)
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
            for topic in topics[busy:][number % 10 :: 10]:
                producer.produce(topic, RECORD, on_delivery=note)
            for topic in topics[:busy]:
                for _ in range(BUSY_RECORDS // 10 - 1):
                    producer.produce(topic, RECORD)
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


def _create(servers: str, topics: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(60)


@contextmanager
def _ingestion(
    work: Path, servers: str, side: str, topics: Sequence[str], trigger_s: int, conf: dict[str, str], *words: str
) -> Iterator[psutil.Process]:
    if side in (SPARK, LOOP):
        job = Job(conf, servers, topics, str(work), trigger_s, is_loop=side == LOOP)
        command = ["lab.bench.many_spark", json.dumps(asdict(job))]
    else:
        file = work / "ingest.toml"
        file.write_text(_config(work, servers, side, topics, trigger_s))
        command = ["sparkonce.jobs.cli.main", "ingest", str(file), *words]
    with (work / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
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


def _fresh(table: Path, acknowledged: dict[int, float], from_s: float) -> Iterator[tuple[float, float]]:
    """Yield when each record was acknowledged, since then, and how long after that its commit was a file."""
    for commit in sorted((table / "_delta_log").glob("0*.json")):
        for offset in chain.from_iterable(_offsets(commit)):
            at = acknowledged.get(offset)
            if at is not None and at >= from_s:
                yield at, commit.stat().st_mtime - at


def _offsets(commit: Path) -> Iterator[range]:
    """Yield the offsets of the rows that a commit adds, which have one partition: all, or by the files' statistics."""
    for action in map(json.loads, commit.read_text().splitlines()):
        for topics in action.get("commitInfo", {}).get("sparkonce", {}).get("ranges", {}).values():
            yield from (range(*extent) for topic in topics.values() for extent in topic["partitions"].values())
            return
        stats = json.loads(action.get("add", {}).get("stats", "{}"))
        if stats.get("numRecords"):
            yield range(stats["minValues"]["offset"], stats["maxValues"]["offset"] + 1)


def _rows_of(table: Path) -> int:
    """Return the number of rows of a table that was only appended to, by its log."""
    lines = [line for commit in (table / "_delta_log").glob("0*.json") for line in commit.open() if '"add"' in line]
    return sum(json.loads(json.loads(line)["add"]["stats"])["numRecords"] for line in lines)


def _memory_mb(pid: int) -> tuple[float, int]:
    """Return the memory of a process and its descendants, and how many they are."""
    root = psutil.Process(pid)
    total, count = 0, 0
    for each in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total, count = total + each.memory_full_info().pss, count + 1
    return total / 1e6, count
