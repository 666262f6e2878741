"""The engine without Spark: pipelines that are right, wrong or stuck, and what is said of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import write_deltalake

from lab.spark_process import SESSION_ENDED
from lab.verify import wave
from lab.verify.brokers import SETTINGS, Kafka
from lab.verify.cells import Cell, Outcome
from lab.verify.engine import Engine
from lab.verify.matrix import full
from lab.verify.outcomes import SecondOpinion
from lab.verify.pipelines import Pipeline
from lab.verify.records import TopicRecord, read_topic
from sparkonce import EmbeddedBroker
from sparkonce.crash_points import MARK_SUFFIX, PLAN_SUFFIX, RELEASE_SUFFIX

NAMES = {cell.name: cell for cell in full()}
EXCEPTION = NAMES["exactly-once_append_sink.before_commit_exception_no-checkpoint"]
ANCHORED = NAMES["exactly-once_append_source.planned_exception_no-checkpoint"]
DRIVER = NAMES["exactly-once_append_sink.before_commit_driver-killed"]
TOPIC = NAMES["exactly-once_topic_sink.before_commit_exception"]
TIMED_OUT = NAMES["exactly-once_topic_transaction.decided_transaction-timed-out"]
RETRIED = NAMES["exactly-once_topic_sink.writing_task-retried"]
LOSS = NAMES["at-most-once_append_sink.between_writes_exception"]

Run = Callable[[Pipeline, Path], str | Callable[[], str | None] | None]
"""Does what a run of the pipeline does, with the cell's mark as the second argument; returns its error.

