"""Data files that disappear before their commit: a VACUUM without retention, or a hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t

from sparkonce.exactly_once.errors import DeliveryError
from tests.unit.sink.query_by_hand import Query

PARTITIONED = t.StructType([t.StructField("v", t.LongType()), t.StructField("p", t.StringType())])


def vacuum(path: Path) -> None:
    """Remove all files that no commit names, as VACUUM … RETAIN 0 HOURS does."""
    assert DeltaTable(path).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)


@pytest.mark.parametrize(
    ("guarantee", "replace"), [("exactly-once", False), ("exactly-once", True), ("at-least-once", False)]
)
def test_a_batch_whose_files_were_vacuumed_is_not_committed(tmp_path: Path, guarantee: str, replace: bool) -> None:
    query = Query(tmp_path, guarantee=guarantee, replace=replace)
    query.write(0, [{"v": 1}])
    query.log(1, 20)
    messages = query.tasks(rows=[{"v": 2}])
    vacuum(query.table)
    before = DeltaTable(query.table).version()
    with pytest.raises(DeliveryError, match=r"1 of its 1 data files .* VACUUM .* Start the query again") as error:
        query.commit(1, messages)
    assert f"gone from {query.table}" in str(error.value)
    query.abort(1, messages)
    assert DeltaTable(query.table).version() == before
    query.write(1, [{"v": 2}])
    query.write(2, [{"v": 3}])
    assert [row["v"] for row in query.read("v")] == ([3] if query.replace else [1, 2, 3])


def test_one_of_several_partitions(tmp_path: Path) -> None:
    query = Query(tmp_path, schema=PARTITIONED, partitionBy="p")
    query.log(0, 10)
    messages = query.tasks(rows=[{"v": 1, "p": "a/b=c %é"}, {"v": 2, "p": "b"}, {"v": 3, "p": None}])
    (victim,) = query.table.glob("p=b/*.parquet")
    victim.unlink()
    with pytest.raises(DeliveryError, match=rf"1 of its 3 data files .*p=b/{victim.name}"):
        query.commit(0, messages)
    query.abort(0, messages)
    assert query.files() == 0
    query.write(0, [{"v": 1, "p": "a/b=c %é"}, {"v": 2, "p": "b"}])
    assert query.rows() == 2


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.log(0, 10)
    messages = query.tasks(1)
    (victim,) = query.table.glob("*.parquet")
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.raises(DeliveryError, match="of another size"):
        query.commit(0, messages)


def test_at_most_once_says_that_the_rows_are_lost(tmp_path: Path) -> None:
    query = Query(tmp_path, guarantee="at-most-once")
    query.write(0, [{"v": 1}])
    query.log(1, 20)
    messages = query.tasks(rows=[{"v": 2}])
    vacuum(query.table)
    with pytest.raises(DeliveryError, match="its offsets are stored already, so these rows are lost"):
        query.commit(1, messages)
    query.write(2, [{"v": 3}])
    assert [row["v"] for row in query.read("v")] == [1, 3]
