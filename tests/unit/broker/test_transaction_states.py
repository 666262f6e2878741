"""The transaction coordinator's state machine: Kafka's tables by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sparkonce.broker_lite.coordinators.transaction_messages import (
    EPOCH_BUMP,
    LEGACY,
    Decision,
    Producer,
    Transaction,
    TransactionSettings,
    TransactionState,
)
from sparkonce.broker_lite.coordinators.transactions import (
    MAX_EPOCH,
    NO_TIMEOUT_MS,
    PREPARED,
    TRANSITIONS,
    Transactions,
    check_invariants,
)
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.cases import each_case

TIMEOUT_MS = 1_000
SETTINGS = TransactionSettings(max_timeout_ms=60_000, id_expiration_ms=100_000)
P0, P1 = ("t", 0), ("t", 1)


class Ids:
    """Producer ids from 1 on."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self) -> int:
        self.last += 1
        return self.last


def machine() -> Transactions:
    return Transactions(SETTINGS, Ids())


def do(transactions: Transactions, decision: Decision, now_ms: int = 0) -> Decision:
    """Do what the shell does: put the change into the log, write the markers, complete."""
    if decision.change is not None:
        finish(transactions, decision.change, now_ms)
    return decision


def finish(transactions: Transactions, change: Transaction, now_ms: int = 0) -> None:
    markers = transactions.applied(change)
    if markers is not None:
        completed = transactions.markers_written(markers.transactional_id, markers.partitions, now_ms)
        assert completed is not None
        assert transactions.applied(completed) is None
    check_invariants(transactions)


def begin(transactions: Transactions, producer: Producer | None = None, now_ms: int = 0) -> Producer:
    given = do(transactions, transactions.init_producer_id(producer or Producer("x", -1, -1), TIMEOUT_MS, now_ms))
    assert given.error is ErrorCode.NONE
    return Producer("x", given.producer_id, given.epoch)


def state_of(transactions: Transactions) -> TransactionState:
    known = transactions.get("x")
    assert known is not None
    return known.state


def put_at(transactions: Transactions, state: TransactionState, producer: Producer) -> None:
    """Bring the id into a state, the producer's epoch being the current one."""
    began = state not in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    transactions.applied(
        Transaction(
            "x",
            producer.producer_id,
            TIMEOUT_MS,
            state,
            producer.epoch,
            partitions=frozenset({P0}) if began else frozenset(),
            start_ms=0,
            last_update_ms=0,
            client_version=EPOCH_BUMP,
        )
    )


def test_a_transaction_from_begin_to_end() -> None:
    transactions = machine()
    producer = begin(transactions)
    assert producer == ("x", 1, 0)
    added = do(transactions, transactions.add_partitions(producer, [P0, P1], EPOCH_BUMP, 5))
    assert (added.error, state_of(transactions)) == (ErrorCode.NONE, TransactionState.ONGOING)
    assert transactions.add_partitions(producer, [P1], EPOCH_BUMP, 6) == Decision(ErrorCode.NONE)
    ended = transactions.end(producer, True, EPOCH_BUMP, 7)
    assert ended.change is not None
    markers = transactions.applied(ended.change)
    assert markers is not None
    assert (markers.producer_id, markers.epoch, markers.committed) == (1, 1, True)
    assert (ended.error, ended.producer_id, ended.epoch) == (ErrorCode.NONE, 1, 1)
    assert transactions.markers_written("x", [P0], 8) is None
    completed = transactions.markers_written("x", [P1], 8)
    assert completed is not None
    transactions.applied(completed)
    assert state_of(transactions) is TransactionState.COMPLETE_COMMIT
    check_invariants(transactions)


# The table in Kafka's TransactionCoordinator, for transaction version 2: state, whether it commits, whether it is the
# epoch before (a repeated request) -> the error, and whether the epoch is bumped.
FENCED, INVALID, NONE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
END_TABLE = [
    (TransactionState.EMPTY, False, True, FENCED, False),
    (TransactionState.EMPTY, False, False, NONE, True),
    (TransactionState.EMPTY, True, True, FENCED, False),
    (TransactionState.EMPTY, True, False, INVALID, False),
    (TransactionState.COMPLETE_ABORT, False, True, NONE, False),
    (TransactionState.COMPLETE_ABORT, False, False, NONE, True),
    (TransactionState.COMPLETE_ABORT, True, True, INVALID, False),
    (TransactionState.COMPLETE_ABORT, True, False, INVALID, False),
    (TransactionState.COMPLETE_COMMIT, False, True, INVALID, False),
    (TransactionState.COMPLETE_COMMIT, False, False, NONE, True),
    (TransactionState.COMPLETE_COMMIT, True, True, NONE, False),
    (TransactionState.COMPLETE_COMMIT, True, False, INVALID, False),
    (TransactionState.ONGOING, True, True, FENCED, False),
    (TransactionState.ONGOING, False, True, FENCED, False),
    (TransactionState.ONGOING, True, False, NONE, True),
    (TransactionState.ONGOING, False, False, NONE, True),
]


