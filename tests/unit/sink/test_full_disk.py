"""A full disk: whatever was to be written says where that was and what to do, and nothing stays of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
PLACES = {
    "commit": "table",
    "offsets apart": "apart/offsets",
    "new offsets": "new/offsets",
    "manual change": "table",
    "compaction": "table",
    "new table": "new/table",
    "new columns": "table",
    "data file": "table",
    "spool": "spool",
}


@ON_LINUX
def test_what_cannot_be_written_says_where_and_what_to_do(tmp_path: Path) -> None:
    """One process writes it all: each start of one costs more than all of this."""
    command = [sys.executable, "-m", "tests.unit.sink.full_disk_job", str(tmp_path)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert found.keys() == PLACES.keys()
    for what, place in PLACES.items():
        remedy = f"The disk of {tmp_path / place} is full, or this user's quota there is used up: free space there"
        assert found[what].endswith(f". {remedy}, and start again"), (what, found[what])
        assert found[what].count("is full") == 1
        assert "\n" not in found[what]
    assert DeltaTable(tmp_path / "table").version() == 2
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 2
    assert not list((tmp_path / "spool").rglob("rows"))
