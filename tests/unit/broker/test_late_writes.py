"""Writes that the coordinator has agreed to, and whose transaction ends before they are appended (KIP-890).

The coordinator is another broker, so that time passes between its word and the append. A batch that is late must not
open a transaction that nobody ends, and must not fall into the producer's next one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import Producer, TransactionState
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.unit.broker.script import LOOK_MS, REPLICAS, Call, Script, Sent, error_of
from tests.unit.broker.scripted_transactions import (
    NAME,
    PARTITIONS,
    add_partition,
    end,
    error_told,
    init,
    markers,
    send_write,
    state,
    three_brokers,
)

GROUP = "g"
LEGACY_PRODUCE, LEGACY_COMMIT, LEGACY_END = 11, 4, 4


@pytest.fixture
def script() -> Iterator[Script]:
    with three_brokers() as script:
        yield script


def add(script: Script, producer: Producer, index: int = 1, topic: str = "t") -> None:
    """Add a partition as clients without KIP-890's second part do."""
    assert error_told(script.answer(add_partition(script, producer, index, topic))) is ErrorCode.NONE
    script.settle()


def add_offsets(script: Script, producer: Producer) -> None:
    """Add the partition of the group's offsets, as such clients do."""
    known = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    call = script.send(1, ApiKey.ADD_OFFSETS_TO_TXN, 3, transactional_id=NAME, group_id=GROUP, **known)
    assert error_told(script.answer(call)) is ErrorCode.NONE
    script.settle()


def commit(
    script: Script, producer: Producer, offset: int = 5, version: int = LEGACY_COMMIT, coordinator: int = 2
) -> Call:
    return script.send(
        coordinator,
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id=NAME,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[("t", [(0, offset, -1, "")])],
    )


def end_legacy(script: Script, producer: Producer, *, committed: bool) -> None:
    assert error_of(script.answer(end(script, producer, committed, LEGACY_END))) is ErrorCode.NONE
    script.settle()
    assert state(script, 1) in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@contextmanager
def answer_held_back(script: Script) -> Iterator[list[Sent]]:
    """Let the coordinator answer what another broker asks it, and keep the answer back."""
    with script.holding(ApiKey.ADD_PARTITIONS_TO_TXN) as held:
        yield held
        script.settle()
    (sent,) = held
    sent.deliver_only()
    script.settle()
    assert len(sent.answers) == 1


def stable(script: Script, topic: str, index: int) -> bool:
    log = script.log(topic, index)
    return log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_write_opens_no_transaction(script: Script, committed: bool) -> None:
    producer = init(script)
    add(script, producer)
    with answer_held_back(script) as held:
        call = send_write(script, producer, 1, version=LEGACY_PRODUCE)
    assert call.answer is None
    end_legacy(script, producer, committed=committed)
    assert markers(script, 1) == [committed]
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_TXN_STATE
    assert stable(script, "t", 1)


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_write_opens_no_transaction_where_another_client_has_ended_its_own_without_a_new_epoch(
    script: Script, committed: bool
) -> None:
    """The write comes from a client with KIP-890's second part, the end from one without; the epoch stays."""
    producer = init(script)
    with answer_held_back(script) as held:
        call = send_write(script, producer, 1)
    end_legacy(script, producer, committed=committed)
    assert markers(script, 1) == [committed]
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_TXN_STATE
    assert stable(script, "t", 1)


def test_late_offsets_open_no_transaction_where_another_client_has_ended_their_own(script: Script) -> None:
    producer = init(script)
    with answer_held_back(script) as held:
        call = commit(script, producer, version=5)
    end_legacy(script, producer, committed=True)
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_TXN_STATE
    assert stable(script, OFFSETS_TOPIC, 0)


def test_a_late_write_falls_into_no_later_transaction(script: Script) -> None:
    """The next transaction has the partition as well, but nothing in it yet: the late batch would be its first."""
    producer = init(script)
    add(script, producer)
    with answer_held_back(script) as held:
        call = send_write(script, producer, 1, b"late", LEGACY_PRODUCE)
    end_legacy(script, producer, committed=False)
    add(script, producer)
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_TXN_STATE
    call = send_write(script, producer, 1, b"of the next", LEGACY_PRODUCE)
    script.settle()
    assert error_of(call.answer) is ErrorCode.NONE
    end_legacy(script, producer, committed=True)
    assert markers(script, 1) == [False, True]
    assert stable(script, "t", 1)


