"""`sparkonce.ingest` into tables of a catalog, a table for each topic: one query writes them all."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkonce import IngestTable, OptionError, table_path
from sparkonce.connectors.ingest import ingestion as module
from sparkonce.jobs.cli.main import main
from tests.spark.source_support import DEADLINE_S, Topics, values
from tests.spark.test_ingest import start, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture
def schema(delta_spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    name = f"lake_{uuid.uuid4().hex[:8]}"
    delta_spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path}/warehouse'")
    yield name
    delta_spark.sql(f"DROP SCHEMA {name} CASCADE")


def test_one_query_writes_tables_by_name_and_a_new_topic_gets_one(
    delta_spark: SparkSession, topics: Topics, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.05)
    names = {letter: topics.create(1, f"{schema}.{letter}") for letter in "ab"}
    rule: dict[str, Any] = {"topic_pattern": rf"^{schema}[.](?<letter>.)$", "table": f"{schema}.t_{{letter}}"}

    def produce(letter: str, start: int, end: int) -> None:
        topics.produce(names[letter], values(letter, end - start, start))

    def rows(letter: str) -> list[bytes]:
        table = f"{schema}.t_{letter}"
        if not delta_spark.catalog.tableExists(table):
            return []
        return sorted(bytes(row.value) for row in delta_spark.table(table).select("value").collect())

    def has(letter: str, count: int) -> bool:
        return rows(letter) == sorted(values(letter, count))

    for letter in names:
        produce(letter, 0, 10)
    with start(delta_spark, topics, tmp_path, **rule, trigger="100 milliseconds") as made:
        wait_until(made, lambda: has("a", 10) and has("b", 10))
        (first,) = {query.id for query in made.queries.values()}
        names["c"] = topics.create(1, f"{schema}.c")
        produce("c", 0, 10)
        wait_until(made, lambda: has("c", 10))
        delta_spark.sql(f"DROP TABLE {schema}.t_b")
        produce("b", 10, 20)
        produce("a", 10, 20)
        wait_until(made, lambda: has("a", 20) and has("b", 20))
    assert made.exception() is None
    for letter in names:
        produce(letter, 20, 30)
    produce("c", 10, 20)
    again = start(delta_spark, topics, tmp_path, **rule)
    assert again.awaitTermination(DEADLINE_S)
    assert {query.id for query in again.queries.values()} == {first}, "its checkpoint is there"
    assert has("a", 30)
    assert has("b", 30)
    assert rows("c") == sorted([*values("c", 20), *values("c", 10, 20)])
    for letter in names:
        assert main(["audit", table_path(delta_spark, f"{schema}.t_{letter}")]) == 0


def test_a_name_that_is_no_tables_is_refused_at_first_and_left_out_later(
    delta_spark: SparkSession,
    topics: Topics,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.05)
    caplog.set_level(logging.WARNING)
    good = topics.create(1, f"{schema}.good")
    topics.produce(good, values("v", 3))
    delta_spark.sql(f"CREATE VIEW {schema}.bad AS SELECT 1")
    table = IngestTable(topic_pattern=rf"^{schema}[.](.*)$", table=f"{schema}.{{1}}")
    with start(delta_spark, topics, tmp_path, tables=[table], trigger="100 milliseconds") as made:
        wait_until(made, lambda: delta_spark.table(f"{schema}.good").count() == 3)
        topics.create(1, f"{schema}.bad")
        wait_until(made, lambda: "is not read before the next start" in caplog.text)
        topics.produce(good, values("v", 3))
        wait_until(made, lambda: delta_spark.table(f"{schema}.good").count() == 6)
    assert made.exception() is None
    with pytest.raises(OptionError, match="is a view"):
        start(delta_spark, topics, tmp_path, tables=[table])
