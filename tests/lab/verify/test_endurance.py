"""Minutes on a cluster and an object store, while executors, workers and the driver are killed in turn."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from lab.peers import missing_kafka_reason

pytestmark = [pytest.mark.spark, pytest.mark.soak]
KILLED = r"executors_killed=[1-9]\d* workers_killed=[1-9]\d* drivers_killed=[1-9]\d*"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "more", [[], ["--store", "s3", "--tables", "200", "--records", "3000", "--every", "10"]], ids=str
)
def test_each_record_of_many_topics_is_in_its_table_once(more: list[str]) -> None:
    command = [sys.executable, "-m", "lab.endurance.ingestion", *more]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    last = ended.stdout.splitlines()[-1]
    assert re.match("RESULT expected=600000 rows=600000 lost=0 duplicated=0 unproven=0 files=", last) is not None


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kafka", ["embedded", "embedded-cluster", "real-cluster"])
def test_each_flight_is_in_the_table_once(kafka: str) -> None:
    if kafka == "real-cluster" and (reason := missing_kafka_reason()) is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "lab.endurance", "--kafka", kafka]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    last = ended.stdout.splitlines()[-1]
    assert re.match(rf"RESULT expected=336776 rows=336776 lost=0 duplicated=0 {KILLED}", last) is not None
