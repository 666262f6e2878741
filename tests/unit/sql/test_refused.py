"""What is refused on the driver, and with which hint."""

from __future__ import annotations

import duckdb
import pytest

from sparkonce.connectors.settings.options import OptionError
from sparkonce.connectors.sql import functions
from sparkonce.connectors.sql.engine import engine_here
from sparkonce.connectors.sql.select import check_select
from tests.cases import each_case

from .tables import RECORDS

REFUSED = [
    ("", "the text is empty"),
    (" ; ", "the text is empty"),
    ("SELEC offset FROM records", r'syntax error at or near "SELEC" \(line 1, character 1\)'),
    ("SELECT offset +\nFROM records", r"syntax error .* \(line 2, character"),
    ("SELECT 'a FROM records", "unterminated|syntax error"),
    ("SELECT ofset FROM records", "unknown column ofset; did you mean offset"),
    ("SELECT ofset + 1 AS x FROM records", "unknown column ofset; did you mean offset"),
    ("SELECT value.idd FROM records", "unknown column value.idd; did you mean id"),
    ("SELECT zzz FROM records", "there are key, value, topic, partition, offset, timestamp"),
    ("SELECT value.tags.x FROM records", r"it is an array: unnest\(value.tags\)"),
    ("SELECT value.counts.x + 1 AS x FROM records", r"it is a map: value.counts\['x'\]"),
    ("SELECT topic.x FROM records", "topic has no fields"),
    ("SELECT topic.* FROM records", "topic is not a struct"),
    ("SELECT r.offset FROM records", "unknown column r.offset"),
    ("SELECT records.offset + 1 AS x FROM records r", "unknown column records.offset"),
    ("SELECT offset", "FROM is missing"),
    ("SELECT 1 AS x", "FROM is missing"),
    ("SELECT offset FROM other", "the only table is records"),
    ("SELECT offset FROM db.records", "the only table is records"),
    ("SELECT offset FROM 'file.parquet'", "the only table is records"),
    ("SELECT offset FROM '/etc/passwd'", "the only table is records"),
    ("SELECT offset FROM read_csv('/etc/passwd')", "only FROM records"),
    ("SELECT offset FROM duckdb_settings()", "only FROM records"),
    ("SELECT offset FROM records, records r", "only one table"),
    ("SELECT offset FROM records r(a)", "takes an alias at most"),
    ("SELECT r.offset FROM records r JOIN records s ON true", "only one table"),
    ("SELECT offset FROM (SELECT * FROM records)", "subqueries"),
    ("SELECT offset FROM records WHERE offset IN (SELECT 1)", "subqueries"),
    ("SELECT (SELECT 1) AS x FROM records", "subqueries"),
    ("SELECT EXISTS (SELECT 1) AS x FROM records", "subqueries"),
    ("SELECT offset FROM records TABLESAMPLE 10%", "samples"),
    ("SELECT offset FROM records USING SAMPLE 10%", "samples"),
    ("SELECT offset FROM records AT (VERSION => 1)", "takes an alias at most"),
    ("WITH r AS (SELECT 1) SELECT offset FROM records", "WITH is not possible"),
    ("SELECT offset FROM records UNION ALL SELECT 1", "without UNION"),
    ("SELECT DISTINCT offset FROM records", "DISTINCT, ORDER BY, LIMIT"),
    ("SELECT offset FROM records ORDER BY 1", "DISTINCT, ORDER BY, LIMIT"),
    ("SELECT offset FROM records LIMIT 1", "DISTINCT, ORDER BY, LIMIT"),
    ("SELECT topic FROM records GROUP BY topic", "GROUP BY is not possible"),
    ("SELECT topic FROM records GROUP BY ALL", "GROUP BY"),
    ("SELECT topic FROM records HAVING true", "HAVING is not possible"),
    ("SELECT topic FROM records QUALIFY true", "QUALIFY is not possible"),
    ("SELECT count(*) AS n FROM records", "count: aggregates"),
    ("SELECT sum(offset) AS n FROM records", "sum: aggregates"),
    ("SELECT sum(DISTINCT offset) AS n FROM records", "sum: aggregates"),
    ("SELECT max(offset) FILTER (WHERE true) AS n FROM records", "max: aggregates"),
    ("SELECT string_agg(topic ORDER BY topic) AS n FROM records", "string_agg: aggregates"),
    ("SELECT row_number() OVER () AS n FROM records", "window functions"),
    ("SELECT lag(offset) OVER () AS n FROM records", "window functions"),
    ("SELECT random() AS x FROM records", "function random is unknown or not allowed"),
    ("SELECT uuid() AS x FROM records", "uuid is unknown or not allowed"),
    ("SELECT now() AS x FROM records", "now is unknown or not allowed: a batch that is written again"),
    ("SELECT today() AS x FROM records", "today is unknown or not allowed"),
    ("SELECT current_timestamp AS x FROM records", "unknown column current_timestamp"),
    ("SELECT current_date AS x FROM records", "unknown column current_date"),
    ("SELECT current_localtimestamp() AS x FROM records", "is unknown or not allowed"),
    ("SELECT current_user AS x FROM records", "unknown column current_user"),
    ("SELECT nextval('x') AS x FROM records", "is unknown or not allowed"),
    ("SELECT getenv('HOME') AS x FROM records", "is unknown or not allowed"),
    ("SELECT current_setting('threads') AS x FROM records", "is unknown or not allowed"),
    ("SELECT getvariable('x') AS x FROM records", "is unknown or not allowed"),
    ("SELECT pg_sleep(1) AS x FROM records", "is unknown or not allowed"),
    ("SELECT query('x') AS x FROM records", "is unknown or not allowed"),
    ("SELECT error('x') AS x FROM records", "is unknown or not allowed"),
    ("SELECT json_execute_serialized_sql('x') AS x FROM records", "is unknown or not allowed"),
    ("SELECT read_text('/etc/passwd') AS x FROM records", "is unknown or not allowed"),
    ("SELECT main.upper(topic) AS x FROM records", "main.upper: write functions without a schema"),
    ("SELECT topic.upper() AS x FROM records", "write functions without a schema"),
    ("SELECT uppr(topic) AS x FROM records", "did you mean upper"),
    ("SELECT upper(topic, 1) AS x FROM records", "upper takes 1 arguments here, found 2"),
    ("SELECT upper(a := topic) AS x FROM records", "arguments are not named"),
    ("SELECT upper(value.tags) AS x FROM records", "No function matches"),
    ("SELECT offset; DROP TABLE records", "expected one SELECT"),
    ("SELECT offset FROM records; SELECT offset FROM records", "found 2 statements"),
    ("INSERT INTO records VALUES (1)", "expected one SELECT"),
    ("COPY records TO '/tmp/x'", "expected one SELECT"),
    ("ATTACH '/tmp/x'", "expected one SELECT"),
    ("INSTALL httpfs", "expected one SELECT"),
    ("SET threads = 2", "expected one SELECT"),
    ("PRAGMA version", "expected one SELECT"),
    ("SUMMARIZE records", "expected one SELECT|only FROM records|not possible"),
    ("DESCRIBE records", "expected one SELECT|only FROM records|not possible"),
    ("VALUES (1)", "only FROM records"),
    ("PIVOT records ON topic", "expected one SELECT|only FROM records|not possible"),
    ("SELECT ? AS x FROM records", "parameters are not possible"),
    ("SELECT $1 AS x FROM records", "parameters are not possible"),
    ("SELECT #1 AS x FROM records", "references by position"),
    ("SELECT topic COLLATE nocase AS x FROM records", "collations"),
    ("SELECT COLUMNS('o.*') FROM records", "name the columns"),
    ("SELECT * EXCLUDE (key) FROM records", "name the columns"),
    ("SELECT * REPLACE (1 AS key) FROM records", "name the columns"),
    ("SELECT upper(*) AS x FROM records", "upper takes 1 arguments here, found 0"),
    ("SELECT * + 1 AS x FROM records", r"\* is only possible as an item"),
    ("SELECT value.tags[1] AS x FROM records", r"get\(array, n\) counts from 0"),
    ("SELECT value.tags[1:2] AS x FROM records", "not supported: ARRAY_SLICE"),
    ("SELECT offset + 1 FROM records", "has no name; give it one with AS"),
    ("SELECT offset, topic AS OFFSET FROM records", "two columns are called OFFSET"),
    ("SELECT value.*, value.id FROM records", "two columns are called id"),
    ("SELECT NULL AS x FROM records", r"cast NULL, as in CAST\(NULL AS STRING\)"),
    ("SELECT INTERVAL 1 DAY AS x FROM records", "no equivalent of the type"),
    ("SELECT value.local - value.local AS x FROM records", "no equivalent of the type"),
    ("SELECT CAST(topic AS UUID) AS x FROM records", "cannot cast to UUID; there are BINARY"),
    ("SELECT CAST(topic AS TIME) AS x FROM records", "cannot cast to TIME"),
    ("SELECT CAST(topic AS INT[]) AS x FROM records", "cannot cast to"),
    ("SELECT CAST(topic AS JSON) AS x FROM records", "cannot cast to JSON"),
    ("SELECT CAST(value.tags AS STRING) AS x FROM records", "cannot be cast to VARCHAR"),
    ("SELECT CAST(value.day AS INT) AS x FROM records", "cannot be cast to INTEGER"),
    ("SELECT offset FROM records WHERE unnest(value.tags) = 'a'", "only possible in the list"),
    ("SELECT unnest(value.tags) AS a, unnest(value.tags) AS b FROM records", "once in a SELECT"),
    ("SELECT unnest(value.tags) || unnest(value.tags) AS b FROM records", "once in a SELECT"),
    ("SELECT transform(value.tags, t -> unnest(value.tags)) AS b FROM records", "only possible in the list"),
    ("SELECT unnest(value) AS x FROM records", "takes an array"),
    ("SELECT transform(value.tags, 1) AS x FROM records", "the second argument is a lambda"),
    ("SELECT transform(value.tags, (a, b) -> a) AS x FROM records", "a lambda has one parameter"),
    ("SELECT topic -> 'x' AS x FROM records", "only possible as the second argument"),
    ("SELECT EXTRACT(epoch FROM value.at) AS x FROM records", "this part of a date is not possible"),
    ("SELECT date_part(topic, value.at) AS x FROM records", "this part of a date is not possible"),
    ("SELECT ceil(topic) AS x FROM records", "ceil takes no value of"),
    ("SELECT offset FROM records WHERE topic", "WHERE takes a condition"),
]


