"""Tables that we create, grow and restore, with delta-spark as the judge: it reads them, and writes after us."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as t

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.files import active_files
from sparkonce.offset_store.log.protocol_changes import features_in
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.restoring import restoration
from tests.lab.checkpoint_tables import ALTERED, BULK, RECIPES, Recipe, readings, spark_rows
from tests.unit.sink.query_by_hand import Query

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.timeout(600)]
MAX_FIELD_ID = "delta.columnMapping.maxColumnId"
SWITCHED_ON = Recipe(
    "switched on",
    "id bigint, text string",
    statements=[
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2')",
        "ALTER TABLE {t} ADD COLUMN more int",
        "ALTER TABLE {t} DROP COLUMN more",
        "ALTER TABLE {t} CLUSTER BY (id)",
        *BULK,
    ],
)
RESTORED = [
    *(each for each in RECIPES if each.name in ("plain", "vectors", "row ids", "clustered", "mapped", "partitions")),
    *(each for each in RECIPES if each.name in ("V2 json", "structs, typed", "widened")),
    SWITCHED_ON,
]


def log_at(path: Path) -> TableLog:
    return TableLog(Location.parse(str(path)))


def history(spark: SparkSession, path: Path) -> list[Row]:
    return spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()


def plain(kind: str) -> t.StructType:
    return cast("t.StructType", t._parse_datatype_string(kind))


@pytest.mark.parametrize("kind", ["bigint", "timestamp_ntz"])
def test_delta_spark_goes_on_with_a_table_that_we_created(delta_spark: SparkSession, tmp_path: Path, kind: str) -> None:
    schema = plain(f"k bigint, v {kind}, s array<struct<x: decimal(5,2), `a-b`: string>>, p string")
    query = Query(tmp_path, schema=schema, partitionBy="p", mergeSchema="true", coveredTwice="true")
    row = {"k": 1, "v": None, "s": [{"x": None, "a-b": "é"}], "p": "a b"}
    query.write(0, [row])
    name = f"delta.`{query.table}`"
    detail = delta_spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    old = ["appendOnly", "invariants"]
    if kind == "bigint":
        assert (detail.minReaderVersion, detail.minWriterVersion, detail.tableFeatures) == (1, 2, old)
    else:
        assert (detail.minReaderVersion, detail.minWriterVersion) == (3, 7)
        assert detail.tableFeatures == [*old, "timestampNtz"]
    assert (detail.partitionColumns, detail.properties, detail.numFiles) == (["p"], {}, 1)
    created = history(delta_spark, query.table)[-1]
    assert (created.operation, created.isBlindAppend) == ("CREATE TABLE", True)
    assert json.loads(created.operationParameters["metadata"])["partitionColumns"] == ["p"]
    delta_spark.sql(f"INSERT INTO {name} SELECT k + 1, v, s, p FROM {name}")
    delta_spark.sql(f"ALTER TABLE {name} ADD COLUMN n int")
    delta_spark.sql(f"UPDATE {name} SET n = 7 WHERE k = 2")
    query.schema = t.StructType([*schema, t.StructField("at", t.TimestampNTZType())])
    query.write(1, [{**row, "k": 3, "at": None}])
    assert sorted(tuple(each) for each in delta_spark.sql(f"SELECT k, p, n FROM {name}").collect()) == [
        (1, "a b", None),
        (2, "a b", 7),
        (3, "a b", None),
    ]
    assert "timestampNtz" in delta_spark.sql(f"DESCRIBE DETAIL {name}").collect()[0].tableFeatures
    delta_spark.sql(f"MERGE INTO {name} t USING (SELECT 3 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE")
    assert delta_spark.sql(f"SELECT * FROM {name}").count() == 2
    assert not [each for each in readings(query.table).values() if isinstance(each, str)]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_delta_spark_goes_on_with_mapped_columns_that_we_added(
    delta_spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    query = Query(tmp_path, schema=plain("k bigint, s struct<x: int>"), mergeSchema="true", coveredTwice="true")
    name = f"delta.`{query.table}`"
    delta_spark.sql(
        f"CREATE TABLE {name} (k bigint, s struct<x: int>, gone int) USING delta "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
    )
    query.write(0, [{"k": 0, "s": {"x": 1}}])
    delta_spark.sql(f"ALTER TABLE {name} DROP COLUMN gone")
    query.schema = plain("k bigint, s struct<x: int, y: map<string, struct<z: int>>>, gone array<struct<w: string>>")
    query.write(1, [{"k": 1, "s": {"x": 1, "y": [("m", {"z": 2})]}, "gone": [{"w": "a"}]}])
    delta_spark.sql(f"ALTER TABLE {name} ADD COLUMN last int")
    delta_spark.sql(f"INSERT INTO {name} SELECT k + 1, s, gone, 9 FROM {name} WHERE k = 1")
    query.schema = t.StructType([*query.schema, t.StructField("local", t.TimestampNTZType())])
    query.write(2, [{"k": 3, "s": None, "gone": None, "local": None}])
    delta_spark.sql(f"ALTER TABLE {name} RENAME COLUMN gone TO back")
    found = delta_spark.sql(f"SELECT k, s.x, s.y.m.z, back[0].w, last, local FROM {name} ORDER BY k").collect()
    assert [tuple(row) for row in found] == [
        (0, 1, None, None, None, None),
        (1, 1, 2, "a", None, None),
        (2, 1, 2, "a", 9, None),
        (3, None, None, None, None, None),
    ]
    state = log_at(query.table).state()
    ids = sorted(ids_of(json.loads(state.metadata.schema_json)))
    assert len(ids) == len(set(ids))
    assert state.metadata.configuration[MAX_FIELD_ID] == str(ids[-1]), (ids, state.metadata.configuration)
    assert {each.operation for each in history(delta_spark, query.table)} >= {"ADD COLUMN", "ADD COLUMNS"}


def ids_of(kind: Any) -> list[int]:
    if not isinstance(kind, dict):
        return []
    fields = kind.get("fields", ())
    found = [each["metadata"]["delta.columnMapping.id"] for each in fields]
    parts = [each["type"] for each in fields] + [kind.get(each) for each in ("elementType", "keyType", "valueType")]
    return found + [each for part in parts for each in ids_of(part)]


@pytest.mark.parametrize("recipe", RESTORED, ids=lambda each: each.name)
def test_a_restore_of_ours_is_one_of_delta_sparks(delta_spark: SparkSession, tmp_path: Path, recipe: Recipe) -> None:
    """The same files, row ids, domains, metadata and protocol, but that in-commit timestamps stay as they are now."""
    table = tmp_path / "table"
    recipe.make(delta_spark, table)
    last = log_at(table).state().version
    for version in (1, last // 2, last - 1):
        ours, theirs = (shutil.copytree(table, tmp_path / f"{who}-{version}") for who in ("ours", "theirs"))
        log = log_at(ours)
        now = log.state()
        log.commit(restoration(log, now, log.state_at(version)), now)
        delta_spark.sql(f"RESTORE TABLE delta.`{theirs}` TO VERSION AS OF {version}")
        mine, wanted = log.state(), log_at(theirs).state()
        assert facts(ours, mine) == facts(theirs, wanted), version
        assert spark_rows(delta_spark, ours) == spark_rows(delta_spark, theirs), version
    newest, expected = history(delta_spark, ours)[0], history(delta_spark, theirs)[0]
    for name in ("version", "operation", "operationParameters", "isBlindAppend", "operationMetrics"):
        assert newest[name] == expected[name], name
    for statement in ALTERED:
        for path in (ours, theirs):
            text = statement.replace("{t} USING", f"delta.`{path}` t USING").replace("{t}.id", "t.id")
            delta_spark.sql(text.replace("{t}", f"delta.`{path}`"))
        assert spark_rows(delta_spark, ours) == spark_rows(delta_spark, theirs), statement
    print(f"RESULT table={recipe.name!r} restores=3")


def facts(path: Path, state: TableState) -> dict[str, Any]:
    """Return what a table is at a state, without what differs between any two commits, or on purpose."""
    files = active_files(log_at(path).reader, state.version)
    of_timestamps = ("inCommitTimestamp", "enableInCommitTimestamps")
    configuration = {
        name: value
        for name, value in state.metadata.configuration.items()
        if not any(each in name for each in of_timestamps)
    }
    ids = {key: (add.get("baseRowId"), add.get("defaultRowCommitVersion")) for key, add in files.items()}
    statistics = {key: json.loads(add.get("stats") or "{}").get("numRecords") for key, add in files.items()}
    fresh = {key for key, (_, version) in ids.items() if version == state.version}
    return {
        "files": {key: each for key, each in ids.items() if key not in fresh},
        "files with new row ids": fresh,
        "new row ids": sorted(ids[key] for key in fresh),  # which file has which is nobody's business
        "rows": statistics,
        "configuration": configuration,
        "schema": json.loads(state.metadata.schema_json),
        "partition columns": state.metadata.partition_columns,
        "features": features_in(state.protocol),
        "reader": state.protocol.min_reader_version,
        "reader features": state.protocol.reader_features,
        "domains": {name: json.loads(text) | {"domainName": name} for name, text in state.domains.items()},
    }
