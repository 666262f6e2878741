"""Crash points fire once, at the right batch, and leave a mark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from exactly_once import crash_points
from exactly_once.crash_points import CrashAction, CrashPlan, CrashPoint, InjectedCrashError, reach

POINT = CrashPoint.SINK_BEFORE_COMMIT


def test_off_by_default() -> None:
    assert CrashPlan.from_environment({}) is None
    reach(POINT, 1)


def test_a_plan_is_read() -> None:
    plan = CrashPlan.from_environment({"SPARKONCE_CRASH": "sink.before_commit@3=raise", "SPARKONCE_CRASH_MARK": "m"})
    assert plan == CrashPlan(POINT, 3, CrashAction.RAISE, "m")


@pytest.mark.parametrize("text", ["sink.nowhere=raise", "sink.before_commit", "sink.before_commit@x=raise"])
def test_a_plan_that_cannot_be_read_names_the_points(text: str) -> None:
    with pytest.raises(ValueError, match=r"sink\.after_commit"):
        CrashPlan.from_environment({"SPARKONCE_CRASH": text, "SPARKONCE_CRASH_MARK": "m"})


def test_a_plan_needs_a_mark() -> None:
    with pytest.raises(ValueError, match="SPARKONCE_CRASH_MARK"):
        CrashPlan.from_environment({"SPARKONCE_CRASH": "sink.before_commit=raise"})


def test_it_fires_once_at_its_batch_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setattr(crash_points, "_plan", CrashPlan(POINT, 3, CrashAction.RAISE, str(mark)))
    reach(POINT, 2)
    reach(CrashPoint.SINK_AFTER_COMMIT, 3)
    assert not mark.exists()
    with pytest.raises(InjectedCrashError, match=r"sink\.before_commit, batch 3"):
        reach(POINT, 3)
    assert json.loads(mark.read_text())["batch_id"] == 3
    reach(POINT, 3)


def test_kill_is_a_real_sigkill(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = "from exactly_once.crash_points import *; reach(CrashPoint.SINK_BEFORE_COMMIT, 0); print('survived')"
    environment = {"SPARKONCE_CRASH": "sink.before_commit=kill", "SPARKONCE_CRASH_MARK": str(mark)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")
    assert json.loads(mark.read_text())["point"] == "sink.before_commit"
