"""Where Maven is installed, no test that compares with the real software is skipped in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
COMPARES = "tests/unit/log/test_dump_log_segments.py"
WITHOUT_KAFKA = {**os.environ, "KAFKA_LIBS": "/nowhere"}


def run(path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", COMPARES]
    environment = {**WITHOUT_KAFKA, "PATH": path}
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_a_comparison_that_would_be_skipped_fails_where_maven_is_installed(tmp_path: Path) -> None:
    maven = tmp_path / "mvn"
    maven.touch(mode=0o755)
    done = run(str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert "must not be skipped where Maven is installed" in done.stdout
    assert "KAFKA_LIBS=/nowhere" in done.stdout


def test_it_is_skipped_where_maven_is_not_installed(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "skipped" in done.stdout
