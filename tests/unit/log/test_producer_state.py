"""The idempotent producers' state machine, against a model that keeps every batch ever appended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sparkonce.broker_lite.log import producer_state
from sparkonce.broker_lite.log.producer_snapshot import decode_snapshot, encode_snapshot
from sparkonce.broker_lite.log.producer_state import BATCHES_KEPT, Marker, ProducerStates, Verification
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import MAX_SEQUENCE, BatchHeader
from tests.chance import examples

PRODUCERS = st.integers(0, 2)


def header(producer: int, epoch: int, first: int, count: int, at: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, 0, count - 1, at, at, producer, epoch, first, count)


class Producers(RuleBasedStateMachine):
    """Batches of three producers: next in line, repeated, skipping, of other epochs, around the wrap."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.end = 0
        self.history: dict[int, list[tuple[int, int, int, int]]] = {}  # epoch, first sequence, count, first offset

    def send(self, producer: int, epoch: int, first: int, count: int) -> int | ErrorCode:
        """Do what a partition does: the first offset, or the refusal."""
        batch = header(producer, epoch, first, count)
        try:
            repeated = self.states.check(batch)
        except KafkaError as error:
            return error.code
        if repeated is not None:
            assert repeated.last_offset == repeated.first_offset + count - 1
            return repeated.first_offset
        first_offset = self.end
        self.end += count
        self.states.update(batch, self.end - 1)
        return first_offset

    def expected(self, producer: int, epoch: int, first: int, count: int) -> int | ErrorCode:
        """Judge by the whole history."""
        history = self.history.get(producer)
        if not history:
            return self.end
        last_epoch, last_first, last_count, _ = history[-1]
        if epoch < last_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > last_epoch:
            return self.end if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for kept_epoch, kept_first, kept_count, offset in history[-BATCHES_KEPT:]:
            if (kept_epoch, kept_first, kept_count) == (epoch, first, count):
                return offset
        following = (last_first + last_count) % 2**31
        return self.end if first == following else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def judge(self, producer: int, epoch: int, first: int, count: int) -> None:
        wanted, end = self.expected(producer, epoch, first, count), self.end
        assert self.send(producer, epoch, first, count) == wanted
        if wanted == end and self.end > end:
            self.history.setdefault(producer, []).append((epoch, first, count, end))

    @rule(producer=PRODUCERS, epoch=st.integers(0, 3), first=st.integers(0, 20), count=st.integers(1, 4))
    def anything(self, producer: int, epoch: int, first: int, count: int) -> None:
        self.judge(producer, epoch, first, count)

    @rule(producer=PRODUCERS, count=st.integers(1, 4), skip=st.sampled_from([0, 0, 0, 0, 1, -1]))
    def following(self, producer: int, count: int, skip: int) -> None:
        epoch, first, last_count, _ = (self.history.get(producer) or [(0, MAX_SEQUENCE - 6, 0, 0)])[-1]
        self.judge(producer, epoch, (first + last_count + skip) % 2**31, count)

    @rule(producer=PRODUCERS, back=st.integers(1, 8))
    def again(self, producer: int, back: int) -> None:
        history = self.history.get(producer, [])
        if len(history) >= back:
            epoch, first, count, _ = history[-back]
            self.judge(producer, epoch, first, count)

    @rule(producer=PRODUCERS, first=st.sampled_from([0, 0, 1]), count=st.integers(1, 4))
    def new_epoch(self, producer: int, first: int, count: int) -> None:
        epoch = (self.history.get(producer) or [(-1, 0, 0, 0)])[-1][0] + 1
        self.judge(producer, epoch, first, count)

    @invariant()
    def last_sequences_agree(self) -> None:
        assert len(self.states) == len(self.history)
        for producer, history in self.history.items():
            epoch, first, count, _ = history[-1]
            entry = self.states.get(producer)
            assert entry is not None
            assert (entry.epoch, entry.last_sequence) == (epoch, (first + count - 1) % 2**31)
            assert len(entry.batches) <= BATCHES_KEPT


