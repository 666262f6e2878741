"""How queries are looked after: started a few at once, stopped together, reported when one fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkonce import IngestError, Ingestion, IngestTable, LagListener, OptionError
from sparkonce.connectors.ingest import ingestion as module
from sparkonce.connectors.ingest import restarts
from sparkonce.connectors.ingest.compacting import Compactor, is_due
from sparkonce.connectors.ingest.restarts import RESTARTS, Restart
from sparkonce.connectors.ingest.routing import routes
from sparkonce.connectors.ingest.settings import IngestSettings
from sparkonce.connectors.kafka_sink.producer import DeliveryTimeoutError
from sparkonce.connectors.schema_registry.client import RegistryError, UnreachableRegistryError
from sparkonce.connectors.values.evolution import NoSchemaYetError, SchemaChangedError
from sparkonce.kafka.client.client import KafkaUnreachableError
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.offset_store.errors import OffsetStoreError
from tests.cases import each_case
from tests.unit.ingest.fake_queries import SPARK, FakeQueries

TOPICS = ["a", "b", "c", "d"]


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that exist."""
    found = list(TOPICS)
    monkeypatch.setattr(module, "existing_topics", lambda *_: found)
    return found


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch, topics: list[str]) -> FakeQueries:
    made = FakeQueries()
    monkeypatch.setattr(module, "start_query", made.start)
    monkeypatch.setattr(module, "STARTING_AT_ONCE", 2)
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 3600)  # the tests look themselves
    monkeypatch.setattr(module, "STOP_INTERVAL_S", 0)
    return made


@pytest.fixture
def compacted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    paths: list[str] = []
    monkeypatch.setattr(Compactor, "submit", lambda _self, path, *_: paths.append(path))
    return iter([paths])


def ingestion(*, pattern: str = ".", path: str = "/tables/{topic}", **more: Any) -> Ingestion:
    whole = {"trigger": "1 second", "topic_interval_s": 0.0, "stop_timeout_s": 0.0} | more
    named = ("compact_every", "value_format", "value_schema", "source", "direct")
    entries: dict[str, Any] = {"direct": False} | {name: whole.pop(name) for name in named if name in whole}
    settings = IngestSettings.of(
        IngestTable(topic_pattern=pattern, path=path, **entries),
        (),
        app_id="shop",
        checkpoint="/checkpoints",
        kafka={"bootstrap.servers": "localhost:9092"},
        **whole,
    )
    return Ingestion(SPARK, settings, routes(settings))


def started(made: Ingestion) -> Ingestion:
    """Start it without the thread that looks after it."""
    made._find_flows()
    made._start_waiting()
    return made


def test_few_queries_start_at_once(queries: FakeQueries) -> None:
    made = started(ingestion())
    assert [*made.queries] == ["a", "b"]
    assert [flow.name for flow in made.flows] == TOPICS
    made.look()
    assert [*made.queries] == ["a", "b"]
    queries["b"].complete()
    made.look()
    assert [*made.queries] == ["a", "b", "c"]
    queries["a"].end()
    queries["c"].complete()
    made.look()
    assert [*made.queries] == TOPICS


def test_a_topic_that_is_created_later_is_read(queries: FakeQueries, topics: list[str]) -> None:
    made = started(ingestion())
    for query in queries.by_name.values():
        query.complete()
    topics.append("e")
    made.look()
    for query in queries.by_name.values():
        query.complete()
    made.look()
    assert [*made.queries] == [*TOPICS, "e"]


