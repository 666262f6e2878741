"""The folder of a command: made, kept or removed, and never one that holds something."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sparkonce.jobs.shared.arguments import empty_folder, working_folder


def test_a_folder_that_is_named_is_made_and_kept(tmp_path: Path) -> None:
    named = tmp_path / "a" / "b"
    with working_folder(empty_folder(str(named)), "x-") as folder:
        (folder / "file").touch()
    assert (named / "file").exists()


def test_a_folder_that_nobody_named_is_removed() -> None:
    with working_folder(None, "sparkonce-test-") as folder:
        assert folder.name.startswith("sparkonce-test-")
        (folder / "file").touch()
    assert not folder.exists()


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.touch()
    with pytest.raises(argparse.ArgumentTypeError, match="is not empty: name another"):
        empty_folder(str(tmp_path))
    with pytest.raises(argparse.ArgumentTypeError, match="is not a folder"):
        empty_folder(str(mine))
