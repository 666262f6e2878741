"""`make integration` runs every test that takes its broker from `KAFKA`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers import kafka_image
from tests.containers.run import FOLDERS

TESTS = Path(__file__).resolve().parents[1]
CHOSEN = re.compile(r"\bkafka: Any\b|\bmark\.kafka\b")


def test_the_list_has_every_folder_whose_tests_take_their_broker_from_the_fixture() -> None:
    listed = [TESTS.parent / folder for folder in FOLDERS]
    choosing = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__) and CHOSEN.search(path.read_text())]
    assert choosing
    forgotten = [path for path in choosing if not any(path.is_relative_to(folder) for folder in listed)]
    assert forgotten == []


@pytest.mark.lab
def test_they_are_collected_by_the_process_that_make_integration_starts() -> None:
    """Without an engine: what pytest does with the same selection until the first test would run."""
    command = [sys.executable, "-m", "tests.containers.run", "--collect-only"]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for folder in FOLDERS:
        assert re.search(rf"^{folder}/\S+::", done.stdout, re.MULTILINE), folder
    for file in (TESTS / "ui").glob("test_*.py"):
        assert f"tests/ui/{file.name}::" in done.stdout, f"no test of {file.name}"


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    command = [sys.executable, "-m", "tests.containers.run"]
    done = subprocess.run(
        command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    for package in ("docker.io", *kafka_image.PACKAGES.values()):
        assert f"apt-get install {package}" in done.stderr
