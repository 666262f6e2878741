"""Tables that cost more each day are named, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkonce.jobs.cli.doctor import table_growth
from sparkonce.jobs.cli.doctor.findings import State
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.table_log import TableLog
from tests.unit.recovery.recovery_support import Pipeline


def warnings(path: Path) -> list[str]:
    log = TableLog(Location.parse(str(path)))
    found = list(table_growth.growth(log.reader, log.state()))
    assert {each.state for each in found} <= {State.WARNING}
    return [str(each) for each in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with four commits of one file each."""
    pipeline = Pipeline.create(tmp_path / "table", {"delta.enableExpiredLogCleanup": "false"})
    for batch_id in range(4):
        pipeline.commit(batch_id, {0: (batch_id, batch_id + 1)})
    return pipeline.path


def test_a_table_that_does_not_grow_gets_no_warning(path: Path) -> None:
    assert not warnings(path)


def test_a_log_that_nothing_cleans_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_growth, "MOST_COMMITS", 4)
    (found,) = warnings(path)
    assert "keeps 5 commits, and delta.enableExpiredLogCleanup=false keeps all" in found
    assert "UNSET TBLPROPERTIES ('delta.enableExpiredLogCleanup')" in found
    DeltaTable(path).alter.set_table_properties({"delta.enableExpiredLogCleanup": "true"})
    assert not warnings(path)


def test_a_log_without_checkpoints(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_growth, "MOST_SINCE_CHECKPOINT", 3)
    (found,) = warnings(path)
    assert f"4 commits of {path} came after its newest checkpoint" in found
    assert "The next commit of a query, or of sparkonce compact, writes one" in found
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "5000"})
    (found,) = warnings(path)
    assert "delta.checkpointInterval=5000 delays one" in found
    assert "UNSET TBLPROPERTIES ('delta.checkpointInterval')" in found
    DeltaTable(path).create_checkpoint()
    assert not warnings(path)


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_many_small_files(path: Path, monkeypatch: pytest.MonkeyPatch, with_checkpoint: bool) -> None:
    """Counted in a checkpoint and in the commits after it."""
    if with_checkpoint:
        DeltaTable(path).create_checkpoint()
        Pipeline(path).commit(4, {0: (4, 5)})
    monkeypatch.setattr(table_growth, "MOST_FILES", 3)
    (found,) = warnings(path)
    assert f"{path} has {4 + with_checkpoint} files of 0 kB on average. Merge them: sparkonce compact {path}" in found
    DeltaTable(path).optimize.compact()
    assert not warnings(path)
