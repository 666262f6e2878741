"""Ours beside Spark's own: what doubles rows there doubles none here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lab.peers import jvm_session
from lab.verify.shows.cells import Show, cells_of
from lab.verify.shows.courses import LATER, RECORDS
from sparkonce.jobs.shared.jars import PeerMissingError

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).resolve().parents[3]


def show(folder: Path, name: str, limit_s: float, *words: str) -> str:
    """Show cells that must be right; returns what was printed."""
    command = [sys.executable, "-m", "lab.verify", "--show", name, "--keep", str(folder), *words]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=limit_s, check=False)
    told = ended.stdout + ended.stderr[-3000:]
    assert ended.returncode == 0, told
    assert re.fullmatch(r"RESULT cells=\d+ lost=0 duplicated=0 wrong=0", ended.stdout.splitlines()[-1]), told
    return told


def rows_of(folder: Path) -> Counter[int]:
    """Return how many records have so many rows, in the one table of a run with one cell."""
    (log,) = folder.glob("*/*/_delta_log")
    keys = DeltaTable(log.parent).to_pyarrow_table(columns=["key"])["key"].to_pylist()
    return Counter(Counter(keys).values())


@pytest.mark.timeout(300)
def test_ours_has_each_record_once_after_a_lost_checkpoint(tmp_path: Path) -> None:
    for number, cell in enumerate(cell for cell in cells_of(Show.LOST_CHECKPOINT) if not cell.by_spark):
        folder = tmp_path / str(number)
        told = show(folder, "lost-checkpoint", 280, "--cell", cell.name)
        assert rows_of(folder) == {1: RECORDS + LATER}
    assert "refused: sparkonce.exactly_once.errors.OffsetMismatchError: batch 0 of query" in told
    assert "has an overlap with the table's offsets" in told


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_ours_doubles_no_rows_under_kills(tmp_path: Path) -> None:
    show(tmp_path / "shown", "doubled-rows", 580, "--without-merge")


@pytest.mark.java
@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "kafka"), [("lost-checkpoint", "embedded"), ("doubled-rows", "embedded"), ("doubled-rows", "real")]
)
def test_sparks_own_doubles_rows_where_ours_doubles_none(name: str, kafka: str, tmp_path: Path) -> None:
    try:
        jvm_session()
    except PeerMissingError as error:
        pytest.skip(str(error))
    told = show(tmp_path / "shown", name, 1100, "--kafka", kafka)
    doubled = dict(re.findall(r"^\S+ ok +(\S+_sparks-own): .* duplicated=(\d+) of", told, re.MULTILINE))
    peers = {cell.name: cell.fault.value for cell in cells_of(Show(name)) if cell.by_spark}
    assert doubled.keys() == peers.keys()
    assert {int(doubled[each]) for each, fault in peers.items() if fault == "no-checkpoint"} == {RECORDS}
