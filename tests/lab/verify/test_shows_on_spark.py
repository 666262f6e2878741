"""Our sinks beside Spark's under the same faults: Spark's duplicate rows, ours do not; a fenced driver is refused."""

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
IN_TURN = {"append": "the table", "topic": "the consumer group "}
"""Results of two drivers, and what the loser's message calls the place where both look which batches are there."""
QUOTED = re.compile(
    r"the loser's message:\n  sparkonce\.exactly_once\.errors\.FencedError: batch \d+ of query (\S+) .* since then "
    r"version (\d+) of (.+) holds batch \d+ of query (\S+)\. Another driver .*\n"
    r"the winner: ([AB])'s commit, version (\d+)"
)


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


def fight(folder: Path, pauses: int, limit_s: float, result: str = "append", store: str = "local") -> None:
    """Let two drivers compete: each that comes back with a finished batch is fenced, and told who won."""
    words = ["--cell", f"two-drivers_{result}_paused-in-turn", "--pauses", str(pauses), "--seed", "7", "--store", store]
    told = show(folder, "two-drivers", limit_s, *words)
    quoted = QUOTED.search(told)
    assert quoted is not None, told
    assert quoted[1] != quoted[4], "loser and winner are two queries"
    assert quoted[2] == quoted[6]
    assert quoted[3].startswith(IN_TURN[result])
    lines = [line for line in told.splitlines() if line.startswith("pause ")]
    assert len(lines) == pauses
    zombies = [line for line in lines if "holding at sink.before_commit" in line]
    assert len(zombies) >= pauses // 3
    assert all("stopped: FencedError" in line for line in zombies)
    if result == "append" and store == "local":
        assert rows_of(folder).keys() == {1}


@pytest.mark.timeout(600)
def test_two_pauses_over_a_topic(tmp_path: Path) -> None:
    """One driver's records go through Spark, the other's sink reads them itself: they fence each other all the same."""
    fight(tmp_path / "shown", 2, 580, "topic")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("result", IN_TURN)
def test_twenty_four_pauses(result: str, tmp_path: Path) -> None:
    fight(tmp_path / "shown", 24, 1780, result)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twelve_pauses_over_a_table_on_s3(tmp_path: Path) -> None:
    """Which driver's commit exists is the store's decision alone."""
    fight(tmp_path / "shown", 12, 1780, store="s3")


@pytest.mark.java
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_driver_presumed_dead_doubles_rows_of_sparks_own_sink_only(tmp_path: Path) -> None:
    try:
        jvm_session()
    except PeerMissingError as error:
        pytest.skip(str(error))
    names = [cell.name for cell in cells_of(Show.TWO_DRIVERS) if "presumed-dead" in cell.name]
    told = show(tmp_path / "shown", "two-drivers", 580, *(word for name in names for word in ("--cell", name)))
    assert f"two-drivers_topic_presumed-dead: must show neither; lost=0 duplicated=0 of {RECORDS}" in told
    assert "the driver that was presumed dead: sparkonce.exactly_once.errors.FencedError" in told
