"""Transactional ids of tasks, and what becomes of the transactions of tasks that fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink import tasks as tasks_module
from sparkonce.connectors.kafka_sink.producer import DeliveryRefusedError
from sparkonce.connectors.kafka_sink.tasks import TransactionalIds, take_id
from sparkonce.connectors.kafka_sink.transactions import FencedProducerError, State, TransactionClient
from sparkonce.connectors.runtime.cache import MAX_KEPT
from sparkonce.connectors.sinks.target import Task
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.transactions import PreparedTransaction
from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.pipeline import (
    Application,
    Machine,
    all_rows,
    check_whole,
    committed_rows,
    record_batch,
    rows_of,
)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_an_id_is_never_in_the_last_decision_when_it_is_taken_again(steps: list[tuple[int, bool]]) -> None:
    """Each step writes some transactions after the last decision; then the batch is decided, or fails."""
    ids = TransactionalIds("p/")
    number, in_the_last_decision = 1, set[str]()
    for tasks, is_decided in steps:
        taken = [ids.take(number) for _ in range(tasks)]
        assert len(set(taken)) == len(taken)
        assert in_the_last_decision.isdisjoint(taken)
        if is_decided:
            number, in_the_last_decision = number + 1, set(taken)


@given(st.integers(2, 5), st.lists(st.integers(0, 4), min_size=3, max_size=30))
def test_ids_are_not_made_without_end(most: int, tasks: list[int]) -> None:
    ids = TransactionalIds("p/")
    made = {ids.take(number) for number, count in enumerate(tasks) for _ in range(min(count, most))}
    assert len(made) <= 2 * most


def test_a_task_that_comes_late_gets_an_id_that_newer_batches_do_not_use() -> None:
    ids = TransactionalIds("p/")
    first = ids.take(1)
    assert ids.take(9) == first
    assert ids.take(1) != first


def test_ids_that_a_process_has_forgotten_are_not_made_again(machine: Machine) -> None:
    """A worker that serves more queries than it keeps ids of."""
    with machine.process(machine.new_pid()):
        taken = [take_id(f"p{query}/", 1) for _ in range(3) for query in range(MAX_KEPT + 1)]
    assert len(set(taken)) == len(taken)


def test_processes_share_no_ids(machine: Machine) -> None:
    taken = set()
    for _ in range(3):
        with machine.process(machine.new_pid()):
            taken.add(take_id("p/", 1))
    assert len(taken) == 3


def task(number: int = 0, attempt: int = 0) -> Task:
    return Task(0, number, attempt, attempt)


def test_a_worker_takes_its_ids_again_when_that_is_safe(application: Application, observer: Client) -> None:
    incarnation, worker = application.start(), application.machine.new_pid()
    ids = []
    for batch_id in range(6):
        batch = application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2)
        with application.machine.process(incarnation.begins):
            plan = application.target.begin(batch)
        part = application.run_task(plan, task(), rows_of(batch), worker)
        assert isinstance(part, PreparedTransaction)
        ids.append(part.transactional_id)
        application.finish(incarnation, application.written(batch, plan, [part]))
    assert ids == [ids[0], ids[1]] * 3
    check_whole(observer, application, 12)


def test_a_failed_task_leaves_nothing_open(
    application: Application, shared_broker: EmbeddedBroker, observer: Client
) -> None:
    incarnation = application.start()
    batch = application.batch(incarnation, 0, 0, 2)
    with application.machine.process(incarnation.begins):
        plan = application.target.begin(batch)
    with (
        shared_broker.faults.fail("TOPIC_AUTHORIZATION_FAILED", api="Produce", times=1, nth=2),
        pytest.raises(PermissionError, match="WRITE"),
    ):
        application.run_task(plan, task(), rows_of(batch) * 10)
    assert TransactionClient(observer).open_transactions(application.scope.prefix) == []
    part = application.run_task(plan, task(attempt=1), rows_of(batch))
    application.finish(incarnation, application.written(batch, plan, [part]))
    check_whole(observer, application, 2)


def test_a_transaction_that_timed_out_while_its_task_wrote(application: Application, observer: Client) -> None:
    incarnation = application.start()
    batch = application.batch(incarnation, 0, 0, 2)
    with application.machine.process(incarnation.begins):
        plan = application.target.begin(batch)
    machine = application.machine
    transactions = TransactionClient(observer)

    def time_out() -> None:
        for name in transactions.open_transactions(application.scope.prefix):
            transactions.init_producer_id(name, 60_000)

    with machine.process(machine.new_pid()):
        writer = application.target.open(plan, task())
        assert writer is not None
        writer.write(record_batch(rows_of(batch) * 10))
        time_out()
        with pytest.raises(FencedProducerError, match=r"kafka\.transaction\.timeout\.ms"):
            writer.close()
        writer.discard()
    assert committed_rows(observer, application.topic) == []


def test_a_task_without_rows_begins_no_transaction(application: Application, observer: Client) -> None:
    incarnation = application.start()
    batch = application.batch(incarnation, 0, 0, 2)
    with application.machine.process(incarnation.begins):
        plan = application.target.begin(batch)
    machine = application.machine
    before = machine.requests
    assert application.run_task(plan, task(), []) is None
    assert machine.requests == before


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_without_transactions_rows_are_there_at_once(
    guarantee: Guarantee, application: Application, observer: Client
) -> None:
    weaker = replace(application, guarantee=guarantee)
    incarnation = weaker.start()
    written = weaker.write(incarnation, weaker.batch(incarnation, 0, 0, 2))
    assert committed_rows(observer, weaker.topic) == all_rows(2)
    weaker.finish(incarnation, written)
    assert committed_rows(observer, weaker.topic) == all_rows(2)


def test_a_failed_task_without_transactions_lets_go_of_its_producer(
    application: Application, shared_broker: EmbeddedBroker, observer: Client
) -> None:
    weaker = replace(application, guarantee=Guarantee.AT_LEAST_ONCE)
    incarnation, worker = weaker.start(), weaker.machine.new_pid()
    batch = weaker.batch(incarnation, 0, 0, 2)
    with weaker.machine.process(incarnation.begins):
        plan = weaker.target.begin(batch)
    with (
        shared_broker.faults.fail("INVALID_RECORD", api="Produce", times=1),
        pytest.raises(DeliveryRefusedError),
    ):
        weaker.run_task(plan, task(), rows_of(batch), worker)
    assert not [key for key in tasks_module._producers._by_key if key[0] == worker]
    weaker.run_task(plan, task(attempt=1), rows_of(batch), worker)
    assert set(committed_rows(observer, weaker.topic)) == set(all_rows(2))


def test_what_is_discarded_is_fenced_and_not_just_aborted(application: Application, observer: Client) -> None:
    """A request that is still on its way must not begin another transaction of the same epoch."""
    incarnation = application.start()
    batch = application.batch(incarnation, 0, 0, 2)
    machine, transactions = application.machine, TransactionClient(observer)
    with machine.process(incarnation.begins):
        plan = application.target.begin(batch)
    with machine.process(machine.new_pid()):
        writer = application.target.open(plan, task())
        assert writer is not None
        writer.write(record_batch(rows_of(batch)))
        part = writer.close()
        assert isinstance(part, PreparedTransaction)
        writer.discard()
    found = transactions.describe([part.transactional_id])[part.transactional_id]
    assert (found.producer_id, found.state) == (part.producer_id, State.EMPTY)
    assert found.epoch > part.epoch
