"""Which expressions have the same result in every time zone of a session."""

from __future__ import annotations

from sparkonce.connectors.sql.instants import is_zoneless
from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.values.ddl import parse_schema

COLUMNS = parse_schema(
    "z TIMESTAMP, y TIMESTAMP, n TIMESTAMP_NTZ, d DATE, t STRING, v BIGINT, b BOOLEAN, s STRUCT<z: TIMESTAMP>, "
    "l ARRAY<TIMESTAMP>, a ARRAY<INT>"
)
SAME = [
    "v > 0 AND t = '2024-01-01'",
    "z",
    "z > y",
    "z = TIMESTAMP'2024-01-01 00:00:00Z'",
    "z <> '2024-01-01T00:00:00.5-05:30'",
    "z BETWEEN TIMESTAMP'2024-01-01 00:00:00Z' AND y",
    "s.z IN (z, y, NULL)",
    "(z IS NULL) = b",
    "l IS NOT NULL OR s IS NULL",
    "NOT (z IS NOT DISTINCT FROM coalesce(y, s.z))",
    "coalesce(z > y, true)",
    "unix_micros(z) % 1000 = 0",
    "CAST(z AS TIMESTAMP) > CAST('2024-01-01 00:00:00+01:00' AS TIMESTAMP)",
    "CAST(z > y AS STRING) = 'true'",
    "n > '2024-01-01' AND d > '2024-01-01'",
    "year(d) > 2000 AND hour(n) = 0",
    "size(filter(a, x -> x > 0)) = 0 AND z > y",
]
DEPENDENT = [
    "z > '2024-01-01'",
    "z > '2024-01-01 00:00:00'",
    "z > TIMESTAMP'2024-01-01 00:00:00'",
    "z > d",
    "z > n",
    "z IN (y, '2024-01-01')",
    "z BETWEEN y AND '2024-01-01'",
    "year(z) > 2000",
    "CAST(z AS DATE) = d",
    "CAST(z AS STRING) > t",
    "CAST(t AS TIMESTAMP) IS NULL",
    "to_timestamp(t) > y",
    "date_trunc('hour', z) = z",
    "unix_seconds(date_trunc('hour', d)) = 0",
    "unix_seconds(CAST(d AS TIMESTAMP)) = 0",
    "CASE WHEN z > y THEN z > '2024-01-01' ELSE true END",
    "concat('a', z) = 'a'",
    "size(l) > 0",
    "size(filter(l, x -> x > '2024-01-01')) = 0",
    "hour(z) % 2 = 0",
]


def test_what_needs_no_zone_is_known_and_nothing_else_passes() -> None:
    for expected, texts in ((True, SAME), (False, DEPENDENT)):
        for text in texts:
            query = f"SELECT ({text}) AS x FROM records"
            check_select(query, COLUMNS)
            assert is_zoneless(query, COLUMNS) is expected, text