Producers.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
TestProducers = Producers.TestCase


def test_the_longest_silent_producer_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 3)
    states = ProducerStates()
    for producer in (1, 2, 3, 1, 4):
        entry = states.get(producer)
        states.update(header(producer, 0, entry.last_sequence + 1 if entry else 0, 1), 0)
    assert [entry.producer_id for entry in states.entries()] == [3, 1, 4]


TRANSACTIONAL = 0x10


@contextmanager
def refused_with(code: ErrorCode | None) -> Iterator[None]:
    """Expect this refusal, or with None none."""
    if code is None:
        yield
        return
    with pytest.raises(KafkaError) as caught:
        yield
    assert caught.value.code is code


@dataclass(frozen=True)
class Asked:
    """A verification that was begun."""

    producer: int
    verification: Verification
    epoch: int
    has_epochs: bool
    leadership: int
    """Which one it was begun in."""


class PartitionTransactions(RuleBasedStateMachine):
    """Batches and markers of three producers, of right and wrong epochs; snapshots in between.

    Batches come with verifications of now, of long ago, of other producers, or without one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.end = 0
        self.open: dict[int, tuple[int, int]] = {}  # producer -> epoch, first offset
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.asked: list[Asked] = []
        self.valid: dict[int, Asked] = {}
        self.leadership = 0

    def is_over(self, producer: int) -> None:
        """Note that what a producer has asked the coordinator for does not count any more."""
        self.valid.pop(producer, None)

    def begins_anew(self) -> None:
        """Note that what was asked until now belongs to a former leadership."""
        self.valid.clear()
        self.leadership += 1

    def ask(self, producer: int, epoch: int, has_epochs: bool) -> Asked:
        verification = self.states.begin_verification(producer, epoch, has_epochs)
        found = self.valid.get(producer)
        if found is not None and (found.epoch, found.has_epochs) == (epoch, has_epochs):
            assert found.verification is verification
            return found
        assert all(each.verification is not verification for each in self.asked)
        self.asked.append(Asked(producer, verification, epoch, has_epochs, self.leadership))
        if found is None or found.epoch <= epoch:
            self.valid[producer] = self.asked[-1]
        return self.asked[-1]

    @rule(producer=PRODUCERS, step=st.sampled_from([0, 0, 0, 1, -1]), has_epochs=st.booleans())
    def begin_verification(self, producer: int, step: int, has_epochs: bool) -> None:
        self.ask(producer, max(self.epochs.get(producer, 0) + step, 0), has_epochs)

    @rule()
    def begin_to_lead(self) -> None:
        self.states.forget_verifications()
        self.begins_anew()

    @rule(
        producer=PRODUCERS,
        step=st.sampled_from([0, 0, 0, 1, -1]),
        which=st.sampled_from(["none", "now", "now", "last", "last", "any"]),
        has_epochs=st.booleans(),
        number=st.integers(0, 50),
        transactional=st.booleans(),
        by_coordinator=st.booleans(),
        first=st.sampled_from([None, None, None, 0, 5]),
    )
    def write(
        self,
        producer: int,
        step: int,
        which: str,
        has_epochs: bool,
        number: int,
        transactional: bool,
        by_coordinator: bool,
        first: int | None,
    ) -> None:
        known = self.epochs.get(producer)
        epoch = max((known or 0) + step, 0)
        entry = self.states.get(producer)
        following = (entry.last_sequence + 1) % 2**31 if entry is not None and entry.epoch == epoch else 0
        sequence = -1 if by_coordinator else following if first is None else first
        batch = header(producer, epoch, sequence, 2)._replace(attributes=TRANSACTIONAL if transactional else 0)
        asked = self.choose(which, producer, epoch, has_epochs, number)
        expected = self.judge(batch, asked, following)
        repeated = None
        with refused_with(expected):
            repeated = self.states.check(batch, None if asked is None else asked.verification, by_coordinator)
        if expected is not None or repeated is not None:
            return
        self.end += 2
        self.states.update(batch, self.end - 1)
        if transactional and producer not in self.open:
            self.is_over(producer)
        self.epochs[producer] = epoch
        if transactional:
            _, start = self.open.get(producer, (epoch, self.end - 2))
            self.open[producer] = (epoch, start)

    def choose(self, which: str, producer: int, epoch: int, has_epochs: bool, number: int) -> Asked | None:
        if which == "now":
            return self.ask(producer, epoch, has_epochs)
        if which == "last":
            return next((each for each in reversed(self.asked) if each.producer == producer), None)
        return self.asked[number % len(self.asked)] if which == "any" and self.asked else None

    def judge(self, batch: BatchHeader, asked: Asked | None, following: int) -> ErrorCode | None:
        producer, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        known = self.epochs.get(producer)
        if known is not None and epoch < known:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if sequence >= 0 and known is not None:
            entry = self.states.get(producer)
            assert entry is not None
            repeats = [(each.first_sequence, each.last_sequence) for each in entry.batches] if epoch == known else []
            if (sequence, batch.last_sequence) in repeats:
                return None
            if sequence != following:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        is_open = producer in self.open
        if not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE if is_open else None
        if is_open and self.open[producer][0] == epoch:
            return None
        if asked is not None and asked.leadership < self.leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if asked is None or self.valid.get(producer) is not asked or asked.epoch != epoch:
            return ErrorCode.INVALID_TXN_STATE
        late = asked.has_epochs and known is None and sequence > 0
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if late else None

    @rule(
        producer=PRODUCERS,
        step=st.sampled_from([0, 1, 1, -1]),
        committed=st.booleans(),
        coordinator=st.integers(0, 2),
        version=st.sampled_from([0, 2]),
    )
    def mark(self, producer: int, step: int, committed: bool, coordinator: int, version: int) -> None:
        known = self.epochs.get(producer)
        epoch = max((known or 0) + step, 0)
        marker = Marker(producer, epoch, committed, coordinator, version)
        expected = None
        if known is not None:
            if epoch < known or (version == 2 and epoch == known and producer in self.open):
                expected = ErrorCode.INVALID_PRODUCER_EPOCH
            elif coordinator < self.coordinator_epochs.get(producer, -1):
                expected = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        with refused_with(expected):
            self.states.check_marker(marker)
        if expected is not None:
            return
        self.end += 1
        ended = self.states.end(marker, self.end - 1, 0)
        asked = self.valid.get(producer)
        if asked is not None and (not asked.has_epochs or version < 2 or asked.epoch < epoch):
            self.is_over(producer)
        was_open = self.open.pop(producer, None)
        self.epochs[producer], self.coordinator_epochs[producer] = epoch, coordinator
        assert (ended is None) == (was_open is None)
        if ended is not None and was_open is not None:
            stable = min((start for _, start in self.open.values()), default=self.end)
            assert ended == (producer, was_open[1], self.end - 1, stable, committed)

    @rule()
    def snapshot(self) -> None:
        """What a snapshot keeps is enough, but for all batches before a producer's last."""
        self.states = ProducerStates(decode_snapshot(encode_snapshot(self.states.entries())))
        self.begins_anew()

    @rule()
    def expire(self) -> None:
        gone = [producer for producer in self.epochs if producer not in self.open and producer not in self.valid]
        assert self.states.expire(0, 0) == len(gone)
        for producer in gone:
            del self.epochs[producer]
            self.coordinator_epochs.pop(producer, None)

    @invariant()
    def the_oldest_open_transaction_is_known(self) -> None:
        oldest = min((start for _, start in self.open.values()), default=None)
        assert self.states.first_unstable_offset == oldest
        for producer, epoch in self.epochs.items():
            is_open = producer in self.open
            assert self.states.in_transaction(producer, epoch) == (is_open and self.open[producer][0] == epoch)


