"""What may befall a batch, on Apache Kafka: its answers come before markers are written, and its timing is another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason
from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink.driver import Driver
from sparkonce.kafka.client.client import Client
from sparkonce.offset_store import clock
from tests.unit.kafka_sink.course import Course
from tests.unit.kafka_sink.pipeline import (
    INPUT,
    INPUT_PARTITIONS,
    Application,
    Machine,
    check_whole,
    create_topics,
    settings_of,
)
from tests.unit.kafka_sink.test_target_sweep import CASES, Case, try_request

pytestmark = [
    pytest.mark.java,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(missing_kafka_reason() is not None, reason=str(missing_kafka_reason())),
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    """Of an embedded broker only its address is asked for."""
    with RealKafka(java_options=QUICK_JVM) as running:
        broker = cast(EmbeddedBroker, running)
        client = Client(settings_of(broker))
        create_topics(client, INPUT, partitions=INPUT_PARTITIONS)
        client.close()
        yield broker


@pytest.fixture
def client(kafka: EmbeddedBroker) -> Iterator[Client]:
    opened = Client(settings_of(kafka))
    yield opened
    opened.close()


def application_of(machine: Machine, kafka: EmbeddedBroker, client: Client, name: str) -> Application:
    application = Application(machine, kafka, name)
    create_topics(client, application.topic)
    return application


def test_batch_follows_batch_without_another_look(
    machine: Machine, kafka: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that nobody came before has the next epoch, so the driver need not look for what others have left."""
    application = application_of(machine, kafka, client, "follows")
    application.reuses_workers = True
    recovered, recover = [], Driver.recover

    def counted(driver: Driver, *timeouts_ms: int) -> object:
        recovered.append(driver)
        return recover(driver, *timeouts_ms)

    monkeypatch.setattr(Driver, "recover", counted)
    incarnation = application.start()
    for batch_id in range(6):
        application.run(incarnation, application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2))
    check_whole(client, application, 12)
    assert len(recovered) == 1


ON_KAFKA = [case for case in CASES if case.event != "the broker restarts" and not case.is_atomic and case.is_strict]


@pytest.mark.parametrize("case", ON_KAFKA, ids=str)
def test_at_a_request(case: Case, machine: Machine, kafka: EmbeddedBroker, client: Client) -> None:
    course = Course(application_of(machine, kafka, client, f"case-{ON_KAFKA.index(case)}"), client)
    course.run(course.start(), 0)
    course.done = 1
    at = ON_KAFKA.index(case) % 3
    while try_request(course, machine, case, at):
        machine.forget()
        at += 3


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_a_driver_whose_clock_is_ahead(
    machine: Machine, kafka: EmbeddedBroker, client: Client, timestamps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the driver writes says no time, so Kafka accepts it whichever clock is right."""
    application = application_of(machine, kafka, client, f"ahead-{timestamps}")
    kind = {"cleanup_policy": "compact", "message_timestamp_type": timestamps}
    create_topics(client, application.decision_topic, partitions=1, **kind)
    ahead_ns = time.time_ns() + 2 * 3_600_000_000_000
    monkeypatch.setattr(clock, "time", SimpleNamespace(time_ns=lambda: ahead_ns))
    incarnation = application.start()
    for batch_id in range(2):
        application.run(incarnation, application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2))
    check_whole(client, application, 4)
