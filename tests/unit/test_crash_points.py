"""Crash points fire once, at the right batch, and leave a mark."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparkonce.exactly_once import crash_points
from sparkonce.exactly_once.crash_points import (
    CrashAction,
    CrashPlan,
    CrashPlans,
    CrashPoint,
    InjectedCrashError,
    arm,
    disarm,
    fired,
    reach,
    release,
)

POINT = CrashPoint.SINK_BEFORE_COMMIT


def test_off_by_default() -> None:
    assert CrashPlans.from_environment({}) is None
    reach(POINT, 1)


def test_a_plan_is_read() -> None:
    plans = CrashPlans.from_environment({"SPARKONCE_CRASH": "sink.before_commit@3=raise", "SPARKONCE_CRASH_MARK": "m"})
    assert plans == CrashPlans(CrashPlan(POINT, 3, CrashAction.RAISE, "m"), None)


@pytest.mark.parametrize("text", ["sink.before_commit=kill", "sink.begun@0=hold", "a:b/c:source.read@12=disk-full"])
def test_a_plan_reads_back_as_it_was_written(text: str) -> None:
    assert str(CrashPlan.parse(text, "m")) == text


@pytest.mark.parametrize("text", ["sink.nowhere=raise", "sink.before_commit", "sink.before_commit@x=raise"])
def test_a_plan_that_cannot_be_read_names_the_points(text: str) -> None:
    with pytest.raises(ValueError, match=r"sink\.after_commit"):
        CrashPlans.from_environment({"SPARKONCE_CRASH": text, "SPARKONCE_CRASH_MARK": "m"})


def test_a_plan_needs_a_mark() -> None:
    with pytest.raises(ValueError, match="SPARKONCE_CRASH_MARK"):
        CrashPlans.from_environment({"SPARKONCE_CRASH": "sink.before_commit=raise"})


def test_it_fires_once_at_its_batch_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(CrashPlan(POINT, 3, CrashAction.RAISE, str(mark)), None))
    reach(POINT, 2)
    reach(CrashPoint.SINK_AFTER_COMMIT, 3)
    assert not mark.exists()
    with pytest.raises(InjectedCrashError, match=r"sink\.before_commit, batch 3"):
        reach(POINT, 3)
    assert json.loads(mark.read_text())["batch_id"] == 3
    reach(POINT, 3)


def test_kill_is_a_real_sigkill(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = (
        "from sparkonce.exactly_once.crash_points import *; reach(CrashPoint.SINK_BEFORE_COMMIT, 0); print('survived')"
    )
    environment = {"SPARKONCE_CRASH": "sink.before_commit=kill", "SPARKONCE_CRASH_MARK": str(mark)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")
    assert json.loads(mark.read_text())["point"] == "sink.before_commit"


def test_plans_of_a_folder_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    reach(POINT, 1, "one")
    first = arm(tmp_path, "first", "one:sink.before_commit@1=disk-full")
    second = arm(tmp_path, "second", "two:sink.before_commit=raise")
    assert (fired(first), fired(second)) == (None, None)
    reach(POINT, 2, "one")
    with pytest.raises(OSError, match="No space left") as error:
        reach(POINT, 1, "one")
    assert error.value.errno == errno.ENOSPC
    reach(POINT, 1, "one")
    disarm(tmp_path, "second")
    reach(POINT, 1, "two")
    record = fired(first)
    assert record is not None
    assert (record["point"], record["batch_id"], record["pid"]) == ("sink.before_commit", 1, os.getpid())
    assert fired(second) is None


def test_whoever_holds_goes_on_when_released(tmp_path: Path) -> None:
    plan = arm(tmp_path, "one", "sink.before_commit=hold")
    code = (
        "from sparkonce.exactly_once.crash_points import *; reach(CrashPoint.SINK_BEFORE_COMMIT, 0); print('went on')"
    )
    environment = {"SPARKONCE_CRASH_FOLDER": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    while fired(plan) is None:
        assert process.poll() is None
    release(plan)
    assert process.communicate(timeout=30) == (b"went on\n", None)
    assert process.returncode == 0
