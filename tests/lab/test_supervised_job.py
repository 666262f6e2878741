"""A job that is started again: an end without a kill is a failure, and is not counted as a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lab.endurance import supervised_job
from lab.endurance.ingestion import workers
from lab.endurance.supervised_job import SupervisedJob, run_to_end
from lab.job_process import JobFailedError

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


def test_the_last_run_must_come_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_to_end(["-c", "print('came to its end')"], tmp_path / "log", {})
    assert (tmp_path / "log").read_text() == "came to its end\n"
    with pytest.raises(JobFailedError, match=r"(?s)the last run ended with 1; the end of .*came to its end"):
        run_to_end(["-c", FAILS], tmp_path / "log", {})
    monkeypatch.setattr(supervised_job, "END_LIMIT_S", 0.01)
    with pytest.raises(JobFailedError, match="the last run did not end in 0 s"):
        run_to_end(["-c", WAITS], tmp_path / "log", {})


def test_a_worker_that_ends_while_workers_are_looked_for_is_left_out() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ending:
        found = psutil.Process(ending.pid)
        ending.communicate()
    assert workers([psutil.Process(), found]) == []
