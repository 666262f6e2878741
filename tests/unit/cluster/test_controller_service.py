"""Controllers that die, hang and come back: what was answered for stays, and everybody reads the same."""

from __future__ import annotations

import errno
import logging
import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lab.sim.disk import SimulatedFile
from sparkonce.broker_lite.cluster.controller_locks import MAX_STEP_MS
from sparkonce.broker_lite.cluster.controller_service import MAX_BACKOFF_MS, MIN_BACKOFF_MS
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.chance import examples
from tests.handling import when
from tests.unit.cluster.shared import SHARED, Candidate, SharedClock, SharedStorage

BROKERS = st.sampled_from([1, 2, 3])


def test_a_decision_is_in_the_log_when_it_is_answered() -> None:
    storage, clock = SharedStorage(), SharedClock()
    first, second = Candidate(storage, clock, 1), Candidate(storage, clock, 2)
    with pytest.raises(KafkaError) as refused:
        first.create("t")
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    first.service.tick()
    second.service.tick()
    assert (first.service.active, second.service.active) == (True, False)
    first.register(clock)
    first.create("t")
    second.read()
    assert list(second.image.topic_ids) == ["t"]
    with pytest.raises(KafkaError) as refused:
        first.create("t")
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert first.service.active


def test_a_controller_can_show_that_it_is_alive_before_it_begins_its_log() -> None:
    storage, clock = SharedStorage(), SharedClock()
    first = Candidate(storage, clock, 1)
    seen = []

    def begins() -> None:
        first.coordination.touch(77_000)  # as the pulse does if what follows takes long
        seen.append((storage.modified_ms(f"{SHARED}/0000000001.claim"), first.coordination.log.epochs()))

    first.coordination.on_lead = begins
    first.service.tick()
    first.service.tick()
    assert seen == [(77_000, [])]


def test_a_controller_that_cannot_write_is_over() -> None:
    storage, clock = SharedStorage(), SharedClock()
    first, second = Candidate(storage, clock, 1), Candidate(storage, clock, 2)
    first.service.tick()
    first.register(clock)
    storage.room = 0
    with pytest.raises(KafkaError) as refused:
        first.create("t")
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not first.service.active
    storage.room = None
    second.service.tick()
    assert second.service.active
    second.read()
    assert list(second.image.topic_ids) == []


def test_a_log_that_does_not_close_stays_when_its_controller_leads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: SimulatedFile) -> None:
        raise OSError(errno.EIO, "Input/output error")

    storage, clock = SharedStorage(), SharedClock()
    candidate = Candidate(storage, clock, 1)
    candidate.service.tick()
    candidate.register(clock)
    candidate.create("t")
    with monkeypatch.context() as failing:
        failing.setattr(SimulatedFile, "close", fail)
        candidate.service.close()
    candidate.service.tick()
    candidate.read()
    assert candidate.service.active
    assert list(candidate.image.topic_ids) == ["t"]


def test_a_full_disk_is_not_tried_over_and_over(caplog: pytest.LogCaptureFixture) -> None:
    """Each attempt claims an epoch; a second has fifty looks."""
    storage, clock = SharedStorage(), SharedClock()
    candidate = Candidate(storage, clock, 1)
    storage.write_error = OSError(28, "No space left on device")
    for _ in range(50 * 60):
        candidate.service.tick()
        clock.ms += 20
    assert not candidate.service.active
    assert candidate.coordination.locks.latest_epoch() < 25
    assert caplog.text.lower().count("no space left") == 1
    storage.write_error = None
    clock.ms += MAX_BACKOFF_MS
    candidate.service.tick()
    assert candidate.service.active
    candidate.register(clock)
    storage.room = 0
    with pytest.raises(KafkaError):
        candidate.create("t")
    assert caplog.text.lower().count("no space left") == 2, "it had written since"
    storage.room = None
    candidate.service.tick()
    assert not candidate.service.active
    clock.ms += MIN_BACKOFF_MS
    candidate.service.tick()
    assert candidate.service.active


