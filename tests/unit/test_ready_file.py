"""`--ready-file`: there while its server answers, and never with another one's address."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from pathlib import Path

import pytest

from sparkonce.broker_lite import __main__ as broker
from sparkonce.jobs.ui import cli as ui
from sparkonce.ready_file import ReadyFileError, ready_file
from sparkonce.registry_lite import __main__ as registry


@pytest.mark.parametrize("private", [True, False])
def test_it_is_there_from_the_address_to_the_end(private: bool, tmp_path: Path) -> None:
    path = tmp_path / "ready"
    path.write_text("a former start's")
    with ready_file(str(path), private=private) as write:
        assert not path.exists()
        write("localhost:1")
        assert path.read_text() == "localhost:1"
        assert not private or path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


def test_what_another_server_has_written_since_stays(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    with ready_file(str(path)) as write:
        write("localhost:1")
        path.write_text("localhost:2")
    assert path.read_text() == "localhost:2"


def test_no_file_beside_it_is_touched(tmp_path: Path) -> None:
    for name in ("ready.tmp", "ready.1.tmp"):
        (tmp_path / name).write_text("somebody's")
    with ready_file(str(tmp_path / "ready")) as write:
        write("localhost:1")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "ready.tmp": "somebody's",
        "ready.1.tmp": "somebody's",
    }


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        ready_file(str(tmp_path / "nowhere" / "ready")) as write,
        pytest.raises(ReadyFileError, match=r"--ready-file .*nowhere/ready cannot be written"),
    ):
        write("localhost:1")
    with pytest.raises(ReadyFileError, match="cannot be written"), ready_file(str(tmp_path)):
        raise AssertionError("not reached")


def test_without_a_path_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ready_file(None) as write:
        write("localhost:1")
    assert list(tmp_path.iterdir()) == []


def test_a_start_removes_that_of_a_former_one_before_it_loads_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setattr(gc, "disable", lambda: None)
    path = tmp_path / "ready"
    for program, loaded, options in (
        (broker, "sparkonce.kafka.protocol.light_start", ()),
        (registry, "sparkonce.registry_lite.embedded", ("--bootstrap-servers", "localhost:1")),
        (ui, "sparkonce.broker_lite.embedded", ("--bootstrap-servers", "localhost:1")),
    ):
        path.write_text("localhost:1")
        monkeypatch.setitem(sys.modules, loaded, None)  # that it is loaded is an error
        parser = argparse.ArgumentParser()
        program.add_arguments(parser)
        with pytest.raises(ImportError):
            program.run(parser.parse_args(["--ready-file", str(path), *options]))
        assert not path.exists(), program
