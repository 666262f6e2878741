"""Old files of a table's log are removed as the table's properties say, once a checkpoint is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from tests.delta_commits import append


def commits_kept(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("wanted", [True, False])
def test_the_log_is_cleaned_up_if_the_table_wants_it(tmp_path: Path, wanted: bool) -> None:
    properties = {
        "delta.checkpointInterval": "4",
        "delta.logRetentionDuration": "interval 0 seconds",
        "delta.enableExpiredLogCleanup": str(wanted).lower(),
    }
    schema = Schema([Field("none", PrimitiveType("string"))])
    DeltaTable.create(tmp_path, schema, configuration=properties)
    for version in range(1, 8):
        append(DeltaTable(tmp_path), {"app": version}, {})
    assert commits_kept(tmp_path) == list(range(8))
    for path in (tmp_path / "_delta_log").iterdir():
        os.utime(path, (0, 0))
    append(DeltaTable(tmp_path), {"app": 8}, {})
    assert commits_kept(tmp_path) == list(range(4 if wanted else 0, 9)), "an expired version stays readable from 4 on"
    assert DeltaTable(tmp_path).transaction_version("app") == 8