def test_an_answer_that_fails_stops_neither_the_others_nor_who_decides(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(_: bool) -> None:
        raise ZeroDivisionError("by the test")

    clock, told = SharedClock(), []
    candidate = Candidate(SharedStorage(), clock, 1)
    candidate.service.tick()
    candidate.register(clock)
    for go_on in (lambda: candidate.create("t"), candidate.service.close):
        with monkeypatch.context() as flushing:
            flushing.setattr(candidate.coordination, "durable_offset", 0)
            for then in (mistaken, told.append):
                when(candidate.service.written(), then)
        go_on()
    assert told == [True, False]
    assert caplog.text.count("ZeroDivisionError: by the test") == 2


def test_a_mistake_of_the_core_ends_the_controller() -> None:
    candidate = Candidate(SharedStorage(), SharedClock(), 1)
    candidate.service.tick()
    with pytest.raises(ZeroDivisionError):
        candidate.service.decide(lambda _: ([], 1 // 0))
    assert not candidate.service.active


def test_a_mistake_in_what_is_written_ends_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its image has what the log has not; the next decision would leave a gap there."""
    clock = SharedClock()
    candidate = Candidate(SharedStorage(), clock, 1)
    candidate.service.tick()
    candidate.register(clock)
    with monkeypatch.context() as mistaken:
        mistaken.setattr(candidate.coordination, "append", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            candidate.create("t")
    assert not candidate.service.active
    candidate.service.tick()
    candidate.create("u")
    candidate.read()
    assert list(candidate.image.topic_ids) == ["u"]


def test_a_long_log_begins_anew_with_a_snapshot() -> None:
    storage, clock = SharedStorage(), SharedClock()
    candidate = Candidate(storage, clock, 1, max_log_bytes=2_000)
    for number in range(20):
        candidate.service.tick()
        if number == 0:
            candidate.register(clock)
        candidate.service.tick()
        candidate.create(f"t{number}")
    candidate.service.tick()
    assert candidate.coordination.epoch > 3
    assert len(candidate.coordination.log.epochs()) == 1
    candidate.read()
    assert set(candidate.image.topic_ids) == {f"t{number}" for number in range(20)}


def test_a_snapshot_that_is_long_by_itself_ends_no_controller() -> None:
    candidate = Candidate(SharedStorage(), SharedClock(), 1, max_log_bytes=2_000)
    candidate.service.tick()
    candidate.register(SharedClock())
    for number in range(60):
        candidate.create(f"t{number}")
        candidate.service.tick()
    begun = candidate.coordination.epoch
    for _ in range(3):
        candidate.service.decide(lambda controller: (controller.delete_topic(min(controller.image.topics)), None))
        candidate.service.tick()
    assert candidate.coordination.epoch <= begun + 1


def test_a_broker_whose_process_is_gone_leads_no_more() -> None:
    storage, clock = SharedStorage(), SharedClock()
    first, second = Candidate(storage, clock, 1), Candidate(storage, clock, 2)
    first.service.tick()
    first.register(clock)
    epoch = first.service.decide(
        lambda controller: controller.register(2, uuid.uuid4(), "there", 2, NO_BROKER_EPOCH, clock())
    )
    first.service.decide(lambda controller: controller.heartbeat(2, epoch, 1 << 30, False, clock()))
    first.service.tick()
    first.read()
    assert not first.image.brokers[2].fenced
    second.die()
    first.service.tick()
    first.read()
    assert first.image.brokers[2].fenced
    assert not first.image.brokers[1].fenced


def test_why_a_silent_broker_is_fenced_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = SharedClock()
    candidate = Candidate(SharedStorage(), clock, 1)
    candidate.service.tick()
    candidate.register(clock)
    clock.ms += 9_001
    candidate.service.tick()
    assert [each.message for each in caplog.records][-2:] == [
        "broker 1 has sent no heartbeat for broker.session.timeout.ms",
        "broker 1 is fenced: it leads nothing, and is in sync nowhere",
    ]


class Controllers(RuleBasedStateMachine):
    """Three brokers that may all be the controller.

    A broker that hangs is one that is not ticked while the others' clocks go on. What another one does between the
    write of a decision and the look whether it counts is done there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.storage, self.clock = SharedStorage(), SharedClock()
        self.brokers = {each: Candidate(self.storage, self.clock, each) for each in (1, 2, 3)}
        self.answered: set[str] = set()
        self.asked = 0

    @rule(broker=BROKERS)
    def tick(self, broker: int) -> None:
        self.brokers[broker].service.tick()

    @rule(broker=BROKERS)
    def read(self, broker: int) -> None:
        before = self.brokers[broker].image
        offset, topics = before.next_offset, set(before.topic_ids)
        self.brokers[broker].read()
        assert self.brokers[broker].image.next_offset >= offset
        assert set(self.brokers[broker].image.topic_ids) >= topics, "what was read is taken back"

    @rule(alive=st.sets(BROKERS, min_size=1, max_size=2))
    def others_hang(self, alive: set[int]) -> None:
        for _ in range(2 * 2_000 // MAX_STEP_MS):
            self.clock.ms += MAX_STEP_MS
            for broker in sorted(alive):
                self.brokers[broker].service.tick()

    @rule(broker=BROKERS)
    def dies_and_comes_back(self, broker: int) -> None:
        self.brokers[broker].die()
        self.brokers[broker] = Candidate(self.storage, self.clock, broker)

    @precondition(lambda self: any(each.service.active for each in self.brokers.values()))
    @rule(broker=BROKERS, between=st.none() | BROKERS)
    def create(self, broker: int, between: int | None) -> None:
        candidate = self.brokers[broker]
        self.asked += 1
        name = f"t{self.asked}"
        if between is not None and candidate.service.active:
            self.storage.before_listing = lambda: self.others_hang_now(broker, between)
        try:
            candidate.service.decide(
                lambda controller: (
                    controller.create_topic(name, uuid.UUID(int=self.asked), 1, 1, {}, [(broker,)]),
                    None,
                )
            )
        except KafkaError as error:
            refused = error.code
        else:
            refused = None
            self.answered.add(name)
        finally:
            self.storage.before_listing = None
        assert refused in (None, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICA_ASSIGNMENT)

    def others_hang_now(self, hanging: int, active: int) -> None:
        """Let one broker see that another hangs, take over, and decide."""
        if hanging == active:
            return
        other = self.brokers[active]
        for _ in range(2 * 2_000 // MAX_STEP_MS):
            self.clock.ms += MAX_STEP_MS
            other.service.tick()

    @rule(broker=BROKERS)
    def register(self, broker: int) -> None:
        if not self.brokers[broker].service.active:
            return
        try:
            self.brokers[broker].register(self.clock)
            refused = None
        except KafkaError as error:
            refused = error.code
        assert refused in (None, ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION)

    @invariant()
    def nothing_answered_is_lost(self) -> None:
        latest = Candidate(self.storage, self.clock, 9)
        latest.read()
        if latest.image.next_offset:
            assert self.answered <= set(latest.image.topic_ids)
        latest.die()


Controllers.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestControllers = Controllers.TestCase
