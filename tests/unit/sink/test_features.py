"""Tables that ask something of their writers: each is written to rightly, or refused before anything is written.

The logs are as delta-spark 4.4 writes them for such tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.compaction import Compaction, CompactionError
from sparkonce.connectors.delta_sink.features import SAFE, TableFacts, growth_refusals
from sparkonce.connectors.delta_sink.rules import may_read, rules_of
from sparkonce.connectors.delta_sink.schema import SchemaError
from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.protocol import READER_FEATURES
from sparkonce.options import OptionError
from tests.unit.sink.query_by_hand import SCHEMA, Query, delete_row, make_table, table_actions

OLD = ("invariants", "appendOnly")
LONG = t.LongType()
TEXT = t.StringType()


def column(name: str, kind: t.DataType = LONG, nullable: bool = True, **metadata: Any) -> t.StructField:
    return t.StructField(name, kind, nullable, {key.replace("__", "."): value for key, value in metadata.items()})


def one(**metadata: Any) -> t.StructType:
    return t.StructType([column("v", **metadata)])


INNER = t.StructType([column("x", delta__invariants='{"expression":{"expression":"x > 0"}}')])
TIMED = t.StructType([*one().fields, column("seen", t.TimestampType()), column("text", t.StringType())])


def declared(kind: str, stored: t.DataType = TEXT) -> t.StructField:
    """Return a column as SQL with CHAR and VARCHAR declares it."""
    return t.StructField("s", stored, True, {"__CHAR_VARCHAR_TYPE_STRING": kind})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "check constraint": (
        {"schema": SCHEMA, "versions": (1, 3), "configuration": {"delta.constraints.pos": "v > rand()"}},
        r"check constraint pos \(v > rand\(\)\), which delta_once cannot check: function rand",
    ),
    "invariant": ({"schema": one(delta__invariants="{}")}, "an invariant of column v"),
    "nested invariant": (
        {"schema": t.StructType([*SCHEMA.fields, column("l", t.ArrayType(INNER))])},
        r"column l\.x has an invariant",
    ),
    "generated column": (
        {"schema": one(delta__generationExpression="uuid()"), "features": ("generatedColumns", *OLD)},
        r"column v is generated as uuid\(\), which delta_once cannot compute",
    ),
    "varchar inside an array": (
        {"schema": t.StructType([*SCHEMA.fields, declared("array<varchar(3)>", t.ArrayType(t.StringType()))])},
        "column s has a CHAR or VARCHAR inside another type",
    ),
    "varchar column inside a struct": (
        {"schema": t.StructType([*SCHEMA.fields, column("l", t.StructType([declared("varchar(3)")]))])},
        r"column l\.s has a CHAR or VARCHAR inside another type",
    ),
    "a condition that is two expressions": (
        {"schema": SCHEMA, "configuration": {"delta.constraints.c": "v > 0) AS a, (v > 1"}},
        "cannot check: it is more than one expression",
    ),
    "a condition that is a number": (
        {"schema": SCHEMA, "configuration": {"delta.constraints.c": "v + 1"}},
        "cannot check: it is a bigint, not a boolean",
    ),
    "a condition that a session's time zone decides": (
        {"schema": TIMED, "configuration": {"delta.constraints.c": "seen > '2024-01-01'"}},
        "cannot check: it may depend on the time zone of the session",
    ),
    "a condition that a session's time zone decides by a cast": (
        {"schema": TIMED, "configuration": {"delta.constraints.c": "CAST(text AS TIMESTAMP) > '2024-01-01'"}},
        "cannot check: it may depend on the time zone",
    ),
    "a condition on a CHAR": (
        {
            "schema": t.StructType([*SCHEMA.fields, declared("char(3)")]),
            "configuration": {"delta.constraints.c": "s <> 'a'"},
        },
        "cannot check: s is or has a CHAR",
    ),
    "identity column": (
        {"schema": one(delta__identity__start=1), "features": ("identityColumns", *OLD)},
        "identityColumns.*column v is an identity column",
    ),
    "identity column of an old writer": (
        {"schema": one(delta__identity__start=1), "versions": (2, 6)},
        "column v is an identity column",
    ),
    "Iceberg compatibility": (
        {"schema": SCHEMA, "features": ("icebergCompatV2", *OLD), "configuration": {}},
        "icebergCompatV2",
    ),
    "variant": (
        {
            "schema": t.StructType([*SCHEMA.fields, column("w", t.VariantType())]),
            "features": ("variantType", *OLD),
            "reader_features": ("variantType",),
        },
        "feature variantType",
    ),
    "writer of version 6": ({"schema": SCHEMA, "versions": (2, 6)}, "requires writer version 6"),
    "unknown feature": ({"schema": SCHEMA, "features": ("notYetThere", *OLD)}, "feature notYetThere"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_honoured_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    table, reason = REFUSED[name]
    query = Query(tmp_path)
    make_table(query.table, *table_actions(**table))
    before = sorted(query.table.rglob("*"))
    query.log(0, 10)
    with pytest.raises(TableError, match=reason + r"[\s\S]*sparkonce\.AppendWriter, for foreachBatch"):
        query.writer().begin()
    assert sorted(query.table.rglob("*")) == before


def test_a_table_of_a_catalog_is_refused(tmp_path: Path) -> None:
    """delta-rs does not even load one."""
    query = Query(tmp_path)
    features = ("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck")
    readers = ("catalogManaged", "vacuumProtocolCheck")
    make_table(query.table, *table_actions(SCHEMA, features=features, reader_features=readers))
    query.log(0, 10)
    with pytest.raises(TableError, match=r"catalogManaged.*delta-spark"):
        query.writer().begin()
    assert len(list(query.table.rglob("*.json"))) == 1


USED: dict[str, dict[str, Any]] = {
    "append only": {"configuration": {"delta.appendOnly": "true"}},
    "change data feed": {
        "features": ("changeDataFeed", *OLD),
        "configuration": {"delta.enableChangeDataFeed": "true"},
    },
    "constraints that are none": {"features": ("checkConstraints", "generatedColumns", *OLD)},
    "an old writer of version 5": {"versions": (2, 5)},
}


@pytest.mark.parametrize("name", USED)
def test_what_asks_nothing_of_an_append_is_appended_to(tmp_path: Path, name: str) -> None:
    query = Query(tmp_path)
    make_table(query.table, *table_actions(SCHEMA, **USED[name]))
    query.write(0, [{"v": 1}])
    query.write(1, [{"v": 2}])
    # What reads and what writes are two lists in delta-rs: the log tells for sure.
    log = [json.loads(line) for line in (query.table / "_delta_log" / f"{2:020d}.json").read_text().splitlines()]
    assert [action["add"]["size"] > 0 for action in log if "add" in action] == [True]
    assert DeltaTable(query.table).transaction_version("sparkonce/app/query/q") == 1


def test_every_feature_that_counts_as_safe_is_written(tmp_path: Path) -> None:
    """Else the first batch would fail when it is committed, after its tasks."""
    for feature in sorted(SAFE):
        query = Query(tmp_path / feature)
        readers = [feature] if feature in READER_FEATURES else []
        make_table(query.table, *table_actions(SCHEMA, features=[feature], reader_features=readers))
        query.write(0, [{"v": 1}])
        assert kinds(query, 1)["add"]["size"], feature


def kinds(query: Query, version: int) -> dict[str, Any]:
    """Return the actions of a commit that has one of each kind."""
    lines = (query.table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    assert next(iter(actions[0])) == "commitInfo"
    return {kind: action for each in actions for kind, action in each.items()}


def test_rows_get_ids_where_they_are_tracked(tmp_path: Path) -> None:
    """PROTOCOL.md, "Row Tracking": also where it is only supported, but not while it is suspended."""
    query = Query(tmp_path)
    features = ("domainMetadata", "rowTracking", *OLD)
    make_table(query.table, *table_actions(SCHEMA, features=features))
    query.write(0, [{"v": 1}, {"v": 2}])
    query.write(1, [{"v": 3}])
    made = kinds(query, 2)
    assert (made["add"]["baseRowId"], made["add"]["defaultRowCommitVersion"]) == (2, 2)
    assert json.loads(made["domainMetadata"]["configuration"]) == {"rowIdHighWaterMark": 2}
    query.replace = True
    query.write(2, [{"v": 4}])
    lines = (query.table / "_delta_log" / f"{3:020d}.json").read_text().splitlines()
    removed = [action["remove"] for line in lines if "remove" in (action := json.loads(line))]
    assert [(each["baseRowId"], each["defaultRowCommitVersion"]) for each in removed] == [(0, 1), (2, 2)]
    with pytest.raises(CompactionError, match=r"rowTracking\. Merge them with delta-spark \(OPTIMIZE\)"):
        Compaction(Location.parse(str(query.table)), {}, 1 << 20, {}).plan()


def test_rows_get_no_ids_while_row_tracking_is_suspended(tmp_path: Path) -> None:
    query = Query(tmp_path)
    configuration = {"delta.rowTrackingSuspended": "true"}
    actions = table_actions(SCHEMA, features=("domainMetadata", "rowTracking"), configuration=configuration)
    make_table(query.table, *actions)
    query.write(0, [{"v": 1}])
    made = kinds(query, 1)
    assert "baseRowId" not in made["add"]
    assert "domainMetadata" not in made


def test_commits_have_rising_timestamps_where_the_table_wants_them(tmp_path: Path) -> None:
    query = Query(tmp_path)
    later_ms = 1 << 42
    info = {"commitInfo": {"inCommitTimestamp": later_ms, "timestamp": later_ms, "operation": "CREATE TABLE"}}
    configuration = {"delta.enableInCommitTimestamps": "true"}
    actions = table_actions(SCHEMA, features=("inCommitTimestamp",), configuration=configuration)
    make_table(query.table, info, *actions)
    for version in (1, 2):
        query.write(version - 1, [{"v": 1}])
        assert kinds(query, version)["commitInfo"]["inCommitTimestamp"] == later_ms + version


def test_clustering_columns_have_statistics_wherever_they_are(tmp_path: Path) -> None:
    """PROTOCOL.md, "Clustered Table": also where the table's properties leave them out."""
    schema = t.StructType([column("v"), column("s", t.StructType([column("x"), column("y")]))])
    query = Query(tmp_path, schema=schema)
    domain = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["s","y"]]}', "removed": False}
    configuration = {"delta.dataSkippingNumIndexedCols": "0"}
    actions = table_actions(schema, features=("domainMetadata", "clustering"), configuration=configuration)
    make_table(query.table, *actions, {"domainMetadata": domain})
    query.write(0, [{"v": 1, "s": {"x": 2, "y": 3}}])
    assert json.loads(kinds(query, 1)["add"]["stats"])["maxValues"] == {"s": {"y": 3}}
    query.log(1, 20)
    messages = query.tasks(rows=[{"v": 1, "s": {"x": 2, "y": 3}}])
    moved = {**domain, "configuration": '{"clusteringColumns":[["v"]]}'}
    text = json.dumps({"domainMetadata": moved})
    (query.table / "_delta_log" / f"{2:020d}.json").write_text(text + "\n")
    with pytest.raises(TableError, match="changed while batch 1"):
        query.commit(1, messages)


