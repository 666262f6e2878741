"""Fetch sessions: what an incremental client ends up with is what full fetches give, whatever happens in between."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkonce.broker_lite.node.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    MAX_EPOCH,
    FetchSessions,
    next_epoch,
)
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
)
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.chance import examples

TOPICS = ("a", "b")
PARTITIONS = 3
KEYS = [(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
Key = tuple[str, int]


def request(
    wanted: dict[Key, int], session_id: int = 0, epoch: int = 0, forgotten: list[Key] | None = None
) -> FetchRequest:
    topics = [FetchTopic(topic, ZERO_UUID, [FetchPartition(index, at, 100)]) for (topic, index), at in wanted.items()]
    gone = [ForgottenTopic(topic, ZERO_UUID, [index]) for topic, index in forgotten or []]
    return FetchRequest(0, 1, 100, topics, session_id=session_id, session_epoch=epoch, forgotten=gone)


@dataclass
class World:
    """Partitions of one-byte records; an offset is a position."""

    logs: dict[Key, bytes] = field(default_factory=lambda: dict.fromkeys(KEYS, b""))
    starts: dict[Key, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    failing: set[Key] = field(default_factory=set)

    def read(self, topics: list[FetchTopic], room: int) -> list[FetchTopicResult]:
        results = []
        for topic in topics:
            answers = []
            for wanted in topic.partitions:
                key = (topic.name, wanted.partition)
                if key in self.failing:
                    answers.append(FetchPartitionResult(wanted.partition, int(ErrorCode.KAFKA_STORAGE_ERROR), -1))
                    continue
                log = self.logs[key]
                records = log[wanted.fetch_offset :][:room]
                room -= len(records)
                start = self.starts[key]
                answers.append(FetchPartitionResult(wanted.partition, 0, len(log), len(log), start, records))
            results.append(FetchTopicResult(topic.name, topic.topic_id, answers))
        return results


class Client:
    """Keeps a session as Java's FetchSessionHandler does."""

    def __init__(self) -> None:
        self.wanted: dict[Key, int] = {}
        self.session: dict[Key, int] = {}
        self.session_id, self.epoch = 0, 0
        self.got: dict[Key, bytes] = dict.fromkeys(KEYS, b"")
        self.high_watermarks: dict[Key, int] = {}
        self.starts: dict[Key, int] = {}
        self.errors: dict[Key, int] = {}

    def next_request(self) -> FetchRequest:
        if self.epoch == 0:
            self.session = dict(self.wanted)
            return request(self.wanted, self.session_id, 0)
        changed = {key: at for key, at in self.wanted.items() if self.session.get(key) != at}
        forgotten = [key for key in self.session if key not in self.wanted]
        self.session = dict(self.wanted)
        return request(changed, self.session_id, self.epoch, forgotten)

    def take(self, response: FetchResponse) -> None:
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = 0
            self.epoch = 0
            return
        self.session_id = response.session_id
        self.epoch = next_epoch(self.epoch) if response.session_id else 0
        for topic in response.topics:
            for result in topic.partitions:
                key = (topic.name, result.partition)
                assert key in self.wanted, "an answer for a partition that was forgotten"
                self.errors[key] = result.error_code
                if not result.error_code:
                    assert isinstance(result.records, bytes)
                    self.got[key] += result.records
                    self.wanted[key] += len(result.records)
                    self.high_watermarks[key] = result.high_watermark
                    self.starts[key] = result.log_start_offset


