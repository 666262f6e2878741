"""`sparkonce.ingest` and the command: topics into tables, over restarts, with topics that appear later."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sparkonce import EmbeddedBroker, IngestError, Ingestion, IngestTable, OptionError, ingest
from sparkonce.connectors.ingest import ingestion as module
from sparkonce.connectors.ingest import restarts
from sparkonce.jobs.cli.main import main
from sparkonce.jobs.shared.arguments import CONF
from tests.spark.source_support import DEADLINE_S, Topics, values

pytestmark = pytest.mark.spark

SCHEMA = "user STRING, page STRING, at TIMESTAMP"


@pytest.fixture
def prefix() -> str:
    return f"ingest-{uuid.uuid4().hex[:8]}-"


def start(spark: SparkSession, topics: Topics, folder: Path, **arguments: Any) -> Ingestion:
    return ingest(
        spark,
        app_id="shop",
        checkpoint=str(folder / "checkpoints"),
        kafka={"bootstrap.servers": topics.bootstrap_servers},
        **{"trigger": "availableNow", "topic_interval_s": 0.0, **arguments},
    )


def stored(table: Path) -> list[bytes]:
    is_table = DeltaTable.is_deltatable(str(table))  # the folder is there before the first version is
    return sorted(DeltaTable(table).to_pyarrow_table()["value"].to_pylist()) if is_table else []


def wait_until(made: Ingestion, condition: Callable[[], bool]) -> None:
    """Wait for rows to arrive; an ingestion that fails raises here."""
    for _ in range(DEADLINE_S * 5):
        if condition():
            return
        assert not made.awaitTermination(0.2), "it has ended"
    raise AssertionError("nothing arrived")


def test_topics_by_pattern_have_tables_and_a_later_one_too(
    spark: SparkSession, topics: Topics, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.05)
    names = [topics.create(2, f"{prefix}{letter}") for letter in "abc"]
    for name in names:
        topics.produce(name, values(name, 20))
    rule = {"topic_pattern": f"^{prefix}(.*)$", "path": f"{tmp_path}/{{1}}"}
    first = start(spark, topics, tmp_path, **rule)
    assert first.awaitTermination(DEADLINE_S)
    assert [flow.direct for flow in first.flows] == [True] * 3

    for name in names:
        topics.produce(name, values(name, 20, 20), partition=1)
    with start(spark, topics, tmp_path, **rule, trigger="100 milliseconds", compact_every=1) as second:
        later = topics.create(1, f"{prefix}d")
        topics.produce(later, values(later, 5))
        wait_until(second, lambda: len(stored(tmp_path / "d")) == 5)
        wait_until(second, lambda: all(len(stored(tmp_path / letter)) == 40 for letter in "abc"))
        query = second.queries[later]
    assert not query.isActive
    assert query.exception() is None
    assert second.exception() is None
    for letter, name in zip("abcd", [*names, later], strict=True):
        assert stored(tmp_path / letter) == sorted(values(name, 5 if letter == "d" else 40))


def test_a_query_that_fails_ends_the_ingestion(
    spark: SparkSession, topics: Topics, prefix: str, tmp_path: Path
) -> None:
    good, bad = topics.create(1, f"{prefix}good"), topics.create(1, f"{prefix}bad")
    topics.produce(good, [b'{"id": 1}'])
    topics.produce(bad, [b"no JSON"])
    tables = [IngestTable(topics=name, path=f"{tmp_path}/{name}") for name in (good, bad)]
    made = start(
        spark,
        topics,
        tmp_path,
        tables=tables,
        value_format="json",
        value_schema="id BIGINT",
        source={"mode": "FAILFAST"},
        trigger="100 milliseconds",
    )
    with pytest.raises(IngestError, match=rf"{bad} \({bad} -> {tmp_path}/{bad}\) has failed: .*offset 0"):
        made.awaitTermination(DEADLINE_S)
    assert not any(query.isActive for query in made.queries.values())


def test_an_outage_ends_queries_and_not_the_ingestion(
    spark: SparkSession,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It outlasts the patience of a client, a second here; the brokers come back when both queries are gone."""
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.05)
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.1)
    with EmbeddedBroker() as broker:
        topics, patience = Topics(broker.bootstrap_servers), {"default.api.timeout.ms": "1000"}
        names = {letter: topics.create(1, f"{prefix}{letter}") for letter in "ab"}
        for name in names.values():
            topics.produce(name, values(name, 20))

        def all_have(count: int) -> bool:
            return all(len(stored(tmp_path / letter)) == count for letter in names)

        with ingest(
            spark,
            app_id="outage",
            checkpoint=str(tmp_path / "checkpoints"),
            kafka={"bootstrap.servers": broker.bootstrap_servers, **patience},
            topic_pattern=f"^{prefix}(.*)$",
            path=f"{tmp_path}/{{1}}",
            trigger="100 milliseconds",
        ) as made:
            wait_until(made, lambda: all_have(20))
            before = dict(made.queries)
            broker.stop()
            wait_until(made, lambda: "an outage has ended its query" in caplog.text)
            broker.restart()
            for name in names.values():
                topics.produce(name, values(name, 20, 20))
            wait_until(made, lambda: all_have(40))
            assert all(made.queries[name] is not before[name] for name in names.values())
        assert made.exception() is None
    for letter, name in names.items():
        assert stored(tmp_path / letter) == sorted(values(name, 40))