A function in place of that gives the error with which the run ends as soon as it does.
"""


class FakeSpark:
    """Runs a function in place of a query."""

    is_alive = True
    cpu_s = 0.0

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs
        self.started: list[str] = []
        self.killed = 0
        self.folder = Path()
        self._ended: dict[str, str | None] = {}
        self._running: dict[str, Callable[[], str | None]] = {}

    def start(self, name: str, pipeline: Pipeline) -> None:
        run = self.runs[len(self.started)]
        self.started.append(name)
        Path(pipeline.checkpoint).mkdir(exist_ok=True)
        error = run(pipeline, self.folder / f"{Path(pipeline.folder).name}{MARK_SUFFIX}")
        if callable(error):
            self._running[name] = error
        elif error != "never ends":
            self._ended[name] = error

    def ended(self, name: str) -> tuple[bool, str | None]:
        if (error := self._running.get(name, lambda: None)()) is not None:
            self._ended[name] = error
        return name in self._ended, self._ended.get(name)

    def kill(self) -> int:
        self.killed += 1
        return 1

    def close(self) -> None: ...


class FakeEngine(Engine):
    fake: FakeSpark

    def session(self) -> Any:
        return self.fake


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with EmbeddedBroker(config=SETTINGS) as broker:
        yield Kafka("the embedded broker", broker, may_be_killed=False)


def outcome_of(
    cell: Cell, kafka: Kafka, folder: Path, *runs: Run, second_opinion: SecondOpinion = lambda *_: None
) -> tuple[Outcome, FakeSpark]:
    engine = FakeEngine(kafka, folder, second_opinion=second_opinion)
    engine.fake = FakeSpark(list(runs))
    engine.fake.folder = engine.crash_folder
    (outcome,) = list(engine.run([cell]))
    return outcome, engine.fake


def write(pipeline: Pipeline, records: list[TopicRecord]) -> None:
    columns: dict[str, list[object]] = {name: [] for name in ("key", "value", "partition", "offset")}
    for record in records:
        for name, values in columns.items():
            values.append(getattr(record, name))
    write_deltalake(pipeline.table, pa.table(columns), mode="append")


def records_of(pipeline: Pipeline) -> list[TopicRecord]:
    return read_topic(pipeline.bootstrap_servers, pipeline.topic)


def reach(mark: Path) -> None:
    mark.write_text(json.dumps({"point": "x", "batch_id": 1, "pid": 1}) + "\n")


def fails_at_the_point(pipeline: Pipeline, mark: Path) -> str:
    write(pipeline, records_of(pipeline)[:8])
    reach(mark)
    return "InjectedCrashError: as planned"


def writes_all(pipeline: Pipeline, _mark: Path) -> None:
    write(pipeline, records_of(pipeline))


def write_twice(pipeline: Pipeline, mark: Path) -> None:
    writes_all(pipeline, mark)
    writes_all(pipeline, mark)


def recovers(pipeline: Pipeline, _mark: Path) -> None:
    write(pipeline, records_of(pipeline)[8:])


def test_a_pipeline_that_fails_and_recovers_is_right(kafka: Kafka, tmp_path: Path) -> None:
    outcome, spark = outcome_of(EXCEPTION, kafka, tmp_path, fails_at_the_point, recovers)
    assert (outcome.wrong, outcome.lost, outcome.duplicated, outcome.records) == (None, 0, 0, 20)
    assert outcome.fired
    assert outcome.errors == ("InjectedCrashError: as planned",)
    assert [moment.what for moment in outcome.moments if moment.lane != "commit"] == [
        "starts",
        "exception at sink.before_commit",
        "ends with an error",
        "is deleted",
        "is started again",
        "ends",
    ]
    assert (len(spark.started), spark.killed) == (2, 0)


def test_the_audit_has_a_say_too(kafka: Kafka, tmp_path: Path) -> None:
    runs = fails_at_the_point, recovers
    outcome, _ = outcome_of(EXCEPTION, kafka, tmp_path, *runs, second_opinion=lambda *_: "a gap")
    assert outcome.wrong == "a gap"


def test_a_driver_that_holds_is_killed_once(kafka: Kafka, tmp_path: Path) -> None:
    def holds(_pipeline: Pipeline, mark: Path) -> str:
        reach(mark)
        return "never ends"

    outcome, spark = outcome_of(
        DRIVER, kafka, tmp_path, holds, lambda pipeline, _: write(pipeline, records_of(pipeline))
    )
    assert (outcome.wrong, spark.killed) == (None, 1)


def test_losses_and_duplicates_are_wrong(kafka: Kafka, tmp_path: Path) -> None:
    def loses(pipeline: Pipeline, _mark: Path) -> None:
        write(pipeline, records_of(pipeline)[10:])

    def doubles(pipeline: Pipeline, _mark: Path) -> None:
        write(pipeline, records_of(pipeline))

    lost, _ = outcome_of(EXCEPTION, kafka, tmp_path / "1", fails_at_the_point, loses)
    assert (lost.lost, lost.duplicated) == (2, 0)
    assert lost.wrong == "must show neither loss nor duplicates; found 2 lost and 0 duplicated of 20 records"
    doubled, _ = outcome_of(EXCEPTION, kafka, tmp_path / "2", fails_at_the_point, doubles)
    assert (doubled.lost, doubled.duplicated) == (0, 8)
    assert doubled.wrong is not None
    shown, _ = outcome_of(LOSS, kafka, tmp_path / "3", fails_at_the_point, loses)
    assert shown.wrong is None
    hidden, _ = outcome_of(LOSS, kafka, tmp_path / "4", fails_at_the_point, recovers)
    assert "must show a loss" in (hidden.wrong or "")


def test_a_fault_that_did_not_happen_proves_nothing(kafka: Kafka, tmp_path: Path) -> None:
    def never_comes_there(pipeline: Pipeline, _mark: Path) -> None:
        write(pipeline, records_of(pipeline)[:8])

    outcome, _ = outcome_of(EXCEPTION, kafka, tmp_path, never_comes_there, recovers)
    assert not outcome.fired
    assert outcome.wrong == "the fault did not fire"


def test_a_pipeline_that_does_not_recover_is_wrong(kafka: Kafka, tmp_path: Path) -> None:
    outcome, _ = outcome_of(EXCEPTION, kafka, tmp_path / "1", fails_at_the_point, lambda *_: "FencedError: no")
    assert outcome.wrong == "the pipeline did not recover: FencedError: no"
    outcome, _ = outcome_of(EXCEPTION, kafka, tmp_path / "2", fails_at_the_point, lambda *_: SESSION_ENDED)
    assert SESSION_ENDED in (outcome.wrong or "")


def test_a_pipeline_that_goes_on_where_it_must_end_is_wrong(kafka: Kafka, tmp_path: Path) -> None:
    def goes_on(pipeline: Pipeline, mark: Path) -> None:
        fails_at_the_point(pipeline, mark)

    outcome, _ = outcome_of(EXCEPTION, kafka, tmp_path, goes_on, recovers)
    assert outcome.wrong == "the pipeline should have ended at the fault, and went on"


def test_a_pipeline_that_hangs_is_given_up(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave, "RUN_LIMIT_S", 0.2)
    outcome, spark = outcome_of(EXCEPTION, kafka, tmp_path, lambda *_: "never ends")
    assert outcome.wrong == "run 1 neither ended nor reached its point within 0.2 s"
    assert spark.killed == 1
    assert list(tmp_path.rglob(f"*{PLAN_SUFFIX}")) == []


def test_what_spark_could_not_start_is_run_again(kafka: Kafka, tmp_path: Path) -> None:
    said: list[str] = []
    engine = FakeEngine(kafka, tmp_path, second_opinion=lambda *_: None, tell=said.append)
    busy: Run = lambda *_: "org.apache.spark.SparkException: Python worker failed to connect back."  # noqa: E731
    engine.fake = FakeSpark([busy, writes_all, fails_at_the_point, recovers])
    engine.fake.folder = engine.crash_folder
    outcomes = list(engine.run([EXCEPTION]))
    assert [outcome.wrong for outcome in outcomes] == [None]
    assert "is run again" in said[0]


@pytest.mark.parametrize(("last", "lost", "duplicated"), [(write_twice, 0, 20), (recovers, 8, 0)])
def test_wrong_rows_are_told_whatever_spark_could_not_start(
    kafka: Kafka, tmp_path: Path, last: Run, lost: int, duplicated: int
) -> None:
    busy: Run = lambda *_: "org.apache.spark.SparkException: Python worker failed to connect back."  # noqa: E731
    outcome, _ = outcome_of(EXCEPTION, kafka, tmp_path, busy, last)
    assert outcome.wrong is not None
    assert (outcome.lost, outcome.duplicated) == (lost, duplicated)


def test_a_second_try_meets_no_plan_of_the_first(kafka: Kafka, tmp_path: Path) -> None:
    armed: list[list[str]] = []
    engine = FakeEngine(kafka, tmp_path, second_opinion=lambda *_: None, tell=lambda _: None)

    def notes_what_is_armed(pipeline: Pipeline, _mark: Path) -> None:
        name = Path(pipeline.folder).name
        armed.append([path.name.replace(name, "its") for path in engine.crash_folder.glob(f"*{PLAN_SUFFIX}")])
        write(pipeline, records_of(pipeline)[:8])

    busy: Run = lambda *_: "org.apache.spark.SparkException: Python worker failed to connect back."  # noqa: E731
    engine.fake = FakeSpark([busy, writes_all, notes_what_is_armed, recovers])
    engine.fake.folder = engine.crash_folder
    (outcome,) = engine.run([ANCHORED])
    assert armed == [[f"its.anchor{PLAN_SUFFIX}"]]
    assert outcome.wrong == "the fault did not fire"


def copy(
    pipeline: Pipeline, records: list[TopicRecord], transactional_id: str | None = None, timeout_ms: int = 60_000
) -> Producer:
    """Send records to the pipeline's topic; with an id, in a transaction that is left open."""
    settings: dict[str, object] = {"bootstrap.servers": pipeline.bootstrap_servers}
    if transactional_id is not None:
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    producer = Producer(settings)
    if transactional_id is not None:
        producer.init_transactions(30)
        producer.begin_transaction()
    for record in records:
        producer.produce(pipeline.output_topic, record.value, record.key, record.partition)
    producer.flush(30)
    return producer


