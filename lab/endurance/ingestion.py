"""`sparkonce ingest` over many topics, a table for each, while its driver, workers and broker are killed in turn.

Numbered records are published to each topic at an even pace; a tenth of the topics are created a third of the time
later. Then the first table gets a constraint that its next rows break, and loses it after another third. Whatever ends
is started again. When the last record is acknowledged nothing more is killed; the ingestion runs on until every table
has its rows, and once more to its end. Each table is audited. The last line is ``RESULT expected=… rows=… lost=…
duplicated=… unproven=…``, how many of each kind were killed, and the sizes of the tables' data files; the exit code is
0 only if each record is in its table once, which is proven, and each kind was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import cycle
from pathlib import Path

import psutil
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lab import class_archive
from lab.child_process import kill_processes, session_members
from lab.endurance.publisher import POLL_S, Publisher
from lab.endurance.supervised_job import SupervisedJob, run_to_end
from lab.job_process import JobFailedError
from lab.store.stores import KINDS, LOCAL_KIND, open_store
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.connectors.runtime.worker_daemon import MODULE as WORKERS
from sparkonce.jobs.cli.main import main as command_line
from sparkonce.jobs.etl.publish import PublishError, create_topic
from sparkonce.jobs.shared.arguments import empty_folder, positive, working_folder
from sparkonce.jobs.shared.exit_status import FAILED, GOOD

PARTITIONS = 2
DRAIN_LIMIT_S = 900.0
LOOK_S = 2.0
"""How often all tables are looked at while the rest is awaited."""
MOST_FAILURES = 20
TEXT = "x" * 60


class Victim(Enum):
    """The process to kill."""

    WORKER = "worker"
    BROKER = "broker"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Found:
    """The contents of the tables at the end."""

    expected: int
    rows: int
    lost: int
    duplicated: int
    unproven: int
    """Tables whose audit does not say that each record was written once."""
    file_bytes: Sequence[int]

    def __str__(self) -> str:
        sizes = self.file_bytes
        return (
            f"RESULT expected={self.expected} rows={self.rows} lost={self.lost} duplicated={self.duplicated} "
            f"unproven={self.unproven} "
            f"files={len(sizes)} file_bytes_median={int(statistics.median(sizes))} file_bytes_largest={max(sizes)}"
        )


@dataclass(slots=True)
class Course:
    """The parts of one run; ``tell`` receives a line for each event."""

    job: SupervisedJob
    broker: EmbeddedBroker
    tables: Tables
    topics: Sequence[str]
    every_s: float
    tell: Callable[[str], None]
    kills: Counter[Victim] = field(default_factory=Counter)
    _due: list[tuple[float, Callable[[], bool]]] = field(default_factory=list)
    """What else is done in the course, and when; once more if it was not possible."""
    _rows_at_start: int = 0
    _began_s: float = field(default_factory=time.monotonic)

    def do_after(self, seconds: float, what: Callable[[], bool]) -> None:
        """Do something so long after the beginning, again and again until it returns True."""
        self._due.append((self._began_s + seconds, what))

    def run(self, publishers: Sequence[Publisher], rows: int) -> None:
        """Kill until all is published, and wait until the tables have ``rows`` rows.

        Raises:
            JobFailedError: if the ingestion fails too often, or does not come to its end.
            PublishError: if records were not acknowledged.
        """
        turns, due_s = cycle(Victim), self._began_s + self.every_s
        victim = next(turns)
        while self._due or any(each.is_alive() for each in publishers):
            self._keep_up()
            self._due = [(at_s, what) for at_s, what in self._due if time.monotonic() < at_s or not what()]
            if time.monotonic() >= due_s and self._kill(victim):
                due_s, victim = time.monotonic() + self.every_s, next(turns)
            time.sleep(POLL_S)
        for each in publishers:
            each.check()
        self.tell(f"all {rows} records are published; nothing more is killed")
        until_s = time.monotonic() + DRAIN_LIMIT_S
        while (found := self._rows()) < rows:
            self._keep_up()
            if time.monotonic() > until_s:
                raise JobFailedError(f"the tables have {found} of {rows} rows; {self.job.log_tail()}")
            time.sleep(LOOK_S)

    def _keep_up(self) -> None:
        if self.job.keep_up():
            self._rows_at_start = self._rows()
            self.tell(f"{self._now()} the ingestion is started again; the tables have {self._rows_at_start} rows")
            if self.job.failures > MOST_FAILURES:
                raise JobFailedError(f"the ingestion failed more than {MOST_FAILURES} times; {self.job.log_tail()}")

    def _kill(self, victim: Victim) -> bool:
        """Kill the next victim of a kind; return whether there was one that had made progress since the last start."""
        if self._rows() == self._rows_at_start:
            return False
        match victim:
            case Victim.WORKER:
                killed = kill_processes(workers(session_members(self.job.pid))[-1:])
            case Victim.BROKER:
                self.broker.kill()
                self.broker.restart()
                killed = 1
            case Victim.DRIVER:
                killed = self.job.kill()
        if killed:
            self.kills[victim] += 1
            self.tell(f"{self._now()} killed: {victim.value} ({killed} processes); the tables have {self._rows()} rows")
        return killed > 0

    def _rows(self) -> int:
        return sum(self.tables.rows_of(topic) for topic in self.topics)

    def _now(self) -> str:
        return f"{time.monotonic() - self._began_s:6.1f} s"


def workers(members: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the Python workers of a session without their daemon, in the order in which they were forked."""
    found: dict[int, tuple[psutil.Process, int, float]] = {}
    for each in members:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if WORKERS in " ".join(each.cmdline()):
                found[each.pid] = each, each.ppid(), each.create_time()
    forked = [(began, process) for process, parent, began in found.values() if parent in found]
    return [process for _, process in sorted(forked, key=lambda each: each[0])]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables, in a folder or a store."""

    root: str
    options: Mapping[str, str]

    def open(self, topic: str) -> DeltaTable:
        """Open a topic's table. Raises TableNotFoundError if it is not there yet."""
        return DeltaTable(f"{self.root}/{topic}", storage_options=dict(self.options))

    def rows_of(self, topic: str) -> int:
        """Return the number of rows of a topic's table, by its log."""
        try:
            return sum(self.open(topic).get_add_actions().column("num_records").to_pylist())
        except TableNotFoundError:
            return 0

    def is_proven(self, topic: str) -> bool:
        """Whether the audit of a topic's table says that each of its records was written once."""
        secrets = [part for name, text in self.options.items() for part in ("--storage", f"{name}={text}")]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = command_line(["audit", f"{self.root}/{topic}", *secrets])
        if status != GOOD:
            _tell(said.getvalue())
        return status == GOOD