def test_clustering_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    domain = {"domain": "delta.clustering", "configuration": "{}", "removed": False}
    features = ("domainMetadata", "clustering")
    make_table(query.table, *table_actions(SCHEMA, features=features), {"domainMetadata": domain})
    query.log(0, 10)
    with pytest.raises(TableError, match=r"its domain delta\.clustering cannot be read"):
        query.writer().begin()


def test_append_only_tables_are_not_replaced(tmp_path: Path) -> None:
    query = Query(tmp_path, replace=True)
    make_table(query.table, *table_actions(SCHEMA, configuration={"delta.appendOnly": "true"}))
    query.log(0, 10)
    with pytest.raises(TableError, match=r"appendOnly=true, and outputMode complete"):
        query.writer().begin()


def test_not_null_inside_a_struct_is_checked_by_row(tmp_path: Path) -> None:
    inner = t.StructType([column("x", nullable=False)])
    query = Query(tmp_path, schema=t.StructType([column("s", t.StructType([column("x")]))]))
    make_table(query.table, *table_actions(t.StructType([column("s", inner)])))
    query.write(0, [{"s": {"x": 1}}, {"s": {"x": 2}}])
    assert DeltaTable(query.table).to_pyarrow_table()["s"].to_pylist() == [{"x": 1}, {"x": 2}]
    for wrong in ({"s": {"x": None}}, {"s": None}):
        query.log(1, 10)
        with pytest.raises(SchemaError, match=r"column s\.x is NOT NULL in the table, .* row 2 of 2"):
            query.tasks(rows=[{"s": {"x": 3}}, wrong])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([column("w", nullable=False)], r"column w \(bigint\) is missing from the query, and is NOT NULL"),
        (
            [column("w", CURRENT_DEFAULT="uuid()")],
            r"column w \(bigint\) is missing .* the default uuid\(\), which delta_once does not fill in: function uuid",
        ),
    ],
)
def test_columns_that_may_not_be_left_out(tmp_path: Path, columns: list[t.StructField], reason: str) -> None:
    query = Query(tmp_path)
    make_table(query.table, *table_actions(t.StructType([*SCHEMA.fields, *columns])))
    query.log(0, 10)
    with pytest.raises(SchemaError, match=reason):
        query.writer().begin()


