"""What may be written where: schemas, options and tables that are refused, each with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import ArrayType, PrimitiveType
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.features import TableFacts, refusals
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.schema import SchemaError, check_partition_columns, table_schema, write_schema
from sparkonce.connectors.delta_sink.table import ResultTable, TableError
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.log.creation import NewTable
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.options import OptionError
from tests.cases import each_case

GIVEN = {"path": "/t", "appId": "a", "checkpointLocation": "/c"}


def struct(text: str) -> t.StructType:
    """Read "a int, b string" into a schema of nullable fields, without a Spark session."""
    simple: dict[str, t.DataType] = {
        "int": t.IntegerType(),
        "long": t.LongType(),
        "string": t.StringType(),
        "double": t.DoubleType(),
        "ints": t.ArrayType(t.IntegerType()),
        "void": t.NullType(),
        "interval": t.DayTimeIntervalType(),
        "varchar": t.VarcharType(5),
        "nested": t.StructType([t.StructField("x", t.NullType())]),
    }
    pairs = (part.strip().rsplit(" ", 1) for part in text.split(","))
    return t.StructType([t.StructField(name, simple[kind]) for name, kind in pairs])


def options(root: Path, **more: str) -> SinkOptions:
    return SinkOptions.read({**GIVEN, "path": str(root / "t"), **more})


def test_columns_are_matched_by_name_and_written_in_the_tables_order_and_spelling() -> None:
    schema = write_schema(struct("b string, A long"), struct("a long, b string").json(), ["b"])
    assert schema.arrow.names == ["a", "b"]
    assert schema.data.names == ["a"]
    aligned = schema.align(pa.RecordBatch.from_pydict({"b": ["x"], "A": [1]}))
    assert aligned.to_pylist() == [{"a": 1, "b": "x"}]


def test_every_column_that_differs_is_named() -> None:
    with pytest.raises(SchemaError) as error:
        write_schema(struct("a string, c int, d ints"), struct("a long, b string, d ints").json(), [])
    text = str(error.value)
    assert "column a is bigint in the table and string in the query" in text
    assert "column b" not in text
    assert "column c (int) is not in the table" in text
    assert "column d" not in text
    assert "Select and cast" in text


def test_a_column_with_a_required_field_is_not_left_out() -> None:
    """As to Delta, a struct that is null has fields that are null."""
    inner = t.StructType([t.StructField("x", t.IntegerType(), False)])
    table = t.StructType(
        [t.StructField("k", t.LongType()), t.StructField("s", t.StructType([t.StructField("i", inner)]))]
    )
    with pytest.raises(SchemaError, match=r"column s .* is missing from the query, and s\.i\.x is NOT NULL"):
        write_schema(struct("k long"), table.json(), [])


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("a void", "cannot write the type void"),
        ("a nested", "cannot write the type void"),
        ("a interval", "cannot write the type interval"),
        ("a int, A int", "are the same to Delta"),
        ("a b int", "allows none of"),
    ],
)
def test_a_new_table_is_refused(query: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        table_schema(struct(query))


def test_a_new_table_has_nullable_columns_and_plain_strings() -> None:
    given_schema = t.StructType([t.StructField("k", t.LongType(), False), *struct("v varchar").fields])
    assert table_schema(given_schema) == struct("k long, v string")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [(["nope"], "the query has a, b, c"), (["b"], "array<int>"), (["c"], "double"), (["a", "b", "c"], "array")],
)
def test_partition_columns_are_checked(columns: list[str], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        check_partition_columns(columns, struct("a int, b ints, c double"))


def test_not_every_column_can_be_a_partition_column() -> None:
    with pytest.raises(SchemaError, match="every column"):
        check_partition_columns(["a"], struct("a int"))


def test_options_are_read() -> None:
    read = SinkOptions.read({**GIVEN, "partitionby": "a, b", "storage.aws_region": "r", "queryname": "q"})
    assert (read.partition_by, read.storage_options, read.table.text) == (("a", "b"), {"aws_region": "r"}, "/t")


@each_case(
    ("change", "reason"),
    [
        ({"appId": None}, "appId is required"),
        ({"checkpointLocation": None}, "checkpointLocation is required.*Spark configuration alone"),
        ({"path": None}, "path is required"),
        ({"partionBy": "a"}, "did you mean 'partitionBy'"),
        ({"compression": "brotli"}, "snappy"),
        ({"deliveryGuarantee": "twice"}, "exactly-once"),
        ({"checkpointLocation": " "}, "checkpointLocation=' ': it is empty"),
        ({"partitionBy": "a,a"}, "named twice"),
        ({"partitionBy": "a,A"}, "named twice"),
        ({"targetFileBytes": "0"}, "must be at least 1"),
        ({"rowGroupBytes": "many"}, "expected a whole number >= 1"),
        ({"rowGroupRows": "0"}, "must be at least 1"),
        ({"mergeSchema": "yes"}, "true or false"),
        ({"offsetStore": "somewhere"}, "write delta:<path of a table> or group:<id>"),
    ],
)
def test_options_are_refused(change: dict[str, str | None], reason: str) -> None:
    given_options = {key: value for key, value in {**GIVEN, **change}.items() if value is not None}
    with pytest.raises(OptionError, match=reason):
        SinkOptions.read(given_options)


def test_options_of_files_and_columns_are_read() -> None:
    assert not SinkOptions.read(GIVEN).merge_schema
    read = SinkOptions.read({**GIVEN, "mergeSchema": "TRUE", "rowGroupBytes": "7", "rowgrouprows": "8"})
    assert (read.merge_schema, read.row_group_bytes, read.row_group_rows) == (True, 7, 8)


def test_keys_to_a_store_are_not_shown() -> None:
    assert "secret" not in repr(SinkOptions.read({**GIVEN, "storage.key": "secret"}))


def test_a_missing_table_is_made_once(tmp_path: Path) -> None:
    query = struct("a int, p string")
    first = ResultTable(options(tmp_path, partitionBy="p"), query).snapshot()
    second = ResultTable(options(tmp_path), query).snapshot()
    assert (first.version, second.version) == (0, 0)
    table = DeltaTable(tmp_path / "t")
    assert table.metadata().partition_columns == ["p"]
    assert table.metadata().configuration == {}


def test_two_drivers_may_make_the_table_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = struct("a int")
    original = TableLog.create

    def beaten(self: TableLog, table: NewTable) -> bool:
        assert original(self, table)
        found = original(self, table)
        assert not found
        return found

    monkeypatch.setattr(TableLog, "create", beaten)
    assert ResultTable(options(tmp_path), query).snapshot().version == 0


def test_a_table_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a file")
    with pytest.raises((TableError, OffsetStoreError), match=f"{tmp_path}/t"):
        ResultTable(options(tmp_path), struct("a int")).snapshot()


def test_partition_columns_that_differ_from_the_tables_are_refused(tmp_path: Path) -> None:
    ResultTable(options(tmp_path), struct("a int, p string")).snapshot()
    with pytest.raises(TableError, match="is partitioned by no column"):
        ResultTable(options(tmp_path, partitionBy="p"), struct("a int, p string")).snapshot()


def test_partition_columns_are_matched_without_regard_to_case(tmp_path: Path) -> None:
    ResultTable(options(tmp_path, partitionBy="DAY"), struct("a int, Day string")).snapshot()
    found = ResultTable(options(tmp_path, partitionBy="day"), struct("a int, day string"))
    found.snapshot()
    assert found.facts.partition_columns == found.write_schema.partition_columns == ("Day",)


def test_another_schema_is_refused_and_names_the_table(tmp_path: Path) -> None:
    ResultTable(options(tmp_path), struct("a int")).snapshot()
    with pytest.raises(SchemaError, match=f"{tmp_path}/t: .*column a is int in the table and string in the query"):
        ResultTable(options(tmp_path), struct("a string")).snapshot()


def test_a_check_constraint_that_is_new_is_noticed(tmp_path: Path) -> None:
    query = struct("a int")
    result = ResultTable(options(tmp_path), query)
    result.snapshot()
    DeltaTable(tmp_path / "t").alter.add_constraint({"positive": "a > 0"})
    result.snapshot()
    (check,) = result.write_schema.checks
    assert check.what == "the check constraint positive (a > 0)"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"writer_features": ("appendOnly", "somethingNew")}, "feature somethingNew"),
        ({"configuration": (("delta.columnMapping.mode", "name"),)}, "column a has no physical name or id"),
        ({"configuration": (("delta.columnMapping.mode", "how"),)}, "its column mapping mode is unknown"),
        (
            {"configuration": (("delta.enableRowTracking", "true"),)},
            "enableRowTracking=true without the feature rowTracking",
        ),
    ],
)
def test_features_in_use_are_refused_by_name(changed: dict[str, Any], reason: str) -> None:
    plain: dict[str, Any] = {
        "table_id": "id",
        "schema_json": struct("a int").json(),
        "partition_columns": (),
        "configuration": (),
        "writer_features": (),
    }
    assert refusals(TableFacts(**plain)) == []
    (problem,) = refusals(TableFacts(**{**plain, **changed}))
    assert reason in problem


@pytest.mark.parametrize("key", ["delta.generationExpression", "delta.invariants", "delta.identity.start"])
def test_columns_with_rules_are_refused(key: str) -> None:
    schema = t.StructType([t.StructField("a", t.IntegerType(), metadata={key: "uuid()"})])
    (problem,) = refusals(TableFacts("id", schema.json(), (), (), ()))
    assert "column a " in problem


def test_required_columns_come_from_the_table(tmp_path: Path) -> None:
    fields = [
        Field("k", PrimitiveType("long"), nullable=False),
        Field("l", ArrayType(PrimitiveType("integer"), contains_null=True)),
    ]
    DeltaTable.create(tmp_path / "t", Schema(fields))
    result = ResultTable(options(tmp_path), struct("k long, l ints"))
    result.snapshot()
    assert [each.path for each in result.write_schema.required] == [("k",)]


def test_a_table_that_forgets_offsets_is_refused(tmp_path: Path) -> None:
    forgetting = {"delta.setTransactionRetentionDuration": "interval 30 days"}
    DeltaTable.create(tmp_path / "t", Schema([Field("k", PrimitiveType("long"))]), configuration=forgetting)
    with pytest.raises(OffsetStoreError, match=r"interval 30 days.* UNSET TBLPROPERTIES"):
        ResultTable(options(tmp_path), struct("k long")).snapshot()