@each_case(("text", "message"), REFUSED, ids=[text or "(empty)" for text, _ in REFUSED])
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        check_select(text, RECORDS)
    assert str(caught.value).startswith("sql: ")
    assert "\n" not in str(caught.value)


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(OptionError, match="at most 100000"):
        check_select("SELECT " + "offset, " * 50_000 + "topic FROM records", RECORDS)


def test_nesting_that_is_too_deep_is_an_error_and_no_crash() -> None:
    with pytest.raises(OptionError, match="sql: "):
        check_select("SELECT " + "(" * 5_000 + "1" + ")" * 5_000 + " + 1 AS x FROM records", RECORDS)
    with pytest.raises(OptionError, match="too large"):
        check_select("SELECT " + "array_contains(" * 20 + "value.tags" + ", 1)" * 20 + " AS x FROM records", RECORDS)
    with pytest.raises(OptionError, match="nested more than 100"):
        check_select("SELECT " + "abs(" * 120 + "1" + ")" * 120 + " AS x FROM records", RECORDS)


def engine_functions() -> set[str]:
    """Return every function of the engine that an allowed function or operator becomes."""
    engine = engine_here()
    found = set(functions.VARIADIC.values()) | set(functions.LIKE.values()) | set(functions.ESCAPED.values())

    def collect(part: object) -> None:
        if isinstance(part, dict):
            if part.get("class") == "FUNCTION":
                found.add(part["function_name"])
            for each in part.values():
                collect(each)
        elif isinstance(part, list):
            for each in part:
                collect(each)

    for template in (*functions.TEMPLATES.values(), *(t for each in functions.TYPED.values() for t in each.values())):
        collect(engine.expression(template))
    return found


