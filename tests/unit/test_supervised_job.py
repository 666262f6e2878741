"""A job that is started again: what it did by itself is a failure, and only what was killed is counted as a kill."""

from __future__ import annotations

from pathlib import Path

import psutil

from sparkonce.jobs.lab.endurance.supervised_job import SupervisedJob

WAITS = "import signal; print('up', flush=True); signal.pause()"
FAILS = "raise SystemExit('no such flight')"


def test_a_killed_job_has_not_failed(tmp_path: Path) -> None:
    with SupervisedJob(["-c", WAITS], tmp_path / "log") as job:
        first = job._process.pid
        assert not job.keep_up()
        assert job.kill() == 1
        assert job.keep_up()
        assert (job.failures, psutil.pid_exists(first)) == (0, False)
        second = job._process.pid
    assert not psutil.pid_exists(second)


def test_a_job_that_ended_by_itself_has_failed_and_was_not_killed(tmp_path: Path) -> None:
    with SupervisedJob(["-c", FAILS], tmp_path / "log") as job:
        job._process.wait()
        assert job.kill() == 0
        assert job.keep_up()
        assert job.failures == 1
        assert job.log_tail().endswith("no such flight")
