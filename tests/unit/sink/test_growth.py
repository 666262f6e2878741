"""``mergeSchema``: columns added in a commit of their own, whoever dies or races between it and the rows.

The cases are those of Delta's schema evolution suites, as far as no type of the table is changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder
from deltalake.schema import PrimitiveType
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.features import FIELD_ID, PHYSICAL_NAME
from sparkonce.connectors.delta_sink.growth import ADD_COLUMN
from sparkonce.connectors.delta_sink.schema import SchemaError
from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.connectors.delta_sink.types import holds
from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.log.table_log import TableLog
from tests.cases import each_case
from tests.unit.sink.query_by_hand import Query, make_table, table_actions

LONG, TEXT = t.LongType(), t.StringType()


def row(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


NARROW, WIDE = row(k=LONG), row(k=LONG, w=TEXT)


def operations(query: Query) -> list[str]:
    return [entry["operation"] for entry in reversed(DeltaTable(query.table).history())]


def growing(root: Path, schema: t.StructType, query_id: str = "q", **options: Any) -> Query:
    return Query(root, query_id, schema=schema, mergeSchema="true", coveredTwice="true", **options)


def begun(root: Path, schema: t.StructType = NARROW) -> None:
    """Make the table, with one row, by an application of its own."""
    query = Query(root, "first", schema=schema, appId="first")
    query.write(0, [{"k": 0}])


def test_a_new_column_is_added_before_the_rows(tmp_path: Path) -> None:
    begun(tmp_path)
    query = growing(tmp_path, WIDE)
    query.write(0, [{"k": 1, "w": "x"}])
    query.write(1, [{"k": 2, "w": None}])
    assert operations(query) == ["CREATE TABLE", "WRITE", "ADD COLUMN", "WRITE", "WRITE"]
    assert query.read("k") == [{"k": 0, "w": None}, {"k": 1, "w": "x"}, {"k": 2, "w": None}]


def test_without_the_option_it_is_refused_and_the_option_is_named(tmp_path: Path) -> None:
    begun(tmp_path)
    query = Query(tmp_path, schema=WIDE)
    query.log(0, 10)
    with pytest.raises(SchemaError, match=r"column w \(string\) is not in the table.*mergeSchema=true"):
        query.writer().begin()
    assert operations(query) == ["CREATE TABLE", "WRITE"]


INNER, GROWN = row(x=LONG), row(x=LONG, Y=TEXT)
NESTED: dict[str, tuple[t.DataType, t.DataType, Any, Any]] = {
    "struct": (INNER, GROWN, {"x": 1, "Y": "y"}, {"x": 1, "Y": "y"}),
    "struct in a struct": (row(i=INNER), row(i=GROWN), {"i": {"x": 1, "Y": "y"}}, {"i": {"x": 1, "Y": "y"}}),
    "list": (t.ArrayType(INNER), t.ArrayType(GROWN), [{"x": 1, "Y": "y"}, None], [{"x": 1, "Y": "y"}, None]),
    "map": (
        t.MapType(TEXT, INNER),
        t.MapType(TEXT, GROWN),
        [("a", {"x": 1, "Y": "y"})],
        [("a", {"x": 1, "Y": "y"})],
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_fields_inside_are_added_too(tmp_path: Path, name: str) -> None:
    old, new, value, back = NESTED[name]
    begun(tmp_path, row(k=LONG, s=old))
    query = growing(tmp_path, row(S=new, k=LONG))
    query.write(0, [{"k": 1, "S": value}, {"k": 2, "S": None}])
    assert operations(query)[2:] == ["ADD COLUMN", "WRITE"]
    table = DeltaTable(query.table)
    assert [field.name for field in table.schema().fields] == ["k", "s"]
    schema = t.StructType.fromJson(json.loads(table.schema().to_json()))
    assert schema["s"].dataType == new
    assert query.read("k")[1:] == [{"k": 1, "s": back}, {"k": 2, "s": None}]


def test_fields_that_the_query_lacks_are_null(tmp_path: Path) -> None:
    """Inside structs as for whole columns; and order and case do not matter."""
    begun(tmp_path, row(k=LONG, s=row(a=LONG, b=LONG, c=TEXT)))
    query = Query(tmp_path, schema=row(s=row(C=TEXT, a=t.IntegerType()), k=t.ShortType()), coveredTwice="true")
    query.write(0, [{"k": 1, "s": {"C": "c", "a": 7}}])
    assert query.read("k")[1] == {"k": 1, "s": {"a": 7, "b": None, "c": "c"}}


def test_narrower_values_are_cast_and_no_type_is_changed(tmp_path: Path) -> None:
    decimal = t.DecimalType
    kinds = row(k=LONG, i=t.IntegerType(), d=t.DoubleType(), f=t.DoubleType(), m=decimal(20, 4), n=decimal(12, 1))
    begun(tmp_path, kinds)
    narrow = row(k=t.IntegerType(), i=t.ByteType(), d=t.IntegerType(), f=t.FloatType(), m=decimal(9, 2), n=t.LongType())
    query = growing(tmp_path, narrow)
    query.log(0, 10)
    with pytest.raises(SchemaError, match=r"column n is decimal\(12,1\) in the table and bigint"):
        query.writer().begin()
    query.schema = t.StructType([field for field in narrow.fields if field.name != "n"])
    query.write(0, [{"k": 1, "i": -2, "d": 3, "f": 0.5, "m": None}])
    assert query.read("k")[1] == {"k": 1, "i": -2, "d": 3.0, "f": 0.5, "m": None, "n": None}
    assert "ADD COLUMN" not in operations(query)


@pytest.mark.parametrize(
    ("old", "new"),
    [(t.IntegerType(), LONG), (t.ByteType(), t.ShortType()), (t.FloatType(), t.DoubleType())],
)
def test_a_type_is_not_widened(tmp_path: Path, old: t.DataType, new: t.DataType) -> None:
    """delta-rs 1.6 refuses to, so the way out is delta-spark."""
    begun(tmp_path, row(k=LONG, a=old))
    query = growing(tmp_path, row(k=LONG, a=new))
    query.log(0, 10)
    with pytest.raises(SchemaError, match=r"column a is .* in the query; a table's type is not widened.*ALTER TABLE"):
        query.writer().begin()
    assert operations(query) == ["CREATE TABLE", "WRITE"]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (row(k=LONG, **{"a b": LONG}), "Delta allows none of"),
        (row(k=LONG, s=row(**{"a;b": LONG})), "Delta allows none of"),
        (row(k=LONG, s=row(x=LONG, X=LONG)), "are the same to Delta"),
        (row(k=LONG, v=t.VariantType()), "cannot write the type variant"),
        (row(k=TEXT, w=TEXT), "column k is bigint in the table and string"),
    ],
)
def test_nothing_is_added_if_anything_is_refused(tmp_path: Path, schema: t.StructType, reason: str) -> None:
    begun(tmp_path)
    query = growing(tmp_path, schema)
    query.log(0, 10)
    with pytest.raises(SchemaError, match=reason):
        query.writer().begin()
    assert operations(query) == ["CREATE TABLE", "WRITE"]


def test_nothing_is_added_for_a_batch_that_is_refused_or_there_already(tmp_path: Path) -> None:
    query = Query(tmp_path, schema=NARROW)
    query.write(0, [{"k": 1}])
    again = Query(tmp_path, "again", schema=WIDE, mergeSchema="true")
    again.log(0, 10)
    assert not again.tasks(rows=[])[0].plans[0].writes_rows
    again.log(0, 15)
    with pytest.raises(OffsetMismatchError, match="overlap"):
        again.writer().begin()
    assert operations(query) == ["CREATE TABLE", "WRITE"]


class DeadError(BaseException):
    """The driver dies."""


def test_a_driver_that_dies_between_the_two_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The column is there and no row; the next life goes on from there, and adds nothing."""
    begun(tmp_path)
    query = growing(tmp_path, WIDE)
    query.log(0, 10)
    with monkeypatch.context() as patch:
        original = TableLog.commit

        def dies(self: TableLog, proposal: Proposal, state: TableState) -> int:
            if proposal.operation == ADD_COLUMN:
                return original(self, proposal, state)
            raise DeadError

        patch.setattr(TableLog, "commit", dies)
        messages = query.tasks(rows=[{"k": 1, "w": "x"}])
        with pytest.raises(DeadError):
            query.commit(0, messages)
    assert operations(query) == ["CREATE TABLE", "WRITE", "ADD COLUMN"]
    assert query.read("k") == [{"k": 0, "w": None}]
    query.write(0, [{"k": 1, "w": "x"}])
    assert operations(query) == ["CREATE TABLE", "WRITE", "ADD COLUMN", "WRITE"]
    assert query.read("k") == [{"k": 0, "w": None}, {"k": 1, "w": "x"}]