def test_a_late_write_of_a_client_with_an_epoch_for_each_transaction_is_fenced(script: Script) -> None:
    producer = init(script)
    with answer_held_back(script) as held:
        call = send_write(script, producer, 1)
    end(script, producer)
    script.settle()
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(script, "t", 1)


def test_what_was_asked_before_leadership_came_back_does_not_count(script: Script) -> None:
    producer = init(script)
    add(script, producer)
    with answer_held_back(script) as held:
        call = send_write(script, producer, 1, version=LEGACY_PRODUCE)
    for broker_id in (3, 2):
        script.let_lead("t", 1, broker_id)
        script.settle()
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER  # the client tries again, and aborts nothing
    call = send_write(script, producer, 1, version=LEGACY_PRODUCE)
    script.settle()
    assert error_of(call.answer) is ErrorCode.NONE


def test_writes_that_wait_together_are_all_appended(script: Script) -> None:
    producer = init(script)
    add(script, producer)
    calls = [send_write(script, producer, 1, version=LEGACY_PRODUCE) for _ in range(2)]
    assert [error_of(script.answer(call)) for call in calls] == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.parametrize("committed", [True, False])
def test_late_offsets_open_no_transaction(script: Script, committed: bool) -> None:
    producer = init(script)
    add_offsets(script, producer)
    with answer_held_back(script) as held:
        call = commit(script, producer)
    end_legacy(script, producer, committed=committed)
    assert markers(script, 0, OFFSETS_TOPIC) == [committed]
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_TXN_STATE
    assert stable(script, OFFSETS_TOPIC, 0)
    assert not script.broker(2).pending_offsets


def test_offsets_that_were_asked_about_before_leadership_came_back_come_again(script: Script) -> None:
    producer = init(script)
    with answer_held_back(script) as held:
        call = commit(script, producer, version=5)
    for broker_id in (3, 2):
        script.let_lead(OFFSETS_TOPIC, 0, broker_id)
        script.settle()
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE  # the client tries again
    call = commit(script, producer, version=5)
    script.settle()
    assert error_of(call.answer) is ErrorCode.NONE


def test_late_offsets_fall_into_no_later_transaction(script: Script) -> None:
    producer = init(script)
    add_offsets(script, producer)
    with answer_held_back(script) as held:
        call = commit(script, producer, offset=5)
    end_legacy(script, producer, committed=False)
    add_offsets(script, producer)
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_TXN_STATE
    end_legacy(script, producer, committed=True)
    assert script.broker(2).groups.offsets.of_group(GROUP) == {}
    assert stable(script, OFFSETS_TOPIC, 0)


def test_late_offsets_of_a_client_with_an_epoch_for_each_transaction_are_fenced(script: Script) -> None:
    producer = init(script)
    with answer_held_back(script) as held:
        call = commit(script, producer, version=5)
    end(script, producer)
    script.settle()
    held[0].answered()
    script.settle()
    assert error_of(call.answer) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable(script, OFFSETS_TOPIC, 0)


