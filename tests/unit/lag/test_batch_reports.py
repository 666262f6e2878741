"""What a sink leaves for listeners: found by batch, never of an earlier run, and never in the way of a batch."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from sparkonce.connectors.sinks.batch_reports import (
    IN_USE_S,
    KEPT_BATCHES,
    KEPT_FILES,
    KEPT_S,
    MAX_FILE_BYTES,
    BatchReports,
)
from sparkonce.offset_store.record import BatchCounts

QUERY = "0b5e6ad8-6f5e-4f57-8c8e-5a1f4b0f6f6e"
COUNTS = BatchCounts(records=10, read_bytes=900, rows=8, dead_letters=1, files=2, written_bytes=400)


def test_another_process_finds_the_newest_batches_and_the_file_stays_small(tmp_path: Path) -> None:
    sink, listener = BatchReports(tmp_path), BatchReports(tmp_path)
    count = MAX_FILE_BYTES // 50
    for batch_id in range(count):
        sink.add(QUERY, batch_id, BatchCounts(rows=batch_id))
        if batch_id >= KEPT_BATCHES:
            oldest = listener.find(QUERY, batch_id - KEPT_BATCHES + 1, 0)
            assert oldest is not None
            assert oldest.counts.rows == batch_id - KEPT_BATCHES + 1
    assert listener.find(QUERY, 0, 0) is None
    assert listener.find("another", 7, 0) is None
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= MAX_FILE_BYTES


def test_of_two_reports_of_a_batch_the_newer_one_counts(tmp_path: Path) -> None:
    reports = BatchReports(tmp_path)
    reports.add(QUERY, 0, COUNTS)
    reports.add(QUERY, 0, BatchCounts())
    found = reports.find(QUERY, 0, 0)
    assert found is not None
    assert found.counts == BatchCounts(), "the batch came again, and was there already"


def test_a_batch_that_was_written_before_the_trigger_is_of_an_earlier_run(tmp_path: Path) -> None:
    reports = BatchReports(tmp_path)
    reports.add(QUERY, 0, COUNTS)
    found = reports.find(QUERY, 0, 0)
    assert found is not None
    assert found.counts == COUNTS
    assert reports.find(QUERY, 0, found.at_ms) == found
    assert reports.find(QUERY, 0, found.at_ms + 1) is None


@pytest.mark.parametrize(
    "text", ["", "{", "7", "null", "[7]", '[{"batchId":0}]', '[{"batchId":0,"atMs":0,"counts":7}]']
)
def test_what_cannot_be_read_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / f"{QUERY}.json").write_text(text)
    assert BatchReports(tmp_path).find(QUERY, 0, 0) is None


def test_a_folder_that_cannot_be_written_to_does_not_hinder_a_batch(tmp_path: Path) -> None:
    reports = BatchReports(tmp_path / "missing")
    reports.add(QUERY, 0, COUNTS)
    assert reports.find(QUERY, 0, 0) is None


def test_an_id_that_is_a_path_names_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    BatchReports(folder).add("../other", 0, COUNTS)
    assert list(tmp_path.rglob("*.json*")) == []


def test_files_of_queries_that_ended_long_ago_are_removed(tmp_path: Path) -> None:
    old, recent = tmp_path / "old.json", tmp_path / "recent.json"
    for file in (old, recent):
        file.write_text("[]")
    long_ago = time.time() - KEPT_S - 60
    os.utime(old, (long_ago, long_ago))
    BatchReports(tmp_path).add(QUERY, 0, COUNTS)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(["recent.json", f"{QUERY}.json"])


def test_many_short_queries_leave_few_files(tmp_path: Path) -> None:
    """And none of a query that goes on is removed, however many there are."""
    now = time.time()
    for number in range(KEPT_FILES):
        ended = tmp_path / f"ended-{number}.json"
        ended.touch()
        os.utime(ended, (now - IN_USE_S - 1 - number,) * 2)
        (tmp_path / f"running-{number}.json").touch()
    BatchReports(tmp_path).add(QUERY, 0, COUNTS)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {f"{QUERY}.json", *(f"running-{number}.json" for number in range(KEPT_FILES))}
    for file in tmp_path.iterdir():
        os.utime(file, (now - IN_USE_S - 1,) * 2)
    BatchReports(tmp_path).add(QUERY, 0, COUNTS)
    assert len(list(tmp_path.iterdir())) <= KEPT_FILES + 1


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    reports = BatchReports()
    reports.add(QUERY, 0, COUNTS)
    assert reports.find(QUERY, 0, 0) is not None
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert reports.find(QUERY, 0, 0) is None
