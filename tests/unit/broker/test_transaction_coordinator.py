"""The transaction coordinator carried out: its log, its markers, its timers, with a clock and a disk of the test's."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from lab.sim.disk import CutShort, SimulatedDisk
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, CommittedOffset, OffsetKey, encode
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, Producer, TransactionState
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.markers import MARKERS_PER_TURN
from sparkonce.broker_lite.node.standalone import StandaloneMode
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record, encode_batch

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000


class World:
    """A clock, a scheduler and a disk, which outlive brokers."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.storage = SimulatedDisk()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._count = 0

    def call_soon(self, callback: Callable[[], object]) -> object:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> _Timer:
        timer = _Timer(callback)
        self._count += 1
        heapq.heappush(self._timers, (self.now_ms + delay * 1000, self._count, timer))
        return timer

    def pass_time(self, ms: float) -> None:
        """Let time pass, and do what is due on the way."""
        until = self.now_ms + ms
        while self._timers and self._timers[0][0] <= until:
            at_ms, _, timer = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, int(at_ms))
            if not timer.cancelled:
                timer.callback()
        self.now_ms = int(until)

    def do_next(self) -> None:
        """Do one thing, the next that is due."""
        _, _, timer = heapq.heappop(self._timers)
        timer.callback()

    def start(self, **settings: Any) -> Broker:
        self._timers.clear()
        clock = Clock(lambda: self.now_ms, lambda: self.now_ms)
        return Broker(BrokerConfig(**settings), self.storage, "/data", clock, self, StandaloneMode())


class _Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def world() -> World:
    return World()


