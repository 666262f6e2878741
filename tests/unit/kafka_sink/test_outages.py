"""Brokers that go away in the middle, and come back when the log says that they are away: no query ends for that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkonce.connectors.kafka_sink.spool import Spool
from sparkonce.connectors.sinks.target import Task
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.client import Client
from tests.outages import Outages
from tests.unit.kafka_sink.course import Course
from tests.unit.kafka_sink.pipeline import Application, Machine, rows_of, settings_of

KINDS = (*Guarantee, "atomic")
STRIDES = [
    pytest.param(11, id="few"),
    pytest.param(1, id="all", marks=pytest.mark.lab),
]
"""Every how many requests one is tried."""


def prepared(kind: Guarantee | str, application: Application, folder: Path) -> Application:
    if isinstance(kind, Guarantee):
        application.guarantee = kind
    else:
        application.options["spool"] = Spool(str(folder))
    return application


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_outage_at_a_request_of_a_batch_is_waited_for(
    kind: Guarantee | str,
    stride: int,
    machine: Machine,
    application: Application,
    observer: Client,
    tmp_path: Path,
) -> None:
    course = Course(prepared(kind, application, tmp_path), observer)
    course.run(course.start(), 0)
    course.done, at, has_happened = 1, KINDS.index(kind), True
    with Outages(application.broker) as log:
        while has_happened:
            happening = machine.plan(at, application.broker.stop)
            course.run(course.start(), course.done)
            course.done += 1
            has_happened, at = bool(happening.happened), at + stride
            machine.forget()
    course.check()
    assert at > 10, "a batch has that many requests"
    assert log.count >= course.done - 2, "each is said, but the last batch had no such request"


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_first_meets_the_brokers_in_an_outage_waits_too(
    kind: Guarantee | str,
    application: Application,
    observer: Client,
    machine: Machine,
    tmp_path: Path,
) -> None:
    """The first contact has no time at all here: the back-off is as long as its deadline."""
    course, broker = Course(prepared(kind, application, tmp_path), observer), application.broker
    course.run(course.start(), 0)
    short = settings_of(broker, connection_setup_timeout_ms=50)
    application.options["client"] = replace(short, retry_backoff_ms=50)
    incarnation = course.start()
    batch = course.batch(incarnation, 1)
    with Outages(broker) as log:
        broker.stop()
        with machine.process(incarnation.begins):
            plan = application.target.begin(batch)
        broker.stop()
        part = application.run_task(plan, Task(plan.batch_id, 0, 0, 0), rows_of(batch))
        broker.stop()
        application.finish(incarnation, application.written(batch, plan, [part]))
    course.done = 2
    course.check()
    assert log.count >= 2
