"""Fetching from a leader: sessions, failures of all and of one, roles that change, with a connection of the test's."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.replication.follower import FetchPosition, PartitionFollower
from sparkonce.broker_lite.replication.replicas import Follows, Gone, Leads
from sparkonce.broker_lite.server.replica_fetcher import FIRST_BACKOFF_MS, VERSION, ReplicaFetchers
from sparkonce.kafka.protocol import fetch, records
from sparkonce.kafka.protocol.errors import CorruptBatchError, ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record

NOW = 1_700_000_000_000
TOPIC = uuid.UUID(int=1)
LEADER, SESSION = 2, 7
Then = Callable[[memoryview | None], None]


class World:
    """A follower: its roles and logs, one connection to each leader, time that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.storage = SimulatedDisk()
        self.roles: dict[Any, PartitionFollower] = {}
        self.soon: list[Callable[[], object]] = []
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.requests: list[tuple[fetch.FetchRequest, Then]] = []
        self.dropped = 0
        self.asked: list[tuple[Any, Callable[[Any], None]]] = []
        self.failures: list[BaseException] = []
        self._tell: Callable[[Any], None] = lambda _: None
        member = SimpleNamespace(
            broker_id=1, broker_epoch=5, listen=self._listen, replicas=SimpleNamespace(roles=self.roles),
            send=lambda _, request, then: self.asked.append((request, then)),
        )  # fmt: skip
        clock = SimpleNamespace(now_ms=lambda: NOW, monotonic_ms=lambda: self.now_ms)
        broker = SimpleNamespace(
            config=BrokerConfig.of({}), clock=clock, scheduler=self, topic_by_id=lambda _: SimpleNamespace(name="t"),
            logs=SimpleNamespace(note_failure=self.failures.append),
        )  # fmt: skip
        self.fetchers = ReplicaFetchers(broker, member, lambda *_: self)  # type: ignore[arg-type]

    def _listen(self, callback: Callable[[Any], None]) -> None:
        self._tell = callback

    # The scheduler.

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> SimpleNamespace:
        timer = (self.now_ms + delay * 1000, callback)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.cancel(timer))

    def cancel(self, timer: tuple[float, Callable[[], object]]) -> None:
        self.timers = [each for each in self.timers if each is not timer]

    def settle(self, pass_ms: int = 0) -> None:
        self.now_ms += pass_ms
        due = [each for each in self.timers if each[0] <= self.now_ms]
        self.timers = [each for each in self.timers if each not in due]
        for _, callback in due:
            callback()
        while self.soon:
            self.soon.pop(0)()

    # The connection.

    def request(self, _key: int, _version: int, body: bytearray, then: Then) -> None:
        self.requests.append((fetch.decode_request(VERSION, body), then))

    def drop(self) -> None:
        self.dropped += 1
        if self.requests:
            then = self.requests.pop()[1]
            self.call_soon(lambda: then(None))

    # What happens.

    def follow(self, index: int, leader: int = LEADER, epoch: int = 0) -> PartitionLog:
        log = PartitionLog.open(self.storage, f"/data/t-{index}", LogConfig(), NOW)
        log.be_one_of_several(0)
        self.roles[TOPIC, index] = PartitionFollower(log, leader, epoch)
        self._tell(Follows((TOPIC, index), leader))
        return log

    def tell(self, event: Leads | Gone) -> None:
        self._tell(event)

    def wanted(self) -> dict[int, int]:
        """Return the offsets that the fetch under way names, by partition."""
        (request, _) = self.requests[-1]
        return {each.partition: each.fetch_offset for topic in request.topics for each in topic.partitions}

    def answer(self, *results: fetch.FetchPartitionResult, error: ErrorCode = ErrorCode.NONE) -> None:
        self.reply(*results, error=error)
        self.settle()

    def reply(self, *results: fetch.FetchPartitionResult, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer as `answer`, and let nothing follow that is put off."""
        _, then = self.requests.pop()
        topics = [fetch.FetchTopicResult("", TOPIC, results)] if results else []
        response = fetch.FetchResponse(topics, int(error), 0 if error else SESSION)
        then(memoryview(b"".join(bytes(part) for part in fetch.encode_response(VERSION, response))))  # type: ignore[arg-type]


def sent(index: int, count: int, at: int = 0, epoch: int = 0, high_watermark: int = 0) -> fetch.FetchPartitionResult:
    batch = records.encode_batch([Record(None, b"v", NOW) for _ in range(count)])
    records.set_base_offset(batch, at)
    records.set_partition_leader_epoch(batch, epoch)
    return fetch.FetchPartitionResult(index, 0, high_watermark, -1, 0, batch)


def refusal(index: int, code: ErrorCode) -> fetch.FetchPartitionResult:
    return fetch.FetchPartitionResult(index, int(code), -1)


@pytest.fixture
def world() -> World:
    return World()


def test_a_session_names_all_at_first_and_then_what_has_changed(world: World) -> None:
    logs = [world.follow(index) for index in range(3)]
    world.settle()
    (first, _) = world.requests[0]
    assert (first.session_id, first.session_epoch, world.wanted()) == (0, 0, {0: 0, 1: 0, 2: 0})
    assert (first.replica_id, first.replica_epoch, first.max_wait_ms) == (1, 5, 500)
    assert first.topics[0].topic_id == TOPIC != ZERO_UUID
    world.answer(sent(1, 3, high_watermark=2))
    (second, _) = world.requests[0]
    assert (second.session_id, second.session_epoch, world.wanted()) == (SESSION, 1, {1: 3})
    assert (logs[1].log_end_offset, logs[1].high_watermark) == (3, 2)
    world.answer()
    assert (world.requests[0][0].session_epoch, world.wanted()) == (2, {})


def test_what_is_followed_no_more_is_forgotten_and_its_late_answer_ignored(world: World) -> None:
    logs = [world.follow(index) for index in range(2)]
    world.settle()
    world.tell(Leads((TOPIC, 0)))
    world.answer(sent(0, 1), sent(1, 1))
    assert [log.log_end_offset for log in logs] == [0, 1]
    world.answer()
    world.tell(Gone((TOPIC, 1)))
    world.answer()
    assert world.requests == []


def test_forgotten_partitions_are_named_once(world: World) -> None:
    for index in range(2):
        world.follow(index)
    world.settle()
    world.tell(Leads((TOPIC, 0)))
    world.answer()
    (request, _) = world.requests[0]
    assert [(each.topic_id, each.partitions) for each in request.forgotten] == [(TOPIC, [0])]
    world.answer()
    assert not world.requests[0][0].forgotten


def test_an_answer_to_a_former_role_is_not_taken(world: World) -> None:
    world.follow(0)
    world.settle()
    _, then = world.requests[0]
    log = world.follow(0, epoch=1)
    response = fetch.FetchResponse([fetch.FetchTopicResult("", TOPIC, [sent(0, 1)])], session_id=SESSION)
    then(memoryview(b"".join(bytes(part) for part in fetch.encode_response(VERSION, response))))  # type: ignore[arg-type]
    assert log.log_end_offset == 0


def test_a_new_partition_does_not_wait_for_the_fetch_under_way(world: World) -> None:
    world.follow(0)
    world.settle()
    world.answer()
    world.follow(1)
    world.follow(2)
    world.settle()
    assert world.dropped == 1
    (request, _) = world.requests[0]
    assert (request.session_epoch, world.wanted()) == (0, {0: 0, 1: 0, 2: 0})


def test_where_logs_part_the_end_is_cut_and_asked_for_again(world: World) -> None:
    log = world.follow(0, epoch=1)
    log.append_as_follower(sent(0, 2).records, 0, NOW)  # type: ignore[arg-type]
    log.append_as_follower(sent(0, 3, at=2, epoch=1).records, 1, NOW)  # type: ignore[arg-type]
    world.settle()
    (request, _) = world.requests[0]
    assert request.topics[0].partitions[0].last_fetched_epoch == 1
    end = fetch.EpochEndOffset(0, 2)
    world.answer(fetch.FetchPartitionResult(0, 0, 2, -1, 0, b"", diverging_epoch=end))
    assert log.log_end_offset == 2
    assert world.wanted() == {0: 2}


@pytest.mark.parametrize("error", [OSError(errno.EIO, "?"), CorruptBatchError("?")])
def test_a_partition_that_cannot_be_cut_is_told_of_and_holds_up_no_other(
    world: World, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, well = world.follow(0, epoch=1), world.follow(1)
    log.append_as_follower(sent(0, 2).records, 0, NOW)  # type: ignore[arg-type]
    world.settle()

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(log.__class__, "truncate_to", failing)
    parted = fetch.FetchPartitionResult(0, 0, 2, -1, 0, b"", diverging_epoch=fetch.EpochEndOffset(0, 1))
    world.answer(parted, sent(1, 1))
    assert world.failures == [error]
    assert world.wanted() == {1: 1}
    assert well.log_end_offset == 1


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_one_partition_that_is_refused_pauses_longer_each_time_and_holds_up_no_other(
    world: World, code: ErrorCode
) -> None:
    refused, well = world.follow(0), world.follow(1)
    world.settle()
    world.answer(refusal(0, code), sent(1, 1))
    assert world.wanted() == {1: 1}
    assert world.requests[0][0].max_wait_ms == FIRST_BACKOFF_MS
    world.now_ms += FIRST_BACKOFF_MS
    world.answer(sent(1, 1, at=1))
    assert world.wanted() == {0: 0, 1: 2}
    world.answer(refusal(0, code))
    assert world.requests[0][0].max_wait_ms == 2 * FIRST_BACKOFF_MS
    world.now_ms += 2 * FIRST_BACKOFF_MS
    world.answer()
    world.answer(sent(0, 1))
    assert (refused.log_end_offset, well.log_end_offset) == (1, 2)
    assert world.requests[0][0].max_wait_ms == 500


def test_a_leader_that_does_not_answer_is_asked_again_after_a_while(world: World) -> None:
    world.follow(0)
    world.settle()
    for pause_ms in (FIRST_BACKOFF_MS, 2 * FIRST_BACKOFF_MS, 4 * FIRST_BACKOFF_MS):
        world.requests.pop()[1](None)
        world.settle(pause_ms - 1)
        assert world.requests == []
        world.settle(1)
        assert (world.requests[0][0].session_epoch, world.wanted()) == (0, {0: 0})


def test_a_session_that_is_over_begins_anew_at_once(world: World) -> None:
    world.follow(0)
    world.settle()
    world.answer()
    world.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (world.requests[0][0].session_epoch, world.wanted()) == (0, {0: 0})


def test_who_is_out_of_range_begins_where_the_leader_does(world: World) -> None:
    log = world.follow(0, epoch=3)
    world.settle()
    world.answer(refusal(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    assert world.requests == []
    request, then = world.asked.pop()
    assert (request.replica_id, request.topics[0][0]) == (1, "t")
    then(offsets(40, 90))
    world.settle()
    assert log.log_end_offset == 40
    assert world.wanted() == {0: 40}


def offsets(start: int, end: int) -> SimpleNamespace:
    """Return a leader's answer to where its log begins and ends."""
    found = [SimpleNamespace(error_code=0, offset=each) for each in (start, end)]
    return SimpleNamespace(topics=[SimpleNamespace(partitions=found)])


def test_who_is_out_of_range_though_it_is_not_asks_again_after_longer_and_longer(world: World) -> None:
    """It may be that the leader has got more in between; if not, nobody is asked without a pause."""
    world.follow(0)
    world.settle()
    for pause_ms in (FIRST_BACKOFF_MS, 2 * FIRST_BACKOFF_MS, 4 * FIRST_BACKOFF_MS):
        world.answer(refusal(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        world.asked.pop()[1](offsets(0, 5))
        world.settle(pause_ms - 1)
        assert (world.requests, world.asked) == ([], [])
        world.settle(1)
        assert world.wanted() == {0: 0}


def test_what_was_safe_and_is_cut_off_is_warned_of(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = world.follow(0, epoch=1)
    world.settle()
    for offset in range(4):
        world.answer(sent(0, 1, at=offset, high_watermark=min(offset, 3)))
    world.answer(fetch.FetchPartitionResult(0, 0, 2, -1, 0, b"", diverging_epoch=fetch.EpochEndOffset(0, 3)))
    world.answer(sent(0, 1, at=log.log_end_offset, high_watermark=3))
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []
    world.answer(fetch.FetchPartitionResult(0, 0, 2, -1, 0, b"", diverging_epoch=fetch.EpochEndOffset(0, 0)))
    assert log.log_end_offset == 0
    (warning,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert "/data/t-0: cut from 4 to 0, as broker 2 has it: offsets 0 to 2 had been on all replicas in sync" in warning


def test_a_batch_of_the_leaders_that_holds_our_end_shows_that_ours_is_foreign(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = world.follow(0)
    for offset in range(5):
        log.append_as_follower(sent(0, 1, at=offset).records, 0, NOW)  # type: ignore[arg-type]
    world.settle()
    assert world.wanted() == {0: 5}
    world.answer(sent(0, 10, at=2))
    assert (log.log_end_offset, world.wanted()) == (2, {0: 2})
    assert "its last records are not the leader's" in caplog.text
    world.answer(sent(0, 10, at=2))
    assert log.log_end_offset == 12


def test_a_session_that_begins_anew_names_where_each_log_is_now(world: World) -> None:
    """Retention may have moved its beginning without anybody's word."""
    log = world.follow(0)
    world.settle()
    world.answer(sent(0, 3, high_watermark=3))
    log.advance_start(2)
    world.answer()
    assert world.wanted() == {}
    world.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert world.requests[0][0].topics[0].partitions[0].log_start_offset == 2


def test_what_is_followed_again_within_one_fetch_is_not_forgotten(world: World) -> None:
    world.follow(0)
    world.follow(1)
    world.settle()
    world.answer()
    world.tell(Gone((TOPIC, 0)))
    world.follow(0, epoch=1)
    world.reply()
    (request, _) = world.requests[0]
    assert (world.wanted(), request.forgotten) == ({0: 0}, [])
    world.settle()
    assert world.dropped == 0, "the request that was under way has it"


def test_only_what_may_have_changed_is_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(3):
        world.follow(index)
    world.settle()
    looked_at: list[str] = []
    position = PartitionFollower.position.fget  # type: ignore[attr-defined]
    assert position is not None

    def counted(follower: PartitionFollower) -> FetchPosition:
        looked_at.append(follower.log.directory)  # type: ignore[attr-defined]
        return position(follower)  # type: ignore[no-any-return]

    monkeypatch.setattr(PartitionFollower, "position", property(counted))
    for _ in range(5):
        world.answer()
    assert looked_at == []
    world.answer(sent(1, 1))
    assert looked_at == ["/data/t-1"]


def test_nothing_is_fetched_after_the_end(world: World) -> None:
    log = world.follow(0)
    world.settle()
    _, then = world.requests.pop()
    world.fetchers.stop()
    response = fetch.FetchResponse([fetch.FetchTopicResult("", TOPIC, [sent(0, 1)])], session_id=SESSION)
    then(memoryview(b"".join(bytes(part) for part in fetch.encode_response(VERSION, response))))  # type: ignore[arg-type]
    world.settle(10_000)
    assert (log.log_end_offset, world.requests) == (0, [])
