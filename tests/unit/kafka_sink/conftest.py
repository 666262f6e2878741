"""Fixtures for tests of the sink's transactions: a broker, a client of the test's own, and applications."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.pipeline import INPUT, INPUT_PARTITIONS, Application, Machine, create_topics, settings_of

Applications = Callable[..., Application]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[EmbeddedBroker]:
    """One for all tests of a module: each takes an application, with topics of its own."""
    with EmbeddedBroker(config={"num.partitions": 1}) as running:
        client = Client(settings_of(running))
        create_topics(client, INPUT, partitions=INPUT_PARTITIONS)
        client.close()
        yield running


@pytest.fixture
def observer(shared_broker: EmbeddedBroker) -> Iterator[Client]:
    """The test's own client, outside of every application."""
    opened = Client(settings_of(shared_broker))
    yield opened
    opened.close()
    shared_broker.faults.clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch)
    yield made
    made.forget()


@pytest.fixture
def new_application(machine: Machine, shared_broker: EmbeddedBroker, observer: Client) -> Applications:
    """Makes applications, and their output topics."""

    def make(**options: Any) -> Application:
        application = Application(machine, shared_broker, f"app{next(_numbers)}", **options)
        create_topics(observer, application.topic)
        return application

    return make


@pytest.fixture
def application(new_application: Applications) -> Application:
    return new_application()