def test_columns_that_the_query_lacks_get_their_defaults(tmp_path: Path) -> None:
    extra = [
        column("w", nullable=False, CURRENT_DEFAULT="2 + 3"),
        column("s", TEXT, CURRENT_DEFAULT="'it\\'s'"),
        column("n", TEXT, CURRENT_DEFAULT="NULL"),
        column("p", t.DateType(), CURRENT_DEFAULT="DATE'2024-02-29'"),
        column("given", CURRENT_DEFAULT="uuid()"),
    ]
    query = Query(tmp_path, schema=t.StructType([column("v"), column("given")]))
    table = t.StructType([*SCHEMA.fields, *extra])
    make_table(query.table, *table_actions(table, features=("allowColumnDefaults", *OLD), partition_columns=["p"]))
    query.write(0, [{"v": 1, "given": None}])
    assert kinds(query, 1)["add"]["partitionValues"] == {"p": "2024-02-29"}
    (file,) = query.table.rglob("*.parquet")
    assert pq.ParquetFile(file).read().to_pylist() == [{"v": 1, "w": 5, "s": "it's", "n": None, "given": None}]


def test_texts_have_the_declared_lengths(tmp_path: Path) -> None:
    """Characters are counted, trailing spaces too, and nothing is filled up: as by delta-spark."""
    texts = ["a", "éèç", "𠮷  ", None, ""]
    for kind in ("varchar(3)", "char(3)"):
        query = Query(tmp_path / kind, schema=t.StructType([column("s", TEXT)]))
        make_table(query.table, *table_actions(t.StructType([declared(kind)])))
        query.write(0, [{"s": text} for text in texts])
        assert sorted(map(str, (row["s"] for row in query.read("s")))) == sorted(map(str, texts))
        query.log(1, 20)
        with pytest.raises(SchemaError, match=r"column s is (VAR)?CHAR\(3\) .* longer value in it: row 2 of 2"):
            query.tasks(rows=[{"s": "a"}, {"s": "a   "}])