def test_a_select_runs_in_the_workers_or_in_spark_and_functions_in_spark(
    spark: SparkSession, topics: Topics, prefix: str, tmp_path: Path
) -> None:
    topic = topics.create(1, f"{prefix}a")
    topics.produce(topic, values("v", 3))
    sql = "SELECT value FROM records WHERE offset < 2"
    direct = IngestTable(topics=topic, path=f"{tmp_path}/direct", sql=sql)
    selected = IngestTable(topics=topic, path=f"{tmp_path}/sql", direct=False, sql=sql)
    changed = IngestTable(topics=topic, path=f"{tmp_path}/function", transform=lambda rows: rows.filter("offset > 0"))
    made = start(spark, topics, tmp_path, tables=[direct, selected, changed])
    made.awaitTermination(DEADLINE_S)
    assert [flow.direct for flow in made.flows] == [True, False, False]
    assert stored(tmp_path / "direct") == stored(tmp_path / "sql") == values("v", 2)
    assert stored(tmp_path / "function") == values("v", 2, 1)
    with pytest.raises(AnalysisException, match="records"):
        spark.table("records")


def test_a_view_with_the_name_of_the_records_is_left_as_it_is(
    spark: SparkSession, topics: Topics, prefix: str, tmp_path: Path
) -> None:
    table = IngestTable(
        topics=topics.create(1, f"{prefix}a"), path=f"{tmp_path}/a", direct=False, sql="SELECT value FROM records"
    )
    spark.range(7).createOrReplaceTempView("records")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")  # interpreted, Spark cannot list a table
    try:
        with pytest.raises(OptionError, match="the session has a temporary view of that name: drop it"):
            start(spark, topics, tmp_path, tables=[table])
        assert spark.table("records").count() == 7
    finally:
        spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        spark.catalog.dropTempView("records")


def test_nothing_is_started_for_a_table_that_cannot_be(
    spark: SparkSession, topics: Topics, prefix: str, tmp_path: Path
) -> None:
    topic = topics.create(1, f"{prefix}a")
    spark.range(1).createOrReplaceTempView("passing_view")
    tables = [IngestTable(topics=topic, path=f"{tmp_path}/a"), IngestTable(topics=topic, table="passing_view")]
    with pytest.raises(OptionError, match="table=passing_view is a temporary view"):
        start(spark, topics, tmp_path, tables=tables)
    spark.catalog.dropTempView("passing_view")
    assert not (tmp_path / "a").exists()


def example(topics: Topics, prefix: str, tmp_path: Path) -> Path:
    """Write the example with topics, brokers and a folder of a test."""
    text = (CONF / "ingest.toml").read_text()
    for before, after in {
        "localhost:9092": topics.bootstrap_servers,
        r"^shop\.": f"^{prefix}shop-",
        "clicks-eu": f"{prefix}clicks-eu",
        "clicks-us": f"{prefix}clicks-us",
        '"data/': f'"{tmp_path}/',
        "table:data/": f"table:{tmp_path}/",
        "metrics_port = 9405": "metrics_port = 0",
        '"10 seconds"': '"1 second"',
    }.items():
        assert before in text
        text = text.replace(before, after)
    config = tmp_path / "ingest.toml"
    config.write_text(text)
    return config


def run_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process, with the session that is here, which stays."""
    from sparkonce.connectors import session
    from sparkonce.jobs.cli import ingest as command

    log = logging.getLogger("sparkonce")
    handlers, level = log.handlers[:], log.level
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(command, "_stop", lambda _: None)
    try:
        return main(["ingest", *arguments])
    finally:
        log.handlers[:] = handlers
        log.setLevel(level)


def test_the_example_runs_until_sigterm_and_goes_on(
    spark: SparkSession, topics: Topics, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command starts its own Spark, and goes on in ours, which saves a start."""
    orders, *clicks = (topics.create(1, prefix + name) for name in ("shop-orders", "clicks-eu", "clicks-us"))
    config = example(topics, prefix, tmp_path)
    topics.produce(orders, values("order", 10))
    topics.produce(clicks[0], [b'{"user": "a", "page": "/", "at": "2026-01-31T12:00:00Z"}', b"not JSON"])
    command = [sys.executable, "-m", "sparkonce.jobs.cli.main", "ingest", str(config)]
    with (tmp_path / "log").open("w+") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
        dead = tmp_path / "tables" / "clicks-dead-letters"
        for _ in range(DEADLINE_S * 5):
            if stored(tmp_path / "tables" / "orders") and stored(dead):
                break
            assert running.poll() is None, (tmp_path / "log").read_text()
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(0.2)
        running.send_signal(signal.SIGTERM)
        assert running.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()
    said = (tmp_path / "log").read_text()
    assert re.search(r"INFO metrics at http://127.0.0.1:\d+/metrics", said)
    assert "INFO SIGTERM: stopping after the batches that run" in said

    topics.produce(orders, values("order", 5, 10))
    topics.produce(clicks[1], [b'{"user": "b", "page": "/", "at": "2026-01-31T13:00:00Z"}'])
    assert run_here(spark, monkeypatch, str(config), "--available-now") == 0
    assert stored(tmp_path / "tables" / "orders") == sorted(values("order", 15))
    found = DeltaTable(tmp_path / "tables" / "clicks").to_pyarrow_table().to_pylist()
    assert sorted((row["topic"], row["value"]["user"]) for row in found) == [(clicks[0], "a"), (clicks[1], "b")]
    assert stored(dead) == [b"not JSON"]


