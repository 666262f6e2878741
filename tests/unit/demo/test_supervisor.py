"""Jobs are ended at their point, with everything they started."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lab.job_process import JobFailedError
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.jobs.demo.supervisor import Job

POINT = SinkPoint.BEFORE_COMMIT
REACHES = f"""
import subprocess, sys
from sparkonce.crash_points import reach
from sparkonce.exactly_once.crash_points import SinkPoint
waits = "import signal; print('up', flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE)
child.stdout.readline()
print("child", child.pid, flush=True)
for batch in range(5):
    print("batch", batch, flush=True)
    reach(SinkPoint.{POINT.name}, batch)
child.kill()
"""


def job(tmp_path: Path, code: str, time_limit_s: float = 60) -> Job:
    return Job(["-c", code], tmp_path / "run.log", time_limit_s)


def test_the_job_and_its_children_die_at_the_point(tmp_path: Path) -> None:
    run = job(tmp_path, REACHES)
    outcome = run.run((POINT, 3))
    assert (outcome.killed_at, outcome.batch_id, outcome.processes) == (POINT, 3, 2)
    words = run.log.read_text().split()
    assert words[-2:] == ["batch", "3"]
    child = int(words[words.index("child") + 1])
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_without_a_kill_it_runs_to_its_end(tmp_path: Path) -> None:
    outcome = job(tmp_path, REACHES).run(None)
    assert outcome.killed_at is None


def test_a_point_that_is_never_reached_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"before it reached sink\.before_commit"):
        job(tmp_path, REACHES).run((POINT, 9))


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"(?s)exit code 1.*no such flight"):
        job(tmp_path, "raise SystemExit('no such flight')").run(None)


def test_a_job_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match="took more than"):
        job(tmp_path, "import signal; signal.pause()", time_limit_s=0.2).run(None)