CHECKED = t.StructType(
    [
        column("v", delta__invariants='{"expression":{"expression":"v < 10"}}'),
        column("g", delta__generationExpression="v * 2"),
    ]
)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"v": 1}, {"v": -1}], r"check constraint pos \(v > 0\) is not kept: row 2 of 2"),
        ([{"v": 1}, {"v": None}], r"check constraint pos \(v > 0\) is not kept: row 2 of 2"),
        ([{"v": 10}], r"invariant of column v \(v < 10\) is not kept: row 1 of 1"),
        ([{"v": 1 << 62}], r"\(v \* 2\) AS bigint\), cannot be computed \(.*\): row 1 of 1"),
    ],
)
def test_a_row_that_breaks_a_condition_stops_the_query(tmp_path: Path, rows: list[dict[str, Any]], reason: str) -> None:
    query = Query(tmp_path)
    make_table(query.table, *table_actions(CHECKED, versions=(1, 4), configuration={"delta.constraints.pos": "v > 0"}))
    query.write(0, [{"v": 1}, {"v": 9}])
    assert query.read("v") == [{"v": 1, "g": 2}, {"v": 9, "g": 18}]
    query.log(1, 20)
    with pytest.raises(SchemaError, match=reason):
        query.tasks(rows=rows)
    assert query.files() == 1


