"""Named points at which a pipeline can be made to fail, and what happens there.

A package declares its points in its own ``crash_points.py``, as a subclass of `CrashPoint`, and calls `reach` at each.
Nothing of this project is imported here. When disabled, a point costs one call and a comparison with None.

A plan is a text, ``point@batch=action``. Without ``@batch`` it fires the first time the point is reached. With several
queries in one session, ``appId:`` before the point selects one. A plan fires once: firing creates its
mark, a file with the point, batch and process id, and a plan whose mark exists does not fire again. So a restarted job
gets past it, and a test can prove that its fault happened.

Plans come from the environment, which every process of a pipeline inherits. ``SPARKONCE_CRASH`` is one plan, and
``SPARKONCE_CRASH_MARK`` names its mark. ``SPARKONCE_CRASH_FOLDER`` is a folder that is read each time a point is
reached, for sessions that outlive many crashes: each ``<name>.plan`` in it is one, with the mark ``<name>.fired``.

All processes of a pipeline read all its plans, and each knows the points of its own packages only. So the first word of
a point, its area, is checked when a plan is read, and the rest when a point of that area is reached.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

AREAS = ("broker", "intent", "sink", "source", "transaction")
"""The first words of all points."""


class CrashPoint(Enum):
    """A point ``area.step``: the step has just been done or is about to be. Each area is one subclass."""

    _value_: str

    @property
    def area(self) -> str:
        """The first word."""
        return self.value.partition(".")[0]


class CrashAction(Enum):
    """The action at a point."""

    HOLD = "hold"
    """Block until the process that watches the mark kills this one, or creates ``<name>.released`` beside it."""
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
_PLAN = re.compile(
    rf"(?:(.+):)?((?:{'|'.join(AREAS)})\.\w+)(?:@(\d+))?=({'|'.join(each.value for each in CrashAction)})"
)


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """One armed point."""

    point: str
    batch_id: int | None
    action: CrashAction
    mark_path: str
    app_id: str | None = None

    @classmethod
    def parse(cls, text: str, mark_path: str) -> CrashPlan:
        """Parse ``[appId:]point[@batch]=action``.

        Raises:
            ValueError: if the text is invalid; the message names all areas and actions.
        """
        found = _PLAN.fullmatch(text.strip())
        if found is None:
            areas, actions = ", ".join(AREAS), ", ".join(each.value for each in CrashAction)
            raise ValueError(
                f"{text!r} is not [appId:]point[@batch]=action; points begin with: {areas}; actions: {actions}"
            )
        app_id, point, batch, action = found.groups()
        return cls(point, int(batch) if batch else None, CrashAction(action), mark_path, app_id)

    def matches(self, point: CrashPoint, batch_id: int | None, app_id: str | None) -> bool:
        """Whether this plan applies.

        Raises:
            ValueError: if its area is that of ``point``, but has no such point; the message names those of the area.
        """
        known = [each.value for each in type(point)]
        if self.point.startswith(f"{point.area}.") and self.point not in known:
            raise ValueError(f"{self.point!r} is not a crash point; points: {', '.join(known)}")
        return self.point == point.value and self.batch_id in (None, batch_id) and self.app_id in (None, app_id)


@dataclass(frozen=True, slots=True)
class CrashPlans:
    """All armed plans of this process."""

    fixed: CrashPlan | None
    folder: Path | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> CrashPlans | None:
        """Return the plans, or None if nothing can ever fire. Raises ValueError if a plan is invalid or has no mark."""
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


_plans: CrashPlans | None
_unreadable: str | None = None
"""The error in the environment's plans. Raised at import, it would only keep Spark from finding the formats:
`ClassNotFoundException`, which does not name the cause."""
try:
    _plans = CrashPlans.from_environment(os.environ)
except ValueError as error:
    _plans, _unreadable = CrashPlans(None, None), str(error)


def check_plans() -> None:
    """Raise the error in the environment's plans early, where it can be shown: ValueError if one is invalid."""
    if _unreadable is not None:
        raise ValueError(_unreadable)


def reach(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
    """Report that ``point`` is reached; fails here if the point is armed and has not fired yet.

    Pass ``batch_id`` and ``app_id`` where they are known; a plan that names one matches only calls that have it.

    Raises:
        InjectedCrashError, OSError: if that is the armed action.
        ValueError: if a plan is invalid or has no mark, or names a point of the same area that does not exist.
    """
    if _plans is None:
        return
    check_plans()
    for plan in _plans.armed():
        if plan.matches(point, batch_id, app_id):
            _fire(plan, batch_id)


def _fire(plan: CrashPlan, batch_id: int | None) -> None:
    record = json.dumps({"point": plan.point, "batch_id": batch_id, "pid": os.getpid()})
    try:
        descriptor = os.open(plan.mark_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as mark:
        mark.write(record + "\n")
        mark.flush()
        os.fsync(mark.fileno())
    if plan.action is CrashAction.RAISE:
        raise InjectedCrashError(f"injected failure at {plan.point}, batch {batch_id}")
    if plan.action is CrashAction.DISK_FULL:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (injected at {plan.point}, batch {batch_id})")
    if plan.action is CrashAction.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    released = Path(plan.mark_path).with_suffix(RELEASE_SUFFIX)
    while not released.exists():
        time.sleep(HOLD_POLL_S)
