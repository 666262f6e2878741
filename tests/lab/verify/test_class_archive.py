"""Spark's classes kept for faster starts: a JVM takes them if they fit, and says nothing if they do not."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import psutil
import pytest

from lab import class_archive
from sparkonce.connectors.runtime.java_check import java_command


def test_without_an_archive_there_are_the_other_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert class_archive.options() == class_archive.SHORT_JVM


def test_another_java_has_another_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = class_archive.archive()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert class_archive.archive() != found
    java.unlink()
    assert class_archive.archive() is None


def test_an_archive_that_does_not_fit_is_no_news(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    path = class_archive.archive()
    assert path is not None
    path.write_bytes(os.urandom(10_000))
    java = java_command()
    assert java is not None
    ended = subprocess.run(
        [java, *shlex.split(class_archive.options()), "-version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == ""
    assert "warning" not in ended.stderr.lower()


def test_what_takes_too_long_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python ends before its JVM, which has been seen to write an archive for many minutes, on a core of its own."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr(class_archive, "LIMIT_S", 1.0)
    class_archive.make()
    assert "going on without it" in capsys.readouterr().err
    child = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert class_archive.options() == class_archive.SHORT_JVM