def judge(tables: Tables, topics: Sequence[str], records: int) -> Found:
    """Compare each table with the numbers that were published to its topic."""
    rows = lost = duplicated = unproven = 0
    sizes: list[int] = []
    for topic in topics:
        table = tables.open(topic)
        numbers = Counter(table.to_pyarrow_table(columns=["n"]).column("n").to_pylist())
        rows += numbers.total()
        lost += sum(number not in numbers for number in range(records))
        duplicated += numbers.total() - len(numbers)
        unproven += not tables.is_proven(topic)
        sizes += table.get_add_actions().column("size_bytes").to_pylist()
    return Found(records * len(topics), rows, lost, duplicated, unproven, sizes)


def _messages(records: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(records):
        yield b"%d" % (number % 97), json.dumps({"n": number, "text": TEXT}).encode()


def _config(folder: Path, tables: Tables, servers: str, trigger: str) -> str:
    """Return the configuration of the ingestion; a JSON string is a TOML string, too."""
    entries = {
        "topic_pattern": "^numbers-",
        "path": f"{tables.root}/{{topic}}",
        "value_format": "json",
        "value_schema": "n BIGINT, text STRING",
        "sql": "SELECT value.*, partition, offset FROM records",
        "compact_every": "20",
    }
    text = {key: value if key == "compact_every" else json.dumps(value) for key, value in entries.items()}
    lines = [
        'app_id = "endurance"',
        f"checkpoint = {json.dumps(str(folder / 'checkpoints'))}",
        f"trigger = {json.dumps(trigger)}",
        "[kafka]",
        f"bootstrap.servers = {json.dumps(servers)}",
        "[storage]",
        *(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in tables.options.items()),
        "[spark]",
        'spark.master = "local[2,4]"',  # a task whose worker was killed is retried
        'spark.driver.memory = "1g"',
        'spark.log.level = "ERROR"',
        "[[tables]]",
        *(f"{key} = {value}" for key, value in text.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the command line; return the exit code."""
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # to end started processes
    try:
        with working_folder(options.folder, "ingestion-") as folder:
            found, course = _run(options, folder)
    except (JobFailedError, PublishError) as error:
        print(f"ingestion: {error}", file=sys.stderr)
        return FAILED
    counts = " ".join(f"{victim.value}s_killed={course.kills[victim]}" for victim in Victim)
    print(f"{found} {counts} failures={course.job.failures}")
    is_right = found.rows == found.expected and not (found.lost or found.duplicated or found.unproven)
    return GOOD if is_right and all(course.kills[victim] for victim in Victim) else FAILED


def _run(options: argparse.Namespace, folder: Path) -> tuple[Found, Course]:
    topics = [f"numbers-{number}" for number in range(options.tables)]
    later = topics[len(topics) - len(topics) // 10 :]
    environment = {class_archive.VARIABLE: class_archive.options()}
    with open_store(options.store) as store, EmbeddedBroker(process=True, data_dir=folder / "broker") as broker:
        tables = Tables(store.location(folder / "tables") or str(folder / "tables"), store.storage_options)
        servers, third_s = broker.bootstrap_servers, options.minutes * 20
        for topic in topics[: len(topics) - len(later)]:
            create_topic(servers, topic, PARTITIONS)
        commands = {}
        for name, trigger in (("continuous", "2 seconds"), ("rest", "availableNow")):
            file = folder / f"{name}.toml"
            file.write_text(_config(folder, tables, servers, trigger))
            commands[name] = ["-m", "sparkonce.jobs.cli.main", "ingest", str(file)]

        def publisher(topic: str, minutes: float) -> Publisher:
            return Publisher(servers, topic, _messages(options.records), options.records, minutes)

        early = [publisher(topic, options.minutes) for topic in topics if topic not in later]
        late = [publisher(topic, options.minutes * 2 / 3) for topic in later]

        def add_topics() -> bool:
            for topic, each in zip(later, late, strict=True):
                create_topic(servers, topic, PARTITIONS)
                each.start()
            _tell(f"{len(late)} topics were added")
            return True

        with SupervisedJob(commands["continuous"], folder / "ingestion.log", environment) as job:
            course = Course(job, broker, tables, topics, options.every, _tell)
            course.do_after(third_s, add_topics)
            course.do_after(third_s, lambda: _break(tables, topics[0]))
            course.do_after(2 * third_s, lambda: _mend(tables, topics[0]))
            for each in early:
                each.start()
            course.run([*early, *late], options.records * len(topics))
        run_to_end(commands["rest"], folder / "ingestion.log", environment)
        return judge(tables, topics, options.records), course


def _break(tables: Tables, topic: str) -> bool:
    """Have a table refuse what comes next; return whether it was possible."""
    try:
        table = tables.open(topic)
        limit = max(table.to_pyarrow_table(columns=["n"]).column("n").to_pylist(), default=-1) + 1
        table.alter.add_constraint({"broken": f"n < {limit}"})
    except DeltaError as error:  # such as that of a commit in between, or that there is no table yet
        _tell(f"{topic} is not broken yet: {error}")
        return False
    _tell(f"{topic} refuses numbers from {limit} on")
    return True


def _mend(tables: Tables, topic: str) -> bool:
    try:
        tables.open(topic).alter.drop_constraint("broken")
    except DeltaError as error:
        _tell(f"{topic} is not mended yet: {error}")
        return False
    _tell(f"{topic} is mended")
    return True


def _tell(line: str) -> None:
    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.endurance.ingestion", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long records are published (default: 10)")
    parser.add_argument("--every", type=float, default=20, metavar="S", help="seconds between kills (default: 20)")
    parser.add_argument("--tables", type=positive, default=10, help="topics and tables (default: 10)")
    parser.add_argument("--records", type=positive, default=60_000, help="of each topic (default: 60000)")
    parser.add_argument("--store", choices=KINDS, default=LOCAL_KIND, help="where the tables are (default: local)")
    parser.add_argument("--folder", type=empty_folder, help="keep the logs there; by default they are removed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
