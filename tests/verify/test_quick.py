"""The quick choice of the crash matrix. Larger ones are in tests/lab/verify.

`KAFKA` chooses the broker, as for the connectors' tests: embedded (the default), real, container or host:port.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparkonce.jobs.shared.jars import PeerMissingError, delta_jars

ROOT = Path(__file__).resolve().parents[2]
RESULT = r"RESULT cells=(\d+) lost=0 duplicated=0 wrong=0"


def has_merges() -> bool:
    try:
        delta_jars()
    except PeerMissingError:
        return False
    return True


def verify(page: Path, *words: str) -> str:
    """Run the command and give its last line; a failure shows the wrong cells and how to run them again."""
    module = ["lab.verify"] if os.environ.get("KAFKA", "embedded") == "embedded" else ["tests.verify.on_kafka"]
    merges = [] if has_merges() else ["--without-merge"]
    command = [sys.executable, "-m", *module, "--report", str(page), *words, *merges]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = [line for line in ended.stdout.splitlines() if "WRONG" in line]
    told = "\n".join(
        [*wrong, *ended.stdout.splitlines()[-3:], ended.stderr[-3000:], "again: --cell NAME --keep FOLDER"]
    )
    assert ended.returncode == 0, told
    return ended.stdout.splitlines()[-1]


@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_the_quick_choice_shows_what_it_must(tmp_path: Path) -> None:
    result = verify(tmp_path / "page.html", "--quick")
    found = re.fullmatch(RESULT, result)
    assert found, result
    assert int(found[1]) > 30
    assert "<svg" in (tmp_path / "page.html").read_text()


STORED = ("exactly-once_merge_sink.rows_landed_driver-killed", "exactly-once_topic_sink.after_commit_exception_direct")


@pytest.mark.lab
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_checkpoints_on_s3_of_other_sinks_than_the_table(tmp_path: Path) -> None:
    """Those of `delta_once` are tried in tests/spark."""
    words = [word for name in STORED for word in ("--cell", name) if has_merges() or "_merge_" not in name]
    result = verify(tmp_path / "page.html", "--store", "moto", *words)
    assert result == f"RESULT cells={len(words) // 2} lost=0 duplicated=0 wrong=0"
