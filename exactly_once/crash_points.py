"""Named points at which a pipeline can be made to fail, and what happens there.

A plan is a text, ``point@batch=action``. ``@batch`` may be left out: the first time the point is reached. With several
queries in one session, ``appId:`` before the point names the one that is meant. A plan fires once: firing creates its
mark, a file with the point, batch and process id, and a plan whose mark exists does not fire again. So a restarted job
gets past it, and a test can prove that its fault happened.

Plans come from the environment, which every process of a pipeline inherits. ``SPARKONCE_CRASH`` is one plan, and
``SPARKONCE_CRASH_MARK`` names its mark. ``SPARKONCE_CRASH_FOLDER`` is a folder that is read each time a point is
reached, for sessions that outlive many crashes: each ``<name>.plan`` in it is one, with the mark ``<name>.fired``.

When disabled, a point costs one call and a comparison with None. Nothing of this project is imported here, so that
the broker, which knows no connector, can have its points in the same list.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class CrashPoint(Enum):
    """Every point, named after the step that has just been done or is about to be."""

    SOURCE_PLANNED = "source.planned"
    """The end of a batch is chosen; Spark has not yet logged it."""
    SOURCE_SPLIT = "source.split"
    """Spark has logged the end of a batch; its tasks are about to be cut."""
    SOURCE_READING = "source.reading"
    """A task has read some of its records."""
    SOURCE_READ = "source.read"
    """A task has read all of its records."""
    SOURCE_FINISHED = "source.finished"
    """Spark's checkpoint has the whole batch; the next one is about to be built."""
    SINK_BEGUN = "sink.begun"
    """The batch was logged by Spark and compared with the store; nothing of it is written."""
    SINK_WRITING = "sink.writing"
    """A task has received some rows; its data file is not finished, or none of them are sent to Kafka."""
    SINK_FILE_WRITTEN = "sink.file_written"
    """A task has finished a data file, or Kafka has acknowledged all its rows; its driver does not know of it yet."""
    SINK_BEFORE_COMMIT = "sink.before_commit"
    """All files of the batch are written; the table does not name them yet."""
    SINK_OFFSETS_LANDED = "sink.offsets_landed"
    """A commit of offsets alone is in the log; its response is on the way."""
    SINK_ROWS_LANDED = "sink.rows_landed"
    """The commit with the rows is in the log; its response is on the way."""
    SINK_BETWEEN_WRITES = "sink.between_writes"
    """One of the two writes, rows and offsets, has landed; the other has not. Never reached by exactly-once."""
    SINK_AFTER_COMMIT = "sink.after_commit"
    """All writes of the batch have landed; Spark's checkpoint does not know of it."""
    MERGE_RECORDED = "merge.recorded"
    """The intent of a MERGE is in the table of offsets; the MERGE has not run."""
    MERGE_UNCONFIRMED = "merge.unconfirmed"
    """The MERGE has landed; the table of offsets does not have it confirmed."""
    SINK_BETWEEN_TARGETS = "sink.between_targets"
    """The dead letters of a batch are delivered; its rows are not."""
    TRANSACTION_BEGUN = "transaction.begun"
    """A task has a transactional id and a producer id; none of its rows are sent."""
    TRANSACTION_DECIDING = "transaction.deciding"
    """The decision about a batch is in the driver's transaction, which is open."""
    TRANSACTION_DECIDED = "transaction.decided"
    """The decision is committed; none of the tasks' transactions is ended."""
    TRANSACTION_ENDING = "transaction.ending"
    """The first of the tasks' transactions is ended; others are not, if there are any."""
    TRANSACTION_ENDED = "transaction.ended"
    """All of the tasks' transactions are ended; that is not recorded yet."""
    BROKER_APPENDING = "broker.appending"
    """The broker has a batch to append; the log does not have it."""
    BROKER_APPENDED = "broker.appended"
    """The log has the batch; its producer does not know."""
    BROKER_OFFSETS = "broker.offsets"
    """The broker has looked up an offset for a client; the answer is not sent."""
    BROKER_FETCHED = "broker.fetched"
    """The broker has found records for a client; they are not sent."""


class CrashAction(Enum):
    """What happens at a point."""

    HOLD = "hold"
    """Block until the process that watches the mark kills this one, or releases it (`release`)."""
    KILL = "kill"
    """SIGKILL this process."""
    RAISE = "raise"
    """Raise `InjectedCrashError`; after a completed step, this is a lost acknowledgement."""
    DISK_FULL = "disk-full"
    """Raise the operating system's error for a full disk (ENOSPC)."""


class InjectedCrashError(RuntimeError):
    """The requested failure."""