def test_generated_values_that_the_query_has_are_checked(tmp_path: Path) -> None:
    query = Query(tmp_path, schema=t.StructType([column("g"), column("v")]))
    make_table(query.table, *table_actions(CHECKED, versions=(1, 4)))
    query.write(0, [{"v": 2, "g": 4}])
    query.log(1, 20)
    with pytest.raises(SchemaError, match=r"generated as v \* 2, and the row has another value: row 2 of 2"):
        query.tasks(rows=[{"v": 2, "g": 4}, {"v": 2, "g": 5}])


def test_a_partition_column_may_be_generated(tmp_path: Path) -> None:
    query = Query(tmp_path)
    table = t.StructType([*SCHEMA.fields, column("p", delta__generationExpression="v % 2")])
    make_table(query.table, *table_actions(table, versions=(1, 4), partition_columns=["p"]))
    query.write(0, [{"v": 3}, {"v": 4}])
    assert query.read("v") == [{"v": 3, "p": 1}, {"v": 4, "p": 0}]


def test_a_condition_that_is_new_stops_the_batch_before_it(tmp_path: Path) -> None:
    query = Query(tmp_path)
    actions = table_actions(SCHEMA, versions=(1, 3))
    make_table(query.table, *actions)
    query.log(0, 10)
    messages = query.tasks()
    metadata = table_actions(SCHEMA, configuration={"delta.constraints.pos": "v > 0"})[1]
    (query.table / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(metadata) + "\n")
    with pytest.raises(TableError, match=r"the schema of the table .* changed while batch 0"):
        query.commit(0, messages)


def test_a_partition_column_may_not_be_left_out(tmp_path: Path) -> None:
    query = Query(tmp_path)
    table = t.StructType([*SCHEMA.fields, column("p", t.StringType())])
    make_table(query.table, *table_actions(table, partition_columns=["p"]))
    query.log(0, 10)
    with pytest.raises(SchemaError, match="column p is missing from the query, and the table is partitioned by it"):
        query.writer().begin()


def test_a_folder_that_may_not_be_written_to_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path)
    make_table(query.table, *table_actions(SCHEMA))
    query.log(0, 10)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(TableError, match="cannot be written to by this user"):
        query.writer().begin()


def mapped(name: str, number: int, kind: t.DataType = LONG) -> t.StructField:
    return column(name, kind, delta__columnMapping__id=number, delta__columnMapping__physicalName=f"col-{number}")


