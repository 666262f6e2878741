"""A deleted checkpoint: the JVM's pipeline doubles every row, ours none."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lab import lost_checkpoint
from lab.peers import jvm_session
from sparkonce.jobs.shared.jars import PeerMissingError

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).resolve().parents[2]
RECORDS, LATER = 1_000, 100
OURS = f"sparkonce_rows={RECORDS} records={RECORDS} sparkonce_lost=0 sparkonce_duplicated=0"


def copies(folder: Path, pipeline: str) -> Counter[int]:
    """Count the rows of each flight in the table that a pipeline left behind."""
    values = DeltaTable(folder / pipeline / "table").to_pyarrow_table(columns=["value"])["value"].to_pylist()
    return Counter(int(re.search(rb'"flight_id":(\d+),', value)[1]) for value in values)  # type: ignore[index]


def each(records: int, times: int) -> Counter[int]:
    return Counter(dict.fromkeys(range(records), times))


def assert_ours(folder: Path, output: str) -> None:
    assert copies(folder, "sparkonce") == each(RECORDS + LATER, 1)
    assert copies(folder, "earliest") == each(RECORDS, 1)
    assert "no offsetStore: stopped: sparkonce.exactly_once.errors.OffsetMismatchError: batch 0 of query" in output
    assert "has an overlap with the table's offsets" in output


@pytest.mark.lab  # of lab; that ours stops is in test_fencing too, and that it goes on in test_offset_stores
def test_ours_alone_holds_each_record_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lost_checkpoint, "spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)  # other tests want it
    assert lost_checkpoint.main(["--only-ours", "--records", str(RECORDS), "--folder", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == f"RESULT {OURS}"
    assert_ours(tmp_path, output)


@pytest.mark.java
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_jvm_doubles_every_row_where_ours_doubles_none(tmp_path: Path) -> None:
    """In a process of its own: Spark takes the jars of its JVM side only when it starts."""
    try:
        jvm_session()
    except PeerMissingError as error:
        pytest.skip(str(error))
    command = [
        sys.executable,
        "-m",
        "lab.lost_checkpoint",
        "--records",
        str(RECORDS),
        "--folder",
        str(tmp_path),
    ]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=560, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    assert ended.stdout.splitlines()[-1] == f"RESULT jvm_rows={2 * RECORDS} {OURS} jvm_duplicated={RECORDS}"
    assert copies(tmp_path, "jvm") == each(RECORDS, 2)
    assert_ours(tmp_path, ended.stdout)
