"""Two drivers with one appId, paused and resumed in turn: each record comes once, and the loser is told who won.

Into a table and into a topic; the last line counts what delta-rs or librdkafka reads there.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

PROJECT = Path(__file__).resolve().parents[3]
RESULT = re.compile(r"RESULT pauses=(\d+) fenced=(\d+) records=(\d+) rows=(\d+) lost=0 duplicated=0")
QUOTED = re.compile(
    r"the loser's message:\n  sparkonce\.exactly_once\.errors\.FencedError: batch \d+ of query (\S+) .* since then "
    r"version (\d+) "
    r"of (.+) holds batch \d+ of query (\S+)\. Another driver .*\nthe winner: ([AB])'s commit, version (\d+)"
)


PLACES = {"delta": "the table", "kafka": "the consumer group duel"}
"""What the loser's message calls the place where both look which batches are there."""


def duel(
    folder: Path, pauses: int, limit_s: float, sink: str = "delta", store: str = "local", path: str = "spark"
) -> None:
    words = ["--sink", sink, "--pauses", str(pauses), "--seed", "7", "--keep", str(folder), "--store", store]
    words += ["--path", path]
    command = [sys.executable, "-m", "lab.duel", *words]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=limit_s, check=False)
    told = ended.stdout + ended.stderr[-3000:]
    assert ended.returncode == 0, told
    result = RESULT.fullmatch(ended.stdout.splitlines()[-1])
    assert result is not None, told
    paused, fenced, records, rows = map(int, result.groups())
    assert paused == pauses
    assert records == rows > 0
    quoted = QUOTED.search(ended.stdout)
    assert quoted is not None, told
    assert quoted[1] != quoted[4], "loser and winner are two queries"
    assert (quoted[2], quoted[3]) == (quoted[6], PLACES[sink])
    pause_lines = [line for line in ended.stdout.splitlines() if line.startswith("pause ")]
    assert len(pause_lines) == pauses
    zombies = [line for line in pause_lines if "holding at sink.before_commit" in line]
    assert len(zombies) >= pauses // 2
    assert all("stopped: FencedError" in line for line in zombies)
    assert fenced >= len(zombies)
    if sink == "kafka" or store != "local":
        return  # the broker or the store is gone; the last line says what librdkafka or delta-rs read there
    table = DeltaTable(folder / "table").to_pyarrow_table(columns=["key"])
    assert set(Counter(table["key"].to_pylist()).values()) == {1}
    assert table.num_rows == rows


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_two_pauses_over_a_topic(tmp_path: Path) -> None:
    """One driver's records go through Spark, the other's sink reads them itself: they fence each other all the same."""
    duel(tmp_path / "duel", 2, 580, "kafka", path="both")


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", ["spark", "direct"])
@pytest.mark.parametrize("sink", PLACES)
def test_twenty_four_pauses(sink: str, path: str, tmp_path: Path) -> None:
    duel(tmp_path / "duel", 24, 1780, sink, path=path)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twelve_pauses_over_a_table_on_s3(tmp_path: Path) -> None:
    """Which driver's commit exists is the store's decision alone."""
    duel(tmp_path / "duel", 12, 1780, store="s3")
