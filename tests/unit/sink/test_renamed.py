"""Columns of a mapped table that are renamed while a batch is written: its files go in only if they say the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.features import FIELD_ID, PHYSICAL_NAME
from sparkonce.connectors.delta_sink.schema import WriteSchema, fit
from sparkonce.connectors.delta_sink.table import TableError
from tests.cases import each_case
from tests.unit.sink.query_by_hand import Query, make_table, table_actions

SHAPES: dict[str, Callable[[t.StructType], t.StructType]] = {
    "columns": lambda inner: inner,
    "fields of a struct": lambda inner: t.StructType([t.StructField("s", inner)]),
    "fields of elements": lambda inner: t.StructType([t.StructField("s", t.ArrayType(inner))]),
    "fields of keys": lambda inner: t.StructType([t.StructField("s", t.MapType(inner, t.LongType()))]),
    "fields of values": lambda inner: t.StructType([t.StructField("s", t.MapType(t.LongType(), inner))]),
    "deep inside": lambda inner: t.StructType(
        [t.StructField("s", t.ArrayType(t.StructType([t.StructField("m", t.MapType(t.LongType(), inner))])))]
    ),
}
NAMES = ("a", "b", "c")
NUMBERS = {"a": 11, "b": 12, "c": 13, "s": 1, "m": 2}
CONFIGURATION = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "13"}


def struct(*names: str) -> t.StructType:
    return t.StructType([t.StructField(name, t.LongType()) for name in names])


def mapped(kind: Any, numbers: dict[str, int]) -> Any:
    """Return a type whose fields have these ids, and physical names after them."""
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(mapped(kind.elementType, numbers))
    if isinstance(kind, t.MapType):
        return t.MapType(mapped(kind.keyType, numbers), mapped(kind.valueType, numbers))
    if not isinstance(kind, t.StructType):
        return kind
    return t.StructType([field(each, numbers) for each in kind.fields])


def field(plain: t.StructField, numbers: dict[str, int]) -> t.StructField:
    number = numbers[plain.name.lower()]
    metadata = {FIELD_ID: number, PHYSICAL_NAME: f"col-{number}"}
    return t.StructField(plain.name, mapped(plain.dataType, numbers), True, metadata)


def written(shape: Callable[[t.StructType], t.StructType], names: tuple[str, ...], numbers: Any) -> WriteSchema:
    """Return how a query with the fields a and b writes to a table with these fields."""
    table = mapped(shape(struct(*names)), numbers)
    return fit(shape(struct("a", "b")), table, [], mapped=True).write_schema


def renamed() -> Iterator[dict[str, int]]:
    """Yield each way to give the fields' ids and physical names to the names."""
    for order in permutations(NAMES):
        yield {**NUMBERS, **{name: NUMBERS[of] for name, of in zip(NAMES, order, strict=True)}}


@each_case("name", SHAPES)
def test_files_fit_a_table_only_if_each_of_their_fields_has_its_name_still(name: str) -> None:
    before = written(SHAPES[name], NAMES, NUMBERS)
    for numbers in renamed():
        # A struct is written with all of its fields, so c counts as well there.
        mine = NAMES if name != "columns" else ("a", "b")
        assert before.fits(written(SHAPES[name], NAMES, numbers)) == all(
            numbers[each] == NUMBERS[each] for each in mine
        )
    assert before.fits(written(SHAPES[name], ("A", "c", "B"), NUMBERS))
    assert written(SHAPES[name], ("a", "b"), NUMBERS).fits(before)


def test_ids_that_changed_make_files_wrong() -> None:
    """Readers in mode id find columns by them."""
    before, after = (written(SHAPES["columns"], NAMES, NUMBERS) for _ in range(2))
    other = pa.schema([each.with_metadata({b"PARQUET:field_id": b"7"}) for each in after.arrow])
    assert before.fits(after)
    assert not before.fits(dataclasses.replace(after, arrow=other))


@each_case("partition_columns", [[], ["a"]])
def test_a_batch_whose_columns_swapped_names_is_refused(
    tmp_path_factory: pytest.TempPathFactory, partition_columns: list[str]
) -> None:
    query = Query(tmp_path_factory.mktemp("swap"), schema=struct("a", "b"))
    actions = table_actions(
        mapped(struct("a", "b"), NUMBERS),
        versions=(2, 5),
        configuration=CONFIGURATION,
        partition_columns=partition_columns,
    )
    make_table(query.table, *actions)
    query.log(0, 10)
    messages = query.tasks(rows=[{"a": 1, "b": 100}])
    swapped = mapped(struct("b", "a"), {**NUMBERS, "a": NUMBERS["b"], "b": NUMBERS["a"]})
    metadata = {**actions[1]["metaData"], "schemaString": swapped.json()}
    metadata["partitionColumns"] = ["b" for _ in partition_columns]
    (query.table / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"metaData": metadata}) + "\n")
    with pytest.raises(TableError, match="changed while batch 0"):
        query.commit(0, messages)
    query.abort(0, messages)
    assert (query.rows(), query.files()) == (0, 0)
    query.write(0, [{"a": 1, "b": 100}])
    (file,) = query.table.rglob("*.parquet")
    found = {"col-11": 100, "col-12": 1}
    kept = {name: found[name] for name in found if not (partition_columns and name == "col-11")}
    assert pq.ParquetFile(file).read().to_pylist() == [kept]
