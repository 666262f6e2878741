"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changes.

Theory of operation: a full fetch (epoch 0) creates a session, if the cache has room. Each incremental fetch then
carries the session's id and the next epoch, adds, changes or forgets partitions, and gets back only the partitions
with news: records, an error, or a high watermark or log start offset that was not sent before. A partition that
returned records moves behind the others, so that a small fetch serves each in turn. The response may come long after
its request; if the session has advanced by then, it is an error, because it is no longer known what the client has
received.

Eviction is Kafka's (FetchSessionCacheShard): first a session that was idle for `EVICTION_MS`; else the smallest that is
at least that old, and only for a larger one. Followers have sessions as consumers do; as in Kafka, theirs are preferred
when the cache is full. There is one cache where Kafka has eight shards.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
)
from sparkonce.kafka.protocol.primitives import ZERO_UUID

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
"""How old or idle a session must be to be evicted (MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""
MAX_SESSION_PARTITIONS = 200_000
"""The most partitions of all sessions together; beyond that, clients get full fetches."""

TopicKey = str | uuid.UUID
PartitionKey = tuple[TopicKey, int]


def next_epoch(epoch: int) -> int:
    """Return the next epoch; after the largest comes 1."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


class CachedPartition:
    """One partition of a session: the client's request, and what was last sent to it."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def must_tell(self, result: FetchPartitionResult) -> bool:
        """Whether this result must be sent; if so, it counts as sent."""
        news = result.records is not None and _size(result) > 0
        if result.high_watermark != self.high_watermark:
            self.high_watermark = result.high_watermark
            news = True
        if result.log_start_offset != self.log_start_offset:
            self.log_start_offset = result.log_start_offset
            news = True
        if result.preferred_read_replica >= 0:
            news = True
        if result.error_code or result.diverging_epoch is not None:
            # After the error the partition must be sent again, whatever its high watermark is then: a follower cannot
            # use it until its log matches the leader's.
            self.high_watermark = -1
            news = True
        return news

    def want(self, wanted: FetchPartition) -> None:
        """Note the client's request; for a leader epoch that is new to it, nothing counts as sent."""
        if wanted.current_leader_epoch != self.wanted.current_leader_epoch:
            self.high_watermark = -1
        self.wanted = wanted


