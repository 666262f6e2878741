"""What a user is told when something is wrong that is not the other driver's fault: what, where, and what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.schema import SchemaError
from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from tests.unit.sink.query_by_hand import Query


def test_a_topic_that_left_and_came_back(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    other = SourceOffset("kafka", {TopicPartition("other", "id-2", 0): Position(0, 5)}).to_json()
    (query.checkpoint / "offsets/1").write_text(f"v1\n{{}}\n{other}")
    query.commit(1, query.tasks(rows=[{"v": 2}]))
    query.log(2, 500)
    with pytest.raises(OffsetMismatchError) as error:
        query.tasks()
    told = str(error.value)
    assert "an overlap with the table's offsets" in told
    assert "version 1 of the table holds batch 0 of query q" in told
    assert "a topic was left out of subscribe for a time" in told
    assert "another driver" not in told
    assert "Start with a new checkpointLocation and offsetStore=delta:" in told


@pytest.mark.parametrize("when", ["between batches", "in mid-batch"])
def test_a_table_that_was_set_back(tmp_path: Path, when: str) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    copy = tmp_path / "copy"
    shutil.copytree(query.table, copy)
    query.write(1, [{"v": 2}])
    query.log(2, 500)
    messages = query.tasks() if when == "in mid-batch" else []
    shutil.rmtree(query.table)
    copy.rename(query.table)
    with pytest.raises(OffsetMismatchError) as error:
        query.commit(2, messages) if messages else query.tasks()
    told = str(error.value)
    assert "a gap with the table's offsets" in told
    assert "the table was reverted to an older state (a RESTORE, or a copy of it)" in told
    assert "another driver" not in told
    assert "Start with a new checkpointLocation and offsetStore=delta:" in told


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("a%20b", r"a%20b has %20 in it, which delta-rs decodes to the character ' '"),
        (r"a\b", r"a\\b has a backslash in it, which delta-rs reads as /"),
    ],
)
def test_a_path_that_delta_rs_would_read_otherwise(tmp_path: Path, name: str, complaint: str) -> None:
    """It would use "a b", or "a/b", which may be another table."""
    query = Query(tmp_path)
    query.options["path"] = f"{tmp_path}/{name}"
    query.log(0, 10)
    before = set(tmp_path.iterdir())
    with pytest.raises(OffsetStoreError, match=complaint):
        query.tasks()
    assert set(tmp_path.iterdir()) == before


def test_a_percent_sign_that_is_no_escape(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.options["path"] = f"{tmp_path}/100%"
    query.write(0, [{"v": 1}])
    assert (tmp_path / "100%/_delta_log").is_dir()


def test_why_a_table_cannot_be_created(tmp_path: Path) -> None:
    query = Query(tmp_path)
    (tmp_path / "file").touch()
    query.options["path"] = str(tmp_path / "file/table")
    query.log(0, 10)
    with pytest.raises(TableError, match=r"cannot create the table .*/file/table: .*Not a directory"):
        query.tasks()


@pytest.mark.parametrize("table", ["new", "there"])
def test_a_type_that_cannot_be_written(tmp_path: Path, table: str) -> None:
    query = Query(tmp_path)
    if table == "there":
        query.write(0, [{"v": 1}])
    query.schema = t.StructType([t.StructField("v", t.LongType()), t.StructField("j", t.VariantType())])
    query.log(1 if table == "there" else 0, 500)
    with pytest.raises(SchemaError, match=r"column j: delta_once cannot write the type variant; cast it: to_json\(j\)"):
        query.tasks(rows=[])


def test_a_path_of_a_file(tmp_path: Path) -> None:
    query = Query(tmp_path)
    (tmp_path / "file").touch()
    query.options["path"] = str(tmp_path / "file")
    query.log(0, 10)
    with pytest.raises(OffsetStoreError, match=r"/file is a file, not a Delta table"):
        query.tasks()
