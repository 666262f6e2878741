"""The idempotent producers' state machine, against a model that keeps every batch ever appended."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_lite.coordinators import producer_state
from broker_lite.coordinators.producer_state import BATCHES_KEPT, ProducerStates
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
