"""Cells beside Spark's own source and sinks, without Spark: their choice, their fault, and how they are judged."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from lab.bench.load import LoadError
from lab.crash_plans import arm, fired
from lab.verify.__main__ import add_arguments, choose, run
from lab.verify.brokers import Kafka
from lab.verify.engine import Engine
from lab.verify.records import await_uncommitted, create_topic, read_topic
from lab.verify.results import is_good
from lab.verify.shows import courses
from lab.verify.shows import engine as shows_engine
from lab.verify.shows.cells import Fault, Show, ShowCell, cells_of
from lab.verify.shows.copies import STEP, Copy, failing
from sparkonce import EmbeddedBroker, crash_points
from sparkonce.crash_points import CrashPlans, InjectedCrashError

PROJECT = Path(__file__).resolve().parents[3]
SPARKS_OWN, OURS = (cell for cell in cells_of(Show.DOUBLED_ROWS) if cell.fault is Fault.CHECKPOINT)


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("show", Show)
def test_a_show_has_cells_of_its_own_and_its_page_names_them(show: Show) -> None:
    cells = choose(options("--show", show.value))
    assert cells == list(cells_of(show))
    assert {cell.name for cell in cells if isinstance(cell, ShowCell) and cell.by_spark}
    page = (PROJECT / "docs" / "internals" / "shows.md").read_text()
    assert f"python -m lab.verify --show {show.value}" in page
    assert [cell.name for cell in cells if f"`{cell.name}`" not in page] == []
    ours = choose(options("--show", show.value, "--without-merge"))
    assert ours == [cell for cell in cells_of(show) if not cell.by_spark]
    assert choose(options("--show", show.value, "--cell", cells[-1].name)) == [cells[-1]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kind", "exception"], "cells of its own"),
        (["--cluster"], "cells of its own"),
        (["--pauses", "0"], "--pauses 0"),
    ],
)
def test_what_cannot_be_shown_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options("--show", "two-drivers", *words)) == 2
    assert said in capsys.readouterr().err


def test_without_the_jars_ours_are_run_and_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_KAFKA_JARS", "/nowhere/spark-sql-kafka.jar")
    assert run(options("--show", "doubled-rows", "--cell", SPARKS_OWN.name)) == 1
    told = capsys.readouterr().out
    assert "SPARK_KAFKA_JARS names /nowhere/spark-sql-kafka.jar, which is not there" in told
    assert "--without-merge" in told


# The fault in the query.


def rows(partition: int, first: int, last: int) -> pa.RecordBatch:
    offsets = list(range(first, last))
    values = [b"%d" % offset for offset in offsets]
    columns = {"key": values, "value": values, "partition": [partition] * len(offsets), "offset": offsets}
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    return tmp_path


def test_the_step_fails_once_at_its_record_and_passes_key_and_value_on(plans: Path) -> None:
    plan = arm(plans, "strike", f"app.step:{STEP.value}@1=raise")
    batches = [rows(1, 0, 500), rows(0, 100, 200), rows(0, 200, 300), rows(0, 300, 400)]
    passed = list(failing("app.step", 400)(iter(batches)))
    assert (len(passed), fired(plan)) == (len(batches), None), "no batch has the record"
    assert {tuple(batch.schema.names) for batch in passed} == {("key", "value")}
    attempt = failing("app.step", 250)(iter(batches))
    assert [next(attempt).num_rows for _ in range(2)] == [500, 100]
    with pytest.raises(InjectedCrashError):
        next(attempt)
    assert len(list(failing("app.step", 250)(iter(batches)))) == len(batches), "a later attempt passes"


# The judge.

Run = Callable[[Copy], None]


class FakeSpark:
    """Runs a function in place of a query."""

    is_alive = True
    cpu_s = 0.0

    def __init__(self, query: Run) -> None:
        self.query = query

    def start(self, _name: str, copy: Copy) -> None:
        self.query(copy)

    def ended(self, _name: str) -> tuple[bool, str | None]:
        return True, None

    def kill(self) -> int:
        return 0

    def close(self) -> None: ...


class FakeEngine(Engine):
    query: Run

    def session(self) -> Any:
        return FakeSpark(self.query)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with EmbeddedBroker() as broker:
        yield Kafka("the embedded broker", broker, may_be_killed=False)


def send(servers: str, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value in records:
        producer.produce(topic, value, key)
    producer.flush(30)


def copy_all(copy: Copy) -> None:
    assert copy.output_topic is not None
    found = read_topic(copy.bootstrap_servers, copy.topic)
    send(copy.bootstrap_servers, copy.output_topic, [(record.key, record.value) for record in found])


def copy_but_one(copy: Copy) -> None:
    assert copy.output_topic is not None
    found = read_topic(copy.bootstrap_servers, copy.topic)[1:]
    send(copy.bootstrap_servers, copy.output_topic, [(record.key, record.value) for record in found])


def test_a_peer_must_double_rows_and_ours_must_not(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courses, "RECORDS", 20)
    each_case = [(SPARKS_OWN, copy_all, 0, 20), (SPARKS_OWN, copy_but_one, 1, 19), (OURS, copy_all, 0, 20)]
    good = []
    for number, (cell, query, lost, duplicated) in enumerate(each_case):
        engine = FakeEngine(kafka, tmp_path / str(number))
        engine.query = query
        (found,) = shows_engine.run([cell], engine, 1, 0)
        assert (found.lost, found.duplicated, found.records, found.fired) == (lost, duplicated, 20, True)
        good.append((found.wrong is None, is_good([found])))
    assert good == [(True, True), (False, False), (False, False)]


# Rows that are on their way.


def test_a_row_is_seen_before_its_transaction_ends(kafka: Kafka) -> None:
    servers = kafka.broker.bootstrap_servers
    create_topic(servers, "open")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "shows"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("open", b"hidden")
    producer.flush(30)
    await_uncommitted(servers, "open", 2, {b"hidden"}.__contains__, 30)
    assert read_topic(servers, "open", 2, "read_committed") == []
    producer.commit_transaction(30)
    assert [record.value for record in read_topic(servers, "open", 2, "read_committed")] == [b"hidden"]
    with pytest.raises(LoadError, match=r"reading open on .*, read_uncommitted: not through within 0\.2 s"):
        await_uncommitted(servers, "open", 2, {b"missing"}.__contains__, 0.2)
