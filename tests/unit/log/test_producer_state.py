"""The idempotent producers' state machine, against a model that keeps every batch ever appended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_lite.coordinators import producer_state
from broker_lite.coordinators.producer_state import BATCHES_KEPT, Marker, ProducerStates, Verification
from broker_lite.log.producer_snapshot import decode_snapshot, encode_snapshot
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.records import MAX_SEQUENCE, BatchHeader

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


Producers.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
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


class PartitionTransactions(RuleBasedStateMachine):
    """Batches and markers of three producers, of right and wrong epochs, verified or not; snapshots in between."""

    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.end = 0
        self.open: dict[int, tuple[int, int]] = {}  # producer -> epoch, first offset
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}

    @rule(
        producer=PRODUCERS,
        step=st.sampled_from([0, 0, 0, 1, -1]),
        verification=st.sampled_from(list(Verification)),
        transactional=st.booleans(),
        by_coordinator=st.booleans(),
        first=st.sampled_from([None, None, None, 0, 5]),
    )
    def write(
        self,
        producer: int,
        step: int,
        verification: Verification,
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
        expected = self.judge(batch, verification, following)
        repeated = None
        with refused_with(expected):
            repeated = self.states.check(batch, verification, by_coordinator)
        if expected is not None or repeated is not None:
            return
        self.end += 2
        self.states.update(batch, self.end - 1)
        self.epochs[producer] = epoch
        if transactional:
            _, start = self.open.get(producer, (epoch, self.end - 2))
            self.open[producer] = (epoch, start)

    def judge(self, batch: BatchHeader, verification: Verification, following: int) -> ErrorCode | None:
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
        if verification is Verification.NONE:
            return ErrorCode.INVALID_TXN_STATE
        late = verification is Verification.EPOCH_BUMP and known is None and sequence > 0
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

    @invariant()
    def the_oldest_open_transaction_is_known(self) -> None:
        oldest = min((start for _, start in self.open.values()), default=None)
        assert self.states.first_unstable_offset == oldest
        for producer, epoch in self.epochs.items():
            is_open = producer in self.open
            assert self.states.in_transaction(producer, epoch) == (is_open and self.open[producer][0] == epoch)


PartitionTransactions.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPartitionTransactions = PartitionTransactions.TestCase


def test_a_producer_with_an_open_transaction_is_not_pushed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 2)
    states = ProducerStates()
    states.update(header(1, 0, 0, 1)._replace(attributes=TRANSACTIONAL), 0)
    for producer in (2, 3, 4):
        states.update(header(producer, 0, 0, 1), producer)
    assert [entry.producer_id for entry in states.entries()] == [1, 4]
    assert states.first_unstable_offset == 0
