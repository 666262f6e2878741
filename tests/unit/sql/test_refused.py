"""What is refused on the driver, and with which hint."""

from __future__ import annotations

import re

import duckdb
import pytest

from sparkonce.connectors.sql.engine import engine_here
from sparkonce.connectors.sql.select import check_select
from sparkonce.options import OptionError
from tests.cases import each_case
from tests.spark.sql_pairs import EXTRA, pairs, schema

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
    ("SELECT upper(topic, 1) AS x FROM records", r"upper\(string, int\) is not possible here"),
    ("SELECT upper(a := topic) AS x FROM records", "arguments are not named"),
    (
        "SELECT upper(value.tags) AS x FROM records",
        r"upper\(array<string>\) is not possible here: .*without the options sql and handOver=ranges",
    ),
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
    ("SELECT upper(*) AS x FROM records", r"upper\(no arguments\) is not possible here"),
    ("SELECT * + 1 AS x FROM records", r"\* is only possible as an item"),
    ("SELECT value.tags[1] AS x FROM records", r"get\(array, n\) counts from 0"),
    ("SELECT value.tags[1:2] AS x FROM records", "not supported: ARRAY_SLICE"),
    ("SELECT offset + 1 FROM records", "has no name; give it one with AS"),
    ("SELECT offset, topic AS OFFSET FROM records", "two columns are called OFFSET"),
    ("SELECT value.*, value.id FROM records", "two columns are called id"),
    ("SELECT NULL AS x FROM records", r"cast NULL, as in CAST\(NULL AS STRING\)"),
    ("SELECT INTERVAL 1 DAY AS x FROM records", "an interval is added to a date or a time"),
    ("SELECT value.local - value.local AS x FROM records", r"-\(timestamp_ntz, timestamp_ntz\) is not possible"),
    ("SELECT CAST(topic AS UUID) AS x FROM records", "cannot cast to UUID; there are BINARY"),
    ("SELECT CAST(topic AS TIME) AS x FROM records", "cannot cast to TIME"),
    ("SELECT CAST(topic AS INT[]) AS x FROM records", "cannot cast to"),
    ("SELECT CAST(topic AS JSON) AS x FROM records", "cannot cast to JSON"),
    ("SELECT CAST(value.tags AS STRING) AS x FROM records", "array<string> cannot be cast to string here"),
    ("SELECT CAST(value.day AS INT) AS x FROM records", "date cannot be cast to int here"),
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
    ("SELECT ceil(topic) AS x FROM records", r"ceil\(string\) is not possible here"),
    ("SELECT offset FROM records WHERE topic", "WHERE takes a condition"),
    ('SELECT "topic" FROM records', "names have backquotes"),
    ('SELECT offset AS "o" FROM records WHERE offset > 1', "names have backquotes"),
    ("SELECT e'a' AS x FROM records", "text has single quotes"),
    ("SELECT $$a$$ AS x FROM records", "text has single quotes"),
    (r"SELECT '\d' AS x FROM records", r"write \\\\d as in Spark, or r'\\d'"),
    ("SELECT topic || offset + 1 AS x FROM records", r"write concat\(a, b \+ c\)"),
    ("SELECT value.ok = value.ok IN (true) AS x FROM records", "Spark compares x with y first"),
    ("SELECT value.ok = value.ok NOT IN (true) AS x FROM records", "Spark compares x with y first"),
    ("SELECT value.ok <> topic LIKE 'a%' AS x FROM records", "Spark compares x with y first"),
    ("SELECT value.ok = value.id BETWEEN 1 AND 2 AS x FROM records", "Spark compares x with y first"),
    ("SELECT value.ok NOT BETWEEN true AND value.ok = value.ok AS x FROM records", "Spark compares x with y first"),
    ("SELECT TRY(coalesce(offset + CAST(topic AS INT), 5)) AS x FROM records", "put TRY around what fails"),
    ("SELECT TRY(offset / CAST(topic AS INT) IS NULL) AS x FROM records", "put TRY around what fails"),
    ("SELECT TRY(offset IN (offset, CAST(topic AS INT))) AS x FROM records", "put TRY around what fails"),
    ("SELECT upper(lower(topic)) AS x FROM records", "Spark leaves out the inner one"),
    ("SELECT CAST(value.id AS FLOAT) > 2147483646 AS x FROM records", "Spark leaves it out before a DOUBLE"),
    ("SELECT CAST(CAST(value.id AS FLOAT) AS DOUBLE) AS x FROM records", "Spark leaves it out before a DOUBLE"),
    ("SELECT timestamp_seconds(value.amount) AS x FROM records", r"timestamp_seconds\(double\) is not possible"),
    ("SELECT CAST(value.amount AS DECIMAL(10, 2)) AS x FROM records", r"double cannot be cast to decimal\(10,2\) here"),
    ("SELECT CAST(value.amount AS STRING) AS x FROM records", "double cannot be cast to string here"),
    ("SELECT round(value.amount, 2) AS x FROM records", r"round\(double, int\) is not possible"),
    ("SELECT value.price / 2 AS x FROM records", r"/\(decimal\(10,2\), int\) is not possible"),
    ("SELECT value.price // 2 AS x FROM records", r"//\(decimal\(10,2\), int\) is not possible"),
    ("SELECT topic = 1 AS x FROM records", r"=\(string, int\) is not possible"),
    ("SELECT regexp_like(topic, topic) AS x FROM records", r"regexp_like\(string, string\) is not possible"),
    ("SELECT regexp_like(topic, 'a$') AS x FROM records", r"write \\z for the end"),
    (r"SELECT regexp_like(topic, r'\ba') AS x FROM records", r"\\b is not possible"),
    ("SELECT regexp_like(topic, '(?i)a') AS x FROM records", "no flags, look-around or names"),
    ("SELECT regexp_like(topic, '[a-z&&[b]]') AS x FROM records", "no classes within classes"),
    ("SELECT regexp_like(topic, 'a++') AS x FROM records", "possessive"),
    ("SELECT regexp_like(topic, '(a)*') AS x FROM records", "repeats a captured group"),
    ("SELECT regexp_replace(topic, 'a*', 'b') AS x FROM records", "may match the empty text"),
    ("SELECT regexp_replace(topic, 'a', '$1') AS x FROM records", "to .0 are its groups"),
    ("SELECT regexp_extract(topic, 'a', 1) AS x FROM records", "group 1 of a pattern that has 0"),
    (r"SELECT topic LIKE 'a\\b' AS x FROM records", "is possible before %"),
    ("SELECT topic LIKE topic AS x FROM records", r"~~\(string, string\) is not possible"),
    (
        "SELECT get_json_object(topic, '$.a') AS x FROM records",
        "get_json_object of Spark is unknown here: .*selectExpr",
    ),
    ("SELECT date_format(value.at, 'yyyy') AS x FROM records", "date_format of Spark is unknown here: .*selectExpr"),
    ("SELECT sha2(topic, 256) AS x FROM records", "sha2 of Spark is unknown here: .*selectExpr"),
    ("SELECT next_day(value.day, 'MO') AS x FROM records", "next_day of Spark is unknown here: .*selectExpr"),
    ("SELECT strng(topic) AS x FROM records", "docs/sql_functions.md lists"),
    ("SELECT string(offset) AS x FROM records", r"did you mean CAST\(x AS STRING\)"),
    ("SELECT topic RLIKE 'a' AS x FROM records", r"\(line 1, character 20\): write rlike\(x, 'pattern'\)$"),
    ("SELECT topic FROM records WHERE topic rlike 'a' AND offset > 1", r"write rlike\(x, 'pattern'\)$"),
    ("SELECT topic FROM records WHERE NOT topic NOT REGEXP 'a'", r"write rlike\(x, 'pattern'\)$"),
    ("SELECT offset DIV 2 AS x FROM records", "write x // y$"),
    ("SELECT offset FROM records WHERE offset\ndiv (1 + 1) = 2", "write x // y$"),
    ("SELECT t FROM records LATERAL VIEW explode(value.tags) v AS t", r"write explode\(array\) AS name in the list$"),
    ("SELECT t FROM records LATERAL VIEW OUTER explode(value.tags) v AS t", r"write explode\(array\) AS name"),
    ("SELECT topic LIKE ANY ('a', 'b') AS x FROM records", "write x LIKE 'pattern' for each pattern"),
    ("SELECT topic FROM records SORT BY offset", "leave it out: rows are taken batch by batch$"),
    ("SELECT INT(topic) AS x FROM records", r"write CAST\(x AS type\)$"),
    ("SELECT topic FROM records |> WHERE offset > 1", r"expected one SELECT .*; if only Spark can read it, without"),
    ("SELECT split(topic, '[,;]') AS x FROM records", "a regular expression is not possible"),
    ("SELECT split_part(topic, '', 1) AS x FROM records", "the separator is empty"),
    ("SELECT split_part(topic, ',', 0) AS x FROM records", "counted from 1"),
    ("SELECT lpad(topic, offset) AS x FROM records", r"lpad\(string, bigint\) is not possible"),
    ("SELECT repeat(topic, 20000) AS x FROM records", "20000 is not between"),
    ("SELECT date_trunc('decade', value.at) AS x FROM records", "the unit 'decade'"),
    ("SELECT date_trunc('yyyy', value.at) AS x FROM records", "the unit 'yyyy'"),
    ("SELECT DATE '2020-13-01' AS x FROM records", "'2020-13-01' is not a date"),
    ("SELECT TIMESTAMP '2020-01-01 25:00:00' AS x FROM records", "is not a time"),
    ("SELECT value.day > '2020-02-30' AS x FROM records", "is not a date"),
    ("SELECT CAST('infinity' AS TIMESTAMP) AS x FROM records", "is not a time"),
    ("SELECT TRY_CAST(topic AS DATE) AS x FROM records", "TRY_CAST: .*would be null"),
    ("SELECT TRY(CAST(topic AS DATE)) AS x FROM records", "TRY would be null where Spark has a value"),
    ("SELECT reverse(topic) AS x FROM records", "reverse of Spark is unknown here"),
    ("SELECT topic ILIKE 'a' AS x FROM records", "LIKE 'pattern' in lower case"),
    ("SELECT map(['a'], [1]) AS x FROM records", "map of Spark is unknown here"),
    ("SELECT trim(topic, 'a') AS x FROM records", r"trim\(string, string\) is not possible"),
    ("SELECT exp(value.amount) AS x FROM records", "exp of Spark is unknown here"),
    ("SELECT 99999999999999999999 AS x FROM records", "is not possible: numbers"),
    ("SELECT value.at + INTERVAL 1.5 DAY AS x FROM records", "whole number of days"),
    ("SELECT value.day + INTERVAL '٣' DAY AS x FROM records", "whole number of days"),
    ("SELECT value.day + INTERVAL (1 + 2) DAY AS x FROM records", "the number of an interval is a constant"),
    ("SELECT value.day + INTERVAL (abs(-1)) DAY AS x FROM records", "the number of an interval is a constant"),
    (
        "SELECT value.day + INTERVAL (CAST(300 AS TINYINT)) DAY AS x FROM records",
        "the number of an interval is a const",
    ),
    ("SELECT value.day + to_days(trunc(1, 2)) AS x FROM records", "the number of an interval is a constant"),
    ("SELECT value.day + INTERVAL -1 DAY AS x FROM records", "write INTERVAL '-1' DAY"),
    (
        "SELECT topic SIMILAR TO 'a' AS x FROM records",
        r"mean regexp_like\(x, r'\^\(\?:pattern\)\\z'\) for SIMILAR",
    ),
    ("SELECT lpad(topic, 1.5) AS x FROM records", r"characters is a constant INT, found 1.5, a decimal\(2,1\)"),
    ("SELECT repeat(topic, 2e0) AS x FROM records", "characters is a constant INT, found 2e0, a double"),
    ("SELECT split_part(topic, ',', 1.0) AS x FROM records", "number of a part is a constant INT, found 1.0"),
    ("SELECT regexp_extract(topic, 'a', 0.0) AS x FROM records", "number of a group is a constant INT, found 0.0"),
    ("SELECT 1e400 AS x FROM records", "is not possible: numbers"),
    (f"SELECT {'1' * 5_000} AS x FROM records", "is not possible: numbers"),
    (f"SELECT CAST(1 AS DECIMAL({'1' * 5_000}, 2)) AS x FROM records", "cannot cast to DECIMAL"),
    ("SELECT value.nested = value.nested AS x FROM records", "is not possible"),
]


