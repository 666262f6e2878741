"""Tables that an ingestion compacts: one after the other, and a failure only in the log."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkonce.connectors.delta_sink.compaction import Compaction, Merged
from sparkonce.connectors.ingest.compacting import Compactor

ENDS_MEANWHILE = """
import sys
from threading import Event
from deltalake import DeltaTable
from sparkonce.connectors.ingest.compacting import Compactor

is_at_work = Event()

class Busy(Compactor):
    def _compact(self, path, storage, target_bytes):
        while not self._stopping.is_set():
            DeltaTable(path)
            is_at_work.set()
        print("left delta-rs")

compactor = Busy()
compactor.submit(sys.argv[1], {}, None)
is_at_work.wait()
"""


def table(path: Path, files: int) -> str:
    for number in range(files):
        write_deltalake(path, pa.table({"number": [number]}), mode="append")
    return str(path)


def test_files_become_one_and_the_rows_stay(tmp_path: Path) -> None:
    paths = [table(tmp_path / name, 3) for name in "ab"]
    compactor = Compactor()
    for path in (*paths, *paths):
        compactor.submit(path, {}, None)
    compactor.close(None)
    for path in paths:
        assert len(DeltaTable(path).file_uris()) == 1
        assert sorted(DeltaTable(path).to_pyarrow_table()["number"].to_pylist()) == [0, 1, 2]


def test_the_table_with_most_commits_is_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compactor, first, others = Compactor(), Event(), Event()
    honest = compactor._compact

    def compact(path: str, *more: Any) -> None:
        first.set()
        assert others.wait(60)
        honest(path, *more)

    compactor._compact = compact  # type: ignore[method-assign]
    compactor.submit(table(tmp_path / "a", 2), {}, None)
    assert first.wait(60)
    for name, commits in (("b", 2), ("c", 9), ("d", 2)):
        compactor.submit(table(tmp_path / name, 2), {}, None, commits)
    compactor.submit(str(tmp_path / "d"), {}, None, 10)
    others.set()
    with caplog.at_level(logging.INFO):
        compactor.close(None)
    assert re.findall(r"compacted \S+/(.):", caplog.text) == ["a", "d", "c", "b"]


def test_a_failure_is_logged_and_the_next_table_is_compacted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compactor = Compactor()
    compactor.submit(str(tmp_path / "none"), {}, None)
    path = table(tmp_path / "a", 2)
    compactor.submit(path, {}, 1_000_000)
    compactor.close(None)
    assert f"compaction of {tmp_path / 'none'} failed, the query goes on" in caplog.text
    assert len(DeltaTable(path).file_uris()) == 1


def test_what_has_failed_is_tried_again_when_it_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compactor, tried, ended = Compactor(), [], Event()

    def compact(path: str, *_: object) -> None:
        tried.append(path)
        if len(tried) == 1:
            raise OSError("no answer")
        ended.set()

    monkeypatch.setattr(compactor, "_compact", compact)
    compactor.submit("first", {}, None, 3)
    while not compactor._failed:
        assert not ended.wait(0.01)
    compactor.submit_failed()
    assert ended.wait(60)
    compactor.close(None)
    assert tried == ["first", "first"]


def test_a_conflict_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Compaction, "merge", lambda *_: iter([Merged((), conflict="a rival was faster")]))
    compactor = Compactor()
    compactor.submit(table(tmp_path / "a", 2), {}, None)
    with caplog.at_level(logging.INFO):
        compactor.close(None)
    assert "a partition is left as it is: others changed its files (a rival was faster)" in caplog.text
    assert "compacted" not in caplog.text


def test_one_that_was_not_used_is_closed_at_once() -> None:
    Compactor().close(0)


def test_a_process_that_ends_meanwhile_waits_until_the_thread_has_left_delta_rs(tmp_path: Path) -> None:
    """Before 3.14 Python unwinds the stack of a thread that comes back while it ends: SIGSEGV in delta-rs."""
    command = [sys.executable, "-c", ENDS_MEANWHILE, table(tmp_path / "a", 2)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "left delta-rs\n"), done.stderr