def store_offsets(pipeline: Pipeline, records: list[TopicRecord]) -> None:
    ends = {record.partition: record.offset + 1 for record in records}
    consumer = Consumer({"bootstrap.servers": pipeline.bootstrap_servers, "group.id": pipeline.app_id})
    wanted = [TopicPartition(pipeline.topic, partition, offset) for partition, offset in ends.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def copies_and_fails(pipeline: Pipeline, mark: Path) -> str:
    copy(pipeline, records_of(pipeline)[:8])
    reach(mark)
    return "InjectedCrashError: as planned"


def copies_the_rest(pipeline: Pipeline, _mark: Path) -> None:
    copy(pipeline, records_of(pipeline)[8:])
    store_offsets(pipeline, records_of(pipeline))


def test_what_is_sent_to_a_topic_is_judged_there(kafka: Kafka, tmp_path: Path) -> None:
    outcome, _ = outcome_of(TOPIC, kafka, tmp_path, copies_and_fails, copies_the_rest)
    assert (outcome.wrong, outcome.lost, outcome.duplicated, outcome.records) == (None, 0, 0, 20)


def test_offsets_that_lag_are_wrong(kafka: Kafka, tmp_path: Path) -> None:
    def stores_too_little(pipeline: Pipeline, _mark: Path) -> None:
        copy(pipeline, records_of(pipeline)[8:])
        store_offsets(pipeline, [each for each in records_of(pipeline) if (each.partition, each.offset) != (1, 9)])

    outcome, _ = outcome_of(TOPIC, kafka, tmp_path, copies_and_fails, stores_too_little)
    assert (outcome.lost, outcome.duplicated) == (0, 0)
    assert re.fullmatch(r"group exactly-once_topic_\S+ lags: \S+-1 is at 9 of 10", outcome.wrong or ""), outcome.wrong


def test_a_transaction_that_is_left_open_is_wrong(kafka: Kafka, tmp_path: Path) -> None:
    left: list[Producer] = []

    def leaves_one_open(pipeline: Pipeline, mark: Path) -> None:
        copies_the_rest(pipeline, mark)
        left.append(copy(pipeline, records_of(pipeline)[:1], f"sparkonce/{pipeline.app_id}/1/a-0"))

    outcome, _ = outcome_of(TOPIC, kafka, tmp_path, copies_and_fails, leaves_one_open)
    assert (outcome.lost, outcome.duplicated) == (0, 0)
    assert re.match(
        r"transaction left behind: sparkonce/\S+/1/a-0 is Ongoing; readers are held up", outcome.wrong or ""
    )
    left[0].abort_transaction(30)


@pytest.mark.parametrize(("error", "wrong"), [("transaction.timeout.ms passed", None), ("some", "does not say")])
def test_a_driver_is_let_go_when_kafka_has_aborted_its_transactions(
    kafka: Kafka, tmp_path: Path, error: str, wrong: str | None
) -> None:
    begun: list[tuple[Producer, Path]] = []

    def holds(pipeline: Pipeline, mark: Path) -> Callable[[], str | None]:
        assert pipeline.transaction_timeout_ms == wave.TRANSACTION_TIMEOUT_MS
        begun.append((copy(pipeline, records_of(pipeline)[:8], f"sparkonce/{pipeline.app_id}/1/a-0", 1_000), mark))
        reach(mark)
        return lambda: f"TransactionsGoneError: {error}" if mark.with_suffix(RELEASE_SUFFIX).exists() else None

    def starts_again(pipeline: Pipeline, _mark: Path) -> None:
        copy(pipeline, records_of(pipeline))
        store_offsets(pipeline, records_of(pipeline))

    outcome, spark = outcome_of(TIMED_OUT, kafka, tmp_path, holds, starts_again)
    assert (outcome.wrong is None) if wrong is None else (wrong in (outcome.wrong or ""))
    assert (outcome.lost, outcome.duplicated, spark.killed) == (0, 0, 0)
    assert "has aborted what was open for too long" in [moment.what for moment in outcome.moments]


def test_sessions_that_run_tasks_again_are_for_such_cells_alone(kafka: Kafka, tmp_path: Path) -> None:
    closed: list[str] = []

    class Noted(FakeEngine):
        def _end_session(self) -> None:
            closed.append(f"after {len(self.fake.started)} runs")

    def goes_on(pipeline: Pipeline, mark: Path) -> None:
        copy(pipeline, records_of(pipeline))
        reach(mark)

    def ends(pipeline: Pipeline, _mark: Path) -> None:
        copy(pipeline, [record for record in records_of(pipeline) if record.offset >= 8])
        store_offsets(pipeline, records_of(pipeline))

    engine = Noted(kafka, tmp_path, second_opinion=lambda *_: None)
    engine.fake = FakeSpark([copies_and_fails, copies_the_rest, goes_on, ends])
    engine.fake.folder = engine.crash_folder
    assert [outcome.wrong for outcome in engine.run([TOPIC, RETRIED])] == [None, None]
    assert closed == ["after 2 runs"]


def test_a_cell_that_shares_no_victim_recovers_before_the_next_begins(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wave, "AT_ONCE", 1)
    engine = FakeEngine(kafka, tmp_path, second_opinion=lambda *_: None)
    engine.fake = FakeSpark([fails_at_the_point, recovers, fails_at_the_point, recovers])
    engine.fake.folder = engine.crash_folder
    outcomes = engine.run([EXCEPTION, ANCHORED])
    first = next(outcomes)
    assert (first.cell, first.wrong) == (EXCEPTION, None)
    assert [name.rpartition("_")[2] for name in engine.fake.started] == ["no-checkpoint#1", "no-checkpoint#2"]
    assert [each.cell for each in outcomes] == [ANCHORED]
    assert len(engine.fake.started) == 4


def test_cells_of_one_driver_wait_until_all_hold(kafka: Kafka, tmp_path: Path) -> None:
    def holds(_pipeline: Pipeline, mark: Path) -> str:
        reach(mark)
        return "never ends"

    def starts_again(pipeline: Pipeline, _mark: Path) -> None:
        assert engine.fake.killed == 1
        write(pipeline, records_of(pipeline))

    engine = FakeEngine(kafka, tmp_path, second_opinion=lambda *_: None)
    engine.fake = FakeSpark([holds, holds, starts_again, starts_again])
    engine.fake.folder = engine.crash_folder
    other = NAMES["exactly-once_append_sink.file_written_driver-killed"]
    assert [(each.cell, each.wrong) for each in engine.run([DRIVER, other])] == [(DRIVER, None), (other, None)]
    assert engine.fake.killed == 1


def test_what_held_when_the_session_died_is_awaited_when_it_recovers(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cell hangs and is given up with the session; another one, which held there, is still started again."""
    monkeypatch.setattr(wave, "RUN_LIMIT_S", 0.5)
    left = [3]

    def holds(_pipeline: Pipeline, mark: Path) -> str:
        reach(mark)
        return "never ends"

    def takes_a_while(pipeline: Pipeline, _mark: Path) -> Callable[[], str | None]:
        def ends() -> str | None:
            left[0] -= 1
            return None if left[0] else "FencedError: no"

        return ends

    engine = FakeEngine(kafka, tmp_path, second_opinion=lambda *_: None)
    engine.fake = FakeSpark([holds, lambda *_: "never ends", takes_a_while])
    engine.fake.folder = engine.crash_folder
    other = NAMES["exactly-once_append_sink.file_written_driver-killed"]
    wrong = {each.cell: each.wrong or "" for each in engine.run([DRIVER, other])}
    assert "did not recover: FencedError" in wrong[DRIVER]
    assert "neither ended nor reached its point" in wrong[other]