class _Course:
    """Transactions of one producer whose writes, answers and markers are late at random.

    `has_epochs`: its client has an epoch for each of them (KIP-890 part 2); else there is one for all. None: each
    of its requests may be by either kind of client, as where an older one helps out.
    """

    def __init__(self, script: Script, seed: int, has_epochs: bool | None) -> None:
        self.script = script
        self.random = random.Random(seed)
        self._has_epochs = has_epochs
        self._cut = ExitStack()
        self.ending: list[Call] = []
        self.producer = init(script)
        self.held: list[Sent] = []
        self.answers: list[Sent] = []
        """Those that were handled, and whose answers are late."""

    @property
    def has_epochs(self) -> bool:
        return self.random.random() < 0.5 if self._has_epochs is None else self._has_epochs

    def run(self) -> None:
        with self.script.holding(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS) as self.held:
            for _ in range(120):
                self.step()
                self.script.pass_time()
                self.hear()
        self.settle()

    def step(self) -> None:
        chance, script = self.random, self.script
        what = chance.randrange(17)
        if what <= 2:
            self.write(chance.randrange(PARTITIONS))
        elif what == 3:
            self.commit()
        elif what <= 5:
            self.end(committed=chance.random() < 0.5)
        elif what <= 7:
            script.pass_time(chance.choice((0, 0, 50, 200)))
        elif what <= 11 and self.held:
            self.deliver(self.held.pop(chance.randrange(len(self.held))))
        elif what <= 13:
            self.let_answer()
        elif what == 14 and chance.random() < 0.3:
            topic, index = chance.choice((("t", 0), ("t", 1), ("t", 2), (TRANSACTIONS_TOPIC, 0), (OFFSETS_TOPIC, 0)))
            script.let_lead(topic, index, chance.choice(REPLICAS))
            script.pass_time(LOOK_MS)
        elif what >= 15:
            self._cut.close()
            if what == 15:
                self._cut.enter_context(script.unheard(chance.choice(REPLICAS)))

    @property
    def coordinator(self) -> int:
        return self.script.leader(TRANSACTIONS_TOPIC, 0)

    def deliver(self, sent: Sent) -> None:
        """Bring a request where it is to go; its answer may be long in coming."""
        if self.random.random() < 0.5:
            sent.deliver()
        else:
            sent.deliver_only()
            self.answers.append(sent)

    def let_answer(self) -> None:
        """Let an answer arrive that is late."""
        late = [sent for sent in self.answers if sent.answers]
        if late:
            sent = self.random.choice(late)
            self.answers.remove(sent)
            sent.answered()

    def end(self, *, committed: bool) -> None:
        version = 5 if self.has_epochs else LEGACY_END
        self.ending.append(end(self.script, self.producer, committed, version, self.coordinator))

    def hear(self) -> None:
        """Go on with the epoch that the end of a transaction has given."""
        for call in self.ending:
            answer = call.answer
            if (
                answer is not None
                and answer.API_VERSION >= 5
                and error_of(answer) is ErrorCode.NONE
                and answer.producer_epoch > self.producer.epoch
            ):
                self.producer = Producer(NAME, answer.producer_id, answer.producer_epoch)

    def write(self, index: int) -> None:
        has_epochs = self.has_epochs
        if not has_epochs:
            add_partition(self.script, self.producer, index, coordinator=self.coordinator)
            self.script.pass_time()
        entry = self.script.log("t", index).producers.get(self.producer.producer_id)
        following = 0 if entry is None or entry.epoch != self.producer.epoch else entry.last_sequence + 1
        version = 12 if has_epochs else LEGACY_PRODUCE
        send_write(self.script, self.producer, index, version=version, sequence=following)

    def commit(self) -> None:
        has_epochs = self.has_epochs
        if not has_epochs:
            add_partition(self.script, self.producer, 0, OFFSETS_TOPIC, self.coordinator)
            self.script.pass_time()
        version = 5 if has_epochs else LEGACY_COMMIT
        commit(self.script, self.producer, version=version, coordinator=self.script.leader(OFFSETS_TOPIC, 0))

    def settle(self) -> None:
        """Let the network be as it should, and the last transaction come to its end."""
        self._cut.close()
        for sent in self.held:
            self.deliver(sent)
        for _ in range(5):
            self.script.settle()
            for _ in list(self.answers):
                self.let_answer()
            self.script.pass_time(1_100)
            self.hear()
            self.end(committed=False)
        self.script.settle()

    def check(self) -> None:
        assert state(self.script, self.coordinator) is not TransactionState.ONGOING
        for topic, index in (("t", 0), ("t", 1), ("t", 2), (OFFSETS_TOPIC, 0)):
            assert stable(self.script, topic, index), f"a transaction of {topic}-{index} hangs"
        assert not self.script.broker(self.script.leader(OFFSETS_TOPIC, 0)).pending_offsets


@pytest.mark.parametrize("has_epochs", [False, True, None])
@pytest.mark.parametrize("seed", range(8))
def test_no_transaction_hangs(script: Script, seed: int, has_epochs: bool | None) -> None:
    course = _Course(script, seed, has_epochs)
    course.run()
    course.check()


@pytest.mark.soak
@pytest.mark.parametrize("has_epochs", [False, True, None])
@pytest.mark.parametrize("seed", range(8, 300))
def test_no_transaction_hangs_for_long(script: Script, seed: int, has_epochs: bool | None) -> None:
    test_no_transaction_hangs(script, seed, has_epochs)
