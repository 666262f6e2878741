"""Replica fetchers: one loop for each leader fetches all partitions followed there, and appends the records.

Theory of operation (Kafka's ReplicaFetcherThread, AbstractFetcherThread): one Fetch is under way to each leader, in a
session (KIP-227), so that it names only changes; only partitions that may have changed are checked (`leader_session`).
It waits at the leader until there are records; the next one, which reports this broker's position, is sent as soon as
the records are appended. `PartitionFollower` decides; its decisions are carried out here, and one partition's failure
does not delay the others. If the followed partitions change while a fetch waits, its connection is closed and the next
fetch opens another: that costs a millisecond; otherwise a leader would wait half a second for its followers after a
failover.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.handlers.list_offsets import EARLIEST, LATEST
from sparkonce.broker_lite.log.leader_epochs import EpochEnd
from sparkonce.broker_lite.log.partition_log import OverlappingBatchError, PartitionLog
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.replicas import Event, Follows, HighWatermarkMoved
from sparkonce.broker_lite.server.leader_session import LeaderSession
from sparkonce.kafka.protocol import apis, fetch
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.broker_lite.node.broker import Broker
    from sparkonce.broker_lite.scheduling import Timer

VERSION: Final = 18
LIST_OFFSETS_VERSION: Final = 7
FIRST_BACKOFF_MS: Final = 10
"""The backoff after a first failure; each consecutive one doubles it, up to `replica.fetch.backoff.ms`."""

_SESSION_IS_OVER = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_IMAGES_DIFFER = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors of a leader with a newer or older image than this broker: one of them will catch up soon."""

logger = logging.getLogger(__name__)


class LeaderConnection(Protocol):
    """A connection to the leader: `broker_lite.server.peers.PeerConnection`."""

    def request(self, api_key: int, version: int, body: bytearray, then: Callable[[memoryview | None], None]) -> None:
        """Send a request; `then` gets the body of the response, valid until it returns, or None."""

    def drop(self) -> None:
        """Close the current connection; waiting callers get None."""


class Followed:
    """One followed partition."""

    __slots__ = ("asks_for_offsets", "backoff_ms", "follower", "key", "log", "not_before_ms")

    def __init__(self, key: PartitionKey, follower: PartitionFollower) -> None:
        self.key = key
        self.follower = follower
        self.log = cast(PartitionLog, follower.log)
        self.backoff_ms = 0
        self.not_before_ms = 0
        self.asks_for_offsets = False

    def back_off(self, now_ms: int, most_ms: int) -> None:
        """Delay the next fetch."""
        self.backoff_ms = min(max(2 * self.backoff_ms, FIRST_BACKOFF_MS), most_ms)
        self.not_before_ms = now_ms + self.backoff_ms


