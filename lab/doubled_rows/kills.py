"""The kills, equal for both pipelines: wait until rows of a task are in the output topic, then strike.

Spark retries a task that fails, or whose process dies, within the same batch. A killed driver is
restarted with its checkpoint, and runs the batch once more. Deleting a checkpoint deletes all that Spark
remembers of the query.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from lab.bench.load import create_topic
from lab.doubled_rows.copying import Copy, End, Mark, mark_in, pronounce
from lab.spark_process import SESSION_ENDED, Login, SessionError, SparkProcess
from lab.verify.records import TopicRecord, await_uncommitted, read_topic

QUERY_LIMIT_S = 300.0
ROWS_LIMIT_S = 60.0
"""The time limit for a task's rows to reach the output topic."""
BATCHES = 2
"""The batches in which a copy reads the input: the kills happen in the last of them."""
_LOOK_EVERY_S = 0.05


class Kill(Enum):
    """A fault of a pipeline; the value is its name in topics and folders."""

    TASK_RAISES = "task-raises"
    TASK_DIES = "task-dies"
    DRIVER = "driver"
    CHECKPOINT = "checkpoint"

    @property
    def title(self) -> str:
        """The title in the table."""
        return _TITLES[self]


_TITLES = {
    Kill.TASK_RAISES: "a task raises after rows were sent; Spark runs it again",
    Kill.TASK_DIES: "the process of a task is killed after rows were sent; Spark runs it again",
    Kill.DRIVER: "the driver is killed after rows were sent, and started again",
    Kill.CHECKPOINT: "the checkpoint is deleted, and the query started again",
}


@dataclass(frozen=True, slots=True)
class Input:
    """The records that every pipeline copies, with their offsets in the input topic."""

    bootstrap_servers: str
    topic: str
    partitions: int
    records: tuple[TopicRecord, ...]

    def fault(self) -> tuple[int, int]:
        """Return partition and offset of the record at which a task fails: in the middle of the last batch."""
        offsets: list[list[int]] = [[] for _ in range(self.partitions)]
        for record in self.records:
            offsets[record.partition].append(record.offset)
        largest = max(range(self.partitions), key=lambda partition: len(offsets[partition]))
        return largest, offsets[largest][len(offsets[largest]) * (2 * BATCHES - 1) // (2 * BATCHES)]


@dataclass(slots=True)
class Sessions:
    """The Spark session of queries; a new one after it was killed."""

    conf: Mapping[str, str]
    folder: Path
    _now: SparkProcess | None = None

    def get(self) -> SparkProcess:
        """Return the session.

        Raises:
            SessionError: if a new one does not start.
        """
        if self._now is None or not self._now.is_alive:
            self._now = SparkProcess(self.conf, self.folder, Login(self.folder))
        return self._now

    def close(self) -> None:
        """End it."""
        if self._now is not None:
            self._now.close()


def run(kill: Kill, pipeline: str, source: Input, sessions: Sessions, folder: Path) -> list[TopicRecord]:
    """Run the input through a pipeline, strike, let it finish; return what ``read_committed`` readers then see.

    Raises:
        SessionError: if a query stopped, was too slow, or never reached the fault.
        LoadError: if the output topic could not be created or read, or rows did not arrive there.
    """
    name = f"{source.topic}-{pipeline}-{kill.value}"
    create_topic(source.bootstrap_servers, name, source.partitions)
    faults, checkpoint = folder / name / "fault", folder / name / "checkpoint"
    faults.mkdir(parents=True)
    fault_partition, fault_offset = source.fault()
    copy = Copy(
        pipeline=pipeline,
        bootstrap_servers=source.bootstrap_servers,
        source=source.topic,
        target=name,
        app_id=name,
        checkpoint=str(checkpoint),
        records_per_batch=-(-len(source.records) // BATCHES),
        fault_folder=None if kill is Kill.CHECKPOINT else str(faults),
        fault_partition=fault_partition,
        fault_offset=fault_offset,
    )
    session, query = sessions.get(), name
    session.start(query, copy)
    if kill is Kill.CHECKPOINT:
        _await_end(session, query)
        shutil.rmtree(checkpoint)
    else:
        _await_rows(source, name, _await_mark(session, query, faults))
        if kill is Kill.DRIVER:
            session.kill()
        else:
            pronounce(faults, End.RAISE if kill is Kill.TASK_RAISES else End.DIE)
    if kill in (Kill.CHECKPOINT, Kill.DRIVER):
        session, query = sessions.get(), f"{name}, again"
        session.start(query, copy)
    _await_end(session, query)
    return read_topic(source.bootstrap_servers, name, source.partitions, "read_committed")


def _await_end(session: SparkProcess, query: str) -> None:
    deadline = time.monotonic() + QUERY_LIMIT_S
    while not (end := session.ended(query))[0]:
        if time.monotonic() > deadline:
            log = session.log_tail()
            raise SessionError(f"the query did not end within {QUERY_LIMIT_S:g} s; Spark's log ends with:\n{log}")
        time.sleep(_LOOK_EVERY_S)
    if end[1] == SESSION_ENDED:
        raise SessionError(f"{SESSION_ENDED}; its log ends with:\n{session.log_tail()}")
    if end[1] is not None:
        raise SessionError(f"the query stopped: {end[1]}")


def _await_mark(session: SparkProcess, query: str, faults: Path) -> Mark:
    deadline = time.monotonic() + QUERY_LIMIT_S
    while (mark := mark_in(faults)) is None:
        if session.ended(query)[0]:
            _await_end(session, query)
            raise SessionError("the query ended before a task came to the fault")
        if time.monotonic() > deadline:
            raise SessionError(f"no task came to the fault within {QUERY_LIMIT_S:g} s")
        time.sleep(_LOOK_EVERY_S)
    return mark


def _await_rows(source: Input, target: str, mark: Mark) -> None:
    """Wait until a row that the waiting task passed on is in the output topic, committed or not."""
    handed_on = {
        record.value
        for record in source.records
        if record.partition == mark.partition and mark.first <= record.offset < mark.at
    }
    wanted: Callable[[bytes], bool] = handed_on.__contains__
    await_uncommitted(source.bootstrap_servers, target, source.partitions, wanted, ROWS_LIMIT_S)