MAPPED = t.StructType(
    [
        mapped("a b", 1),
        mapped("s", 2, t.StructType([mapped("x", 3), mapped("l", 4, t.ArrayType(t.StructType([mapped("z", 5)])))])),
        mapped("m", 6, t.MapType(t.StringType(), t.StructType([mapped("q", 7)]))),
        mapped("p", 8, t.StringType()),
    ]
)
PLAIN = t.StructType(
    [
        column("a b"),
        column("s", t.StructType([column("x"), column("l", t.ArrayType(t.StructType([column("z")])))])),
        column("m", t.MapType(t.StringType(), t.StructType([column("q")]))),
        column("p", t.StringType()),
    ]
)
ROWS = [
    {"a b": 1, "s": {"x": 2, "l": [{"z": 3}, None]}, "m": [("k", {"q": 4})], "p": "u/v"},
    {"a b": 5, "s": None, "m": None, "p": "u/v"},
]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_written_under_their_physical_names_and_ids(tmp_path: Path, mode: str) -> None:
    """PROTOCOL.md, "Column Mapping": files, partition values and statistics; delta-spark reads them elsewhere."""
    query = Query(tmp_path, schema=PLAIN)
    configuration = {
        "delta.columnMapping.mode": mode,
        "delta.columnMapping.maxColumnId": "8",
        "delta.dataSkippingStatsColumns": "`a b`,s.x",
    }
    actions = table_actions(MAPPED, versions=(2, 5), configuration=configuration, partition_columns=["p"])
    make_table(query.table, *actions)
    query.write(0, ROWS)
    log = (query.table / "_delta_log" / f"{1:020d}.json").read_text()
    (add,) = (action["add"] for line in log.splitlines() if "add" in (action := json.loads(line)))
    assert add["partitionValues"] == {"col-8": "u/v"}
    folder, _, name = add["path"].rpartition("/")
    assert len(folder) == 2
    assert "u" not in folder or "v" not in folder
    stats = json.loads(add["stats"])
    assert stats["minValues"] == {"col-1": 1, "col-2": {"col-3": 2}}
    assert stats["nullCount"] == {"col-1": 0, "col-2": {"col-3": 1}}
    schema = pq.ParquetFile(query.table / folder / name).schema
    assert [str(schema.column(index).path) for index in range(len(schema))] == [
        "col-1",
        "col-2.col-3",
        "col-2.col-4.list.element.col-5",
        "col-6.key_value.key",
        "col-6.key_value.value.col-7",
    ]
    text = str(pq.ParquetFile(query.table / folder / name).schema)
    for number in (1, 2, 3, 4, 5, 6, 7):
        assert f"col-{number} " in text or f"col-{number};" in text
        assert f"field_id={number} " in text
    back = pq.read_table(query.table / folder / name).to_pylist()
    assert back[0] == {"col-1": 1, "col-2": {"col-3": 2, "col-4": [{"col-5": 3}, None]}, "col-6": [("k", {"col-7": 4})]}
    assert back[1] == {"col-1": 5, "col-2": None, "col-6": None}
    query.write(1, ROWS)
    assert DeltaTable(query.table).get_add_actions().num_rows == 2


VECTORS: dict[str, Any] = {
    "features": ("deletionVectors", *OLD),
    "reader_features": ("deletionVectors",),
    "configuration": {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "2"},
}


def counted(query: Query) -> list[int]:
    table = DeltaTable(query.table)
    rows = QueryBuilder().register("found", table).execute("SELECT * FROM found").read_all()
    return sorted(rows.column(0).to_pylist())


def test_rows_that_a_deletion_vector_deleted_stay_deleted(tmp_path: Path) -> None:
    """Over appends, and over the checkpoints that they write."""
    query = Query(tmp_path)
    make_table(query.table, *table_actions(SCHEMA, **VECTORS))
    query.write(0, [{"v": number} for number in range(3)])
    delete_row(query.table, 1)
    assert counted(query) == [0, 2]
    for batch_id in range(1, 5):
        query.write(batch_id, [{"v": 10 + batch_id}])
    assert list((query.table / "_delta_log").glob("*.checkpoint*.parquet"))
    assert counted(query) == [0, 2, 11, 12, 13, 14]


def test_a_file_with_a_deletion_vector_is_replaced_by_both_names(tmp_path: Path) -> None:
    """PROTOCOL.md, "Action Reconciliation": a file is its path and its vector; without it the rows would stay."""
    query = Query(tmp_path, replace=True)
    make_table(query.table, *table_actions(SCHEMA, **VECTORS))
    query.write(0, [{"v": number} for number in range(3)])
    delete_row(query.table, 1)
    query.write(1, [{"v": 9}])
    assert counted(query) == [9]
    log = (query.table / "_delta_log" / f"{3:020d}.json").read_text()
    (removed,) = (action["remove"] for line in log.splitlines() if "remove" in (action := json.loads(line)))
    assert removed["deletionVector"]["cardinality"] == 1


