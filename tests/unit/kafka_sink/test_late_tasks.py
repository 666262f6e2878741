"""Tasks that live on when their batch is over: whatever they were about to do, readers never wait for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkonce.connectors.kafka_sink import tasks as tasks_module
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_sink.transactions import (
    FENCING_TIMEOUT_MS,
    FencedProducerError,
    State,
    TransactionClient,
)
from sparkonce.connectors.sinks.target import Task
from sparkonce.crash_points import CrashPoint, reach
from sparkonce.exactly_once.errors import FencedError
from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.pipeline import (
    Application,
    Incarnation,
    Machine,
    Written,
    check_nothing_open,
    check_whole,
    rows_of_range,
)

Meanwhile = Callable[[Callable[[], None]], None]
"""Lets something happen while the next task is held up, once."""


def before_it_has_claimed(monkeypatch: pytest.MonkeyPatch, event: Callable[[], None]) -> None:
    take_id = tasks_module.take_id

    def take(prefix: str, decided: int) -> str:
        monkeypatch.setattr(tasks_module, "take_id", take_id)
        event()
        return take_id(prefix, decided)

    monkeypatch.setattr(tasks_module, "take_id", take)


def before_it_looks(monkeypatch: pytest.MonkeyPatch, event: Callable[[], None]) -> None:
    init_producer_id = TransactionClient.init_producer_id

    def init(client: TransactionClient, name: str | None, timeout_ms: int) -> object:
        monkeypatch.setattr(TransactionClient, "init_producer_id", init_producer_id)
        identity = init_producer_id(client, name, timeout_ms)
        event()
        return identity

    monkeypatch.setattr(TransactionClient, "init_producer_id", init)


def before_it_sends(monkeypatch: pytest.MonkeyPatch, event: Callable[[], None]) -> None:
    def reached(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
        if point is TransactionPoint.BEGUN:
            monkeypatch.setattr(tasks_module, "reach", reach)
            event()
        reach(point, batch_id, app_id)

    monkeypatch.setattr(tasks_module, "reach", reached)


@pytest.fixture(params=[before_it_has_claimed, before_it_looks, before_it_sends])
def meanwhile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    return lambda event: request.param(monkeypatch, event)


def begin(application: Application, incarnation: Incarnation, batch_id: int) -> Written:
    """Begin a batch of two records of each partition, and run none of its tasks yet."""
    batch = application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2)
    with application.machine.process(incarnation.begins):
        return Written(batch, application.target.begin(batch), [])


@pytest.fixture(autouse=True)
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that fails here leaves everything as it is, as if its worker were killed."""
    monkeypatch.setattr(tasks_module.TransactionWriter, "discard", lambda _: None)


def check_in_vain(application: Application, written: Written, observer: Client) -> None:
    """Let a task go on, whose batch is over."""
    task = Task(written.plan.batch_id, 0, 1, 9)
    with pytest.raises((FencedError, FencedProducerError)):
        application.run_task(written.plan, task, rows_of_range(0, 2))
    check_nothing_open(observer, application)


def test_a_task_of_a_driver_that_is_dead(application: Application, observer: Client, meanwhile: Meanwhile) -> None:
    first, second = application.start(), application.start()
    written = begin(application, first, 0)
    meanwhile(lambda: _run(application, second, 0))
    check_in_vain(application, written, observer)
    check_whole(observer, application, 2)


def test_a_task_that_spark_ran_twice(application: Application, observer: Client, meanwhile: Meanwhile) -> None:
    incarnation = application.start()
    written = application.write(incarnation, application.batch(incarnation, 0, 0, 2))
    meanwhile(lambda: application.finish(incarnation, written))
    check_in_vain(application, written, observer)
    check_whole(observer, application, 2)
    _run(application, incarnation, 1)
    check_whole(observer, application, 4)


def test_a_task_of_a_batch_that_was_aborted(application: Application, observer: Client, meanwhile: Meanwhile) -> None:
    incarnation = application.start()
    _run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    meanwhile(lambda: application.abort(incarnation, written))
    check_in_vain(application, written, observer)
    _run(application, application.start(), 1)
    check_whole(observer, application, 4)


def test_what_a_task_that_comes_late_says(application: Application) -> None:
    first, second = application.start(), application.start()
    written = begin(application, first, 0)
    winner = application.write(second, application.batch(second, 0, 0, 2))
    with pytest.raises(FencedError, match=r"task 1 of batch 0 \(appId app\d+\) .* has fenced this one"):
        application.run_task(written.plan, Task(0, 1, 0, 9), rows_of_range(0, 2))
    application.finish(second, winner)
    with pytest.raises(FencedProducerError, match="decided without it"):
        application.run_task(winner.plan, Task(0, 1, 1, 9), rows_of_range(0, 2))


def _run(application: Application, incarnation: Incarnation, batch_id: int) -> None:
    application.run(incarnation, application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2))


def test_ids_that_are_fenced_cost_nothing_more(application: Application, observer: Client, machine: Machine) -> None:
    """Thousands of workers may have left theirs, and each start of a query meets them for a week."""
    transactions, count = TransactionClient(observer), 40
    names = [f"{application.scope.prefix}gone/worker-{number}" for number in range(count)]
    for name in names:
        transactions.init_producer_id(name, 60_000)
    requests = [_requests_of_a_start(application, machine) for _ in range(3)]
    assert requests[0] >= requests[1] + count
    assert requests[1] == requests[2] < 25
    found = TransactionClient(observer).describe(names)
    assert {(each.state, each.timeout_ms) for each in found.values()} == {(State.EMPTY, FENCING_TIMEOUT_MS)}


def _requests_of_a_start(application: Application, machine: Machine) -> int:
    incarnation = application.start()
    before = machine.requests
    with machine.process(incarnation.begins):
        application.target.begin(application.batch(incarnation, 0, 0, 2))
    return machine.requests - before


def test_many_coordinators_are_found_at_once(application: Application, observer: Client, machine: Machine) -> None:
    names = [f"{application.scope.prefix}gone/worker-{number}" for number in range(40)]
    before = machine.requests
    assert TransactionClient(observer).describe(names) == {}
    assert machine.requests - before == 2
