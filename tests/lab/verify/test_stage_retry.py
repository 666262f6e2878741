"""An executor dies with a task that has sent its rows, and with the shuffle files that the task had read.

Spark runs the stage of these files again, and then the task, on another executor. What the first attempt has sent is in
a transaction that nobody decides to commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from lab.child_process import kill_session
from lab.crash_plans import arm, fired, release
from lab.verify.records import Sending, create_topic, make, read_delivered
from lab.verify.transactions import held_up, lags, open_transactions
from sparkonce import EmbeddedBroker
from sparkonce.crash_points import FOLDER_VARIABLE, CrashPlan

PROJECT = Path(__file__).resolve().parents[3]
BATCH = 20
RECORDS = 3 * BATCH
APP, TOPIC, OUTPUT = "stage", "stage-input", "stage-copies"
LIMIT_S = 300
POLL_S = 0.05


def start(folder: Path, servers: str, guarantee: str) -> subprocess.Popen[bytes]:
    (folder / "events").mkdir()
    conf = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder / 'events'}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    settings = {
        "conf": conf,
        "servers": servers,
        "app_id": APP,
        "topic": TOPIC,
        "output": OUTPUT,
        "guarantee": guarantee,
        "records_per_batch": BATCH,
        "checkpoint": str(folder / "checkpoint"),
    }
    with (folder / "spark.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.lab.verify.stage_job", json.dumps(settings)],
            cwd=PROJECT,
            env={**os.environ, FOLDER_VARIABLE: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def await_firing(plan: CrashPlan, job: subprocess.Popen[bytes], log: Path) -> int:
    """Return the process that holds at the point."""
    deadline = time.monotonic() + LIMIT_S
    while (mark := fired(plan)) is None:
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        assert job.poll() is None, log.read_text()[-3000:]
        time.sleep(POLL_S)
    return int(str(mark["pid"]))


def kill_executor_of(worker: int) -> None:
    """SIGKILL the executor that a Python worker belongs to, and all that it has started."""
    executor = next(each for each in psutil.Process(worker).parents() if each.name() == "java")
    assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
    for process in [executor, *executor.children(recursive=True)]:
        process.kill()


def stages_run_again(folder: Path) -> set[int]:
    """Return the stages of which Spark submitted more than one attempt."""
    (log,) = [path for path in (folder / "events").iterdir() if path.is_file()]
    events = [json.loads(line) for line in log.read_text().splitlines()]
    stages = [event["Stage Info"] for event in events if event["Event"] == "SparkListenerStageSubmitted"]
    return {stage["Stage ID"] for stage in stages if stage["Stage Attempt ID"] > 0}


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("guarantee", "twice"), [("exactly-once", False), ("at-least-once", True)])
def test_a_stage_that_is_run_again_sends_each_record_once(guarantee: str, twice: bool, tmp_path: Path) -> None:
    with EmbeddedBroker(process=True) as broker:
        servers = broker.bootstrap_servers
        for topic in (TOPIC, OUTPUT):
            create_topic(servers, topic)
        sent = Sending.begin(servers, TOPIC, make(range(RECORDS))).finish()
        plan = arm(tmp_path, "plan", f"{APP}:sink.file_written@1=hold")
        job = start(tmp_path, servers, guarantee)
        try:
            kill_executor_of(await_firing(plan, job, tmp_path / "spark.log"))
            release(plan)  # a second attempt must not find the plan, and does not: it has fired
            assert job.wait(LIMIT_S) == 0, (tmp_path / "spark.log").read_text()[-3000:]
        finally:
            kill_session(job.pid)
            job.wait()
        found = Counter((each.key, each.value) for each in read_delivered(servers, OUTPUT))
        assert set(found) == set(sent)
        assert (max(found.values()) > 1) is twice
        assert stages_run_again(tmp_path), "Spark ran a task again, and no stage"
        assert open_transactions(servers, APP) == []
        assert held_up(servers, [OUTPUT]) == []
        assert lags(servers, APP, TOPIC) == []
