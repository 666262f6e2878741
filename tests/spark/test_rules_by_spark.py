"""What a table asks of rows and only Spark can evaluate: `write_stream` has Spark do it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkonce import OptionError, explain, write_stream

pytestmark = [pytest.mark.java, pytest.mark.spark]

DEADLINE_S = 60
TABLE = """
    id BIGINT, at TIMESTAMP, p STRING,
    day DATE GENERATED ALWAYS AS (CAST(at AS DATE)),
    hour INT GENERATED ALWAYS AS (HOUR(at))
"""
CONSTRAINTS = {"recent": "date_format(at, 'yyyy') = '2024'", "known": "p IS NOT NULL", "small": "id < 100"}
AT = "2024-02-29T23:30:00.000Z"


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> Path:
    delta_spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    name = f"delta.`{tmp_path}/table`"
    delta_spark.sql(f"CREATE TABLE {name} ({TABLE}) USING delta PARTITIONED BY (p)")
    for constraint, text in CONSTRAINTS.items():
        delta_spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT {constraint} CHECK ({text})")
    return tmp_path / "table"


def rows(spark: SparkSession, folder: Path, documents: Sequence[Mapping[str, Any]], schema: str) -> DataFrame:
    folder.mkdir(exist_ok=True)
    (folder / f"{len(list(folder.iterdir()))}.json").write_text("\n".join(map(json.dumps, documents)))
    return spark.readStream.schema(schema).json(str(folder))


def run(found: DataFrame, table: Path) -> None:
    folder = str(table.parent / "checkpoint")
    query = write_stream(found).start(str(table), appId="app", checkpointLocation=folder)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


GIVEN = {"id": 1, "at": AT, "p": "x"}
SCHEMA = "id BIGINT, at TIMESTAMP, p STRING"


def test_spark_computes_and_checks_what_the_sink_cannot(delta_spark: SparkSession, table: Path) -> None:
    source = table.parent / "source"
    run(rows(delta_spark, source, [GIVEN, {**GIVEN, "id": 2}], SCHEMA), table)
    found = delta_spark.read.format("delta").load(str(table)).selectExpr("id", "string(day)", "hour").collect()
    assert sorted(map(tuple, found)) == [(1, "2024-03-01", 8), (2, "2024-03-01", 8)], "as in the session's zone"
    delta_spark.sql(f"INSERT INTO delta.`{table}` (id, at, p) VALUES (3, timestamp'{AT}', 'x')")
    run(rows(delta_spark, source, [{**GIVEN, "id": 4, "day": "2024-03-01"}], f"{SCHEMA}, day DATE"), table)
    kept = delta_spark.read.format("delta").load(str(table)).selectExpr("id", "string(day)", "hour").collect()
    assert sorted(map(tuple, kept)) == [(number, "2024-03-01", 8) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": "2023-05-01T00:00:00.000Z"}, "the check constraint recent .* is not kept"),
        pytest.param({"at": None}, "the check constraint recent .* is not kept", marks=pytest.mark.lab),
        ({"day": "2024-02-29"}, "column day is generated as .*, and the row has another value"),
        pytest.param({"p": ""}, "the check constraint known .* is not kept", marks=pytest.mark.lab),
        ({"id": 100}, "the check constraint small .* is not kept"),
    ],
    ids=["constraint", "null", "generated", "partition", "the sink's own"],
)
def test_a_row_that_breaks_a_rule_stops_the_query(
    delta_spark: SparkSession, table: Path, wrong: Mapping[str, Any], said: str
) -> None:
    good = {**GIVEN, "day": "2024-03-01"}
    with pytest.raises(Exception, match=said) as raised:
        run(rows(delta_spark, table.parent / "source", [good, {**good, **wrong}], f"{SCHEMA}, day DATE"), table)
    assert re.search(r"is not kept|the row has another value", explain(raised.value))
    assert delta_spark.read.format("delta").load(str(table)).count() == 0


def test_what_the_query_does_not_check_is_refused(delta_spark: SparkSession, table: Path) -> None:
    found = rows(delta_spark, table.parent / "source", [GIVEN], SCHEMA)
    plain = found.writeStream.format("delta_once").option("checkpointLocation", f"{table.parent}/plain")
    query = plain.option("appId", "app").start(str(table))
    with pytest.raises(Exception, match=r"it has the check constraint recent .* which delta_once cannot check"):
        query.processAllAvailable()
    for schema, said in (("id BIGINT, p STRING", "lacks it"), ("id BIGINT, at DATE, p STRING", "has it as date")):
        with pytest.raises(OptionError, match=f"reads column `at` \\(timestamp\\), and the query {said}"):
            run(rows(delta_spark, table.parent / f"other {said}", [GIVEN], schema), table)

    with pytest.raises(OptionError, match="checkedRules is set by write_stream itself"):
        write_stream(found).start(str(table), appId="app", checkpointLocation="/nowhere", checkedRules="[]")


def test_a_rule_that_the_table_gets_later_is_refused(delta_spark: SparkSession, table: Path) -> None:
    source, checkpoint = table.parent / "source", f"{table.parent}/checkpoint"
    query = write_stream(rows(delta_spark, source, [GIVEN], SCHEMA)).start(
        str(table), appId="app", checkpointLocation=checkpoint
    )
    query.processAllAvailable()
    delta_spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT later CHECK (hour(at) > 1)")
    rows(delta_spark, source, [{**GIVEN, "id": 2}], SCHEMA)
    with pytest.raises(Exception, match=r"it has the check constraint later .* which delta_once cannot check"):
        query.processAllAvailable()
    query.stop()
    run(rows(delta_spark, source, [], SCHEMA), table)
    assert delta_spark.read.format("delta").load(str(table)).count() == 2
