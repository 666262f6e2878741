"""A driver at work on decisions that did not go well: what it finishes, takes back, and refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink import driver as driver_module
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_sink.driver import Driver, shared_driver
from sparkonce.connectors.kafka_sink.transactions import TransactionClient, TransactionError
from sparkonce.crash_points import CrashPoint, reach
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import DeliveryError, TransactionsGoneError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.transactions import PreparedTransaction
from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.pipeline import (
    Application,
    Death,
    Incarnation,
    Machine,
    Written,
    all_rows,
    check_nothing_open,
    check_whole,
    committed_rows,
    die,
    group_offsets,
)


def run(application: Application, incarnation: Incarnation, batch_id: int) -> None:
    """Write batch ``batch_id``, of two records of each partition."""
    application.run(incarnation, application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2))


def decided_only(application: Application, batch_id: int, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Write a batch whose driver dies when the decision has landed, before the first transaction is ended."""
    incarnation = application.start()
    batch = application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2)
    return die_at(application, incarnation, batch, TransactionPoint.DECIDED, monkeypatch)


def die_at(
    application: Application,
    incarnation: Incarnation,
    batch: Batch,
    point: CrashPoint,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[str] | None = None,
) -> Written:
    written = application.write(incarnation, batch, rows)
    with at_point(point, die, monkeypatch), pytest.raises(Death):
        application.finish(incarnation, written)
    return written


class at_point:  # noqa: N801 - reads as a sentence
    """Lets something happen when the driver reaches a point, once."""

    def __init__(self, point: CrashPoint, event: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        self._point, self._event, self._monkeypatch = point, event, monkeypatch
        self.happened = False

    def __enter__(self) -> at_point:
        def reached(point: CrashPoint, batch_id: int | None = None, app_id: str | None = None) -> None:
            reach(point, batch_id, app_id)
            if point is self._point and not self.happened:
                self.happened = True
                self._event()

        self._context = self._monkeypatch.context()
        self._context.__enter__().setattr(driver_module, "reach", reached)
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


def claim(client: Client, *parts: object) -> None:
    """Claim transactional ids by hand, which ends their transactions as a time-out would."""
    for part in parts:
        assert isinstance(part, PreparedTransaction)
        TransactionClient(client).init_producer_id(part.transactional_id, 60_000)


def test_what_was_decided_is_finished_by_the_next_driver(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(application, application.start(), 0)
    decided_only(application, 1, monkeypatch)
    assert committed_rows(observer, application.topic) == all_rows(2)
    run(application, application.start(), 1)
    check_whole(observer, application, 4)


def test_an_end_that_is_refused_for_another_reason_is_not_taken_for_done(
    application: Application, observer: Client, shared_broker: EmbeddedBroker
) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))

    def of_a_task(request: Any) -> bool:
        return not request.transactional_id.endswith("/driver")

    with (
        shared_broker.faults.fail("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", api="EndTxn", predicate=of_a_task),
        pytest.raises(TransactionError, match="sparkonce/"),
    ):
        application.finish(incarnation, written)
    run(application, application.start(), 1)
    check_whole(observer, application, 4)