def test_every_function_that_is_allowed_is_pure_in_the_engines_catalog() -> None:
    """Scalar functions that are consistent, or macros of such, which are listed here one by one."""
    macros = {"nullif", "if", "split_part", "array_to_string", "list_max", "list_min", "nvl", "ifnull"}
    catalog = engine_here().catalog(sorted(engine_functions()))
    missing = engine_functions() - set(catalog) - {"unnest"}
    assert not missing
    kinds = {name: kind for name, kind in catalog.items() if kind != {("scalar", "CONSISTENT")}}
    assert set(kinds) <= macros | {"repeat", "+", "-", "*", "||", "unnest"}, kinds
    assert all(kind in ("scalar", "macro", "aggregate", "table") for each in kinds.values() for kind, _ in each)


@each_case(
    "query",
    [
        "SET threads = 4",
        "RESET lock_configuration",
        "SET enable_external_access = true",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "COPY (SELECT 1) TO '/tmp/sparkonce-must-not-be-there'",
        "ATTACH '/tmp/sparkonce-must-not-be-there'",
        "INSTALL httpfs",
        "LOAD httpfs",
    ],
)
def test_the_engine_itself_is_locked(query: str) -> None:
    """Were the check of the parse tree wrong, this would still hold."""
    with pytest.raises(duckdb.Error):
        engine_here()._connection.execute(query).fetchall()
