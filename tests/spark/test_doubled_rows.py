"""The same kills for Spark's own Kafka sink and for ours: the one doubles rows after each of them, ours after none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.peers import spark_kafka_jars
from sparkonce.jobs.shared.jars import PeerMissingError

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1200)]

PROJECT = Path(__file__).resolve().parents[2]
RECORDS, KILLS = 10_000, 4


def run(folder: Path, *words: str) -> str:
    """Run the command; returns its last line."""
    command = [
        sys.executable,
        "-m",
        "lab.doubled_rows",
        "--records",
        str(RECORDS),
        "--folder",
        str(folder),
        *words,
    ]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=1100, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    return ended.stdout.splitlines()[-1]


OURS = f"sparkonce_rows={KILLS * RECORDS} sparkonce_lost=0 sparkonce_duplicated=0"


def test_ours_alone_has_each_record_once(tmp_path: Path) -> None:
    assert run(tmp_path, "--only", "sparkonce") == f"RESULT records={KILLS * RECORDS} {OURS}"


@pytest.mark.java
@pytest.mark.parametrize("kafka", ["embedded", "real"])
def test_sparks_own_sink_doubles_rows_where_ours_doubles_none(tmp_path: Path, kafka: str) -> None:
    try:
        spark_kafka_jars()
    except PeerMissingError as error:
        pytest.skip(str(error))
    found = re.fullmatch(
        rf"RESULT records={KILLS * RECORDS} jvm_rows=(\d+) jvm_duplicated=(\d+) {OURS}",
        run(tmp_path, "--kafka", kafka),
    )
    assert found is not None
    jvm_rows, jvm_duplicated = map(int, found.groups())
    assert jvm_rows == KILLS * RECORDS + jvm_duplicated
    assert jvm_duplicated > RECORDS  # all of them after the lost checkpoint, and some after each other kill
