"""Who may be turned away for good, as the simulator judges it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest

from lab.sim.judges.fencing import Fencing
from sparkonce.broker_lite.coordinators.transaction_messages import (
    EPOCH_BUMP,
    Decision,
    Producer,
    Transaction,
    TransactionState,
)
from sparkonce.broker_lite.coordinators.transactions import MAX_EPOCH
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.errors import ErrorCode

OLD, LOST, NEW = Producer("a", 1, MAX_EPOCH - 1), Producer("a", 2, 0), Producer("a", 3, 0)
KNOWN = Transaction("a", 1, 1000, epoch=MAX_EPOCH - 1)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING


def ended(into: Producer) -> Decision:
    """The decision of an EndTxn whose answer is the next producer id."""
    change = replace(KNOWN, state=TransactionState.PREPARE_COMMIT, client_version=EPOCH_BUMP)
    return Decision(NONE, into.producer_id, into.epoch, change)


def began() -> Decision:
    return Decision(NONE, change=replace(KNOWN, state=TransactionState.ONGOING))


def decided_twice() -> Fencing:
    """An end was decided with one new producer id, which was lost, and then with another one."""
    fencing = Fencing()
    given = Decision(NONE, OLD.producer_id, OLD.epoch, KNOWN)
    assert KNOWN.state is TransactionState.EMPTY
    fencing.decided(Producer("a", -1, -1), given)
    fencing.decided(OLD, ended(LOST))
    fencing.decided(OLD, ended(NEW))
    return fencing


def violated() -> AbstractContextManager[object]:
    return pytest.raises(ViolationError, match=r"^fenced-for-cause: ")


@pytest.mark.parametrize(
    ("asks", "ends", "expected"),
    [
        (OLD, True, violated()),  # its answer may be lost
        (OLD, False, nullcontext()),
        (NEW, False, violated()),
        (LOST, True, nullcontext()),  # nobody was told of it
    ],
)
def test_the_last_new_producer_id_counts(asks: Producer, ends: bool, expected: AbstractContextManager[object]) -> None:
    fencing = decided_twice()
    with expected:
        fencing.refused(asks, UNKNOWN, ends=ends)


def test_an_end_may_come_too_late_when_the_next_transaction_has_begun_under_the_last_new_producer_id() -> None:
    fencing = decided_twice()
    fencing.decided(NEW, began())
    fencing.refused(OLD, UNKNOWN, ends=True)
    with violated():
        fencing.refused(NEW, UNKNOWN, ends=True)


def test_a_client_may_hear_once_what_a_coordinator_said_that_did_not_know_of_its_successor() -> None:
    fencing = Fencing()
    fencing.refused_by_former(NEW, NONE)
    assert not fencing.hears_from_former(NEW)
    fencing.refused_by_former(NEW, UNKNOWN)
    assert not fencing.hears_from_former(OLD)
    assert fencing.hears_from_former(NEW)
    assert not fencing.hears_from_former(NEW)
