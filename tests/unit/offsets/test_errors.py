"""What is told of errors of delta-rs: its message, and nothing of its stack or a terminal's colours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.errors import plain
from sparkonce.words import counted

PROJECT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("one line", "one line"),
        (
            "Json error: cut off\n   0: <unknown>\n   1: clone3\n             at ./clone3.S:81:0\n",
            "Json error: cut off",
        ),
        ("no file\n\nstack backtrace:\n   0: main\n", "no file"),
        (
            "S3 error\n\nCaused by:\n    0: timed out\n    1: no route",
            "S3 error\n\nCaused by:\n    0: timed out\n    1: no route",
        ),
        ("\x1b[31mError\x1b[0m: \x1b[1;38mwrong\x1b[m", "Error: wrong"),
    ],
)
def test_the_message_stays_and_the_rest_goes(said: str, told: str) -> None:
    assert plain(RuntimeError(said)) == told


@pytest.mark.parametrize(
    ("count", "noun", "written"), [(0, "file", "0 files"), (1, "batch", "1 batch"), (2000, "batch", "2,000 batches")]
)
def test_counted(count: int, noun: str, written: str) -> None:
    assert counted(count, noun) == written


def test_a_damaged_log_is_told_in_few_lines(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_text('{"commitInfo": {}')
    # A process of its own: Rust looks at the variable once, when it makes its first backtrace.
    ended = subprocess.run(
        [sys.executable, "-m", "sparkonce.jobs.cli.main", "clean", str(tmp_path)],
        cwd=PROJECT,
        env={**os.environ, "RUST_BACKTRACE": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"sparkonce clean: cannot load the Delta table at {tmp_path}: ")
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


@pytest.mark.parametrize("command", [["audit"], ["clean"], ["compact"], ["offsets", "show"]])
def test_a_file_is_not_called_a_missing_table(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "file").touch()
    assert main([*command, str(file)]) == 1
    hint = "name the folder that holds _delta_log"
    assert capsys.readouterr().err == f"sparkonce {' '.join(command)}: {file} is a file, not a Delta table: {hint}\n"