def test_a_column_that_is_added_and_whose_answer_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path)
    original = TableLog.commit

    def loses(self: TableLog, proposal: Proposal, state: TableState) -> int:
        version = original(self, proposal, state)
        if proposal.operation == ADD_COLUMN:
            raise OffsetStoreError("no answer")
        return version

    monkeypatch.setattr(TableLog, "commit", loses)
    query = growing(tmp_path, WIDE)
    query.write(0, [{"k": 1, "w": "x"}])
    assert operations(query) == ["CREATE TABLE", "WRITE", "ADD COLUMN", "WRITE"]


def overtake(monkeypatch: pytest.MonkeyPatch, query: Query, *rivals: Callable[[DeltaTable], object]) -> None:
    """Let others change the table just before our own change to its columns."""
    original = TableLog.commit
    waiting = list(rivals)

    def overtaken(self: TableLog, proposal: Proposal, state: TableState) -> int:
        if proposal.operation == ADD_COLUMN and waiting:
            waiting.pop(0)(DeltaTable(query.table))
        return original(self, proposal, state)

    monkeypatch.setattr(TableLog, "commit", overtaken)


def adding(name: str, kind: str) -> Callable[[DeltaTable], object]:
    return lambda table: table.alter.add_columns([Field(name, PrimitiveType(kind))])


