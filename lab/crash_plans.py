"""Arm crash points of other processes, and check which have fired."""

from __future__ import annotations

import json
from pathlib import Path

from sparkonce.broker_lite.node.crash_points import BrokerPoint
from sparkonce.connectors.delta_spark.crash_points import IntentPoint
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import MARK_SUFFIX, PLAN_SUFFIX, RELEASE_SUFFIX, CrashPlan, CrashPoint
from sparkonce.exactly_once.crash_points import SinkPoint

POINTS: tuple[CrashPoint, ...] = (*SourcePoint, *SinkPoint, *IntentPoint, *TransactionPoint, *BrokerPoint)
"""All points of all packages."""


def point_named(name: str) -> CrashPoint:
    """Return the point of this name.

    Raises:
        ValueError: if there is none; the message names all.
    """
    for point in POINTS:
        if point.value == name:
            return point
    raise ValueError(f"{name!r} is not a crash point; points: {', '.join(point.value for point in POINTS)}")


def arm(folder: Path, name: str, plan: str) -> CrashPlan:
    """Write a plan into the folder that ``SPARKONCE_CRASH_FOLDER`` names for the processes that are to fail.

    Raises:
        ValueError: if the plan cannot be read, or names a point that does not exist.
    """
    path = folder / f"{name}{PLAN_SUFFIX}"
    parsed = CrashPlan.parse(plan, str(path.with_suffix(MARK_SUFFIX)))
    point_named(parsed.point)
    unfinished = path.with_suffix(".new")
    unfinished.write_text(plan)
    unfinished.rename(path)  # readers never see a partial file
    return parsed


def disarm(folder: Path, name: str) -> None:
    """Remove a plan, but not its mark."""
    (folder / f"{name}{PLAN_SUFFIX}").unlink(missing_ok=True)


def release(plan: CrashPlan) -> None:
    """Let a process that waits at ``plan`` continue."""
    Path(plan.mark_path).with_suffix(RELEASE_SUFFIX).touch()


def fired(plan: CrashPlan) -> dict[str, object] | None:
    """Return the mark of ``plan`` (``point``, ``batch_id``, ``pid``), or None if it has not fired."""
    try:
        text = Path(plan.mark_path).read_text()
    except FileNotFoundError:
        return None
    if not text.endswith("\n"):  # created first, then written
        return None
    record: dict[str, object] = json.loads(text)
    return record
