"""The command line itself: its version, and a reader that goes away."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from importlib.metadata import version

import pytest

from sparkonce.jobs.cli.main import COMMANDS, main
from sparkonce.jobs.shared.verdicts import coloured


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"sparkonce {version('sparkonce')}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(command: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command[0], "--help"])
    assert ended.value.code == 0
    assert f"sparkonce {command[0]}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["broker", "--help-settings"], ["broker", "--help"]])
def test_a_reader_that_goes_away_is_no_error(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nowhere:
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        ended = subprocess.run(
            [sys.executable, "-m", "sparkonce.jobs.cli.main", *words],
            env=buffered,
            stdout=nowhere,
            stderr=subprocess.PIPE,
        )
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    "words", [["broker", "--prot", "3"], ["offsets", "show", "table", "--prot"], ["audit", "table", "another"]]
)
def test_what_is_unknown_is_told_with_the_usage_of_its_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = " ".join(words[:2] if words[0] == "offsets" else words[:1])
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: sparkonce {command} [-h]")
    assert f"sparkonce {command}: error: unrecognized arguments: " in told


def test_an_offset_beyond_64_bits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(
            ["offsets", "set", "/nowhere", "--app-id", "a", "--topic", "t", "--partition", "0", "--offset", str(2**63)]
        )
    assert "is too large" in capsys.readouterr().err


def test_a_mistyped_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, said in (("ingset", "did you mean 'ingest'?"), ("xyzzy", "`sparkonce --help` lists them")):
        with pytest.raises(SystemExit, match="2"):
            main([typed, "--table", "t"])
        assert f"sparkonce: error: there is no command {typed!r}: {said}" in capsys.readouterr().err


def test_verdicts_are_coloured_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NO_COLOR", ""), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    assert coloured("broken", good=False, stream=io.StringIO()) == "broken"
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    assert coloured("proven", good=True, stream=terminal) == "\x1b[32mproven\x1b[0m"
    assert coloured("broken", good=False, stream=terminal) == "\x1b[31mbroken\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("broken", good=False, stream=terminal) == "broken"