class FetchSession:
    """One session; `epoch` is the expected epoch of the next request."""

    __slots__ = ("_topics", "created_ms", "epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self._topics: list[FetchTopic] | None = None

    def update(self, wanted: Sequence[FetchTopic], forgotten: Sequence[ForgottenTopic]) -> None:
        """Apply the partitions that a request adds, changes and forgets."""
        if wanted or forgotten:
            self._topics = None
        for topic in wanted:
            key = self._key(topic)
            for partition in topic.partitions:
                cached = self.partitions.get((key, partition.partition))
                if cached is None:
                    self.partitions[key, partition.partition] = CachedPartition(partition)
                else:
                    cached.want(partition)
        for gone in forgotten:
            key = self._key(gone)
            for index in gone.partitions:
                self.partitions.pop((key, index), None)

    def topics(self) -> list[FetchTopic]:
        """Return all partitions in the order of reading; neighbours of one topic are grouped.

        Returns the same list until a request changes something, or the order changes.
        """
        if self._topics is None:
            self._topics = self._list_topics()
        return self._topics

    def _list_topics(self) -> list[FetchTopic]:
        topics: list[FetchTopic] = []
        last: TopicKey | None = None
        partitions: list[FetchPartition] = []
        for (key, _), cached in self.partitions.items():
            if key != last:
                last, partitions = key, []
                topics.append(FetchTopic(*_identity(key), partitions))
            partitions.append(cached.wanted)
        return topics

    def news(self, results: Sequence[FetchTopicResult]) -> list[FetchTopicResult]:
        """Return the part of the results that must be sent to the client."""
        told = []
        for topic in results:
            key = self._key(topic)
            chosen = []
            for result in topic.partitions:
                cached = self.partitions.get((key, result.partition))
                if cached is None or cached.must_tell(result):
                    chosen.append(result)
                    if cached is not None and _size(result):
                        del self.partitions[key, result.partition]
                        self.partitions[key, result.partition] = cached
                        self._topics = None
            if chosen:
                told.append(FetchTopicResult(topic.name, topic.topic_id, chosen))
        return told

    def _key(self, topic: FetchTopic | FetchTopicResult | ForgottenTopic) -> TopicKey:
        return topic.topic_id if self.uses_topic_ids else topic.name


class FetchContext:
    """One fetch: the partitions it reads, and the results sent to the client."""

    __slots__ = ("_epoch", "_session", "_sessions", "_uses_topic_ids", "error", "topics")

    def __init__(
        self,
        sessions: FetchSessions,
        topics: Sequence[FetchTopic],
        uses_topic_ids: bool,
        session: FetchSession | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self._sessions = sessions
        self._session = session
        self._uses_topic_ids = uses_topic_ids
        self._epoch = session.epoch if session is not None else FINAL_EPOCH
        self.topics = topics
        self.error = error

    def partitions(self) -> Mapping[PartitionKey, CachedPartition]:
        """Return the partitions of an incremental fetch's session; empty if it has advanced, or is not created yet."""
        session = self._session
        return session.partitions if session is not None and session.epoch == self._epoch else {}

    def response(self, results: Sequence[FetchTopicResult], now_ms: int) -> FetchResponse:
        """Return the response for the results of `topics`; a full fetch creates its session now."""
        session = self._session
        if session is not None:
            if session.epoch != self._epoch:
                code = int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
                return FetchResponse([], error_code=code, session_id=session.session_id)
            return FetchResponse(session.news(results), session_id=session.session_id)
        session_id = self._sessions.create(self.topics, results, self._uses_topic_ids, now_ms)
        return FetchResponse(results, session_id=session_id)


class FetchSessions:
    """All sessions of a broker. `new_session_id` returns random numbers from 1 to 2^31 - 1."""

    def __init__(
        self,
        max_sessions: int,
        new_session_id: Callable[[], int],
        max_partitions: int = MAX_SESSION_PARTITIONS,
    ) -> None:
        self._max_sessions = max_sessions
        self._new_session_id = new_session_id
        self._max_partitions = max_partitions
        self._sessions: dict[int, FetchSession] = {}
        """In the order of last use, oldest first."""
        self.partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions_of(self, session_id: int) -> Iterable[PartitionKey]:
        """Return the partitions of a session; empty if it does not exist."""
        session = self._sessions.get(session_id)
        return tuple(session.partitions) if session is not None else ()

    def begin(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext | None:
        """Return a request's context; None if it uses no session. A context with an `error` must not be read."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != INVALID_SESSION_ID:
                self._remove(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return None
            return FetchContext(self, request.topics, uses_topic_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext(self, (), uses_topic_ids, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext(self, (), uses_topic_ids, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(self, (), uses_topic_ids, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._go_on(session, request, now_ms)

    def _go_on(self, session: FetchSession, request: FetchRequest, now_ms: int) -> FetchContext | None:
        before = len(session.partitions)
        session.update(request.topics, request.forgotten)
        self.partition_count += len(session.partitions) - before
        if not session.partitions:
            self._remove(session.session_id)
            return None
        if self.partition_count > self._max_partitions:
            self._remove(session.session_id)
            return FetchContext(self, (), session.uses_topic_ids, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        return FetchContext(self, session.topics(), session.uses_topic_ids, session)

    def create(
        self,
        topics: Sequence[FetchTopic],
        results: Sequence[FetchTopicResult],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> int:
        """Create a session for a full fetch; returns its id, or 0 if the cache is full."""
        session = FetchSession(INVALID_SESSION_ID, uses_topic_ids, now_ms)
        session.update(topics, ())
        size = len(session.partitions)
        if self.partition_count + size > self._max_partitions:
            return INVALID_SESSION_ID
        if len(self._sessions) >= self._max_sessions and not self._evict(size, now_ms):
            return INVALID_SESSION_ID
        for topic in results:
            for result in topic.partitions:
                key = topic.topic_id if uses_topic_ids else topic.name
                session.partitions[key, result.partition].must_tell(result)
        while session.session_id == INVALID_SESSION_ID or session.session_id in self._sessions:
            session.session_id = self._new_session_id()
        self._sessions[session.session_id] = session
        self.partition_count += size
        return session.session_id

    def _evict(self, size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            evictable = [
                (len(session.partitions), session.session_id)
                for session in self._sessions.values()
                # Kafka checks the age when a session is used, not now.
                if session.last_used_ms - session.created_ms > EVICTION_MS
            ]
            if not evictable or min(evictable)[0] >= size:
                return False
            oldest = self._sessions[min(evictable)[1]]
        self._remove(oldest.session_id)
        self.evictions += 1
        return True

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)


def _size(result: FetchPartitionResult) -> int:
    records = result.records
    if records is None:
        return 0
    return len(records) if isinstance(records, (bytes, bytearray, memoryview)) else records.size


def _identity(key: TopicKey) -> tuple[str, uuid.UUID]:
    return (key, ZERO_UUID) if isinstance(key, str) else ("", key)