@pytest.mark.parametrize("state", sorted(PREPARED, key=str))
@pytest.mark.parametrize("exhausted", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_until_the_markers_are_written_nobody_is_fenced(
    state: TransactionState, committed: bool, exhausted: bool
) -> None:
    """Whoever it is, and whatever the epoch: the producer that goes on early must not be told that it is fenced."""
    transactions = machine()
    epoch = MAX_EPOCH - 1 if exhausted else 4
    put_at(transactions, TransactionState.ONGOING, Producer("x", 7, epoch))
    ended = transactions.end(Producer("x", 7, epoch), state is TransactionState.PREPARE_COMMIT, EPOCH_BUMP, 1)
    assert ended.change is not None
    transactions.applied(ended.change)
    following = Producer("x", ended.producer_id, ended.epoch)
    assert (following.producer_id != 7) == exhausted
    for producer in (Producer("x", 7, epoch), following, Producer("x", 7, epoch - 1), Producer("x", 99, 0)):
        assert transactions.end(producer, committed, EPOCH_BUMP, 2) == Decision(CONCURRENT)
        assert transactions.add_partitions(producer, [P0], EPOCH_BUMP, 2) == Decision(CONCURRENT)
        assert transactions.init_producer_id(producer, TIMEOUT_MS, 2) == Decision(CONCURRENT)
    completed = transactions.markers_written("x", ended.change.partitions, 3)
    assert completed is not None
    transactions.applied(completed)
    assert transactions.end(following, False, EPOCH_BUMP, 4).error is NONE
    assert transactions.end(Producer("x", 7, epoch - 1), False, EPOCH_BUMP, 4).error in (
        FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )


def test_an_end_with_worn_out_epochs_may_be_repeated_until_the_next_transaction_begins() -> None:
    """As in Kafka: from then on the id before the last one is not known any more."""
    transactions, worn_out = machine(), Producer("x", 7, MAX_EPOCH - 1)
    put_at(transactions, TransactionState.ONGOING, worn_out)
    ended = do(transactions, transactions.end(worn_out, True, EPOCH_BUMP, 1))
    following = Producer("x", ended.producer_id, ended.epoch)
    assert following.producer_id != 7
    assert transactions.end(worn_out, True, EPOCH_BUMP, 3) == Decision(NONE, following.producer_id, following.epoch)
    do(transactions, transactions.add_partitions(following, [P0], EPOCH_BUMP, 4))
    late = transactions.end(worn_out, True, EPOCH_BUMP, 5)
    assert late == Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@each_case(("state", "commits", "repeated", "error", "bumps"), END_TABLE)
def test_the_end_of_a_transaction_with_epoch_bump(
    state: TransactionState, commits: bool, repeated: bool, error: ErrorCode, bumps: bool
) -> None:
    transactions = machine()
    put_at(transactions, state, Producer("x", 7, 5))
    decision = transactions.end(Producer("x", 7, 4 if repeated else 5), commits, EPOCH_BUMP, 9)
    assert decision.error is error
    assert (decision.change is not None) == bumps
    if bumps:
        assert (decision.producer_id, decision.epoch) == (7, 6)
        do(transactions, decision)
    elif error is NONE:
        assert (decision.producer_id, decision.epoch) == (7, 5)


@each_case("commits", [True, False])
@each_case("state", [END_TABLE[i][0] for i in (0, 4, 8, 12)] + sorted(PREPARED, key=str))
def test_the_end_of_a_transaction_of_old_clients(state: TransactionState, commits: bool) -> None:
    transactions = machine()
    put_at(transactions, state, Producer("x", 7, 5))
    agrees = {
        TransactionState.COMPLETE_COMMIT: (True, NONE),
        TransactionState.COMPLETE_ABORT: (False, NONE),
    }
    expected = CONCURRENT if state in PREPARED else INVALID
    if state is TransactionState.ONGOING:
        expected = NONE
    elif state in agrees and agrees[state][0] == commits:
        expected = agrees[state][1]
    decision = transactions.end(Producer("x", 7, 5), commits, LEGACY, 9)
    assert decision.error is expected
    assert (decision.change is not None) == (state is TransactionState.ONGOING)
    if decision.change is not None:
        assert decision.change.epoch == 5
    assert transactions.end(Producer("x", 7, 4), commits, LEGACY, 9).error is FENCED
    assert transactions.end(Producer("x", 8, 5), commits, LEGACY, 9).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_another_instance_aborts_what_is_going_on_and_fences_its_producer() -> None:
    transactions = machine()
    zombie = begin(transactions)
    do(transactions, transactions.add_partitions(zombie, [P0], EPOCH_BUMP, 0))
    refused = do(transactions, transactions.init_producer_id(Producer("x", -1, -1), TIMEOUT_MS, 1))
    assert refused.error is CONCURRENT
    known = transactions.get("x")
    assert known is not None
    assert (known.state, known.epoch) == (TransactionState.COMPLETE_ABORT, 1)
    heir = begin(transactions)
    assert heir == ("x", zombie.producer_id, 2)
    assert transactions.add_partitions(zombie, [P0], LEGACY, 2).error is FENCED
    assert transactions.end(zombie, True, EPOCH_BUMP, 2).error is FENCED
    assert transactions.init_producer_id(zombie, TIMEOUT_MS, 2).error is FENCED


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_the_end_of_another_instance_without_epoch_bump_is_not_taken_for_ones_own(commits: bool, at_once: bool) -> None:
    """The epoch after a fenced producer's own is not told it, since an older client that has it goes on under it."""
    transactions = machine()
    fenced = begin(transactions)
    other = begin(transactions)
    assert other.epoch == fenced.epoch + 1
    do(transactions, transactions.add_partitions(other, [P0], LEGACY, 0))
    ended = transactions.end(other, commits, LEGACY, 0)
    assert ended.change is not None
    if at_once:
        markers = transactions.applied(ended.change)
        assert markers is not None
        assert transactions.end(fenced, commits, EPOCH_BUMP, 1) == Decision(CONCURRENT)
        completed = transactions.markers_written("x", markers.partitions, 1)
        assert completed is not None
        transactions.applied(completed)
    else:
        finish(transactions, ended.change)
    assert transactions.end(fenced, commits, EPOCH_BUMP, 1) == Decision(ErrorCode.PRODUCER_FENCED)


def test_a_producer_that_failed_gets_the_next_epoch_and_the_same_when_it_asks_again() -> None:
    transactions = machine()
    producer = begin(transactions)
    bumped = begin(transactions, producer)
    assert bumped == ("x", producer.producer_id, 1)
    assert begin(transactions, producer) == bumped
    assert begin(transactions) == ("x", producer.producer_id, 2)  # another instance: what came before is fenced
    assert transactions.init_producer_id(producer, TIMEOUT_MS, 0).error is FENCED
    assert transactions.init_producer_id(bumped, TIMEOUT_MS, 0).error is FENCED


def test_when_the_epochs_are_used_up_there_is_a_new_producer_id() -> None:
    transactions = machine()
    last = Producer("x", 900, MAX_EPOCH - 1)
    put_at(transactions, TransactionState.COMPLETE_COMMIT, last)
    rotated = begin(transactions, last)
    assert rotated.producer_id != 900
    assert rotated.epoch == 0
    assert begin(transactions, last) == rotated
    assert begin(transactions) == ("x", rotated.producer_id, 1)


@pytest.mark.parametrize("commits", [True, False])
def test_the_last_epoch_ends_with_a_new_producer_id(commits: bool) -> None:
    transactions = machine()
    last = Producer("x", 900, MAX_EPOCH - 1)
    put_at(transactions, TransactionState.ONGOING, last)
    ended = transactions.end(last, commits, EPOCH_BUMP, 1)
    assert ended.change is not None
    assert (ended.change.producer_id, ended.change.epoch) == (900, MAX_EPOCH)  # what the markers carry
    do(transactions, ended)
    assert (ended.producer_id, ended.epoch) == (1, 0)
    again = transactions.end(last, commits, EPOCH_BUMP, 2)
    assert (again.error, again.producer_id, again.epoch, again.change) == (NONE, 1, 0, None)
    assert transactions.end(last, not commits, EPOCH_BUMP, 2).error is INVALID
    assert transactions.add_partitions(Producer("x", 1, 0), [P0], EPOCH_BUMP, 3).error is NONE


def test_the_new_producer_id_waits_for_the_markers_of_the_old_one() -> None:
    transactions = machine()
    last = Producer("x", 900, MAX_EPOCH - 1)
    put_at(transactions, TransactionState.ONGOING, last)
    ended = transactions.end(last, True, EPOCH_BUMP, 1)
    assert ended.change is not None
    assert transactions.applied(ended.change) is not None
    fresh = Producer("x", ended.producer_id, ended.epoch)
    assert transactions.add_partitions(fresh, [P0], EPOCH_BUMP, 2).error is CONCURRENT
    completed = transactions.markers_written("x", ended.change.partitions, 3)
    assert completed is not None
    transactions.applied(completed)
    assert transactions.add_partitions(fresh, [P0], EPOCH_BUMP, 4).error is NONE


def test_the_epoch_that_fences_is_never_given_away() -> None:
    transactions = machine()
    last = Producer("x", 900, MAX_EPOCH - 1)
    put_at(transactions, TransactionState.ONGOING, last)
    (change,) = transactions.timed_out(TIMEOUT_MS + 1)
    finish(transactions, change)
    assert transactions.end(last, False, EPOCH_BUMP, 2).error is FENCED
    fresh = begin(transactions, last)
    assert fresh.producer_id != 900
    assert fresh.epoch == 0
    assert begin(transactions, last) == fresh
    assert begin(transactions) == ("x", fresh.producer_id, 1)


def test_time_is_up() -> None:
    transactions = machine()
    producer = begin(transactions)
    do(transactions, transactions.add_partitions(producer, [P0], EPOCH_BUMP, 100))
    assert transactions.has_ongoing
    assert transactions.timed_out(100 + TIMEOUT_MS) == []
    (change,) = transactions.timed_out(101 + TIMEOUT_MS)
    finish(transactions, change)
    assert state_of(transactions) is TransactionState.COMPLETE_ABORT
    assert not transactions.has_ongoing
    # The producer may learn of it by its own abort, and go on; but it can no longer commit.
    assert transactions.end(producer, True, EPOCH_BUMP, 0).error is INVALID
    aborted = transactions.end(producer, False, EPOCH_BUMP, 0)
    assert (aborted.error, aborted.epoch) == (NONE, producer.epoch + 1)


def test_a_transaction_without_timeout_stays_open() -> None:
    transactions = machine()
    put_at(transactions, TransactionState.ONGOING, Producer("x", 1, 0))
    known = transactions.get("x")
    assert known is not None
    transactions.applied(replace(known, timeout_ms=NO_TIMEOUT_MS))
    assert transactions.timed_out(2**62) == []


@pytest.mark.parametrize("state", list(TRANSITIONS))
def test_only_ids_at_rest_expire(state: TransactionState) -> None:
    transactions = machine()
    put_at(transactions, state, Producer("x", 1, 0))
    at_rest = TransactionState.DEAD in TRANSITIONS[state]
    assert transactions.expired(SETTINGS.id_expiration_ms - 1) == []
    assert transactions.expired(SETTINGS.id_expiration_ms) == (["x"] if at_rest else [])
    if at_rest:
        transactions.forgotten("x")
        assert transactions.get("x") is None


def test_requests_that_cannot_be_right() -> None:
    transactions = machine()
    for timeout_ms in (0, -1, SETTINGS.max_timeout_ms + 1):
        decision = transactions.init_producer_id(Producer("x", -1, -1), timeout_ms, 0)
        assert decision.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert transactions.init_producer_id(Producer("", -1, -1), TIMEOUT_MS, 0).error is ErrorCode.INVALID_REQUEST
    assert transactions.init_producer_id(Producer("x", 5, -1), TIMEOUT_MS, 0).error is ErrorCode.INVALID_REQUEST
    assert transactions.init_producer_id(Producer("x", -1, 5), TIMEOUT_MS, 0).error is ErrorCode.INVALID_REQUEST
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.add_partitions(Producer("x", 1, 0), [P0], LEGACY, 0).error is unknown
    assert transactions.end(Producer("x", 1, 0), True, EPOCH_BUMP, 0).error is unknown
    assert transactions.end(Producer("", 1, 0), True, EPOCH_BUMP, 0).error is ErrorCode.INVALID_REQUEST
    assert transactions.verify_partitions(Producer("x", 1, 0), [P0]) == {P0: unknown}


def test_verification_says_which_partitions_are_in_the_transaction() -> None:
    transactions = machine()
    producer = begin(transactions)
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert transactions.verify_partitions(producer, [P0]) == {P0: abortable}
    do(transactions, transactions.add_partitions(producer, [P0], LEGACY, 0))
    assert transactions.verify_partitions(producer, [P0, P1]) == {P0: NONE, P1: abortable}
    assert transactions.verify_partitions(producer._replace(epoch=9), [P0]) == {P0: FENCED}
    ended = transactions.end(producer, True, LEGACY, 0)
    assert ended.change is not None
    transactions.applied(ended.change)
    assert transactions.verify_partitions(producer, [P0]) == {P0: CONCURRENT}
    assert transactions.add_partitions(producer, [P1], LEGACY, 0).error is CONCURRENT
    assert transactions.init_producer_id(producer, TIMEOUT_MS, 0).error is CONCURRENT


def test_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkonce.broker_lite.coordinators.transactions.MAX_TRANSACTIONAL_IDS", 3)
    transactions = machine()
    numbers = list(range(4))
    random.Random(7).shuffle(numbers)
    errors = []
    for number in numbers:
        asked = Producer(str(number), -1, -1)
        errors.append(do(transactions, transactions.init_producer_id(asked, TIMEOUT_MS, 0)).error)
    assert errors == [NONE, NONE, NONE, ErrorCode.POLICY_VIOLATION]
