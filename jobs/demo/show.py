"""The course of the demo: publish during a broker crash, run the job into every kill point, finish, and record it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.jobs.demo.report import Event, Timeline
from sparkonce.jobs.demo.settings import Folder, Kill, Settings
from sparkonce.jobs.demo.supervisor import Job, Outcome
from sparkonce.jobs.etl import dataset
from sparkonce.jobs.etl.publish import create_topic, publish

PROGRESS_LINES = 10
"""Interval of a step's progress lines, without a terminal."""


@contextlib.contextmanager
def progress(console: Console, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a step's progress; the block calls the yielded function with the count so far."""
    if console.is_terminal:
        whole = Column(no_wrap=True)
        columns = (  # where they do not fit, only the description is cut
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            BarColumn(20),
            MofNCompleteColumn(table_column=whole),
            TimeElapsedColumn(table_column=whole),
        )
        with Progress(*columns, console=console, expand=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda count: bar.update(task, completed=count)
    else:
        shown = -1

        def line(count: int) -> None:
            nonlocal shown
            tenth = count * PROGRESS_LINES // max(total, 1)
            if tenth > shown:
                shown = tenth
                console.print(f"  {label}: {count:,} of {total:,}", soft_wrap=True)

        yield line


@dataclass(slots=True)
class TableWatch:
    """The table's newest version and its number of rows, by its log; -1 and 0 before it exists."""

    path: str
    version: int = -1
    rows: int = 0
    table: DeltaTable | None = None

    def refresh(self) -> TableWatch:
        """Refresh, cheaply: only new commits are read."""
        if self.table is None:
            if not DeltaTable.is_deltatable(self.path):
                return self
            self.table = DeltaTable(self.path)
        else:
            self.table.update_incremental()
        if self.table.version() != self.version:
            self.version = self.table.version()
            counts = pa.table(self.table.get_add_actions())["num_records"]
            self.rows = pc.sum(counts).as_py() or 0
        return self


@dataclass(slots=True)
class _Once:
    """Calls ``action`` the first time it is called."""

    action: Callable[[], None]
    done: bool = False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            self.action()


@dataclass(slots=True)
class Demo:
    """One demo in ``folder``, which is empty."""

    settings: Settings
    folder: Folder
    console: Console
    broker: EmbeddedBroker
    timeline: Timeline = field(default_factory=Timeline)
    flights: int = 0
    doing: str = ""
    """The current activity."""
    table: TableWatch | None = None
    """The last state of the table."""
    commits: list[Event] = field(default_factory=list)
    """The commits so far."""

    def run(self) -> None:
        """Do everything up to the point where the table should be complete."""
        broker = self.broker
        self.timeline.begin("broker", "span", "broker")
        self._say(f"Broker (Kafka's protocol) answers on {broker.bootstrap_servers}, pid {broker.pid}")
        self._publish(broker)
        for number, kill in enumerate(self.settings.kills, 1):
            self._run_into(kill, number, broker)
        self._finish(broker)
        self.timeline.end("broker", "broker")
        self.doing = "comparing the table with the source data"

    def _publish(self, broker: EmbeddedBroker) -> None:
        settings = self.settings
        create_topic(broker.bootstrap_servers, settings.topic, settings.partitions)
        table = dataset.flights()
        self.flights = table.num_rows
        crash = _Once(lambda: self._kill_broker(broker, "under the publisher"))
        self.doing = "publishing flights"
        self.timeline.begin("publisher", "publish", self.doing)
        with progress(self.console, "Publishing flights", table.num_rows) as update:

            def acknowledged(count: int) -> None:
                update(count)
                if count >= settings.kill_broker_at * table.num_rows:
                    crash()

            count = publish(broker.bootstrap_servers, settings.topic, dataset.messages(table), acknowledged)
            update(count)
        self.timeline.end("publisher", f"{count:,} flights published and acknowledged")

    def _run_into(self, kill: Kill, number: int, broker: EmbeddedBroker) -> None:
        self.timeline.begin("job", "span", f"run {number}")
        outcome = self._job(broker, f"run-{number}", kill)
        assert outcome.killed_at is not None
        batch = "" if outcome.batch_id is None else f", batch {outcome.batch_id}"
        label = f"run {number}: SIGKILL at {outcome.killed_at.value}{batch} ({outcome.processes} processes)"
        self.timeline.end("job", f"run {number}")
        self.timeline.moment("job", "kill", label, outcome.killed_at.value)
        self._say(label)
        if kill.delete_checkpoint:
            shutil.rmtree(self.folder.checkpoint)
            self.timeline.moment("job", "checkpoint", "checkpoint folder deleted", "checkpoint deleted")
            self._say("Spark's checkpoint folder deleted; only the table knows how far the job came")

    def _finish(self, broker: EmbeddedBroker) -> None:
        table = TableWatch(str(self.folder.table))
        goal = table.refresh().version + self.settings.kill_broker_after_commits
        crash = _Once(lambda: self._kill_broker(broker, "under the job"))

        def watch() -> None:
            if table.refresh().version >= goal:
                crash()

        last = "last run, to the end"
        self.timeline.begin("job", "span", last)
        self._job(broker, "last-run", None, watch)
        self.timeline.end("job", last)
        self._say("The last run reached the end of the topic")

    def _job(
        self,
        broker: EmbeddedBroker,
        name: str,
        kill: Kill | None,
        watch: Callable[[], None] = lambda: None,
    ) -> Outcome:
        settings, folder = self.settings, self.folder
        options = {
            "bootstrap-servers": broker.bootstrap_servers,
            "topic": settings.topic,
            "table": folder.table,
            "checkpoint": folder.checkpoint,
            "app-id": settings.app_id,
            "partition-by": settings.partition_by,
            "max-offsets-per-trigger": settings.max_offsets_per_trigger,
            "master": settings.master,
            "driver-memory": settings.driver_memory,
        }
        command = ["-m", "sparkonce.jobs.demo.pipeline", *(f"--{key}={value}" for key, value in options.items())]
        command += ["--direct"] if settings.direct else []
        job = Job(command, folder.logs / f"{name}.log", settings.time_limit)
        aim = "to the end" if kill is None else f"to be killed at {kill}"
        self.doing, self.table = f"Spark job, {aim}", TableWatch(str(folder.table))
        with progress(self.console, f"Spark job, {aim}", self.flights) as update:

            def look() -> None:
                update(self._look_at_table())
                watch()

            return job.run(None if kill is None else (kill.point, kill.batch), look)

    def _look_at_table(self) -> int:
        """Return the table's rows; record new commits."""
        assert self.table is not None, "a job writes it"
        before = self.table.version
        if self.table.refresh().version != before and self.table.table is not None:
            self.commits = self.timeline.commits(self.table.table)
        return self.table.rows

    def _kill_broker(self, broker: EmbeddedBroker, when: str) -> None:
        old = broker.pid
        broker.kill()
        self.timeline.moment("broker", "kill", f"broker (pid {old}): SIGKILL {when}", "SIGKILL")
        broker.restart()
        self.timeline.moment("broker", "start", f"broker restarted (pid {broker.pid})")
        self._say(f"Broker {old} ended by SIGKILL {when}, restarted as {broker.pid}")

    def _say(self, text: str) -> None:
        self.console.print(f"{self.timeline.now():6.1f} s  {text}", soft_wrap=True)