def test_a_null_in_a_mapped_column_is_told_by_its_name(tmp_path: Path) -> None:
    table = t.StructType([t.StructField("v", LONG, False, mapped("v", 1).metadata)])
    query = Query(tmp_path)
    make_table(query.table, *table_actions(table, versions=(2, 5), configuration={"delta.columnMapping.mode": "name"}))
    query.log(0, 10)
    with pytest.raises(SchemaError, match="column v is NOT NULL"):
        query.tasks(rows=[{"v": None}])


def test_ids_of_elements_are_left_to_delta_spark() -> None:
    """With Iceberg compatibility elements of arrays and maps have ids, too."""
    configuration = (("delta.enableIcebergCompatV2", "true"),)
    facts = TableFacts("id", MAPPED.json(), (), configuration, ("columnMapping", "icebergCompatV2"), 7)
    nested = t.StructField("n", t.StructType([t.StructField("a", t.ArrayType(t.LongType()))]))
    (why,) = growth_refusals(facts, (column("flat"), nested))
    assert "only delta-spark can add or change n: ALTER TABLE" in why
    assert not growth_refusals(facts, (column("flat"),))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"guarantee": "at-least-once"}, "leave deliveryGuarantee=at-least-once out"),
        ({"guarantee": "at-most-once"}, "leave deliveryGuarantee=at-most-once out"),
    ],
)
def test_complete_mode_is_exactly_once_or_refused(tmp_path: Path, options: dict[str, str], reason: str) -> None:
    query = Query(tmp_path, replace=True, **options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=reason):
        query.writer()


@pytest.mark.parametrize("condition", ["false", "1 = 2", "CAST(NULL AS BOOLEAN)"])
def test_a_condition_that_reads_no_column_is_checked_too(tmp_path: Path, condition: str) -> None:
    query = Query(tmp_path)
    make_table(query.table, *table_actions(SCHEMA, versions=(1, 3), configuration={"delta.constraints.c": condition}))
    with pytest.raises(SchemaError, match=r"the check constraint c .* is not kept"):
        query.write(0, [{"v": 1}])


@pytest.mark.parametrize("name", ["at", "End", "order", "table", "v2"])
def test_a_column_may_be_named_as_a_keyword(name: str) -> None:
    table = t.StructType([t.StructField(name, t.LongType()), t.StructField("v", TEXT)])
    condition = f"{name.upper()} > 0 AND v <> '{name} > ''{name}' /* {name} */ OR `{name}` = -2"
    (check,) = rules_of(table.json(), (("delta.constraints.c", condition),)).checks
    rows = pa.RecordBatch.from_pydict({name: [1, -1, -2, 1], "v": ["a", "a", "a", f"{name} > '{name}"]})
    assert [*check.broken(rows)] == [1, 3]


def test_a_condition_that_the_engine_cannot_read_is_told_without_the_query_around_it() -> None:
    table = t.StructType([column("v")])
    (rule,) = rules_of(table.json(), (("delta.constraints.c", "v div 2 > 0"),)).by_spark
    assert rule.problem.endswith('which delta_once cannot check: syntax error at or near "div"')


@pytest.mark.parametrize("condition", ["p IS NOT NULL", "p = ''", "length(p) >= 0"])
def test_an_empty_partition_is_checked_as_the_null_that_it_will_be(tmp_path: Path, condition: str) -> None:
    schema = t.StructType([column("v"), column("p", TEXT)])
    query = Query(tmp_path, schema=schema)
    configuration = {"delta.constraints.c": condition}
    make_table(
        query.table, *table_actions(schema, versions=(1, 3), configuration=configuration, partition_columns=["p"])
    )
    with pytest.raises(SchemaError, match=r"the check constraint c .* is not kept"):
        query.write(0, [{"v": 1, "p": ""}])


@pytest.mark.parametrize(
    ("text", "column", "reads"),
    [
        ("hour(at) > 1", "hour", False),
        ("HOUR > 1", "hour", True),
        ("`x%` > 1", "x%", True),
        ("hours > 1", "hour", False),
        ("s.hour > 1", "s", True),
    ],
)
def test_what_sql_may_read(text: str, column: str, reads: bool) -> None:
    assert may_read(text, column) == reads
