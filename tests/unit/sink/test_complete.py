"""``outputMode`` complete: each batch replaces the table's rows and moves the offsets, in one commit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as t

from sparkonce.exactly_once.errors import FencedError
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.txn_ids import query_txn_id
from tests.unit.sink.query_by_hand import Query


def values(query: Query) -> list[int]:
    return [row["v"] for row in query.read("v")]


def actions(query: Query, version: int) -> list[dict[str, Any]]:
    text = (query.table / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def add_one(table: DeltaTable) -> None:
    write_deltalake(table, pa.table({"v": pa.array([5], pa.int64())}), mode="append")


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path, replace=True)


def test_each_batch_replaces_what_is_there_in_one_commit(query: Query) -> None:
    query.write(0, [{"v": 1}, {"v": 2}])
    query.write(1, [{"v": 3}])
    assert values(query) == [3]
    assert DeltaTable(query.table).version() == 2
    kinds = sorted(next(iter(action)) for action in actions(query, 2))
    assert kinds == ["add", "commitInfo", "remove", "txn", "txn", "txn"]  # offset, batch id, fingerprint


def test_a_batch_without_rows_empties_the_table(query: Query) -> None:
    query.write(0, [{"v": 1}])
    query.write(1, [])
    assert values(query) == []
    assert DeltaTable(query.table).transaction_version(query_txn_id("app", "q")) == 1


def test_a_batch_without_rows_of_another_source_empties_the_table(query: Query) -> None:
    """No offset of ours says that anything has moved."""
    for batch_id, rows in enumerate([[{"v": 1}], [], []]):
        (query.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{batch_id}")
        query.commit(batch_id, query.tasks(rows=rows))
    assert values(query) == []
    assert DeltaTable(query.table).transaction_version(query_txn_id("app", "q")) == 2


def test_a_replay_replaces_nothing(query: Query) -> None:
    query.write(0, [{"v": 1}])
    version = DeltaTable(query.table).version()
    query.write(0, [{"v": 99}])
    assert (values(query), DeltaTable(query.table).version()) == ([1], version)


@pytest.mark.parametrize("lands", [False, True])
def test_a_driver_that_dies_at_the_commit(query: Query, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    query.write(0, [{"v": 1}])
    original = TableLog.commit

    def dies(self: TableLog, *args: Any) -> int:
        if lands:
            original(self, *args)
        raise KeyboardInterrupt

    query.log(1, 20)
    messages = query.tasks(rows=[{"v": 2}])
    with monkeypatch.context() as patch:
        patch.setattr(TableLog, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            query.commit(1, messages)
    assert values(query) == ([2] if lands else [1])
    query.write(1, [{"v": 2}])
    assert values(query) == [2]
    assert DeltaTable(query.table).version() == 2


def test_of_two_drivers_one_stops(query: Query, tmp_path: Path) -> None:
    rival = Query(tmp_path, "rival", replace=True)
    for each in (query, rival):
        each.log(0, 10)
    mine, theirs = query.tasks(rows=[{"v": 1}]), rival.tasks(rows=[{"v": 2}])
    rival.commit(0, theirs)
    with pytest.raises(FencedError, match="holds batch 0 of query rival"):
        query.commit(0, mine)
    query.abort(0, mine)
    assert values(query) == [2]


@pytest.mark.parametrize("kind", ["append", "optimize"])
def test_others_that_change_the_files_meanwhile(query: Query, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The batch looks again, and replaces what is there by then; delta-rs alone would leave what OPTIMIZE wrote."""
    for batch_id in range(2):
        query.write(batch_id, [{"v": batch_id}])
    add_one(DeltaTable(query.table))
    original = TableLog.commit
    others: list[Callable[[DeltaTable], object]] = [
        add_one if kind == "append" else lambda table: table.optimize.compact()
    ]

    def overtaken(self: TableLog, *args: Any) -> int:
        while others:
            others.pop()(DeltaTable(query.table))
        return original(self, *args)

    query.log(2, 30)
    messages = query.tasks(rows=[{"v": 9}])
    monkeypatch.setattr(TableLog, "commit", overtaken)
    query.commit(2, messages)
    assert values(query) == [9]


def test_partitions_are_replaced_too(query: Query) -> None:
    query.options["partitionBy"] = "v"
    query.schema = t.StructType([t.StructField("v", t.LongType()), t.StructField("n", t.LongType())])
    query.write(0, [{"v": number, "n": number} for number in range(5)])
    query.write(1, [{"v": 3, "n": 33}])
    assert query.read("v") == [{"v": 3, "n": 33}]
    assert sum("remove" in action for action in actions(query, 2)) == 5


def test_a_lost_checkpoint_goes_by_the_tables_offsets(query: Query, tmp_path: Path) -> None:
    query.write(0, [{"v": 1}])
    shutil.rmtree(query.checkpoint)
    fresh = Query(tmp_path, "fresh", replace=True)
    fresh.write(0, [{"v": 99}])
    assert values(fresh) == [1]