def test_two_drivers_add_columns_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same one, or others: whoever comes second looks again and adds the rest."""
    begun(tmp_path)
    query = growing(tmp_path, row(k=LONG, w=TEXT, u=LONG))
    overtake(monkeypatch, query, adding("w", "string"), adding("other", "long"))
    query.write(0, [{"k": 1, "w": "x", "u": 2}])
    assert query.read("k")[1] == {"k": 1, "w": "x", "other": None, "u": 2}
    assert operations(query) == ["CREATE TABLE", "WRITE", *["ADD COLUMN"] * 3, "WRITE"]


def test_two_drivers_add_one_column_of_two_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path)
    query = growing(tmp_path, WIDE)
    overtake(monkeypatch, query, adding("w", "long"))
    query.log(0, 10)
    with pytest.raises(SchemaError, match="column w is bigint in the table and string in the query"):
        query.writer().begin()


def test_two_applications_grow_one_table_by_turns(tmp_path: Path) -> None:
    """Each batch begins under the columns of its time, and is committed though the other has added its own since."""
    begun(tmp_path)
    one = growing(tmp_path, row(k=LONG, a=TEXT), "one", appId="one")
    two = growing(tmp_path, row(k=LONG, b=LONG), "two", appId="two")
    one.log(0, 10)
    two.log(0, 10)
    mine = one.tasks(rows=[{"k": 1, "a": "x"}])
    theirs = two.tasks(rows=[{"k": 2, "b": 3}])
    two.commit(0, theirs)
    one.commit(0, mine)
    one.write(1, [{"k": 4, "a": "y"}])
    assert one.read("k") == [
        {"k": 0, "a": None, "b": None},
        {"k": 1, "a": "x", "b": None},
        {"k": 2, "a": None, "b": 3},
        {"k": 4, "a": "y", "b": None},
    ]


def test_a_column_that_is_gone_when_the_rows_are_committed(tmp_path: Path) -> None:
    """A RESTORE took it back while the batch was written: the rows would be in no schema."""
    begun(tmp_path)
    query = growing(tmp_path, WIDE)
    query.log(0, 10)
    messages = query.tasks(rows=[{"k": 1, "w": "x"}])
    DeltaTable(query.table).restore(1)
    with pytest.raises(TableError, match="changed while batch 0"):
        query.commit(0, messages)
    query.abort(0, messages)
    query.write(0, [{"k": 1, "w": "x"}])
    assert query.read("k") == [{"k": 0, "w": None}, {"k": 1, "w": "x"}]


@pytest.mark.parametrize(
    ("versions", "features"),
    [
        ((1, 2), {"appendOnly", "invariants"}),
        ((1, 4), {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}),
    ],
)
def test_a_timestamp_without_zone_does_not_cost_an_old_table_its_promises(
    tmp_path: Path, versions: tuple[int, int], features: set[str]
) -> None:
    """Those of older protocols are not named; when the first feature is, all must be."""
    query = growing(tmp_path, row(k=LONG, n=t.TimestampNTZType()))
    make_table(query.table, *table_actions(NARROW, versions=versions, configuration={"delta.appendOnly": "true"}))
    query.write(0, [{"k": 1, "n": None}])
    protocol = DeltaTable(query.table).protocol()
    assert set(protocol.writer_features or ()) == {"timestampNtz", *features}
    assert protocol.reader_features == ["timestampNtz"]


@pytest.mark.parametrize("features", [(), ("invariants", "appendOnly")])
def test_a_timestamp_without_zone_brings_its_feature(tmp_path: Path, features: tuple[str, ...]) -> None:
    query = growing(tmp_path, row(k=LONG, n=t.TimestampNTZType()))
    make_table(query.table, *table_actions(NARROW, features=features))
    query.write(0, [{"k": 1, "n": None}])
    protocol = DeltaTable(query.table).protocol()
    assert {"timestampNtz", *features} <= set(protocol.writer_features or ())
    assert protocol.reader_features == ["timestampNtz"]


@each_case(
    "feed, name, refused",
    [
        *[("true", name, True) for name in ("_change_type", "_commit_version", "_commit_timestamp", "_Change_Type")],
        *[("True", "_change_type", True), ("false", "_change_type", False), ("true", "change_type", False)],
    ],
)
def test_columns_of_a_change_data_feed_are_not_added(
    tmp_path_factory: pytest.TempPathFactory, feed: str, name: str, refused: bool
) -> None:
    """Its readers add these columns themselves; a field within a column may be named so."""
    query = growing(tmp_path_factory.mktemp("feed"), NARROW)
    configuration = {"delta.enableChangeDataFeed": feed}
    make_table(query.table, *table_actions(NARROW, versions=(1, 4), configuration=configuration))
    begun_with = len(operations(query))
    query.schema = row(k=LONG, s=row(**{name: LONG}), **{name: LONG})
    query.log(0, 10)
    if refused:
        with pytest.raises(TableError, match=rf"delta.enableChangeDataFeed=true.* {name}: rename the query's"):
            query.tasks(rows=[])
        assert len(operations(query)) == begun_with
        query.schema = row(k=LONG, s=row(**{name: LONG}))
    query.tasks(rows=[])
    assert len(operations(query)) == begun_with + 1


def test_fields_of_mapped_columns_get_names_and_ids(tmp_path: Path) -> None:
    """Nested ones too; ids go on after the highest that was ever used, and what is there keeps its own."""
    mapped = mapped_table([("k", LONG), ("s", t.ArrayType(row(x=LONG)))])
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    grown = row(S=t.ArrayType(row(x=LONG, y=TEXT)), k=LONG, w=row(a=row(b=LONG), n=t.TimestampNTZType()))
    query = growing(tmp_path, grown)
    make_table(query.table, *table_actions(mapped, versions=(2, 5), configuration=configuration))
    value = {"k": 1, "S": [{"x": 1, "y": "y"}], "w": {"a": {"b": 2}, "n": None}}
    query.write(0, [value])
    state = TableLog(Location.parse(str(query.table))).state()
    found = json.loads(state.metadata.schema_json)
    before = json.loads(mapped.json())
    assert found["fields"][0] == before["fields"][0]
    assert found["fields"][1]["metadata"] == before["fields"][1]["metadata"]
    ids, names = zip(*mappings(found), strict=True)
    assert ids == (1, 2, 3, 10, 11, 12, 13, 14)
    assert len(set(names)) == len(names)
    assert all(name.startswith("col-") for name in names)
    assert state.metadata.configuration["delta.columnMapping.maxColumnId"] == "14"
    assert state.protocol.reader_features == {"columnMapping", "timestampNtz"}
    rows = QueryBuilder().register("t", DeltaTable(query.table)).execute("SELECT * FROM t").read_all()
    assert pa.table(rows).to_pylist() == [{"k": 1, "s": value["S"], "w": value["w"]}]


def mapped_table(columns: Sequence[tuple[str, t.DataType]]) -> t.StructType:
    """Return columns with names and ids as delta-spark gives them, from 1."""
    numbers = count(1)

    def named(kind: t.DataType) -> t.DataType:
        if isinstance(kind, t.ArrayType):
            return t.ArrayType(named(kind.elementType))
        return mapped(kind.fields) if isinstance(kind, t.StructType) else kind

    def mapped(fields: Sequence[t.StructField]) -> t.StructType:
        made = t.StructType()
        for each in fields:
            number = next(numbers)
            metadata = {FIELD_ID: number, PHYSICAL_NAME: f"col-{number}"}
            made.add(t.StructField(each.name, named(each.dataType), True, metadata))
        return made

    return mapped([t.StructField(name, kind) for name, kind in columns])


def mappings(kind: Any) -> Iterator[tuple[int, str]]:
    if isinstance(kind, dict):
        for each in kind.get("fields", ()):
            yield each["metadata"][FIELD_ID], each["metadata"][PHYSICAL_NAME]
            yield from mappings(each["type"])
        yield from mappings(kind.get("elementType"))


def test_a_decimal_holds_a_whole_number_if_it_holds_the_largest() -> None:
    kinds = {t.ByteType(): 7, t.ShortType(): 15, t.IntegerType(): 31, t.LongType(): 63}
    for kind, bits in kinds.items():
        for precision in range(1, 39):
            for scale in {0, precision // 2, precision}:
                fits = 10 ** (precision - scale) > 2**bits
                assert holds(t.DecimalType(precision, scale), kind) == fits, (kind, precision, scale)
