"""Rows whose expressions fail: found exactly, with their reasons, and the others kept."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkonce.connectors.sql import engine, failures
from sparkonce.connectors.sql.messages import MOST_SHOWN
from sparkonce.connectors.sql.select import Selected, check_select
from sparkonce.options import OptionError
from tests.cases import each_case
from tests.chance import examples

from .tables import batch, run

COLUMNS = (
    StructType().add("s", StringType()).add("n", LongType()).add("a", ArrayType(StringType())).add("i", IntegerType())
)


def rows_of(texts: list[str | None]) -> list[dict[str, object]]:
    return [{"s": text, "n": place, "a": [text] * 2, "i": 1} for place, text in enumerate(texts)]


def select(text: str, texts: list[str | None]) -> Selected:
    return run(text, batch(rows_of(texts), COLUMNS), COLUMNS)


def test_one_row_that_fails_is_left_out_with_its_reason() -> None:
    selected = select("SELECT n, CAST(s AS INT) AS x FROM records", ["1", "x", None, "4"])
    assert selected.rows.to_pydict() == {"n": [0, 2, 3], "x": [1, None, 4]}
    assert selected.failed == [(1, "sql: x: STRING 'x' cannot be cast to INT: it is not a whole number")]


@each_case(
    ("expression", "reason"),
    [
        ("1 / (n - 2)", "Division by zero"),
        ("n % (n - 2)", "Division by zero"),
        ("9223372036854775805 + n + 1", "Overflow"),
        ("CAST(CASE n WHEN 2 THEN '2020-02-30' END AS DATE)", "date"),
        ("CAST(CASE n WHEN 2 THEN 'infinity' ELSE '2020-01-01' END AS TIMESTAMP)", "not a time"),
        ("CAST(CASE n WHEN 2 THEN '1_0' END AS DOUBLE)", "not a number"),
        ("CAST(n * 100 AS TINYINT)", "out of range|cast"),
        ("element_at([1], CASE n WHEN 2 THEN 5 ELSE 1 END)", "no element 5 in an array of 1"),
    ],
)
def test_what_fails(expression: str, reason: str) -> None:
    selected = select(f"SELECT n, {expression} AS x FROM records", ["", "", ""])
    assert selected.rows.column("n").to_pylist() == [0, 1]
    ((row, text),) = selected.failed
    assert row == 2
    assert text.startswith("sql: x: ")
    assert reason.split("|")[0].lower() in text.lower() or reason.split("|")[-1].lower() in text.lower()


@each_case(
    "condition",
    [
        "b + 1 > 5",
        "b - -1 > 5",
        "b * 2 >= 4",
        "b * 2 = 4",
        "b * 2 <> 3",
        "b * -3 < 10",
        "-2 - b < 5",
        "(b + 1) + 1 > 5",
        "b + 1 BETWEEN 1 AND 5",
        "b + 1 IS DISTINCT FROM 5",
        "NOT b + 1 > 5",
        "CAST(CAST(b AS INT) + 1 AS BIGINT) > 5",
        "CASE WHEN b + 1 > 5 THEN true ELSE true END",
    ],
)
def test_an_overflow_fails_in_a_comparison_with_a_constant(condition: str) -> None:
    """The engine would compare b with 4."""
    columns = StructType().add("b", LongType())
    rows = batch([{"b": 2**63 - 1}, {"b": None}], columns)
    for text in (f"SELECT b FROM records WHERE {condition}", f"SELECT {condition} AS x FROM records"):
        assert [row for row, _ in run(text, rows, columns).failed] == [0]


@each_case(
    ("bounds", "expected"),
    [
        ("lo AND d", [False, True]),  # in one type for all three, DOUBLE, 2^53 is at least 2^53 + 1
        ("9007199254740993 AND d", [False, True]),
        ("0 AND d", [True, True]),
    ],
)
def test_between_compares_with_each_bound_in_the_type_of_both(bounds: str, expected: list[bool]) -> None:
    columns = StructType().add("b", LongType()).add("lo", LongType()).add("d", DoubleType())
    lo = 2**53 + 1
    rows = batch([{"b": lo - 1, "lo": lo, "d": 1e300}, {"b": lo, "lo": lo, "d": 1e300}], columns)
    selected = run(f"SELECT b BETWEEN {bounds} AS x, b NOT BETWEEN {bounds} AS y FROM records", rows, columns)
    assert selected.rows.to_pydict() == {"x": expected, "y": [not each for each in expected]}


def test_bytes_that_are_no_text_fail() -> None:
    columns = StructType.fromJson({"type": "struct", "fields": [_binary("b")]})
    selected = run(
        "SELECT CAST(b AS STRING) AS x FROM records", batch([{"b": b"ok"}, {"b": b"\xff"}], columns), columns
    )
    assert selected.rows.to_pydict() == {"x": ["ok"]}
    assert [row for row, _ in selected.failed] == [1]


def _binary(name: str) -> dict[str, object]:
    return {"name": name, "type": "binary", "nullable": True, "metadata": {}}


FAILING: dict[str, tuple[DataType, object]] = {
    "text": (StringType(), 'it\'s (not INT32)\n\nLINE 1: "x"'),
    "long_text": (StringType(), "9" * 1000),
    "day": (StringType(), "2026-02-30"),
    "time": (StringType(), "2026-02-30 12:00:00"),
    "short": (ShortType(), 32767),
    "whole": (IntegerType(), 2**31 - 1),
    "long": (LongType(), 2**63 - 1),
    "real": (DoubleType(), 1e300),
    "nan": (FloatType(), math.nan),
    "number": (DecimalType(10, 2), Decimal("99999999.99")),
    "bytes": (BinaryType(), b"\xff"),
    "last": (DateType(), dt.date(9999, 12, 31)),
}
NAMES_OF_TYPES = ["TINYINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(5,2)", "BOOLEAN", "DATE", "TIMESTAMP", "STRING"]
TYPE = "(STRING|BINARY|BOOLEAN|TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL|DATE|TIMESTAMP)"


def test_reasons_name_the_value_its_type_and_the_type_that_it_does_not_fit() -> None:
    """Each value cast to each type: where that fails, in words of Spark."""
    columns = StructType([StructField(name, kind) for name, (kind, _) in FAILING.items()])
    rows = batch([{name: value for name, (_, value) in FAILING.items()}], columns)
    casts = [f"CAST({name} AS {target})" for name in FAILING for target in NAMES_OF_TYPES]
    arithmetic = ["whole + 1", "long * 2", "short - (-long)", "whole / 0", "element_at(array(whole), 2)"]
    said = {}
    for text in (*casts, *arithmetic, "CAST(last + INTERVAL 1 DAY AS STRING)"):
        try:
            select = check_select(f"SELECT {text} AS x FROM records", columns)
        except OptionError:
            continue
        for _, reason in select.runner().run(rows).failed:
            said[text] = reason.removeprefix("sql: x: ")
    others = [
        (text, reason)
        for text, reason in said.items()
        if text in casts
        and not re.match(
            rf"({TYPE}|the number)( .{{1,{MOST_SHOWN + 3}}})? cannot be cast to {TYPE}(\(5,2\))?: it", reason
        )
        and "no such day" not in reason
    ]
    assert not others
    assert len(said) > 50
    assert said["CAST(text AS INT)"].startswith(
        "STRING 'it's (not INT32) LINE 1: \"x\"' cannot be cast to INT: it is not a"
    )
    assert said["CAST(long_text AS INT)"] == f"STRING '{'9' * MOST_SHOWN}…' cannot be cast to INT: it is out of range"
    assert said["CAST(short AS TINYINT)"] == "SMALLINT 32767 cannot be cast to TINYINT: it is out of range"
    assert (
        said["CAST(day AS DATE)"]
        == "STRING '2026-02-30' cannot be cast to DATE: there is no such day, or it is out of range"
    )
    assert said["CAST(bytes AS STRING)"] == "BINARY cannot be cast to STRING: its bytes are not UTF-8"
    assert [said[text] for text in arithmetic] == [
        "overflow of INT: 2147483647 + 1",
        "overflow of BIGINT: 9223372036854775807 * 2",
        "overflow of BIGINT: 32767 - -9223372036854775807",
        "division by zero",
        "element_at: no element 2 in an array of 1",
    ]
    assert (
        said["CAST(last + INTERVAL 1 DAY AS STRING)"] == "year 10000 is not of 1 to 9999, and cannot be cast to STRING"
    )


def test_a_row_that_where_drops_does_not_fail() -> None:
    selected = select(
        "SELECT n, CAST(s AS INT) AS x FROM records WHERE s <> 'x' AND CAST(s AS INT) > 1", ["1", "x", "4"]
    )
    assert selected.rows.to_pydict() == {"n": [2], "x": [4]}
    assert not selected.failed


def test_a_where_that_fails_names_itself() -> None:
    selected = select("SELECT n FROM records WHERE CAST(s AS INT) > 1", ["1", "x", "4"])
    assert selected.rows.to_pydict() == {"n": [2]}
    assert [(row, reason.split(":")[1]) for row, reason in selected.failed] == [(1, " WHERE")]


def test_a_row_fails_once_if_one_of_its_elements_does() -> None:
    texts = ["1", "x", "3"]
    for expression in ("CAST(unnest(a) AS INT)", "unnest(transform(a, e -> CAST(e AS INT)))"):
        selected = select(f"SELECT n, {expression} AS x FROM records", texts)
        assert selected.rows.to_pydict() == {"n": [0, 0, 2, 2], "x": [1, 1, 3, 3]}
        assert [row for row, _ in selected.failed] == [1]


@pytest.mark.parametrize("count", [1, 5_000])
def test_all_rows_may_fail(count: int) -> None:
    selected = select("SELECT n, CAST(s AS INT) AS x FROM records", ["x"] * count)
    assert selected.rows.num_rows == 0
    assert [row for row, _ in selected.failed] == list(range(count))
    exact = [reason for _, reason in selected.failed if "cannot be cast to INT" in reason]
    assert len(exact) == min(count, failures.EXACT_REASONS)
    assert selected.failed[-1][1].startswith("sql: x: ")


def test_a_try_that_fails_is_null() -> None:
    selected = select("SELECT TRY(CAST(s AS INT)) AS x, TRY_CAST(s AS INT) AS y FROM records", ["1", "x"])
    assert selected.rows.to_pydict() == {"x": [1, None], "y": [1, None]}
    assert not selected.failed


@each_case(
    ("expression", "expected"),
    [
        ("TRY(n + CAST(s AS INT))", [1, None]),
        ("coalesce(TRY(n + CAST(s AS INT)), 5)", [1, 5]),
        ("TRY(coalesce(CAST(s AS INT), 5))", [1, None]),
        ("TRY(CASE WHEN CAST(s AS INT) > 0 THEN n / n END)", [None, None]),
    ],
)
def test_a_try_that_is_null_for_what_spark_does_not_skip(expression: str, expected: list[int | None]) -> None:
    selected = select(f"SELECT {expression} AS x FROM records", ["1", "x"])
    assert selected.rows.column("x").to_pylist() == expected


def test_failures_that_only_the_whole_query_has_are_found_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_failing", lambda *_: [])
    texts = [str(number) if number % 7 else "x" for number in range(100)]
    selected = select("SELECT n, CAST(s AS INT) AS x FROM records", texts)
    assert [row for row, _ in selected.failed] == list(range(0, 100, 7))
    assert selected.rows.column("n").to_pylist() == [number for number in range(100) if number % 7]


def test_what_is_not_a_rows_fault_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_engines", {})
    checked = check_select("SELECT repeat(repeat(s, 10000), 1200) AS x FROM records", COLUMNS)
    runner = checked.runner()
    with pytest.raises(duckdb.Error):
        runner.run(batch(rows_of(["0123456789" * 10]), COLUMNS))
    again = check_select("SELECT n + 1 AS x FROM records", COLUMNS).runner()
    assert again.run(batch(rows_of(["a"]), COLUMNS)).rows.to_pydict() == {"x": [1]}


SHOWN = st.one_of(st.none(), st.integers(-99, 99).map(str), st.text(alphabet="0x .-", max_size=4))


@settings(max_examples=examples(30))
@given(st.lists(SHOWN, max_size=10), st.booleans(), st.booleans())
def test_failing_rows_are_exactly_those_that_fail_alone(
    texts: list[str | None], has_where: bool, unnests: bool
) -> None:
    item = "CAST(unnest(a) AS INT)" if unnests else "CAST(s AS INT)"
    where = " WHERE s IS NULL OR length(s) < 3" if has_where else ""
    checked = check_select(f"SELECT n, s, 60 / {item} AS x, upper(s) AS u FROM records{where}", COLUMNS)
    runner = checked.runner()
    rows = batch(rows_of(texts), COLUMNS)
    alone = [runner.run(rows.slice(place, 1)) for place in range(rows.num_rows)]
    together = runner.run(rows)
    assert [row for row, _ in together.failed] == [place for place, each in enumerate(alone) if each.failed]
    assert [reason for _, reason in together.failed] == [reason for each in alone for _, reason in each.failed]
    assert together.rows.to_pylist() == [row for each in alone for row in each.rows.to_pylist()]
    assert together.rows.schema == runner.run(rows.slice(0, 0)).rows.schema


@pytest.mark.parametrize(
    ("text", "kept", "failed"),
    [
        ("SELECT n, CAST(s AS INT) AS x FROM records WHERE CAST(s AS INT) > 0", [0, 3], [1]),
        ("SELECT n, CAST(s AS INT) AS x, CAST(s AS INT) + 1 AS y FROM records", [0, 2, 3], [1]),
        ("SELECT n, TRY(CAST(s AS INT)) AS x, TRY(CAST(s AS INT) + 1) AS y FROM records", [0, 1, 2, 3], []),
    ],
)
def test_what_fails_may_be_in_several_expressions(text: str, kept: list[int], failed: list[int]) -> None:
    selected = select(text, ["1", "x", None, "4"])
    assert selected.rows.column("n").to_pylist() == kept
    assert [row for row, _ in selected.failed] == failed


def test_a_map_with_a_key_twice_fails_alone() -> None:
    """The engine cannot read it, so no query over the whole batch can say which row it is."""
    columns = StructType().add("m", MapType(StringType(), StringType()))
    rows = batch([{"m": [("a", "1")]}, {"m": [("a", "1"), ("a", "2")]}, {"m": None}], columns)
    selected = run("SELECT map_keys(m) AS keys FROM records", rows, columns)
    assert selected.rows.to_pydict() == {"keys": [["a"], None]}
    ((row, reason),) = selected.failed
    assert (row, "duplicate key" in reason) == (1, True)


def test_failing_rows_are_found_by_halves_if_the_query_for_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run_of = engine.Engine.run

    def failing(self: engine.Engine, query: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        if "f0" in query:
            raise duckdb.ConversionException("moved out of TRY")
        return run_of(self, query, rows)

    monkeypatch.setattr(engine.Engine, "run", failing)
    selected = select("SELECT n, CAST(s AS INT) AS x FROM records", ["1", "x", None, "y"])
    assert selected.rows.column("n").to_pylist() == [0, 2]
    assert [row for row, _ in selected.failed] == [1, 3]


def test_no_expression_fails_for_a_record_without_elements() -> None:
    """Whether another record of the batch fails or not."""
    found = {
        other: run(
            "SELECT n, unnest(a) AS x, CAST(s AS INT) AS y FROM records",
            batch([{"s": other, "n": 0, "a": ["a"]}, {"s": "x", "n": 1, "a": []}, {"s": "x", "n": 2}], COLUMNS),
            COLUMNS,
        )
        for other in ("1", "x")
    }
    assert [each.rows.column("n").to_pylist() for each in found.values()] == [[0], []]
    assert [[row for row, _ in each.failed] for each in found.values()] == [[], [0]]


@each_case(
    ("condition", "expected"),
    [
        ("s <> 'x' AND CAST(s AS INT) > 0", [True, False, None, True]),
        ("s = 'x' OR CAST(s AS INT) > 1", [False, True, None, True]),
        ("s = 'x' OR n = 2 OR CAST(s AS INT) > 1", [False, True, True, True]),
        ("s IS NOT NULL AND s <> 'x' AND CAST(s AS INT) > 1", [False, False, False, True]),
        ("n BETWEEN 1 AND CAST(CASE s WHEN '1' THEN 'y' ELSE '2' END AS INT)", [False, True, True, False]),
        ("n NOT BETWEEN 1 AND CAST(CASE s WHEN '1' THEN 'y' ELSE '2' END AS INT)", [True, False, False, True]),
        ("len_is_one AND n > 0", [False, True, None, True]),
    ],
)
def test_a_condition_guards_what_follows(condition: str, expected: list[bool | None]) -> None:
    condition = condition.replace("len_is_one", "length(s) = 1")
    texts = ["1", "x", None, "4"]
    assert select(f"SELECT {condition} AS x FROM records", texts).rows.column("x").to_pylist() == expected
    kept = [place for place, true in enumerate(expected) if true]
    # A failure elsewhere in the batch makes no difference for the other rows.
    for item in ("n", "1 / (n - 3) AS y, n"):
        selected = select(f"SELECT {item} FROM records WHERE {condition}", texts)
        failed = [3] if "y" in item and 3 in kept else []
        assert [row for row, _ in selected.failed] == failed
        assert selected.rows.column("n").to_pylist() == [row for row in kept if row not in failed]


def test_a_sigma_beside_unknown_letters_fails_and_says_so() -> None:
    selected = select("SELECT n, lower(s) AS x FROM records", ["Σ\u0378", "É", None, "ΑΣ"])
    assert selected.rows.to_pydict() == {"n": [1, 2, 3], "x": ["é", None, "ας"]}
    ((row, reason),) = selected.failed
    assert (row, "no lower case is known: Σ\u0378" in reason) == (0, True)


def test_the_last_day_and_time_fail_since_they_are_infinite_to_the_engine() -> None:
    columns = StructType().add("t", TimestampType()).add("d", DateType())
    times = pa.array([2**63 - 1, 5, -(2**63) + 1, 5, None], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    days = pa.array([5, 2**31 - 1, 5, 5, None], pa.int32()).view(pa.date32())
    rows = pa.RecordBatch.from_arrays([times, days], names=["t", "d"])
    selected = run("SELECT year(t) AS t, year(d) AS d FROM records", rows, columns)
    assert selected.rows.to_pylist() == [{"t": 1970, "d": 1970}, {"t": None, "d": None}]
    assert [row for row, _ in selected.failed] == [0, 1, 2]
    selected = run("SELECT year(t) AS t, 1 / (day(d) - 6) AS d FROM records", rows, columns)
    assert [row for row, _ in selected.failed] == [0, 1, 2, 3]


def test_days_and_times_that_are_infinite_to_the_engine_fail_at_any_depth() -> None:
    days = pa.array([1, 2**31 - 1, 5, -(2**31) + 1], pa.int32()).view(pa.date32())
    times = pa.array([1, 5, -(2**63), 2**63 - 1], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 3, 4, 4], pa.int32()), days)
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 1, 2, 3, 3, 4], pa.int32()), pa.array(["a"] * 4), times)
    rows = pa.RecordBatch.from_arrays([pa.StructArray.from_arrays([lists, maps], ["l", "m"])], names=["s"])
    inner = StructType().add("l", ArrayType(DateType())).add("m", MapType(StringType(), TimestampType()))
    text = "SELECT transform(s.l, d -> year(d)) AS l, transform(map_values(s.m), t -> year(t)) AS m FROM records"
    columns = StructType().add("s", inner)
    selected = run(text, rows, columns)
    assert selected.rows.to_pylist() == [{"l": [1970], "m": [1970]}, {"l": [1970], "m": [1970]}]
    assert [row for row, _ in selected.failed] == [1, 3, 4, 5]
    assert [row for row, _ in run(text, rows.slice(2), columns).failed] == [1, 2, 3]


def test_times_before_the_engines_first_fail() -> None:
    columns = StructType().add("t", TimestampType())
    first = -9_223_372_022_400_000_000
    times = pa.array([first, first - 1, -(2**63), None], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    selected = run("SELECT TRY(year(t)) AS x FROM records", pa.RecordBatch.from_arrays([times], names=["t"]), columns)
    assert selected.rows.column("x").to_pylist() == [-290308, None]
    assert [row for row, _ in selected.failed] == [1, 2]
