"""Tables that delta-spark makes, one for each feature that a checkpoint must keep, and what readers find in them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.state import NEWS_KINDS, TableState, first_state
from sparkonce.offset_store.log.storage import LOG_FOLDER

Rows = list[str]
ALTERED = (
    "DELETE FROM {t} WHERE id % 3 = 0",
    "MERGE INTO {t} USING (SELECT * FROM {t} WHERE id % 2 = 0) s ON {t}.id = s.id WHEN MATCHED THEN DELETE",
    "OPTIMIZE {t}",
)
"""What delta-spark does to a table that it finds with our checkpoint only."""


@dataclass(frozen=True)
class Recipe:
    """Statements, each of which is a version of the table `{t}`."""

    name: str
    columns: str
    properties: Mapping[str, str] = field(default_factory=dict)
    tail: str = ""
    values: str = "id, concat('t', id) AS text"
    statements: Sequence[str] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    row_ids: bool = False

    def make(self, spark: SparkSession, path: Path) -> None:
        properties = {"delta.checkpointInterval": "3", **self.properties}
        text = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        with settings(spark, self.conf):
            spark.sql(f"CREATE TABLE delta.`{path}` ({self.columns}) USING delta {self.tail} TBLPROPERTIES ({text})")
            insert = f"INSERT INTO {{t}} SELECT {self.values} FROM range({{from}}, {{to}}, 1, 2)"
            inserts = [insert.replace("{from}", str(10 * n)).replace("{to}", str(10 * n + 10)) for n in range(4)]
            for statement in [*inserts, *self.statements, inserts[0]]:
                spark.sql(statement.replace("{t}", f"delta.`{path}`"))


BULK = ("DELETE FROM {t} WHERE id % 7 = 1", "UPDATE {t} SET id = id + 100 WHERE id % 5 = 2", "OPTIMIZE {t}")
VECTORS = {"delta.enableDeletionVectors": "true"}
PARTITIONS = (
    "text string, flag boolean, b tinyint, s smallint, i int, l bigint, f float, d double, m decimal(20,5), day date, "
    "at timestamp, local timestamp_ntz"
)
PARTITION_VALUES = (
    "id, CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN 'a b/c%=é' ELSE '' || id % 4 END, id % 2 = 0, "
    "cast(id % 2 AS tinyint), cast(id % 3 AS smallint), cast(id % 2 AS int), id % 2, cast(0.1 AS float), "
    "cast(-0.5 AS double), cast(1.25 AS decimal(20,5)), date'1969-12-31' + cast(id % 2 AS int), "
    "timestamp'2024-02-29 12:00:00.000999', timestamp_ntz'1970-01-01 00:00:00.5'"
)
STRUCT_VALUES = (
    "id, named_struct('x', cast(id AS decimal(30,10)), 'inner', named_struct('day', date'2024-01-01' + cast(id AS int),"
    " 'at', timestamp'2024-01-01 00:00:00.123456', 'f', cast(id AS float), 'text', repeat('é', 40))) AS s"
)
STRUCTS = "id bigint, s struct<x: decimal(30,10), inner: struct<day: date, at: timestamp, f: float, text: string>>"
RECIPES = [
    Recipe("plain", "id bigint, text string", statements=[*BULK, "RESTORE TABLE {t} TO VERSION AS OF 4"]),
    Recipe("vectors", "id bigint, text string", VECTORS, statements=[*BULK[:2], BULK[0], *BULK]),
    Recipe(
        "row ids",
        "id bigint, text string",
        {**VECTORS, "delta.enableRowTracking": "true"},
        statements=BULK,
        row_ids=True,
    ),
    Recipe(
        "clustered",
        "id bigint, text string",
        {"delta.enableInCommitTimestamps": "true"},
        "CLUSTER BY (id)",
        statements=[*BULK, "ALTER TABLE {t} CLUSTER BY (text)", "OPTIMIZE {t} FULL", "ALTER TABLE {t} CLUSTER BY NONE"],
    ),
    Recipe(
        "mapped",
        "id bigint, text string, more string",
        {"delta.columnMapping.mode": "name", **VECTORS},
        values="id, 'a', 'b'",
        statements=[
            "ALTER TABLE {t} RENAME COLUMN text TO `a b.c`",
            *BULK,
            "ALTER TABLE {t} DROP COLUMN more",
            "ALTER TABLE {t} ADD COLUMN more string",
        ],
    ),
    Recipe(
        "partitions",
        f"id bigint, {PARTITIONS}",
        VECTORS,
        f"PARTITIONED BY ({', '.join(each.split()[0] for each in PARTITIONS.split(', '))})",
        PARTITION_VALUES,
        BULK,
    ),
    *(
        Recipe(
            f"V2 {form}",
            "id bigint, text string",
            {"delta.checkpointPolicy": "v2", **VECTORS, "delta.enableRowTracking": "true"},
            statements=BULK,
            conf={
                "spark.databricks.delta.checkpointV2.topLevelFileFormat": form,
                "spark.databricks.delta.checkpoint.partSize": "3",
            },
            row_ids=True,
        )
        for form in ("json", "parquet")
    ),
    Recipe(
        "parts", "id bigint, text string", statements=BULK, conf={"spark.databricks.delta.checkpoint.partSize": "2"}
    ),
    *(
        Recipe(
            f"structs, {name}",
            STRUCTS,
            {"delta.checkpoint.writeStatsAsJson": json, "delta.checkpoint.writeStatsAsStruct": struct, **VECTORS},
            values=STRUCT_VALUES,
            statements=BULK,
        )
        for name, json, struct in [("both", "true", "true"), ("typed", "false", "true"), ("neither", "false", "false")]
    ),
    Recipe(
        "widened",
        "id int, text string",
        {"delta.enableTypeWidening": "true", "delta.enableChangeDataFeed": "true"},
        values="cast(id AS int), 'x'",
        statements=[
            "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
            *BULK,
            "ALTER TABLE {t} ADD CONSTRAINT some CHECK (id >= 0)",
        ],
    ),
]


@contextmanager
def settings(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in conf:
            spark.conf.unset(name)


def log_of(path: Path) -> DeltaLog:
    return DeltaLog.open(Location.parse(str(path)), {})


def state_at(path: Path, version: int) -> TableState:
    """Return a state that every commit since the first has made."""
    log = log_of(path)
    first, *others = log.actions_of(range(version + 1), NEWS_KINDS)
    state = first_state(0, first)
    for actions in others:
        state = state.after(actions)
    return state


def version_of_name(name: str) -> int | None:
    text = name.lstrip(".")[:20]
    return int(text) if text.isdecimal() and len(text) == 20 else None


def copy_at(path: Path, version: int, copy: Path) -> None:
    """Copy a table as it was when a version was its newest."""
    shutil.copytree(path, copy)
    hint = copy / LOG_FOLDER / "_last_checkpoint"
    is_newer = json.loads(hint.read_text())["version"] > version
    for each in (copy / LOG_FOLDER).iterdir():
        if (version_of_name(each.name) or 0) > version or (is_newer and "_last_checkpoint" in each.name):
            each.unlink()


def keep_only(path: Path, version: int) -> None:
    """Delete what a checkpoint of ours makes unnecessary: all older versions, and sidecars."""
    for each in (path / LOG_FOLDER).iterdir():
        found = version_of_name(each.name)
        if found is not None and found < version:
            each.unlink()
    shutil.rmtree(path / LOG_FOLDER / "_sidecars", ignore_errors=True)


def spark_rows(spark: SparkSession, path: Path, *, row_ids: bool = False, version: int | None = None) -> Rows:
    reader = spark.read.format("delta")
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(str(path))
    if row_ids:
        frame = frame.select("*", "_metadata.row_id", "_metadata.row_commit_version")
    return sorted(map(str, frame.collect()))


def delta_rs(path: Path) -> Rows:
    table = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    return sorted(map(str, pa.table(table).to_pylist()))


def delta_rs_dataset(path: Path) -> Rows:
    return sorted(map(str, DeltaTable(path).to_pyarrow_table().to_pylist()))


def polars(path: Path) -> Rows:
    pl: Any = import_module("polars")
    return sorted(map(str, pl.read_delta(str(path)).to_dicts()))


def duckdb_delta(path: Path) -> Rows:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.load_extension(os.environ["DUCKDB_DELTA"])
        return sorted(map(str, connection.execute(f"SELECT * FROM delta_scan('{path}')").fetchall()))


def readers() -> dict[str, Callable[[Path], Rows]]:
    """Return the readers there are besides delta-spark: Polars if it is installed, DuckDB's as in `table_readers`."""
    found: dict[str, Callable[[Path], Rows]] = {"delta-rs": delta_rs, "delta-rs dataset": delta_rs_dataset}
    if find_spec("polars"):
        found["Polars"] = polars
    if os.environ.get("DUCKDB_DELTA"):
        found["DuckDB"] = duckdb_delta
    return found


def readings(path: Path) -> dict[str, Rows | str]:
    """Return what each reader finds, or the error of one that does not take such a table."""
    found: dict[str, Rows | str] = {}
    for name, read in readers().items():
        try:
            found[name] = read(path)
        except Exception as error:  # each reader has errors of its own
            found[name] = f"refused: {type(error).__name__}"
    return found
