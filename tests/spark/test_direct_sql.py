"""The SELECT of a direct pipeline beside Spark's: equal values, or failing rows in both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from sparkonce.connectors.sql import failures
from sparkonce.connectors.sql.constants import KINDS
from sparkonce.connectors.sql.names import FUNCTIONS
from tests.spark.sql_comparison import differences, spark_rows, with_settings
from tests.spark.sql_pairs import EXTRA, Pair, edge_rows, pairs, unparenthesised

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sql_functions.md").read_text()
ONE_IN = 400
"""Expressions of the table that are taken here; tests/lab/sql takes all."""
_ARGUMENT = r"\w+_[abc]\b|r?'[^']*'|-?\d+"
ROWS = 120
SEED = 20


def sample() -> list[Pair]:
    """Return every 400th expression, one of each function, and of each function one with each constant."""
    every, seen, found = list(pairs()), set[object](), list[Pair]()
    for pair in every[: -len(EXTRA)]:
        parts = set(_parts(pair)) - seen
        seen |= parts
        found += [pair] if parts else []
    return list(dict.fromkeys([*found, *every[::ONE_IN]]))


def _parts(pair: Pair) -> Iterator[object]:
    """Yield the expression without its arguments, and with it each constant and its place."""
    shape = re.sub(_ARGUMENT, "x", pair.ours)
    yield shape
    for place, each in enumerate(re.findall(_ARGUMENT, pair.ours)):
        if not re.fullmatch(r"\w+_[abc]", each):
            yield shape, place, each


def test_a_sample_of_what_is_allowed_is_as_in_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "EXACT_REASONS", 0)
    rows = edge_rows(ROWS, SEED)
    with with_settings(spark):
        found = list(differences(spark_rows(spark, rows, tmp_path / "rows.parquet"), rows, sample()))
    assert not found, "\n".join(map(str, found))


def test_the_sample_has_every_constant() -> None:
    texts = "\n".join(pair.ours for pair in sample())
    assert not [each for kind in KINDS.values() for each in kind.samples if each not in texts]


def test_what_is_stricter_is_no_excuse_for_failing_always(spark: SparkSession, tmp_path: Path) -> None:
    rows = edge_rows(ROWS, SEED)
    pair = Pair("CAST(concat(int_a, '.5d') AS DOUBLE)", "CAST(concat(int_a, '.5d') AS DOUBLE)", ("text such as 1.5d",))
    with with_settings(spark):
        (found,) = differences(spark_rows(spark, rows, tmp_path / "rows.parquet"), rows, [pair])
    assert "not one row" in str(found)


@pytest.mark.lab
def test_what_has_no_parentheses_is_grouped_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Or refused, by either."""
    rows = edge_rows(ROWS, SEED)
    with with_settings(spark):
        frame = spark_rows(spark, rows, tmp_path / "rows.parquet")
        both = [pair for pair in unparenthesised() if _is_allowed(frame, pair.spark)]
        found = list(differences(frame, rows, both))
    assert len(both) > 50
    assert not found, "\n".join(map(str, found))


def _is_allowed(frame: DataFrame, expression: str) -> bool:
    try:
        frame.selectExpr(expression)
    except (ParseException, AnalysisException):
        return False
    return True


def test_the_page_lists_what_there_is() -> None:
    listed = PAGE.split("## Functions")[1].split("Operators:")[0]
    assert sorted(re.findall(r"`(\w+)`", listed)) == FUNCTIONS


def test_the_page_says_which_rows_fail_that_spark_accepts() -> None:
    said = PAGE.split("## Rows that fail here")[1]
    assert not {reason for pair in pairs() for reason in pair.stricter if reason not in said}