@each_case(("text", "message"), REFUSED, ids=[text[:200] or "(empty)" for text, _ in REFUSED])
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
        check_select("SELECT " + "sign(" * 20 + "value.amount" + ")" * 20 + " AS x FROM records", RECORDS)
    with pytest.raises(OptionError, match="nested more than 100"):
        check_select("SELECT " + "abs(" * 120 + "1" + ")" * 120 + " AS x FROM records", RECORDS)


def engine_functions() -> set[str]:
    """Return every function of the engine that an allowed function, operator or cast becomes."""
    engine = engine_here()
    found: set[str] = set()

    def collect(part: object) -> None:
        if isinstance(part, dict):
            if part.get("class") == "FUNCTION":
                found.add(part["function_name"])
            for each in part.values():
                collect(each)
        elif isinstance(part, list):
            for each in part:
                collect(each)

    each = {re.sub(r"\w+_[abc]|r?'[^']*'|-?\d+", "x", pair.ours): pair for pair in pairs() if pair not in EXTRA}
    for pair in each.values():
        query = check_select(f"SELECT {pair.ours} AS x FROM records", schema()).computed
        assert query is not None
        for statement in engine.statements(query.query):
            collect(statement)
    return found


def test_every_function_that_is_allowed_is_pure_in_the_engines_catalog() -> None:
    """Scalar functions that are consistent, or macros of such, which are listed here one by one."""
    macros = {"split_part", "array_to_string", "list_max", "list_min"}
    called = engine_functions()
    query = (
        "SELECT function_name, function_type, stability FROM duckdb_functions() WHERE list_contains(?, function_name)"
    )
    catalog: dict[str, set[tuple[str, str | None]]] = {}
    for name, kind, stability in engine_here()._connection.execute(query, [sorted(called)]).fetchall():
        catalog.setdefault(name, set()).add((kind, stability))
    missing = called - set(catalog)
    assert not missing
    kinds = {name: kind for name, kind in catalog.items() if kind != {("scalar", "CONSISTENT")}}
    assert set(kinds) <= macros | {"repeat", "+", "-", "*", "||", "lower_of", "upper_of"}, kinds
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