def begin(broker: Broker, partitions: int = 2, transactional_id: str = "x") -> Producer:
    """Begin a transaction that has written one record to each partition."""
    if broker.topic("t") is None:
        broker.create_topic("t", partitions, {})
    transactions, now_ms = broker.transactions.transactions, broker.clock.now_ms()
    asked = Producer(transactional_id, -1, -1)
    given = broker.transactions.carry_out(transactions.init_producer_id(asked, TIMEOUT_MS, now_ms))
    producer = Producer(transactional_id, given.producer_id, given.epoch)
    places = [("t", index) for index in range(partitions)]
    added = broker.transactions.carry_out(transactions.add_partitions(producer, places, EPOCH_BUMP, now_ms))
    assert added.error is ErrorCode.NONE
    for index in range(partitions):
        batch = encode_batch(
            [Record(None, b"v", now_ms)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        log = broker.partition("t", index)
        verification = log.producers.begin_verification(producer.producer_id, producer.epoch, has_epochs=True)
        log.append(batch, 0, now_ms, verification)
    return producer


def end(broker: Broker, producer: Producer, committed: bool = True) -> ErrorCode:
    decision = broker.transactions.transactions.end(producer, committed, EPOCH_BUMP, broker.clock.now_ms())
    return broker.transactions.carry_out(decision).error


def delete(broker: Broker, name: str) -> None:
    """Delete a topic, and what is left of it."""
    topic = broker.logs.topics[name]
    broker.member.controller.decide(lambda controller: (controller.delete_topic(topic.topic_id), None))
    finish(broker.deleted.clean_up([topic]))


def state(broker: Broker, transactional_id: str = "x") -> TransactionState | None:
    known = broker.transactions.transactions.get(transactional_id)
    return None if known is None else known.state


def stable(broker: Broker) -> list[bool]:
    topic = broker.topic("t")
    assert topic is not None
    return [log.last_stable_offset == log.log_end_offset for log in topic.logs.values()]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Directories to which no batch can be appended, and no marker."""
    directories: set[str] = set()
    for name in ("append", "append_marker"):
        original = getattr(PartitionLog, name)

        def append(log: PartitionLog, *args: Any, _original: Any = original, **more: Any) -> Any:
            if log.directory in directories:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the test's disk is full")
            return _original(log, *args, **more)

        monkeypatch.setattr(PartitionLog, name, append)
    return directories


def test_a_transaction_ends_in_all_partitions_before_the_answer(world: World) -> None:
    broker = world.start()
    producer = begin(broker)
    assert stable(broker) == [False, False]
    assert end(broker, producer) is ErrorCode.NONE
    assert state(broker) is TransactionState.COMPLETE_COMMIT
    assert stable(broker) == [True, True]


def test_many_markers_are_written_in_turns(world: World) -> None:
    broker = world.start()
    producer = begin(broker, partitions=2 * MARKERS_PER_TURN + 5)
    assert end(broker, producer) is ErrorCode.NONE
    assert state(broker) is TransactionState.PREPARE_COMMIT
    assert stable(broker).count(True) == MARKERS_PER_TURN
    assert end(broker, producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.pass_time(0)
    assert state(broker) is TransactionState.COMPLETE_COMMIT
    assert all(stable(broker))


def test_markers_that_cannot_be_written_are_tried_again(world: World, failing: set[str]) -> None:
    broker = world.start()
    producer = begin(broker)
    failing.add("/data/t-1")
    assert end(broker, producer, committed=False) is ErrorCode.NONE
    assert (state(broker), stable(broker)) == (TransactionState.PREPARE_ABORT, [True, False])
    world.pass_time(5_000)
    assert state(broker) is TransactionState.PREPARE_ABORT
    failing.clear()
    world.pass_time(1_000)
    assert (state(broker), stable(broker)) == (TransactionState.COMPLETE_ABORT, [True, True])
    assert broker.partition("t", 0).log_end_offset == 2  # its marker was written once


def test_what_cannot_be_written_down_has_not_happened(world: World, failing: set[str]) -> None:
    broker = world.start()
    producer = begin(broker)
    failing.add(f"/data/{TRANSACTIONS_TOPIC}-0")
    assert end(broker, producer) is ErrorCode.NOT_COORDINATOR
    assert state(broker) is TransactionState.ONGOING
    asked = broker.transactions.transactions.init_producer_id(Producer("x", -1, -1), TIMEOUT_MS, world.now_ms)
    assert broker.transactions.carry_out(asked).error is ErrorCode.NOT_COORDINATOR
    failing.clear()
    assert end(broker, producer) is ErrorCode.NONE  # the failed attempt to fence it used no epoch up


def test_completion_that_cannot_be_written_down_is_tried_again(
    world: World, failing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.start()
    producer = begin(broker)
    original = broker.transactions.write_marker

    def write_marker(topic: str, index: int, marker: Marker) -> None:
        original(topic, index, marker)
        failing.add(f"/data/{TRANSACTIONS_TOPIC}-0")

    monkeypatch.setattr(broker.transactions, "write_marker", write_marker)
    assert end(broker, producer) is ErrorCode.NONE
    assert (state(broker), stable(broker)) == (TransactionState.PREPARE_COMMIT, [True, True])
    failing.clear()
    world.pass_time(1_000)
    assert state(broker) is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("failing_at", [0, 1])
def test_a_decided_transaction_is_completed_at_the_next_start(world: World, failing: set[str], failing_at: int) -> None:
    """The broker dies between the decision and a marker; markers that were written may be written again."""
    broker = world.start()
    producer = begin(broker)
    failing.add(f"/data/t-{failing_at}")
    assert end(broker, producer) is ErrorCode.NONE
    broker.logs.abandon()
    failing.clear()
    broker = world.start()
    assert (state(broker), stable(broker)) == (TransactionState.COMPLETE_COMMIT, [True, True])
    known = broker.transactions.transactions.get("x")
    assert known is not None
    assert (known.producer_id, known.epoch) == (producer.producer_id, producer.epoch + 1)
    assert end(broker, producer) is ErrorCode.NONE  # asked again after the crash


@pytest.mark.parametrize("committed", [True, False])
def test_a_crash_at_every_operation_of_the_disk_leaves_all_or_nothing(committed: bool) -> None:
    """Killed after any number of operations, a transaction is open in all partitions or has ended alike in all."""
    outcomes = set()
    for operations in itertools.count():
        world = World()
        broker = world.start(log=LogConfig(segment_bytes=300))  # so that segments are rolled on the way
        producer = begin(broker, partitions=3)
        world.storage.fuse = operations
        with contextlib.suppress(CutShort):
            end(broker, producer, committed)
        done = world.storage.fuse > 0
        world.storage.fuse = None
        world.storage.locks.clear()
        world.storage.pending.clear()
        broker = world.start(log=LogConfig(segment_bytes=300))
        outcomes.add(state(broker))
        is_open = state(broker) is TransactionState.ONGOING
        assert stable(broker) == [not is_open] * 3
        for index in range(3):
            log = broker.partition("t", index)
            aborted = log.aborted_transactions(0, log.log_end_offset)
            assert [each.first_offset for each in aborted] == ([] if committed or is_open else [0])
        assert end(broker, producer, committed) is ErrorCode.NONE  # the answer was lost: the client asks again
        assert stable(broker) == [True] * 3
        if done:
            break
    after = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    assert outcomes == {TransactionState.ONGOING, after}
    assert operations > 5


def test_an_open_transaction_survives_a_crash_and_is_still_timed_out(world: World) -> None:
    broker = world.start()
    producer = begin(broker)
    broker.logs.abandon()
    broker = world.start()
    assert (state(broker), stable(broker)) == (TransactionState.ONGOING, [False, False])
    world.pass_time(TIMEOUT_MS + 10_001)
    assert (state(broker), stable(broker)) == (TransactionState.COMPLETE_ABORT, [True, True])
    assert end(broker, producer) is ErrorCode.INVALID_TXN_STATE


def test_a_topic_that_is_gone_needs_no_marker(world: World) -> None:
    broker = world.start()
    producer = begin(broker)
    delete(broker, "t")
    assert end(broker, producer) is ErrorCode.NONE
    assert state(broker) is TransactionState.COMPLETE_COMMIT


def test_a_partition_that_somebody_else_has_gone_on_in_is_done(world: World) -> None:
    broker = world.start()
    producer = begin(broker)
    ahead = Marker(producer.producer_id, producer.epoch + 9, False, 0, 0)
    broker.transactions.write_marker("t", 0, ahead)
    assert end(broker, producer) is ErrorCode.NONE
    assert (state(broker), stable(broker)) == (TransactionState.COMPLETE_COMMIT, [True, True])


def test_ids_that_nobody_uses_are_forgotten(world: World) -> None:
    settings = {
        "transactional_id_expiration_ms": 5_000,
        "transaction_remove_expired_transaction_cleanup_interval_ms": 100,
    }
    broker = world.start(**settings)
    producer = begin(broker)
    world.pass_time(4_000)
    end(broker, producer)
    world.pass_time(4_900)
    assert state(broker) is TransactionState.COMPLETE_COMMIT
    world.pass_time(300)
    assert state(broker) is None
    broker.logs.abandon()
    assert state(world.start(**settings)) is None


def test_a_record_that_cannot_be_read_is_passed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    broker = world.start()
    producer = begin(broker)
    log = broker.partition(TRANSACTIONS_TOPIC, 0)
    for value in (b"\0\7", b""):
        log.append(encode_batch([Record(b"\0\0\0\1y", value, world.now_ms)]), 0, world.now_ms)
    broker.logs.abandon()
    broker = world.start()
    assert "is skipped" in caplog.text
    assert state(broker) is TransactionState.ONGOING
    assert end(broker, producer) is ErrorCode.NONE


def test_offsets_take_effect_with_the_marker_and_wait_over_a_crash(world: World) -> None:
    broker = world.start()
    producer = begin(broker)
    key, value = OffsetKey("g", "t", 0), CommittedOffset(5, -1, "", world.now_ms)
    index = 0
    record = encode(key, value, world.now_ms)
    batch = encode_batch([record], producer_id=producer.producer_id, producer_epoch=producer.epoch, transactional=True)
    topic = broker.internal_topic(OFFSETS_TOPIC)
    broker.transactions.carry_out(
        broker.transactions.transactions.add_partitions(producer, [(OFFSETS_TOPIC, index)], EPOCH_BUMP, world.now_ms)
    )
    log = topic.logs[index]
    verification = log.producers.begin_verification(producer.producer_id, producer.epoch, has_epochs=True)
    log.append(batch, 0, world.now_ms, verification, by_coordinator=True)
    broker.logs.abandon()
    broker = world.start()
    assert broker.pending_offsets.is_pending(key)
    assert broker.groups.offsets.of_group("g") == {}
    assert end(broker, producer) is ErrorCode.NONE
    assert not broker.pending_offsets
    assert broker.groups.offsets.of_group("g")["t", 0].offset == 5
    broker.logs.abandon()
    broker = world.start()
    assert broker.groups.offsets.of_group("g")["t", 0].offset == 5