class Sessions(RuleBasedStateMachine):
    """Two clients share a cache with room for one; answers get lost, time passes, partitions fail."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.numbers = itertools.count(1)
        self.sessions = FetchSessions(1, lambda: next(self.numbers), max_partitions=8)
        self.clients = [Client(), Client()]
        self.now_ms = 0

    @rule(key=st.sampled_from(KEYS), data=st.binary(min_size=1, max_size=5))
    def append(self, key: Key, data: bytes) -> None:
        self.world.logs[key] += data

    @rule(key=st.sampled_from(KEYS))
    def raise_log_start(self, key: Key) -> None:
        self.world.starts[key] = min(self.world.starts[key] + 1, len(self.world.logs[key]))

    @rule(key=st.sampled_from(KEYS))
    def fail_or_heal(self, key: Key) -> None:
        self.world.failing ^= {key}

    @rule(client=st.integers(0, 1), keys=st.sets(st.sampled_from(KEYS)))
    def want(self, client: int, keys: set[Key]) -> None:
        ours = self.clients[client]
        ours.wanted = {key: len(ours.got[key]) for key in sorted(keys)}

    @rule(passed_ms=st.sampled_from([1, EVICTION_MS // 2, EVICTION_MS + 1]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @precondition(lambda self: any(client.wanted for client in self.clients))
    @rule(client=st.integers(0, 1), room=st.integers(0, 20), lost=st.booleans())
    def fetch(self, client: int, room: int, lost: bool) -> None:
        response = self.serve(self.clients[client].next_request(), room)
        if lost:
            self.clients[client].epoch = 0  # as after a broken connection
        else:
            self.clients[client].take(response)

    def serve(self, wanted: FetchRequest, room: int) -> FetchResponse:
        context = self.sessions.begin(wanted, uses_topic_ids=False, now_ms=self.now_ms)
        if context is None:
            return FetchResponse(self.world.read(list(wanted.topics), room))
        if context.error:
            return FetchResponse([], error_code=int(context.error))
        return context.response(self.world.read(list(context.topics), room), self.now_ms)

    @invariant()
    def the_cache_counts_right(self) -> None:
        held = list(self.sessions._sessions.values())
        assert len(held) <= 1
        assert self.sessions.partition_count == sum(len(session.partitions) for session in held) <= 8

    def teardown(self) -> None:
        """Let each client read on to the end: it then knows all that full fetches tell."""
        for client in self.clients:
            if not client.wanted:
                continue
            for _ in range(4):
                client.take(self.serve(client.next_request(), 1_000))
            for key in client.wanted:
                if key in self.world.failing:
                    assert client.errors[key] == ErrorCode.KAFKA_STORAGE_ERROR
                    continue
                assert client.got[key] == self.world.logs[key]
                assert client.errors[key] == 0
                assert client.high_watermarks[key] == len(self.world.logs[key])
                assert client.starts[key] == self.world.starts[key]


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


def cache(slots: int = 2, max_partitions: int = 1000) -> FetchSessions:
    numbers = itertools.count(1)
    return FetchSessions(slots, lambda: next(numbers), max_partitions=max_partitions)


def open_session(sessions: FetchSessions, size: int = 1, now_ms: int = 0) -> int:
    topics = [FetchTopic("t", ZERO_UUID, [FetchPartition(index, 0, 100) for index in range(size)])]
    context = sessions.begin(FetchRequest(0, 1, 100, topics, session_epoch=0), False, now_ms)
    assert context is not None
    results = [FetchPartitionResult(index, 0, 5, 5, 0, b"") for index in range(size)]
    return context.response([FetchTopicResult("t", ZERO_UUID, results)], now_ms).session_id


def use(sessions: FetchSessions, session_id: int, epoch: int, now_ms: int = 0, by_id: bool = False) -> ErrorCode:
    context = sessions.begin(FetchRequest(0, 1, 100, [], session_id=session_id, session_epoch=epoch), by_id, now_ms)
    return context.error if context is not None else ErrorCode.NONE


def test_the_errors_come_in_kafkas_order() -> None:
    sessions = cache()
    number = open_session(sessions)
    assert use(sessions, number + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert use(sessions, number, 2, by_id=True) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert use(sessions, number, 1, by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert use(sessions, number, 1) is ErrorCode.NONE
    assert use(sessions, number, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [0, FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    sessions = cache()
    number = open_session(sessions)
    use(sessions, number, epoch)
    assert len(sessions) == 0
    assert sessions.partition_count == 0


def test_a_session_without_partitions_ends() -> None:
    sessions = cache()
    number = open_session(sessions)
    assert sessions.begin(request({}, number, 1, [("t", 0)]), False, 0) is None
    assert use(sessions, number, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_young_session_gives_way_to_nobody() -> None:
    sessions = cache(slots=1)
    first = open_session(sessions)
    assert open_session(sessions, size=9, now_ms=EVICTION_MS) == 0
    assert use(sessions, first, 1, EVICTION_MS) is ErrorCode.NONE


def test_an_idle_session_gives_way_first() -> None:
    sessions = cache()
    busy, idle = open_session(sessions), open_session(sessions, size=9)
    assert use(sessions, busy, 1, EVICTION_MS + 1) is ErrorCode.NONE
    assert open_session(sessions, now_ms=EVICTION_MS + 1)
    assert use(sessions, idle, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.evictions == 1


def test_a_small_old_session_gives_way_to_a_larger_one_only() -> None:
    sessions = cache()
    small, large = open_session(sessions, size=2), open_session(sessions, size=5)
    now_ms = EVICTION_MS + 1
    for number in (small, large):
        assert use(sessions, number, 1, now_ms) is ErrorCode.NONE
    assert open_session(sessions, size=2, now_ms=now_ms) == 0
    assert open_session(sessions, size=3, now_ms=now_ms)
    assert use(sessions, small, 2, now_ms) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert use(sessions, large, 2, now_ms) is ErrorCode.NONE


def test_past_the_bound_of_partitions_there_are_no_sessions() -> None:
    sessions = cache(max_partitions=4)
    assert open_session(sessions, size=5) == 0
    number = open_session(sessions, size=4)
    context = sessions.begin(request({("t", 9): 0}, number, 1), False, 0)
    assert context is not None
    assert context.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 0


def test_without_slots_there_are_no_sessions() -> None:
    assert open_session(cache(slots=0)) == 0


def test_an_answer_that_was_overtaken_is_an_error() -> None:
    sessions = cache()
    number = open_session(sessions)
    waiting = sessions.begin(request({}, number, 1), False, 0)
    assert waiting is not None
    assert use(sessions, number, 2) is ErrorCode.NONE
    late = waiting.response([], 0)
    assert (late.error_code, late.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, number)


def test_partitions_that_gave_records_go_to_the_end() -> None:
    world, sessions = World(), cache()
    for key in KEYS:
        world.logs[key] = b"abc"
    client = Client()
    client.wanted = dict.fromkeys(KEYS, 0)
    order = []
    for _ in range(len(KEYS)):
        wanted = client.next_request()
        context = sessions.begin(wanted, False, 0)
        assert context is not None
        response = context.response(world.read(list(context.topics), 3), 0)
        order += [(t.name, p.partition) for t in response.topics for p in t.partitions if p.records]
        client.take(response)
    assert order == KEYS


def told(sessions: FetchSessions, wanted: FetchRequest, result: FetchPartitionResult) -> FetchResponse:
    context = sessions.begin(wanted, False, 0)
    assert context is not None
    return context.response([FetchTopicResult("a", ZERO_UUID, [result])], 0)


def fetch_in_epoch(leader_epoch: int, session_id: int, epoch: int) -> FetchRequest:
    topics = [FetchTopic("a", ZERO_UUID, [FetchPartition(0, 5, 100, leader_epoch)])]
    return FetchRequest(0, 1, 100, topics, session_id=session_id, session_epoch=epoch)


def test_a_follower_that_has_cut_its_log_is_told_the_high_watermark_again() -> None:
    sessions = cache()
    diverging = FetchPartitionResult(0, 0, 5, diverging_epoch=EpochEndOffset(1, 5))
    number = told(sessions, fetch_in_epoch(2, 0, 0), diverging).session_id
    response = told(sessions, fetch_in_epoch(2, number, 1), FetchPartitionResult(0, 0, 5))
    assert [each.high_watermark for topic in response.topics for each in topic.partitions] == [5]


def test_a_follower_in_a_new_leader_epoch_is_told_the_high_watermark_again() -> None:
    """It has dropped an answer of its former epoch."""
    sessions = cache()
    number = told(sessions, fetch_in_epoch(2, 0, 0), FetchPartitionResult(0, 0, 5)).session_id
    assert not told(sessions, fetch_in_epoch(2, number, 1), FetchPartitionResult(0, 0, 5)).topics
    response = told(sessions, fetch_in_epoch(3, number, 2), FetchPartitionResult(0, 0, 5))
    assert [each.high_watermark for topic in response.topics for each in topic.partitions] == [5]


@given(st.integers(0, MAX_EPOCH))
def test_epochs_are_never_those_of_full_fetches(epoch: int) -> None:
    assert 1 <= next_epoch(epoch) <= MAX_EPOCH


def test_sessions_by_topic_id() -> None:
    sessions, topic_id = cache(), uuid.UUID(int=7)
    topics = [FetchTopic("", topic_id, [FetchPartition(0, 0, 100)])]
    context = sessions.begin(FetchRequest(0, 1, 100, topics, session_epoch=0), True, 0)
    assert context is not None
    number = context.response([FetchTopicResult("", topic_id, [FetchPartitionResult(0, 0, 5)])], 0).session_id
    again = sessions.begin(FetchRequest(0, 1, 100, [], session_id=number, session_epoch=1), True, 0)
    assert again is not None
    assert [topic.topic_id for topic in again.topics] == [topic_id]
    assert again.response([FetchTopicResult("", topic_id, [FetchPartitionResult(0, 0, 5)])], 0).topics == []
