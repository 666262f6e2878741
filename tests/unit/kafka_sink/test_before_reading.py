"""A source without a checkpoint, whose sink has a decision that was never carried out: where it begins."""

from __future__ import annotations

import pytest

from sparkonce.connectors.formats.kafka_once import KafkaOnceDataSource
from sparkonce.connectors.kafka_sink.decisions import DEFAULT_TOPIC
from sparkonce.connectors.kafka_sink.driver import Driver
from sparkonce.exactly_once.transactions import DecisionFormatError
from sparkonce.kafka.client.client import Client, KafkaUnreachableError
from tests.unit.kafka_sink.pipeline import INPUT, Application, Written, all_rows, committed_rows
from tests.unit.kafka_sink.test_driver_recovery import claim, decided_only, run


@pytest.fixture
def application(application: Application) -> Application:
    """One that keeps its decisions where a source looks for them."""
    application.options["decision_topic"] = DEFAULT_TOPIC
    return application


def begins_at(application: Application) -> set[int]:
    """Ask as Spark asks a query with a new checkpoint."""
    options = {
        "kafka.bootstrap.servers": application.broker.bootstrap_servers,
        "subscribe": INPUT,
        "offsetStore": f"group:{application.name}",
        "appId": application.name,
        "startingOffsets": "earliest",
    }
    with application.machine.process(application.machine.new_pid()):
        source = KafkaOnceDataSource(options)
        reader = source.streamReader(source.schema())
        document = reader.initialOffset()
    partitions = document["topics"][INPUT]["partitions"]
    return {position["next"] for position in partitions.values()}


@pytest.fixture
def decided(application: Application, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Batch 1 is decided, and its driver is dead before it has committed anything."""
    run(application, application.start(), 0)
    return decided_only(application, 1, monkeypatch)


@pytest.mark.parametrize("gone", [1, 2])
def test_the_first_start_writes_what_has_timed_out(
    gone: int, application: Application, decided: Written, observer: Client
) -> None:
    claim(observer, *decided.parts[:gone])
    assert begins_at(application) == {2}
    assert begins_at(application) == {2}
    incarnation = application.start("new")
    application.run(incarnation, application.batch(incarnation, 0, 2, 4))
    assert committed_rows(observer, application.topic) == all_rows(4)
    application.run(incarnation, application.batch(incarnation, 1, 4, 6))
    assert committed_rows(observer, application.topic) == all_rows(6)


def test_what_can_be_finished_is_left_to_the_sink(application: Application, decided: Written, observer: Client) -> None:
    """A driver that lives may be about to do it, and is not fenced."""
    before = application.driver(observer).transactions.describe([application.scope.driver_id])
    assert begins_at(application) == {4}
    assert application.driver(observer).transactions.describe([application.scope.driver_id]) == before
    assert len(decided.parts) == 2
    incarnation = application.start("new")
    application.run(incarnation, application.batch(incarnation, 0, 4, 6))
    assert committed_rows(observer, application.topic) == all_rows(6)


@pytest.mark.parametrize(
    "error",
    [TimeoutError("neither committed nor aborted"), KafkaUnreachableError("away"), DecisionFormatError("format 9")],
)
def test_what_cannot_be_looked_after_is_left_to_the_sink(
    error: Exception, application: Application, decided: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink's own claim ends what is pending, so the source must come as far as that."""

    def fails(driver: Driver) -> None:
        raise error

    assert decided.parts
    monkeypatch.setattr(Driver, "take_back_if_gone", fails)
    assert begins_at(application) == {4}
