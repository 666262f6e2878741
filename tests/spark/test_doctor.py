"""`sparkonce doctor` with a Spark of its own: what it says of workers and formats."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.lab]


def test_workers_and_formats_are_looked_at(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkonce", "doctor", "--master", "local[1]"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    *findings, last = done.stdout.splitlines()
    assert last == "nothing is wrong"
    assert [line.split()[1] for line in findings[4:]] == ["Spark:", "worker:", "machine", "format:", "format:"]
    assert f"({sys.executable}), sparkonce" in findings[5]
