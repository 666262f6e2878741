"""A table that is given thousands of versions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lab.bench.many_versions import copy_of, template
from lab.bench.spark_side import count

VERSIONS, WRITTEN = 80, 3
ROWS = 2 * WRITTEN + VERSIONS - WRITTEN
"""Each of the others has one of the two files."""


def grown(table: Path) -> Path:
    for version in range(WRITTEN):
        rows = pa.table({"id": [version, None], "day": ["a", "b"]})
        properties = CommitProperties(app_transactions=[Transaction("app", 10 * version)])
        write_deltalake(table, rows, mode="append", partition_by=["day"], commit_properties=properties)
    return table


def test_a_prolonged_log_reads_as_if_it_had_been_written_to(tmp_path: Path) -> None:
    made = template(grown(tmp_path / "table"), VERSIONS)
    table = DeltaTable(made.path)
    assert table.version() == VERSIONS - 1
    assert table.transaction_version("app") == 20 + VERSIONS - WRITTEN
    assert made.rows == ROWS
    assert len({action["path"] for action in table.get_add_actions().to_struct_array().to_pylist()}) == ROWS


def test_the_count_has_the_nulls_of_each_column(tmp_path: Path) -> None:
    assert count(str(grown(tmp_path / "table"))).nulls["id"] == 3


def test_what_is_written_to_a_copy_stays_there(tmp_path: Path) -> None:
    made = template(grown(tmp_path / "table"), VERSIONS)
    hint = made.path / "_delta_log" / "_last_checkpoint"
    before = hint.read_text()
    with copy_of(made, tmp_path / "copy") as copy:
        write_deltalake(copy, pa.table({"id": [1], "day": ["a"]}), mode="append")
        (copy / "_delta_log" / "_last_checkpoint").write_text("{}")  # in place, as Hadoop's file system
        assert DeltaTable(copy).version() == VERSIONS
    assert not copy.exists()
    assert DeltaTable(made.path).version() == VERSIONS - 1
    assert hint.read_text() == before