def test_a_decision_whose_transactions_have_timed_out_is_taken_back(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(application, application.start(), 0)
    written = decided_only(application, 1, monkeypatch)
    claim(observer, written.parts[0])
    run(application, application.start(), 1)
    check_whole(observer, application, 4)


def test_the_first_batch_of_all_can_be_taken_back(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = decided_only(application, 0, monkeypatch)
    claim(observer, *written.parts)
    run(application, application.start(), 0)
    check_whole(observer, application, 2)


def still(application: Application, incarnation: Incarnation, batch_id: int, at: int) -> Batch:
    """Return a batch that a watermark runs: it has rows and moves no partition."""
    return application.batch(incarnation, batch_id, at, at)


def test_a_batch_that_moves_nothing_is_taken_back_too(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    late = ["late 1", "late 2"]
    batch = still(application, incarnation, 1, 2)
    written = die_at(application, incarnation, batch, TransactionPoint.DECIDED, monkeypatch, late)
    claim(observer, *written.parts)
    again = application.start()
    application.run(again, still(application, again, 1, 2), late)
    assert committed_rows(observer, application.topic) == sorted([*all_rows(2), *late])
    application.run(again, application.batch(again, 2, 2, 4))
    assert committed_rows(observer, application.topic) == sorted([*all_rows(4), *late])
    assert group_offsets(observer, application.name) == {0: 4, 1: 4}
    check_nothing_open(observer, application)


@pytest.mark.parametrize("offset", [pytest.param(at, marks=[pytest.mark.soak] * (at % 3 > 0)) for at in range(30)])
def test_taking_back_goes_on_after_a_death_at_any_request(
    offset: int, machine: Machine, application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(application, application.start(), 0)
    written = decided_only(application, 1, monkeypatch)
    claim(observer, written.parts[-1])
    machine.plan(offset, die, after_effect=offset % 2 == 1)
    with pytest.raises(Death):
        run(application, application.start(), 1)
    run(application, application.start(), 1)
    check_whole(observer, application, 4)


def test_a_paused_driver_cannot_commit_what_is_being_taken_back(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen everything open; then one transaction times out, and another driver looks, and it goes on."""
    first = application.start()
    run(application, first, 0)
    written = application.write(first, application.batch(first, 1, 2, 4))
    second = application.start()
    fence = Driver.undo

    def next_driver_begins() -> None:
        with pytest.raises(TransactionsGoneError, match="visible"):
            run(application, second, 1)

    def undo(driver: Driver, *arguments: Any) -> None:
        """Right after the second driver has looked, the first one ends what it found open."""
        waiting = written.parts[0]
        assert isinstance(waiting, PreparedTransaction)
        TransactionClient(observer).end(driver_module._identity(waiting), commit=True)
        fence(driver, *arguments)

    def time_out() -> None:
        claim(observer, written.parts[1])
        with monkeypatch.context() as patch:
            patch.setattr(Driver, "undo", undo)
            next_driver_begins()

    with at_point(TransactionPoint.DECIDED, time_out, monkeypatch), pytest.raises(TransactionsGoneError):
        application.finish(first, written)
    seen = committed_rows(observer, application.topic)
    assert len(seen) == len(set(seen)), "doubled"
    with pytest.raises(TransactionsGoneError, match="the output lacks 2 rows"):
        run(application, application.start(), 1)


def test_a_weaker_guarantee_begins_with_what_was_decided_though_this_process_has_begun_batches_before(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    batch = application.batch(incarnation, 1, 2, 4)
    die_at(application, incarnation, batch, TransactionPoint.DECIDED, monkeypatch)
    weaker = replace_guarantee(application, Guarantee.AT_LEAST_ONCE)
    run(weaker, incarnation, 1)
    run(weaker, incarnation, 2)
    check_whole(observer, application, 6)
    again = application.start()
    run(application, again, 2)
    run(application, again, 3)
    check_whole(observer, application, 8)


def replace_guarantee(application: Application, guarantee: Guarantee) -> Application:
    return replace(application, guarantee=guarantee)


def test_a_weaker_guarantee_aborts_what_was_left_undecided(application: Application, observer: Client) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    run(replace_guarantee(application, Guarantee.AT_MOST_ONCE), application.start(), 1)
    check_whole(observer, application, 4)


def test_a_decision_that_was_taken_back_has_not_landed(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the decision is lost, and by the time its driver looks, another has taken it back."""
    first = application.start()
    run(application, first, 0)
    written = application.write(first, application.batch(first, 1, 2, 4))
    end = TransactionClient.end

    def lost(client: TransactionClient, identity: Any, *, commit: bool) -> None:
        end(client, identity, commit=commit)
        monkeypatch.setattr(TransactionClient, "end", end)
        claim(observer, *written.parts)
        run(application, application.start(), 1)
        raise TransactionError("the answer is lost, by the test")

    monkeypatch.setattr(TransactionClient, "end", lost)
    with pytest.raises((TransactionError, DeliveryError)):
        application.finish(first, written)
    check_whole(observer, application, 4)


def test_a_driver_that_lost_the_application_and_got_it_back_aborts_what_was_left_in_between(
    application: Application, observer: Client
) -> None:
    first, second = application.start(), application.start()
    run(application, first, 0)
    application.write(second, application.batch(second, 1, 2, 4))
    run(application, first, 1)
    check_whole(observer, application, 4)


def test_nothing_is_fenced_from_a_list_that_another_driver_has_overtaken(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have decided about what the list names, and its transactions wait for nothing but their ends."""
    first = application.start()
    run(application, first, 0)
    left = application.write(first, application.batch(first, 1, 2, 4))
    fenced: list[str] = []
    states = TransactionClient.states

    def overtaken(client: TransactionClient, *asked: Any) -> Any:
        found = states(client, *asked)
        TransactionClient(observer).init_producer_id(application.scope.driver_id, 60_000)
        return found

    with application.machine.process(first.commits), monkeypatch.context() as patch:
        driver = shared_driver(application.scope)
        patch.setattr(TransactionClient, "fence", lambda _, names: fenced.extend(names))
        aborted = driver.abort_but((), left.plan.prefix, left.plan.identity)
        assert sorted(aborted) == sorted(fenced) != [], "without another driver it would"
        fenced.clear()
        patch.setattr(TransactionClient, "states", overtaken)
        assert driver.abort_but((), left.plan.prefix, left.plan.identity) == fenced == []
