"""The kills, done in the same way to either pipeline: wait until rows of a task are in the output topic, then strike.

A task that fails, or whose process dies, is run again by Spark within the same batch. A driver that is killed is
started again with its checkpoint, and runs the batch once more. A checkpoint that is deleted takes along all that Spark
remembers of the query.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType

from sparkonce.jobs.bench.load import create_topic
from sparkonce.jobs.lab.doubled_rows.copying import Copy, End, Mark, mark_in, pronounce
from sparkonce.jobs.lab.doubled_rows.session import Session, SessionError
from sparkonce.jobs.lab.doubled_rows.topics import Found, await_uncommitted, read_committed

QUERY_LIMIT_S = 300.0
ROWS_LIMIT_S = 60.0
"""How long rows that a task handed on may take to the output topic."""
BATCHES = 2
"""In which a copy reads the input: the kills fall into the last of them."""
_LOOK_EVERY_S = 0.05


class Kill(Enum):
    """What is done to a pipeline; the value is its name in topics and folders."""

    TASK_RAISES = "task-raises"
    TASK_DIES = "task-dies"
    DRIVER = "driver"
    CHECKPOINT = "checkpoint"

    @property
    def title(self) -> str:
        """What the reader sees."""
        return _TITLES[self]


_TITLES = {
    Kill.TASK_RAISES: "a task raises after rows were sent; Spark runs it again",
    Kill.TASK_DIES: "the process of a task is killed after rows were sent; Spark runs it again",
    Kill.DRIVER: "the driver is killed after rows were sent, and started again",
    Kill.CHECKPOINT: "the checkpoint is deleted, and the query started again",
}


@dataclass(frozen=True, slots=True)
class Input:
    """The records that every pipeline copies, as they lie in the input topic."""

    bootstrap_servers: str
    topic: str
    partitions: int
    records: tuple[Found, ...]

    def fault(self) -> tuple[int, int]:
        """Return partition and offset of the record that a task comes to grief at: in the middle of the last batch."""
        offsets: list[list[int]] = [[] for _ in range(self.partitions)]
        for record in self.records:
            offsets[record.partition].append(record.offset)
        largest = max(range(self.partitions), key=lambda partition: len(offsets[partition]))
        return largest, offsets[largest][len(offsets[largest]) * (2 * BATCHES - 1) // (2 * BATCHES)]


@dataclass(slots=True)
class Sessions:
    """The Spark session that queries run in: one that lives, a new one where it was killed. A context manager."""

    conf: Mapping[str, str]
    log: Path
    _now: Session | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def get(self) -> Session:
        """Return the session.

        Raises:
            SessionError: if a new one does not start.
        """
        if self._now is None:
            self._now = self._stack.enter_context(Session(self.conf, self.log))
        return self._now

    def kill(self) -> None:
        """SIGKILL the session's processes."""
        assert self._now is not None
        self._now.kill()
        self._now = None

    def __enter__(self) -> Sessions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()


def run(kill: Kill, pipeline: str, source: Input, sessions: Sessions, folder: Path) -> list[Found]:
    """Copy the input through a pipeline, strike, let it finish; returns what ``read_committed`` readers then see.

    Raises:
        SessionError: if a query stopped, was too slow, or never came to the fault.
        LoadError: if the output topic could not be made.
        ReadingError: if rows did not come there, or it could not be read.
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
    sessions.get().start(copy)
    if kill is Kill.CHECKPOINT:
        sessions.get().wait(QUERY_LIMIT_S)
        shutil.rmtree(checkpoint)
        sessions.get().start(copy)
    else:
        _await_rows(source, name, _await_mark(sessions.get(), faults))
        if kill is Kill.DRIVER:
            sessions.kill()
            sessions.get().start(copy)
        else:
            pronounce(faults, End.RAISE if kill is Kill.TASK_RAISES else End.DIE)
    sessions.get().wait(QUERY_LIMIT_S)
    return read_committed(source.bootstrap_servers, name, source.partitions)


def _await_mark(session: Session, faults: Path) -> Mark:
    deadline = time.monotonic() + QUERY_LIMIT_S
    while (mark := mark_in(faults)) is None:
        if session.has_answered(_LOOK_EVERY_S):
            session.wait(0)
            raise SessionError("the query ended before a task came to the fault")
        if time.monotonic() > deadline:
            raise SessionError(f"no task came to the fault within {QUERY_LIMIT_S:g} s")
    return mark


def _await_rows(source: Input, target: str, mark: Mark) -> None:
    """Wait until a row that the holding task handed on is in the output topic, visible or not."""
    handed_on = {
        record.value
        for record in source.records
        if record.partition == mark.partition and mark.first <= record.offset < mark.at
    }
    wanted: Callable[[bytes], bool] = handed_on.__contains__
    await_uncommitted(source.bootstrap_servers, target, source.partitions, wanted, ROWS_LIMIT_S)
