"""The SELECT of a direct pipeline beside Spark's: equal where they should be, and different as the page says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType

from sparkonce.connectors.settings.options import OptionError
from sparkonce.connectors.sql import functions
from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.sql.types import arrow_schema
from tests.spark.sql_expressions import EXPRESSIONS, LINES, SCHEMA, batch

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "direct_sql.md").read_text()
ONLY_HERE = {"regexp_matches", "regexp_full_match", "strftime", "trunc", "list_apply", "list_filter", "list_transform",
             "list_value", "struct_extract", "second_with_fraction", "unnest", "explode", "to_days", "to_hours",
             "to_minutes", "to_months", "to_seconds", "to_weeks", "to_years"}  # fmt: skip
"""Functions that Spark does not have, that the parser makes of INTERVAL and others, or of several rows."""
AT_ONCE = 20
"""Expressions in one SELECT of ours."""


@pytest.fixture(scope="module")
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with UTC as its zone and Spark's default for errors."""
    names = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    yield spark
    for name, value in before.items():
        spark.conf.set(name, str(value))


def plain(value: Any) -> Any:
    """Return a value that compares as it should: NaN with itself, floats but for their last bits."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value + 0.0:.12g}"
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def test_the_usual_expressions_are_as_in_spark(utc: SparkSession) -> None:
    columns: Any = StructType.fromDDL(SCHEMA)
    rows = batch(arrow_schema(columns))
    utc.createDataFrame(pa.Table.from_batches([rows]), columns).createOrReplaceTempView("expressions")
    items = ", ".join(f"{theirs} AS x{place}" for place, (_, theirs) in enumerate(EXPRESSIONS))
    frame = utc.sql(f"SELECT {items} FROM expressions")
    expected = frame.toArrow()
    utc.catalog.dropTempView("expressions")
    wrong = []
    for first in range(0, len(EXPRESSIONS), AT_ONCE):
        some = range(first, min(first + AT_ONCE, len(EXPRESSIONS)))
        listed = ", ".join(f"{EXPRESSIONS[place][0]} AS x{place}" for place in some)
        select = check_select(f"SELECT {listed} FROM records", columns)
        selected = select.runner().run(rows)
        assert not selected.failed, f"{listed}: {selected.failed}"
        for place in some:
            found = selected.rows.column(f"x{place}").to_pylist(), select.schema[f"x{place}"].dataType.simpleString()
            wanted = expected.column(place).to_pylist(), frame.schema[place].dataType.simpleString()
            if plain(found) != plain(wanted):
                wrong.append((EXPRESSIONS[place][0], found, wanted))
    assert not wrong, "\n".join(map(str, wrong))


def table() -> list[tuple[str, str, str]]:
    rows = PAGE.split("## Where results differ")[1].split("\nAlso:")[0].splitlines()
    found = [re.match(r"\| `(.+?)` \| (.+?) \| (.+?) \| ", row.replace(r"\|", "|")) for row in rows]
    return [(each[1], each[2].strip("`"), each[3].strip("`")) for each in found if each]


def shown(values: list[Any]) -> str:
    return "NULL" if values[0] is None else str(values[0])


def of_spark(spark: SparkSession, expression: str) -> str:
    try:
        return shown([row.x for row in spark.sql(f"SELECT {expression} AS x").collect()])
    except Exception:
        return "fails"


def of_ours(expression: str) -> str:
    columns = StructType().add("one", LongType())
    try:
        select = check_select(f"SELECT {expression} AS x FROM records", columns)
    except OptionError:
        return "refused"
    selected = select.runner().run(pa.RecordBatch.from_pylist([{"one": 1}], arrow_schema(columns)))
    return "fails" if selected.failed else shown(selected.rows.column("x").to_pylist())


def test_the_differences_are_as_the_page_says(utc: SparkSession) -> None:
    rows = table()
    assert len(rows) == PAGE.split("## Where results differ")[1].split("\nAlso:")[0].count("\n|") - 2
    found = [(expression, of_spark(utc, expression), of_ours(expression)) for expression, *_ in rows]
    assert found == rows


def test_each_function_is_compared() -> None:
    text = "\n".join([*LINES, *(expression for expression, *_ in table())]).lower()
    named = {name for name in functions.NAMES if name[0].isalpha()} - ONLY_HERE
    assert not {name for name in named if not re.search(rf"\b{name}\(", text)} - {"struct_pack"}
