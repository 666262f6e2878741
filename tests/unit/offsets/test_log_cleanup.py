"""Old files of a table's log are removed as the table's properties say, though not after every commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from sparkonce.offset_store import tables
from tests.delta_commits import append


def commits_kept(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("wanted", [True, False])
def test_the_log_is_cleaned_up_now_and_then_if_the_table_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    monkeypatch.setattr(tables, "LOG_CLEANUP_EVERY", 9)
    properties = {
        "delta.checkpointInterval": "2",
        "delta.logRetentionDuration": "interval 0 seconds",
        "delta.enableExpiredLogCleanup": str(wanted).lower(),
    }
    schema = Schema([Field("none", PrimitiveType("string"))])
    DeltaTable.create(tmp_path, schema, configuration=properties)
    kept = {}
    for version in range(1, 11):
        append(DeltaTable(tmp_path), {"app": version}, {})
        kept[version] = commits_kept(tmp_path)
    assert kept[8] == list(range(9))
    assert (kept[9][0] > 0) is wanted
    assert kept[10] == [*kept[9], 10]
    assert DeltaTable(tmp_path).transaction_version("app") == 10
