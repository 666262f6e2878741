"""Columns of the table that a query leaves out: readers find that they are null, with a filter as without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from tests.cases import each_case
from tests.table_readers import KINDS, DataFusion, Dataset, EdgeTable, column, differences, predicates
from tests.unit.sink.query_by_hand import Query, make_table, table_actions

KIND_OF = {kind.column: kind for kind in KINDS}


@each_case("name", KIND_OF)
def test_readers_find_the_rows_without_a_column(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    kind = KIND_OF[name]
    values = [*kind.values[:2], None]
    rows = pa.table({"id": pa.array(range(3)), kind.column: column(kind, values)})
    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    query = Query(tmp_path_factory.mktemp("left"), schema=schema)
    query.log(0, 10)
    query.commit(0, query.tasks_with([rows.to_batches()]))
    query.schema = t.StructType([t.StructField("ID", t.LongType())])
    query.write(1, [{"ID": 3}, {"ID": 4}])
    both = pa.concat_tables([rows, pa.table({"id": pa.array([3, 4])})], promote_options="default")
    table = EdgeTable(query.table, both, [kind])
    for reader in (DataFusion(), Dataset()):
        asked = [each for each in predicates([kind]) if not reader.skips_wrongly(each)]
        assert differences(reader, table, asked[:12] + asked[-12:]) == []


WIDE = t.StructType([t.StructField(name, t.LongType()) for name in "abcd"])


def field(name: str, number: int) -> t.StructField:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return t.StructField(name, t.LongType(), True, metadata)


@each_case(
    "configuration, partition_columns, counted",
    [
        ({}, [], {"a": 2, "c": 2, "d": 2}),
        ({"delta.dataSkippingNumIndexedCols": "2"}, [], {"a": 2}),
        ({"delta.dataSkippingNumIndexedCols": "3"}, ["b"], {"a": 2, "c": 2, "d": 2}),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, [], {"a": 2, "c": 2, "d": 2}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, [], {}),
        ({"delta.dataSkippingStatsColumns": "d,b"}, [], {"d": 2}),
    ],
)
def test_columns_with_statistics_are_counted(
    tmp_path_factory: pytest.TempPathFactory,
    configuration: dict[str, str],
    partition_columns: list[str],
    counted: dict[str, int],
) -> None:
    """As if the file had them, with nulls; those that are not indexed are not named."""
    query = Query(tmp_path_factory.mktemp("left"), schema=t.StructType(WIDE.fields[1:2]))
    if partition_columns:
        query.schema = t.StructType(WIDE.fields[1:3])
        counted = {**counted, "c": 1}
    actions = table_actions(WIDE, configuration=configuration, partition_columns=partition_columns)
    make_table(query.table, *actions)
    query.write(0, [{"b": 1, "c": None}, {"b": 1, "c": 5}])
    nulls = null_counts(query)
    assert {name: count for name, count in nulls.items() if name != "b"} == counted


def test_columns_that_are_mapped_are_counted_by_their_names_in_files(tmp_path: Path) -> None:
    query = Query(tmp_path, schema=t.StructType(WIDE.fields[1:2]))
    columns = t.StructType([field(name, number) for number, name in enumerate("abcd")])
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    make_table(query.table, *table_actions(columns, versions=(2, 5), configuration=configuration))
    query.write(0, [{"b": 1}, {"b": None}])
    assert null_counts(query) == {"col-0": 2, "col-1": 1, "col-2": 2, "col-3": 2}


def null_counts(query: Query) -> dict[str, Any]:
    log = max((query.table / "_delta_log").glob("*.json")).read_text()
    (add,) = (action["add"] for line in log.splitlines() if "add" in (action := json.loads(line)))
    stats: dict[str, Any] = json.loads(add["stats"])
    assert stats["numRecords"] == 2
    return dict(stats["nullCount"])