CRASH_VARIABLE = "SPARKONCE_CRASH"
MARK_VARIABLE = "SPARKONCE_CRASH_MARK"
FOLDER_VARIABLE = "SPARKONCE_CRASH_FOLDER"
PLAN_SUFFIX = ".plan"
MARK_SUFFIX = ".fired"
RELEASE_SUFFIX = ".released"
HOLD_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """One armed point."""

    point: CrashPoint
    batch_id: int | None
    action: CrashAction
    mark_path: str
    app_id: str | None = None

    @classmethod
    def parse(cls, text: str, mark_path: str) -> CrashPlan:
        """Read ``[appId:]point[@batch]=action``.

        Raises:
            ValueError: if the text is anything else; the message names all points and actions.
        """
        where, _, action = text.strip().rpartition("=")
        app_id, _, where = where.rpartition(":")
        name, _, batch = where.partition("@")
        try:
            return cls(CrashPoint(name), int(batch) if batch else None, CrashAction(action), mark_path, app_id or None)
        except ValueError as error:
            points = ", ".join(point.value for point in CrashPoint)
            actions = ", ".join(each.value for each in CrashAction)
            raise ValueError(
                f"{text!r} is not [appId:]point[@batch]=action; points: {points}; actions: {actions}"
            ) from (error)

    def __str__(self) -> str:
        app = f"{self.app_id}:" if self.app_id else ""
        batch = "" if self.batch_id is None else f"@{self.batch_id}"
        return f"{app}{self.point.value}{batch}={self.action.value}"

    def matches(self, point: CrashPoint, batch_id: int | None, app_id: str | None) -> bool:
        """Whether this plan applies."""
        return self.point is point and self.batch_id in (None, batch_id) and self.app_id in (None, app_id)


@dataclass(frozen=True, slots=True)
class CrashPlans:
    """All that is armed in this process."""

    fixed: CrashPlan | None
    folder: Path | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> CrashPlans | None:
        """Return the plans, or None if nothing can ever fire.

        Raises:
            ValueError: if a plan cannot be read or has no mark.
        """
        text, folder = environment.get(CRASH_VARIABLE), environment.get(FOLDER_VARIABLE)
        if not text and not folder:
            return None
        fixed = None
        if text:
            mark_path = environment.get(MARK_VARIABLE)
            if not mark_path:
                raise ValueError(
                    f"{CRASH_VARIABLE} is set, so {MARK_VARIABLE} must name the file that records the firing"
                )
            fixed = CrashPlan.parse(text, mark_path)
        return cls(fixed, Path(folder) if folder else None)

    def armed(self) -> Iterable[CrashPlan]:
        """Yield the plans that are armed now."""
        if self.fixed is not None:
            yield self.fixed
        if self.folder is None:
            return
        for path in sorted(self.folder.glob(f"*{PLAN_SUFFIX}")):
            try:
                text = path.read_text()
            except FileNotFoundError:  # disarmed since it was listed
                continue
            yield CrashPlan.parse(text, str(path.with_suffix(MARK_SUFFIX)))


_plans = CrashPlans.from_environment(os.environ)


def reach(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
    """Report that ``point`` is reached; fails here if the point is armed and has not fired yet.

    Pass ``batch_id`` and ``app_id`` where they are known; a plan that names one matches only calls that have it.

    Raises:
        InjectedCrashError, OSError: if that is the armed action.
    """
    if _plans is None:
        return
    for plan in _plans.armed():
        if plan.matches(point, batch_id, app_id):
            _fire(plan, batch_id)


def arm(folder: Path, name: str, plan: str) -> CrashPlan:
    """Put a plan into the folder that ``SPARKONCE_CRASH_FOLDER`` names for the processes that are to fail.

    Raises:
        ValueError: if the plan cannot be read.
    """
    path = folder / f"{name}{PLAN_SUFFIX}"
    parsed = CrashPlan.parse(plan, str(path.with_suffix(MARK_SUFFIX)))
    unfinished = path.with_suffix(".new")
    unfinished.write_text(plan)
    unfinished.rename(path)  # readers never see a partial file
    return parsed


def disarm(folder: Path, name: str) -> None:
    """Remove a plan; its mark stays."""
    (folder / f"{name}{PLAN_SUFFIX}").unlink(missing_ok=True)


def release(plan: CrashPlan) -> None:
    """Let a process that holds at ``plan`` continue."""
    Path(plan.mark_path).with_suffix(RELEASE_SUFFIX).touch()


def fired(plan: CrashPlan) -> dict[str, object] | None:
    """Return the mark that ``plan`` left (``point``, ``batch_id``, ``pid``), or None if it has not fired."""
    try:
        text = Path(plan.mark_path).read_text()
    except FileNotFoundError:
        return None
    if not text.endswith("\n"):  # created first, filled then
        return None
    record: dict[str, object] = json.loads(text)
    return record


def _fire(plan: CrashPlan, batch_id: int | None) -> None:
    record = json.dumps({"point": plan.point.value, "batch_id": batch_id, "pid": os.getpid()})
    try:
        descriptor = os.open(plan.mark_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as mark:
        mark.write(record + "\n")
        mark.flush()
        os.fsync(mark.fileno())
    if plan.action is CrashAction.RAISE:
        raise InjectedCrashError(f"injected failure at {plan.point.value}, batch {batch_id}")
    if plan.action is CrashAction.DISK_FULL:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (injected at {plan.point.value}, batch {batch_id})")
    if plan.action is CrashAction.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    released = Path(plan.mark_path).with_suffix(RELEASE_SUFFIX)
    while not released.exists():
        time.sleep(HOLD_POLL_S)