def test_brokers_that_do_not_answer_for_a_while_stop_nothing(
    queries: FakeQueries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = started(ingestion())

    def away(*_: object) -> list[str]:
        raise KafkaUnreachableError("no answer")

    monkeypatch.setattr(module, "existing_topics", away)
    made.look()
    assert made.exception() is None
    assert "new topics cannot be looked for now: no answer" in caplog.text


def test_a_query_that_fails_stops_the_others(queries: FakeQueries) -> None:
    made = started(ingestion(stop_timeout_s=60.0))
    queries["a"].completes_when_asked = 3
    queries["b"].fail("the disk is full")
    made._look_after()
    assert not queries["a"].isActive
    assert queries["a"].lastProgress is not None, "its batch was complete"
    assert not made.isActive
    with pytest.raises(IngestError, match=r"b \(b -> /tables/b\) has failed: RuntimeError: the disk is full"):
        made.awaitTermination()


NEWER = f"{SchemaChangedError.__module__}.SchemaChangedError: kafka_once: subject b-value has version 2"


def test_a_query_that_stops_for_a_newer_schema_begins_again(queries: FakeQueries) -> None:
    made = started(ingestion(value_format="avro", schema_registry={"url": "http://localhost:1"}))
    assert made.queries["b"] is queries["b"]
    before = queries["b"]
    before.fail(f"Traceback (most recent call last):\n  …\n{NEWER}")
    for _ in TOPICS:
        for name in set(TOPICS) & queries.by_name.keys():
            queries[name].complete()
        made.look()
    assert made.exception() is None
    assert queries["b"] is not before
    assert made.queries["b"] is queries["b"]
    queries["b"].fail(NEWER)
    made.request_stop()
    made._look_after()
    assert made.awaitTermination(0), "the next start reads it"


def test_a_topic_whose_values_have_no_schema_yet_is_read_when_they_have(
    queries: FakeQueries, caplog: pytest.LogCaptureFixture
) -> None:
    queries.refused, queries.refusal = {"a"}, NoSchemaYetError
    made = started(ingestion(value_format="avro", schema_registry={"url": "http://localhost:1"}))
    for _ in TOPICS:
        for name in queries.by_name:
            queries[name].complete()
        made.look()
    assert [*made.queries] == ["b", "c", "d"]
    assert caplog.text.count("a (a -> /tables/a) is not read yet: NoSchemaYetError: a is refused") == 1
    queries.refused.clear()
    made.look()
    assert {*made.queries} == {*TOPICS}


def test_what_is_read_once_needs_its_schema(queries: FakeQueries) -> None:
    queries.refused, queries.refusal = {"a"}, NoSchemaYetError
    with pytest.raises(OptionError, match="a is refused"):
        ingestion(value_format="avro", schema_registry={"url": "http://localhost:1"}, trigger="availableNow").start()


def test_a_query_that_begins_again_waits_for_a_subject_that_was_deleted(queries: FakeQueries) -> None:
    made = started(ingestion(value_format="avro", schema_registry={"url": "http://localhost:1"}))
    queries.refused, queries.refusal = {"b"}, NoSchemaYetError
    queries["b"].fail(NEWER)

    def look() -> None:
        for _ in TOPICS:
            for name in queries.by_name:
                queries[name].complete()
            made.look()

    look()
    assert [*made.queries] == ["a", "c", "d"]
    queries.refused.clear()
    look()
    assert made.queries["b"].isActive


@pytest.mark.parametrize("source", [{}, {"keyFormat": "avro"}])
def test_a_query_of_one_version_does_not_begin_again(queries: FakeQueries, source: dict[str, str]) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'
    registry = {"url": "http://localhost:1"}
    made = started(ingestion(value_format="avro", value_schema=schema, schema_registry=registry, source=source))
    queries["b"].fail(NEWER)
    made._look_after()
    with pytest.raises(IngestError, match=r"has failed: .* has version 2"):
        made.awaitTermination()


def of_worker(kind: type[BaseException], said: str) -> str:
    """Return what Spark says of an error in one of its Python processes."""
    head = "Traceback (most recent call last):\n  …\n"
    between = "\nThe above exception was the direct cause of the following exception:\n\n"
    return f"{head}ConnectionRefusedError: refused\n{between}{head}{kind.__module__}.{kind.__name__}: {said}\n"


AWAY = of_worker(KafkaUnreachableError, "no answer from Kafka at localhost:9092 within 60000 ms")


@each_case(
    "failure",
    [
        AWAY,
        of_worker(DeliveryTimeoutError, "kafka_once: records for letters-0 were not acknowledged"),
        of_worker(UnreachableRegistryError, "schema registry http://localhost:1 does not answer"),
        of_worker(KafkaError, "LEADER_NOT_AVAILABLE: b-0 has no leader at the moment"),
        of_worker(KafkaError, "NOT_ENOUGH_REPLICAS: letters-0"),
        of_worker(KafkaError, "COORDINATOR_NOT_AVAILABLE") + of_worker(OffsetStoreError, "could not commit offsets"),
    ],
)
def test_an_outage_restarts_the_query_that_it_has_ended_and_no_other(
    failure: str, queries: FakeQueries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.0)
    made = started(ingestion(pattern="[ab]"))
    before, other = queries["b"], queries["a"]
    before.fail(failure)
    made.look()
    assert made.isActive
    assert made.exception() is None
    assert made.queries["b"] is queries["b"] is not before
    assert queries["a"] is other
    assert other.isActive
    said = (
        "b (b -> /tables/b): an outage has ended its query, which is started again in 0 s (1 of 10 times); the others"
    )
    assert said in caplog.text


@each_case(
    "failure",
    [
        "the disk is full",
        of_worker(MissingTopicError, "topic 'b' does not exist"),
        of_worker(PermissionError, "not allowed to read topic 'b'"),
        of_worker(KafkaError, "UNKNOWN_TOPIC_OR_PARTITION: metadata of topic b"),
        of_worker(KafkaError, "TOPIC_AUTHORIZATION_FAILED: fetch b-0"),
        of_worker(RegistryError, "schema registry http://localhost:1: HTTP 422"),
        of_worker(TimeoutError, "could not fetch b-0 within 120000 ms: the broker returned no whole batch"),
    ],
)
def test_what_is_no_outage_ends_the_ingestion(failure: str, queries: FakeQueries) -> None:
    made = started(ingestion())
    queries["b"].fail(failure)
    made.look()
    assert isinstance(made.exception(), IngestError)


def test_an_outage_that_outlasts_all_restarts_ends_the_ingestion_and_a_batch_in_between_counts(
    queries: FakeQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.0)
    made = started(ingestion(pattern="a"))
    for number in range(2 * RESTARTS):
        if number == RESTARTS:
            queries["a"].complete()
        queries["a"].fail(AWAY)
        made.look()
        assert queries["a"].isActive
    queries["a"].fail(AWAY)
    made.look()
    assert "a (a -> /tables/a) has failed: KafkaUnreachableError: no answer from Kafka" in str(made.exception())


def test_pauses_between_restarts_grow() -> None:
    pauses, restart = [], Restart.after(None, 0.0)
    while restart is not None:
        assert restart.due_s == 100.0 * (restart.number - 1) + restart.pause_s
        pauses.append(restart.pause_s)
        restart = Restart.after(restart, 100.0 * restart.number)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_others_start_while_a_query_waits_for_the_end_of_an_outage(
    queries: FakeQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(restarts, "LONGEST_PAUSE_S", 3600.0)
    made = started(ingestion())
    before = queries["a"]
    before.fail(AWAY)
    queries["b"].complete()
    made.look()
    assert queries["a"] is before
    assert [*made.queries] == TOPICS
    made.request_stop()
    made._look_after()
    assert made.awaitTermination(0), "it may be stopped meanwhile"


def test_an_outage_of_the_registry_at_a_restart_is_waited_for_too(
    queries: FakeQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.0)
    made = started(ingestion(pattern="[ab]"))
    queries.refused, queries.refusal = {"b"}, UnreachableRegistryError
    queries["b"].fail(AWAY)
    made.look()
    made.look()
    assert made.exception() is None
    queries.refused.clear()
    made.look()
    assert made.queries["b"].isActive


def test_brokers_that_have_never_answered_are_no_outage(queries: FakeQueries) -> None:
    """Their address may be a wrong one."""
    made = started(ingestion())
    for query in queries.by_name.values():
        query.is_planned = False
    queries["b"].fail(AWAY)
    made.look()
    assert "b (b -> /tables/b) has failed: KafkaUnreachableError" in str(made.exception())


def test_a_query_that_fails_while_all_are_stopped_is_reported(queries: FakeQueries) -> None:
    made = started(ingestion(stop_timeout_s=60.0))
    queries["b"].in_batch = False
    queries["a"].fails_when_asked = 2
    made.request_stop()
    made._look_after()
    with pytest.raises(IngestError, match=r"a \(a -> /tables/a\) has failed: RuntimeError: too late"):
        made.awaitTermination()


def test_a_query_that_does_not_start_stops_the_others(queries: FakeQueries) -> None:
    made = started(ingestion())
    queries["a"].complete()
    queries.refused.add("c")
    made._look_after()
    assert not any(query.isActive for query in queries.by_name.values())
    with pytest.raises(IngestError, match="a query cannot be started: ValueError: c is refused"):
        made.awaitTermination()


def test_nothing_runs_if_the_first_do_not_start(queries: FakeQueries) -> None:
    queries.refused.add("b")
    with pytest.raises(ValueError, match="b is refused"):
        ingestion().start()
    assert not queries["a"].isActive


def test_it_ends_when_all_is_read(queries: FakeQueries) -> None:
    made = ingestion(trigger="availableNow")
    started(made)
    for _ in TOPICS:
        for query in queries.by_name.values():
            query.complete()
            query.end()
        made.look()
    made._look_after()
    assert [*made.queries] == TOPICS
    assert made.awaitTermination(0)


def test_stopping_waits_for_batches_until_the_time_is_up(
    queries: FakeQueries, caplog: pytest.LogCaptureFixture
) -> None:
    made = started(ingestion(stop_timeout_s=0.0))
    made.request_stop()
    with caplog.at_level(logging.WARNING):
        made._look_after()
    assert (
        "a (a -> /tables/a): its batch has not completed in 0 s and is stopped; the next start repeats" in caplog.text
    )
    assert made.awaitTermination(0)


def test_a_query_that_cannot_be_stopped_does_not_keep_the_others_running(
    queries: FakeQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = started(ingestion())

    def too_late() -> None:
        raise TimeoutError("its thread has not ended in 5 s")

    monkeypatch.setattr(queries["a"], "stop", too_late)
    made.request_stop()
    made._look_after()
    assert not queries["b"].isActive
    with pytest.raises(IngestError, match=r"a \(a -> /tables/a\) cannot be stopped: TimeoutError: its thread has not"):
        made.awaitTermination(0)


def test_it_ends_and_serves_no_metrics_any_more_though_the_session_is_gone(queries: FakeQueries) -> None:
    stopped: list[bool] = []

    def wait(*_: object) -> bool:
        raise ConnectionError("the JVM is gone")

    made = started(ingestion())
    made.lag = cast(LagListener, SimpleNamespace(wait=wait, stop=lambda: stopped.append(True)))
    made.request_stop()
    made._look_after()
    assert stopped == [True]
    with pytest.raises(IngestError, match="cannot close the ingestion: ConnectionError: the JVM is gone"):
        made.awaitTermination(0)


def test_a_query_between_batches_is_stopped_at_once(queries: FakeQueries) -> None:
    made = started(ingestion(stop_timeout_s=60.0))
    for query in queries.by_name.values():
        query.in_batch = False
    made.request_stop()
    made._look_after()
    assert not any(query.isActive for query in queries.by_name.values())


def test_tables_are_compacted_every_n_batches(queries: FakeQueries, compacted: Iterator[list[str]]) -> None:
    paths = next(compacted)
    made = started(ingestion(pattern="a", path="/tables/{topic}", compact_every=3, trigger="1 second"))
    for _ in range(7):
        queries["a"].complete()
        made.look()
        made.look()
    assert paths == ["/tables/a", "/tables/a"]


def test_a_catalog_that_does_not_answer_when_a_compaction_is_due_stops_nothing(
    queries: FakeQueries, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object) -> str:
        raise ConnectionError("no answer")

    made = started(ingestion(pattern="a", compact_every=1))
    monkeypatch.setattr(module, "table_path_of", away)
    queries["a"].complete()
    made.look()
    assert made.exception() is None
    assert "a (a -> /tables/a): its table cannot be compacted now: ConnectionError: no answer" in caplog.text


@each_case(
    ("every", "before", "batch", "due"),
    [(0, 0, 9, False), (1, 4, 5, True), (1, 5, 5, False), (5, 3, 4, True), (5, 4, 8, False), (5, 2, 30, True)],
)
def test_a_compaction_is_due_by_the_numbers_of_batches(every: int, before: int, batch: int, due: bool) -> None:
    assert is_due(every, before, batch) is due


def test_a_topic_without_a_table_of_its_own_that_appears_later_is_left_out(
    queries: FakeQueries, topics: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    made = started(ingestion(pattern="^(.)", path="/tables/{1}"))
    topics.append("ab")
    for _ in range(2):
        made.look()
    assert made.exception() is None
    assert "ab" not in made._tables
    (warning,) = [record.getMessage() for record in caplog.records if "topic ab is left out" in record.getMessage()]
    assert "write one table" in warning