PartitionTransactions.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestPartitionTransactions = PartitionTransactions.TestCase


def transactional(producer: int, epoch: int, first: int) -> BatchHeader:
    return header(producer, epoch, first, 1)._replace(attributes=TRANSACTIONAL)


def test_a_batch_that_comes_after_the_end_of_its_transaction_opens_none() -> None:
    """The coordinator had agreed; then, before the append, the transaction was ended, under the same epoch."""
    states = ProducerStates()
    verification = states.begin_verification(7, 0, has_epochs=False)
    states.end(Marker(7, 0, False, 3, 0), 0, 0)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        states.check(transactional(7, 0, 0), verification)
    assert states.check(transactional(7, 0, 0), states.begin_verification(7, 0, has_epochs=False)) is None


@pytest.mark.parametrize("version", [0, 1])
def test_an_end_without_a_new_epoch_ends_what_any_client_has_asked(version: int) -> None:
    states = ProducerStates()
    verification = states.begin_verification(7, 0, has_epochs=True)
    states.end(Marker(7, 0, True, 3, version), 0, 0)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        states.check(transactional(7, 0, 0), verification)


def test_what_was_asked_in_a_former_leadership_is_to_be_asked_again() -> None:
    states = ProducerStates()
    verification = states.begin_verification(7, 0, has_epochs=True)
    states.forget_verifications()
    with refused_with(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        states.check(transactional(7, 0, 0), verification)


def test_the_end_of_an_earlier_transaction_leaves_what_a_client_with_an_epoch_for_each_has_asked() -> None:
    """It is told of the decision before the markers are written, and goes on; they have its new epoch."""
    states = ProducerStates()
    states.update(transactional(7, 0, 0), 0)
    verification = states.begin_verification(7, 1, has_epochs=True)
    states.end(Marker(7, 1, True, 3, 2), 1, 0)
    assert states.check(transactional(7, 1, 0), verification) is None
    states.end(Marker(7, 2, False, 3, 2), 2, 0)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        states.check(transactional(7, 1, 0), verification)


def test_an_instance_that_has_been_fenced_spoils_nothing() -> None:
    states = ProducerStates()
    verification = states.begin_verification(7, 1, has_epochs=False)
    late = states.begin_verification(7, 0, has_epochs=False)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        states.check(transactional(7, 0, 0), late)
    assert states.check(transactional(7, 1, 0), verification) is None


def test_who_asks_at_once_shares_the_answer() -> None:
    states = ProducerStates()
    first, second = (states.begin_verification(7, 0, has_epochs=True) for _ in range(2))
    assert states.check(transactional(7, 0, 0), first) is None
    states.update(transactional(7, 0, 0), 0)
    assert states.check(transactional(7, 0, 1), second) is None


def test_nothing_is_kept_of_a_question_that_nobody_waits_for() -> None:
    states = ProducerStates()
    for producer in range(100):
        states.begin_verification(producer, 0, has_epochs=False)
    assert states._verifications is not None
    assert not states._verifications


@pytest.mark.parametrize("how", ["expired", "pushed out"])
def test_a_producer_that_waits_for_the_coordinator_is_not_forgotten(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 1)
    states = ProducerStates()
    states.update(header(1, 0, 0, 1), 0)
    verification = states.begin_verification(1, 0, has_epochs=False)
    if how == "expired":
        assert states.expire(0, 0) == 0
    else:
        states.update(header(2, 0, 0, 1), 1)
    assert states.check(transactional(1, 0, 1), verification) is None
    del verification
    states.expire(0, 0)
    assert len(states) == 0


def test_a_producer_with_an_open_transaction_is_not_pushed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 2)
    states = ProducerStates()
    states.update(header(1, 0, 0, 1)._replace(attributes=TRANSACTIONAL), 0)
    for producer in (2, 3, 4):
        states.update(header(producer, 0, 0, 1), producer)
    assert [entry.producer_id for entry in states.entries()] == [1, 4]
    assert states.first_unstable_offset == 0
