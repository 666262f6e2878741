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

from lab.crash_plans import POINTS, arm, disarm, fired, release
from sparkonce import crash_points
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.crash_points import AREAS, CrashAction, CrashPlan, CrashPlans, InjectedCrashError, reach
from sparkonce.exactly_once.crash_points import SinkPoint

POINT = SinkPoint.BEFORE_COMMIT
REACH = "from sparkonce.crash_points import reach; from sparkonce.exactly_once.crash_points import SinkPoint; "
REACH += "reach(SinkPoint.BEFORE_COMMIT, 0); "


def test_off_by_default() -> None:
    assert CrashPlans.from_environment({}) is None
    reach(POINT, 1)


def test_a_plan_is_read() -> None:
    plans = CrashPlans.from_environment({"SPARKONCE_CRASH": "sink.before_commit@3=raise", "SPARKONCE_CRASH_MARK": "m"})
    assert plans == CrashPlans(CrashPlan(POINT.value, 3, CrashAction.RAISE, "m"), None)


def test_a_plan_may_name_an_application_and_a_batch() -> None:
    assert CrashPlan.parse("sink.begun=kill", "m") == CrashPlan("sink.begun", None, CrashAction.KILL, "m")
    assert CrashPlan.parse("a:b/c:source.read@12=disk-full", "m") == CrashPlan(
        "source.read", 12, CrashAction.DISK_FULL, "m", "a:b/c"
    )


@pytest.mark.parametrize(
    "text", ["snik.begun=raise", "begun=raise", "sink.begun", "sink.begun@x=raise", "sink.begun=explode"]
)
def test_a_plan_that_cannot_be_read_names_areas_and_actions(text: str) -> None:
    with pytest.raises(ValueError, match=r"broker, intent, sink, source, transaction; actions: hold, kill"):
        CrashPlans.from_environment({"SPARKONCE_CRASH": text, "SPARKONCE_CRASH_MARK": "m"})


def test_a_misspelt_point_fails_where_its_area_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"SPARKONCE_CRASH": "app:sink.nowhere@7=raise", "SPARKONCE_CRASH_MARK": "m"}
    monkeypatch.setattr(crash_points, "_plans", CrashPlans.from_environment(environment))
    reach(SourcePoint.PLANNED)
    with pytest.raises(ValueError, match=r"sink\.nowhere.* sink\.begun, .*sink\.after_commit"):
        reach(POINT, 1)


def test_a_misspelt_point_is_not_armed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sink\.nowhere.* source\.planned, .*sink\.begun, .*broker\.fetched"):
        arm(tmp_path, "one", "sink.nowhere=raise")
    assert not list(tmp_path.iterdir())


def test_each_area_is_one_class() -> None:
    assert sorted(area for _, area in {(type(point), point.area) for point in POINTS}) == sorted(AREAS)


def test_a_plan_needs_a_mark() -> None:
    with pytest.raises(ValueError, match="SPARKONCE_CRASH_MARK"):
        CrashPlans.from_environment({"SPARKONCE_CRASH": "sink.before_commit=raise"})


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (f"import pyspark_kafka_once, pyspark_delta_once; print('found'); {REACH}", "found\n"),
        ("import sparkonce.broker_lite.node.crash_points", ""),
    ],
)
def test_without_a_mark_the_formats_are_found_and_the_first_point_says_so(program: str, printed: str) -> None:
    environment = {"SPARKONCE_CRASH": "sink.before_commit=kill"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, printed)
    assert "ValueError: SPARKONCE_CRASH is set, so SPARKONCE_CRASH_MARK must name the file" in ended.stderr


def test_it_fires_once_at_its_batch_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    plan = CrashPlan.parse("sink.before_commit@3=raise", str(mark))
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(plan, None))
    reach(POINT, 2)
    reach(SinkPoint.AFTER_COMMIT, 3)
    assert not mark.exists()
    with pytest.raises(InjectedCrashError, match=r"sink\.before_commit, batch 3"):
        reach(POINT, 3)
    assert json.loads(mark.read_text())["batch_id"] == 3
    reach(POINT, 3)


def test_kill_is_a_real_sigkill(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = REACH + "print('survived')"
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
    code = REACH + "print('went on')"
    environment = {"SPARKONCE_CRASH_FOLDER": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    while fired(plan) is None:
        assert process.poll() is None
    release(plan)
    assert process.communicate(timeout=30) == (b"went on\n", None)
    assert process.returncode == 0