def ids(table: Path) -> list[int]:
    return (
        sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) if DeltaTable.is_deltatable(str(table)) else []
    )


@pytest.mark.lab  # without Spark: tests/unit/ingest/test_catching_up.py
def test_a_table_that_refuses_holds_up_no_other_and_catches_up_once_it_is_mended(
    spark: SparkSession,
    topics: Topics,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.05)
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.1)
    monkeypatch.setattr(restarts, "LONGEST_PAUSE_S", 0.5)
    good, bad = topics.create(2, f"{prefix}good"), topics.create(2, f"{prefix}bad")
    rule = {
        "topic_pattern": f"^{prefix}(.*)$",
        "path": f"{tmp_path}/{{1}}",
        "value_format": "json",
        "value_schema": "id BIGINT",
        "sql": "SELECT value.id AS id FROM records",
    }

    def produce(topic: str, start: int, end: int) -> None:
        for partition in (0, 1):
            numbers = range(start + partition, end, 2)
            topics.produce(topic, [f'{{"id": {number}}}'.encode() for number in numbers], partition=partition)

    for topic in (good, bad):
        produce(topic, 0, 5)
    assert start(spark, topics, tmp_path, **rule).awaitTermination(DEADLINE_S)
    DeltaTable(tmp_path / "bad").alter.add_constraint({"small": "id < 10"})
    for topic in (good, bad):
        produce(topic, 5, 12)
    with pytest.raises(IngestError, match=rf"{bad} \({bad} -> {tmp_path}/bad\) has failed: .*small"):
        start(spark, topics, tmp_path, **rule).awaitTermination(DEADLINE_S)
    assert ids(tmp_path / "good") == [*range(12)], "it is read to its end first"

    with start(spark, topics, tmp_path, **rule, trigger="100 milliseconds") as made:
        produce(good, 12, 20)
        produce(bad, 12, 20)
        wait_until(made, lambda: len(ids(tmp_path / "good")) == 20)
        wait_until(made, lambda: "the table is behind, and is tried again" in caplog.text)
        assert ids(tmp_path / "bad") == [*range(5)]
        DeltaTable(tmp_path / "bad").alter.drop_constraint("small")
        wait_until(made, lambda: len(ids(tmp_path / "bad")) == 20)
        later = topics.create(1, f"{prefix}later")
        topics.produce(later, [b'{"id": 1}'])
        wait_until(made, lambda: ids(tmp_path / "later") == [1])
        topics.delete(later)
        wait_until(made, lambda: all(later not in str(query.lastProgress) for query in made.queries.values()))
        produce(good, 20, 22)
        wait_until(made, lambda: len(ids(tmp_path / "good")) == 22)
    assert made.exception() is None
    assert ids(tmp_path / "later") == [1]
    for name, count in (("good", 22), ("bad", 20)):
        assert ids(tmp_path / name) == [*range(count)]
        assert main(["audit", str(tmp_path / name)]) == 0


def test_tables_move_into_one_query_and_back_and_a_topic_may_go(
    spark: SparkSession, topics: Topics, prefix: str, tmp_path: Path
) -> None:
    names = {letter: topics.create(1, f"{prefix}{letter}") for letter in "abc"}
    own = {"tables": [IngestTable(topics=name, path=f"{tmp_path}/{letter}") for letter, name in names.items()]}
    together = {"topic_pattern": f"^{prefix}(.*)$", "path": f"{tmp_path}/{{1}}"}
    # An older one has named them so: after the topics, with a checkpoint each.
    own["tables"] = [replace(each, name=str(each.topics)) for each in own["tables"]]

    def run(count: int, **rule: Any) -> list[str]:
        for name in names.values():
            topics.produce(name, values(name, 10, count - 10))
        made = start(spark, topics, tmp_path, **rule)
        assert made.awaitTermination(DEADLINE_S)
        for letter, name in names.items():
            assert stored(tmp_path / letter) == sorted(values(name, count))
        return sorted({query.id for query in made.queries.values()})

    assert len(run(10, **own)) == 3
    (shared,) = run(20, **together)
    assert run(30, **together) == [shared], "its checkpoint is there"
    run(40, **own)
    (again,) = run(50, **together)
    assert again != shared, "its checkpoint is behind the tables"
    topics.delete(names.pop("c"))
    assert run(60, **together) == [again], "the others go on"
    for letter in "ab":
        assert main(["audit", str(tmp_path / letter)]) == 0
