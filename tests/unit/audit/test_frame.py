"""The history of a store as an Arrow table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparkonce.offset_store import DeltaOffsetStore, MemoryOffsetStore, OffsetStore, StoreMissingError
from sparkonce.offset_store.frame import HISTORY_SCHEMA, history_arrow
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import BatchCounts, Commit, Writes
from tests.unit.audit.logs import BOTH, Table, key, record


def delta_store(folder: Path) -> OffsetStore:
    return DeltaOffsetStore(Location.parse(str(Table.create(folder / "t").path)), "app")


def memory_store(_folder: Path) -> OffsetStore:
    return MemoryOffsetStore("app", now_ms=lambda: 1_700_000_000_123)


@pytest.mark.parametrize("new_store", [delta_store, memory_store])
def test_one_row_for_each_commit_and_partition(new_store: Callable[[Path], OffsetStore], tmp_path: Path) -> None:
    store = new_store(tmp_path)
    first = replace(record(0, {key(0): (0, 5), key(1): (3, 4)}), counts=BatchCounts(records=6, read_bytes=80, rows=5))
    second = record(1, {key(0): (5, 5), key(1): (4, 9)})
    store.snapshot().commit(Commit(first, BOTH))
    store.snapshot().commit(Commit(second, Writes.OFFSETS))
    history = history_arrow(store)
    assert history.schema == HISTORY_SCHEMA
    history.validate(full=True)
    shown = history.select(["batch_id", "writes", "partition", "start_offset", "end_offset"]).to_pylist()
    assert [tuple(row.values()) for row in shown] == [
        (1, ["offsets"], 1, 4, 9),
        (0, ["rows", "offsets"], 0, 0, 5),
        (0, ["rows", "offsets"], 1, 3, 4),
    ]
    assert history.column("attempt_id").to_pylist() == [second.attempt_id, first.attempt_id, first.attempt_id]
    newest = history.column("version")[0].as_py()
    assert history.column("version").to_pylist() == [newest, newest - 1, newest - 1]
    counts = [None if each is None else BatchCounts(**each) for each in history.column("counts").to_pylist()]
    assert counts == [None, first.counts, first.counts]


def test_a_snapshot_gives_the_history_up_to_its_version_and_limit(tmp_path: Path) -> None:
    store = memory_store(tmp_path)
    for batch_id in range(3):
        store.snapshot().commit(Commit(record(batch_id, {key(0): (batch_id, batch_id + 1)}), BOTH))
    before = store.snapshot()
    store.snapshot().commit(Commit(record(3, {key(0): (3, 4)}), BOTH))
    assert history_arrow(before).column("batch_id").to_pylist() == [2, 1, 0]
    assert history_arrow(store, limit=2).column("batch_id").to_pylist() == [3, 2]


def test_times_are_those_of_the_commits(tmp_path: Path) -> None:
    store = memory_store(tmp_path)
    store.snapshot().commit(Commit(record(0, {key(0): (0, 1)}), BOTH))
    (at,) = history_arrow(store).column("committed_at").to_pylist()
    assert at == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)


def test_a_store_without_commits_has_an_empty_history_and_one_that_is_missing_has_none(tmp_path: Path) -> None:
    assert history_arrow(memory_store(tmp_path)).num_rows == 0
    assert history_arrow(delta_store(tmp_path)).schema == HISTORY_SCHEMA
    with pytest.raises(StoreMissingError):
        history_arrow(DeltaOffsetStore(Location.parse(str(tmp_path / "none")), "app"))
