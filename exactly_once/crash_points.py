"""Named points at which a pipeline can be made to fail, and what happens there.

A point is switched on by the environment variable ``SPARKONCE_CRASH``, whose value is ``point@batch=action``
(``@batch`` may be left out: the first time the point is reached). It fires once: firing creates the file named by
``SPARKONCE_CRASH_MARK``, with the point, batch and process id in it, and a point whose file exists stays silent, so
that a restarted job gets past it, and so that a test can prove that its fault happened.

Off, a point costs one comparison with None.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class CrashPoint(Enum):
    """Every point, named after the step that has just been done or is about to be."""

    SOURCE_PLANNED = "source.planned"
    """The end of a batch is chosen; Spark has not yet logged it."""
    SOURCE_READING = "source.reading"
    """A task has read some of its records."""
    SINK_FILE_WRITTEN = "sink.file_written"
    """A task has finished a data file; its driver does not know of it yet."""
    SINK_BEFORE_COMMIT = "sink.before_commit"
    """All files of the batch are written; the table does not name them yet."""
    SINK_BETWEEN_WRITES = "sink.between_writes"
    """One of the two writes, rows and offsets, has landed; the other has not. Never reached by exactly-once."""
    SINK_AFTER_COMMIT = "sink.after_commit"
    """The Delta commit has landed; Spark's checkpoint does not know of it."""


class CrashAction(Enum):
    """What happens at a point."""

    HOLD = "hold"
    """Stop right there, until whoever watches the mark file ends the process."""
    KILL = "kill"
    """SIGKILL this process."""
    RAISE = "raise"
    """Raise `InjectedCrashError`."""


class InjectedCrashError(RuntimeError):
    """The failure that was asked for."""


CRASH_VARIABLE = "SPARKONCE_CRASH"
MARK_VARIABLE = "SPARKONCE_CRASH_MARK"


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """One armed point."""

    point: CrashPoint
    batch_id: int | None
    action: CrashAction
    mark_path: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> CrashPlan | None:
        """Read the plan, or None if no point is armed.

        Raises:
            ValueError: if the plan cannot be read or has no mark file.
        """
        text = environment.get(CRASH_VARIABLE)
        if not text:
            return None
        mark_path = environment.get(MARK_VARIABLE)
        if not mark_path:
            raise ValueError(f"{CRASH_VARIABLE} is set, so {MARK_VARIABLE} must name the file that records the firing")
        where, _, action = text.partition("=")
        name, _, batch = where.partition("@")
        try:
            return cls(CrashPoint(name), int(batch) if batch else None, CrashAction(action), mark_path)
        except ValueError as error:
            points = ", ".join(point.value for point in CrashPoint)
            actions = ", ".join(each.value for each in CrashAction)
            raise ValueError(
                f"{CRASH_VARIABLE}={text!r} is not point@batch=action; points: {points}; actions: {actions}"
            ) from error


_plan = CrashPlan.from_environment(os.environ)


def reach(point: CrashPoint, batch_id: int | None = None) -> None:
    """Say that ``point`` is reached; fails here if the point is armed and has not fired yet.

    ``batch_id`` is given where it is known; a plan with a batch id matches only calls that carry the same one.

    Raises:
        InjectedCrashError: if the armed action is to raise.
    """
    if _plan is not None and _plan.point is point and _plan.batch_id in (None, batch_id):
        _fire(_plan, batch_id)


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
    if plan.action is CrashAction.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()