class LeaderFetcher:
    """The fetches from one leader."""

    def __init__(self, broker: Broker, member: ClusterMember, leader: int, connection: LeaderConnection) -> None:
        self._broker = broker
        self._member = member
        self._leader = leader
        self._connection = connection
        self._followed: dict[PartitionKey, Followed] = {}
        self._changed: dict[PartitionKey, Followed] = {}
        """Partitions whose fetch position may have changed, or that were not fetched yet."""
        self._paused: dict[PartitionKey, Followed] = {}
        """Partitions not fetched now: after a failure, or while the leader's offsets are requested."""
        self._session = LeaderSession()
        self._under_way = False
        self._is_dropped = False
        self._look_booked = False
        self._backoff_ms = 0
        self._timer: Timer | None = None
        self._stopped = False

    def follow(self, key: PartitionKey, follower: PartitionFollower) -> None:
        """Fetch a partition from now on, in a new role."""
        followed = Followed(key, follower)
        self._followed[key] = self._changed[key] = followed
        self._paused.pop(key, None)
        self._fetch_soon()

    def forget(self, key: PartitionKey) -> None:
        """Stop fetching a partition."""
        self._session.leave(key)
        for each in (self._followed, self._changed, self._paused):
            each.pop(key, None)

    def stop(self) -> None:
        """Stop all fetches."""
        self._stopped = True
        for each in (self._followed, self._changed, self._paused):
            each.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _fetch_soon(self) -> None:
        """Fetch once all changes of this turn are known."""
        if not self._look_booked:
            self._look_booked = True
            self._broker.scheduler.call_soon(self._look)

    def _look(self) -> None:
        self._look_booked = False
        if not self._under_way:
            self._fetch()
        elif self._changed:
            self._is_dropped = True
            self._connection.drop()

    def _fetch(self) -> None:
        """Send the next fetch, unless one is under way or there is nothing to fetch now."""
        if self._under_way or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_ms = self._resume_paused()
        if len(self._paused) == len(self._followed):
            if self._followed:
                self._again_in(wait_ms)
            return
        self._under_way = True
        body = fetch.encode_request(VERSION, self._request(wait_ms))
        self._connection.request(ApiKey.FETCH, VERSION, body, self._answered)

    def _resume_paused(self) -> int:
        """Resume partitions after their pause; returns how long the next fetch may wait, in ms."""
        now_ms = self._broker.clock.monotonic_ms()
        wait_ms = self._broker.config.replica_fetch_wait_max_ms
        for key, each in list(self._paused.items()):
            if each.asks_for_offsets:
                continue
            if each.not_before_ms > now_ms:
                wait_ms = min(wait_ms, each.not_before_ms - now_ms)
            else:
                del self._paused[key]
                self._changed[key] = each
        return wait_ms

    def _pause(self, followed: Followed) -> None:
        """Pause a partition; the others continue."""
        self._paused[followed.key] = followed
        self._changed.pop(followed.key, None)
        self._session.leave(followed.key)

    def _again_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._broker.scheduler.call_later(delay_ms / 1000, self._fetch)

    def _request(self, wait_ms: int) -> fetch.FetchRequest:
        """Return the next request of the session: all partitions to begin it, else the changed ones."""
        config = self._broker.config
        max_bytes = config.replica_fetch_max_bytes
        if self._session.begins:
            self._changed = {key: each for key, each in self._followed.items() if key not in self._paused}
        for key, each in self._changed.items():
            offset, leader_epoch, last_epoch, log_start_offset = each.follower.position
            wanted = fetch.FetchPartition(key[1], offset, max_bytes, leader_epoch, last_epoch, log_start_offset)
            self._session.want(key, wanted)
        self._changed.clear()
        session_id, session_epoch = self._session.session_id, self._session.epoch
        topics, forgotten = self._session.take_changes()
        return fetch.FetchRequest(
            wait_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            topics,
            session_id=session_id,
            session_epoch=session_epoch,
            forgotten=forgotten,
            replica_id=self._member.broker_id,
            replica_epoch=self._member.broker_epoch,
        )

    def _answered(self, body: memoryview | None) -> None:
        self._under_way = False
        dropped, self._is_dropped = self._is_dropped, False
        if self._stopped:
            return
        try:
            response = None if body is None else fetch.decode_response(VERSION, body)
        except ProtocolError as error:
            logger.warning("broker %d answers fetches with what makes no sense: %s", self._leader, error)
            response = None
        if response is None:
            self._session.begin()
            if dropped:
                self._fetch()
            else:
                self._back_off()
        elif response.error_code:
            self._session.begin()
            if response.error_code in _SESSION_IS_OVER:
                self._fetch()
            else:
                logger.warning("broker %d refuses fetches: %s", self._leader, _name(response.error_code))
                self._back_off()
        else:
            self._backoff_ms = 0
            self._session.answered(response.session_id)
            self._take(response.topics)
            self._fetch()

    def _back_off(self) -> None:
        most_ms = self._broker.config.replica_fetch_backoff_ms
        self._backoff_ms = min(max(2 * self._backoff_ms, FIRST_BACKOFF_MS), most_ms)
        self._again_in(self._backoff_ms)

    def _take(self, topics: Iterable[fetch.FetchTopicResult]) -> None:
        now_ms = self._broker.clock.now_ms()
        for topic in topics:
            for result in topic.partitions:
                key = (topic.topic_id, result.partition)
                followed = self._followed.get(key)
                asked = self._session.asked(key)
                if (
                    followed is None
                    or asked is None
                    or asked.current_leader_epoch != followed.follower.leader_epoch
                    or asked.fetch_offset != followed.log.log_end_offset
                ):
                    continue  # requested in a former role
                self._changed[key] = followed
                try:
                    if result.error_code:
                        self._refused(followed, result.error_code)
                    else:
                        self._append(followed, result, now_ms)
                        followed.backoff_ms = 0
                except (KafkaError, OSError, ProtocolError) as error:
                    self._failed(followed, error)

    def _failed(self, followed: Followed, error: Exception) -> None:
        """Log a local failure, and retry after a while, unless the disk has failed permanently."""
        logger.error("%s: cannot follow broker %d: %s", followed.log.directory, self._leader, error)
        self._broker.logs.note_failure(error)
        self._back_off_one(followed)

    def _append(self, followed: Followed, result: fetch.FetchPartitionResult, now_ms: int) -> None:
        """Append a leader's records. Raises KafkaError as `PartitionLog.append_as_follower`, or OSError."""
        follower, log = followed.follower, followed.log
        if result.diverging_epoch is not None:
            parted = EpochEnd(*result.diverging_epoch)
            with self._logging_truncation(log):
                follower.diverged(parted)
            return
        records = result.records
        if records:
            assert isinstance(records, memoryview)
            try:
                log.append_as_follower(records, follower.leader_epoch, now_ms)
            except OverlappingBatchError as error:
                logger.warning("%s; its last records are not the leader's, though of the same epoch", error)
                with self._logging_truncation(log):
                    follower.overlapped(error.base_offset)
                return
        follower.fetched(result.high_watermark)
        if result.log_start_offset > log.log_start_offset:
            log.advance_start(min(result.log_start_offset, log.high_watermark))

    @contextlib.contextmanager
    def _logging_truncation(self, log: PartitionLog) -> Iterator[None]:
        """Log the truncation of a log; as an error if committed records were removed."""
        end, safe = log.log_end_offset, log.high_watermark
        yield
        left = log.log_end_offset
        if left < min(end, safe):
            logger.warning(
                "%s: cut from %d to %d, as broker %d has it: offsets %d to %d had been on all replicas in sync, and "
                "the leader has lost them, or has others; was its data deleted, or a directory put in another's place?",
                log.directory, end, left, self._leader, left, min(end, safe) - 1,
            )  # fmt: skip
        elif left < end:
            logger.info("%s: cut from %d to %d, as broker %d has it", log.directory, end, left, self._leader)

    def _back_off_one(self, followed: Followed) -> None:
        config, clock = self._broker.config, self._broker.clock
        followed.back_off(clock.monotonic_ms(), config.replica_fetch_backoff_ms)
        self._pause(followed)

    def _refused(self, followed: Followed, code: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._request_leader_offsets(followed)
            return
        if code not in _IMAGES_DIFFER:
            logger.warning("%s: broker %d refuses a fetch: %s", followed.log.directory, self._leader, _name(code))
        self._back_off_one(followed)

    def _request_leader_offsets(self, followed: Followed) -> None:
        """Request the leader's log start and end offsets."""
        topic = self._broker.topic_by_id(followed.key[0])
        assert topic is not None, "what is followed is here"
        followed.asks_for_offsets = True
        self._pause(followed)
        epoch, index = followed.follower.leader_epoch, followed.key[1]
        request = apis.request(
            ApiKey.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            replica_id=self._member.broker_id,
            isolation_level=0,
            topics=[(topic.name, [(index, epoch, EARLIEST), (index, epoch, LATEST)])],
        )
        self._member.send(self._leader, request, lambda answer: self._take_offsets(followed, answer))

    def _take_offsets(self, followed: Followed, answer: Any) -> None:
        followed.asks_for_offsets = False
        if self._stopped or self._followed.get(followed.key) is not followed:
            return
        found = [] if answer is None else [each for topic in answer.topics for each in topic.partitions]
        try:
            if (
                len(found) != 2
                or any(each.error_code for each in found)
                or not self._apply_leader_offsets(followed, *found)
            ):
                self._back_off_one(followed)
            else:
                self._changed[followed.key] = self._paused.pop(followed.key)
        except (OSError, ProtocolError) as error:
            self._failed(followed, error)
        self._fetch_soon()

    def _apply_leader_offsets(self, followed: Followed, first: Any, last: Any) -> bool:
        """Begin at the leader's offsets; return whether that changes anything. Raises OSError as truncation does."""
        log, start, end = followed.log, first.offset, last.offset
        had = (log.log_start_offset, log.log_end_offset)
        if not followed.follower.out_of_range(start, end):
            return False
        logger.warning(
            "%s: broker %d, which has offsets %d to %d, does not have what ours end with, %d to %d: now they are %d to "
            "%d, and what follows is fetched; what was cut off is gone, unless the leader has it",
            log.directory, self._leader, start, end, *had, log.log_start_offset, log.log_end_offset,
        )  # fmt: skip
        return True


class ReplicaFetchers:
    """All fetches of one broker from the leaders that it follows."""

    def __init__(self, broker: Broker, member: ClusterMember, connect: Callable[[int, str], LeaderConnection]) -> None:
        """`connect` returns the connection to a broker for a purpose, as `PeerNetwork.connection`."""
        self._broker = broker
        self._member = member
        self._connect = connect
        self._of_leader: dict[int, LeaderFetcher] = {}
        self._leaders: dict[PartitionKey, int] = {}
        member.listen(self._on_event)

    def stop(self) -> None:
        """Stop all fetches."""
        for fetcher in self._of_leader.values():
            fetcher.stop()
        self._of_leader.clear()
        self._leaders.clear()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, HighWatermarkMoved):
            return
        before = self._leaders.pop(event.key, NO_LEADER)
        if before in self._of_leader:
            self._of_leader[before].forget(event.key)
        if isinstance(event, Follows) and event.leader != NO_LEADER:
            role = self._member.replicas.roles.get(event.key)
            if isinstance(role, PartitionFollower) and role.leader == event.leader:
                self._leaders[event.key] = event.leader
                self._fetcher(event.leader).follow(event.key, role)

    def _fetcher(self, leader: int) -> LeaderFetcher:
        found = self._of_leader.get(leader)
        if found is None:
            connection = self._connect(leader, "fetch")
            found = self._of_leader[leader] = LeaderFetcher(self._broker, self._member, leader, connection)
        return found


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
