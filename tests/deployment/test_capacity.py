"""The command of docs/deployment/capacity.md."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.deployment.pages import PAGES


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_small_run_shows_every_kind_of_process() -> None:
    assert "python -m lab.capacity" in (PAGES / "capacity.md").read_text()
    command = [sys.executable, "-m", "lab.capacity", "--partitions", "2"]
    done = subprocess.run(
        [*command, "--per-batch", "2000", "--records", "8000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["partitions", "per", "batch", "rows", "process", "RSS", "USS", "files", "connections"]
    assert [row.split()[3] for row in rows] == ["task", "daemon", "driver's"]
    assert all(float(row.split()[5]) > 1 for row in rows)
