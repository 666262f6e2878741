"""Which partitions of an internal topic this broker coordinates, and when a coordinator's answers may be sent.

Theory of operation: a group or a transactional id belongs to the partition of `__consumer_offsets` or
`__transaction_state` that Kafka's hash of its name selects, and the leader of that partition coordinates it. When this
broker becomes the leader of a partition, the partition is loaded, a few milliseconds at a time between the requests;
until that is done clients get COORDINATOR_LOAD_IN_PROGRESS. Partitions led when a coordinator starts, as at the start
of a standalone broker, and empty partitions are loaded at once. When another broker leads a partition, or none, its
state is dropped at once, and clients get NOT_COORDINATOR.

The next coordinator may not have records that were appended here but not replicated, so no response may depend on
them: each waits until the high watermark reaches the log end offset at which it was built, which without followers it
already has. The same holds for reads, since they may show a record that could still be lost.

A partition is loaded oldest record first. A record that cannot be parsed, such as one of a later Kafka version, is
logged and ignored: the others still count, and a broker that did not start would serve none of them. Kafka's
CoordinatorLoaderImpl ignores records of unknown types, too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.offsets import partition_of
from sparkonce.broker_lite.log.partition_log import Appended, PartitionLog
from sparkonce.broker_lite.log.producer_state import Verification
from sparkonce.broker_lite.node.client_errors import coordinator_error
from sparkonce.broker_lite.replication.replicas import Event, HighWatermarkMoved, Leads
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.records import BatchHeader, Record, decode_records, scan

if TYPE_CHECKING:
    import uuid

    from sparkonce.broker_lite.log.log_manager import Topic
    from sparkonce.broker_lite.node.clock import Clock
    from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions
    from sparkonce.broker_lite.scheduling import Scheduler

Refusals = Mapping[str, ErrorCode]
"""The error of each group or transactional id whose response cannot be sent after all."""

logger = logging.getLogger(__name__)

REPLAY_BYTES = 4 * 1024 * 1024
"""How many bytes are read at a time; a larger batch is read whole."""

SLICE_BYTES = 128 * 1024
"""The same while requests are served in between: some ten milliseconds of work."""


SAFE_TIMEOUT_MS: Final = 5_000
"""How long a response waits for the high watermark; Kafka's default of `offsets.commit.timeout.ms`."""

LOAD_TURN_MS: Final = 5
"""How long partitions are loaded before other requests get a turn."""

LOAD_RETRY_S: Final = 1.0
"""The delay before a failed load is retried, in seconds."""


class CoordinatorAppend(NamedTuple):
    """The partition of a coordinator's batch, and the result of its append."""

    partition: int
    appended: Appended


class Coordinator(Protocol):
    """Keeps the state of the partitions: groups or transactional ids."""

    def load(self, partitions: Mapping[int, PartitionLog]) -> Iterator[None]:
        """Load partitions, a step at a time; the state is complete after the last step."""

    def loaded(self, _partitions: Collection[int]) -> None:
        """Activate the loaded state."""

    def drop(self, partition: int) -> None:
        """Drop a partition's state: another broker leads it."""


class Coordinated:
    """The partitions of one internal topic that this broker leads."""

    def __init__(
        self,
        topic: str,
        partitions: ClusterPartitions,
        internal_topic: Callable[[str], Topic],
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        """Coordinate nothing until `begin`.

        Args:
            topic: the internal topic.
            partitions: what this broker leads.
            internal_topic: returns the topic, created if needed; raises KafkaError if that fails or is not done yet.
            scheduler: the event loop.
            clock: the time.
        """
        self.topic = topic
        self._partitions = partitions
        self._member = partitions.member
        self._internal_topic = internal_topic
        self._scheduler = scheduler
        self._clock = clock
        self._topic_id: uuid.UUID | None = None
        """The id of the topic whose partitions are kept; the image may no longer have it."""
        self._partition_count = 0
        self._active: set[int] = set()
        self._loading: dict[int, Iterator[None]] = {}
        self._queue: deque[int] = deque()
        self._coordinator: Coordinator | None = None

    def begin(self, coordinator: Coordinator) -> None:
        """Load all partitions led here, and follow changes of leadership from now on."""
        self._coordinator = coordinator
        self._member.listen(self._on_event)
        topic = self._topic()
        led = [index for index in topic.logs if self._leads(index)] if topic is not None else []
        if topic is not None and led:
            self._topic_id, self._partition_count = topic.topic_id, topic.partition_count
            for _ in coordinator.load({index: topic.logs[index] for index in led}):
                pass
            self._active.update(led)
            coordinator.loaded(led)

    def close(self) -> None:
        """Stop coordinating: the broker stops."""
        self._active.clear()
        self._loading.clear()
        self._queue.clear()

    @property
    def is_loading(self) -> bool:
        """Whether a partition will be coordinated here, but is not loaded yet.

        Partitions whose load failed are not counted: lists of groups would be empty until they are loaded.
        """
        return bool(self._queue)

    def error_of(self, name: str) -> ErrorCode:
        """Check that this broker coordinates a name: NONE, COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        topic = self._topic()
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        index = partition_of(name, topic.partition_count)
        if index in self._active:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._loading else ErrorCode.NOT_COORDINATOR

    def leader_of(self, name: str) -> int | None:
        """Return the broker that coordinates a name; None if there is none now."""
        topic = self._member.image.topic(self.topic)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(name, len(topic.partitions))].leader
        return None if leader == NO_LEADER else leader

    def has(self, partition: int) -> bool:
        """Whether a partition is loaded, so that its names are coordinated here."""
        return partition in self._active

    def epoch_of(self, name: str) -> int:
        """Return the epoch in which this broker coordinates a name."""
        return self._partitions.leading(self.topic, self.index_of(name)).leader_epoch

    def epoch_now(self, name: str) -> int | None:
        """Return the epoch in which this broker coordinates a name; None if it does not."""
        try:
            return self.epoch_of(name) if self.error_of(name) is ErrorCode.NONE else None
        except KafkaError:  # leadership was just lost; the change is being handled
            return None

    def index_of(self, name: str) -> int:
        """Return the partition of a group or transactional id. Raises KafkaError until its topic is created."""
        return partition_of(name, self._internal_topic(self.topic).partition_count)

    def kept_in(self, partition: int, names: Iterable[str]) -> list[str]:
        """Return those of some names that belong to a partition, also before it is dropped."""
        return [name for name in names if partition_of(name, self._partition_count) == partition]

    def append(
        self,
        name: str,
        batch: bytearray,
        verification: Verification | None = None,
        by_coordinator: bool = False,
    ) -> CoordinatorAppend:
        """Append a batch as a producer with acks=all.

        Raises:
            KafkaError: as a producer; NOT_COORDINATOR, or COORDINATOR_NOT_AVAILABLE if too few replicas are in sync.
        """
        index, size = self.index_of(name), len(batch)
        try:
            led = self._partitions.leading(self.topic, index)
            if led.replicas is not None:
                led.replicas.check_acks_all()
        except KafkaError as error:
            raise KafkaError(coordinator_error(error.code), error.message) from error
        appended = led.log.append(batch, led.leader_epoch, self._clock.now_ms(), verification, by_coordinator)
        self._partitions.appended(self.topic, index, led, size, appended.last_offset)
        return CoordinatorAppend(index, appended)

    async def safe_since(self, epochs: Mapping[str, int | None]) -> Refusals:
        """Wait as `safe`, where turns may have passed since names were looked at, each in an epoch (`epoch_now`).

        What was seen, or changed, in another epoch may be in no log any more.
        """
        moved = {name for name, epoch in epochs.items() if epoch is None or epoch != self.epoch_now(name)}
        refusals = await self.safe([name for name in epochs if name not in moved])
        return {**refusals, **dict.fromkeys(moved, ErrorCode.NOT_COORDINATOR)}

    async def all_safe(self) -> ErrorCode:
        """Wait as `safe` for all names that are coordinated here, also those that have none any more."""
        refusals = await self._safe({index: [str(index)] for index in sorted(self._active)})
        return next(iter(refusals.values()), ErrorCode.NONE)

    async def safe(self, names: Iterable[str]) -> Refusals:
        """Wait until all records that these names' partitions hold now are replicated; return errors by name."""
        by_index: dict[int, list[str]] = {}
        topic = self._topic()
        for name in names if topic is not None else ():
            assert topic is not None
            by_index.setdefault(partition_of(name, topic.partition_count), []).append(name)
        return await self._safe(by_index)

    async def _safe(self, by_index: Mapping[int, list[str]]) -> Refusals:
        waits: list[tuple[list[str], Promise[ErrorCode]]] = []
        refusals: dict[str, ErrorCode] = {}
        for index, asked in by_index.items():
            if index not in self._active:
                continue
            try:
                log, _, replicas = self._partitions.leading(self.topic, index)
            except KafkaError:  # leadership was just lost; the change is being handled
                refusals.update(dict.fromkeys(asked, ErrorCode.NOT_COORDINATOR))
                continue
            if replicas is not None and log.high_watermark < log.log_end_offset:
                key = self._member.key(self.topic, index)
                waits.append((asked, self._member.safe(key, log.log_end_offset - 1, SAFE_TIMEOUT_MS)))
        for asked, promise in waits:
            error = await promise
            if error is not ErrorCode.NONE:
                refusals.update(dict.fromkeys(asked, coordinator_error(error)))
        return refusals

    async def safe_error(self, name: str) -> ErrorCode:
        """Wait as `safe` for one name; return NONE, or the error."""
        return (await self.safe([name])).get(name, ErrorCode.NONE)

    # Leadership.

    def _topic(self) -> Topic | None:
        return self._partitions.logs.topics.get(self.topic)

    def _is_ours(self, topic_id: uuid.UUID) -> bool:
        if topic_id == self._topic_id:
            return True
        topic = self._member.image.topic(self.topic)
        return topic is not None and topic.topic_id == topic_id

    def _leads(self, index: int) -> bool:
        try:
            self._partitions.leading(self.topic, index)
        except KafkaError:
            return False
        return True

    def _on_event(self, event: Event) -> None:
        if isinstance(event, HighWatermarkMoved) or not self._is_ours(event.key[0]):
            return
        index = event.key[1]
        self._drop(index)
        # Outside its session, which may end at any moment, a broker leads nothing; its roles are announced again later.
        if isinstance(event, Leads) and self._leads(index):
            self._take(index)

    def _take(self, index: int) -> None:
        assert self._coordinator is not None
        log = self._partitions.leading(self.topic, index).log
        topic = self._topic()
        assert topic is not None
        self._topic_id, self._partition_count = topic.topic_id, topic.partition_count
        self._loading[index] = self._coordinator.load({index: log})
        if log.log_start_offset == log.log_end_offset:
            for _ in self._loading[index]:
                pass
            self._loaded(index)
            return
        if not self._queue:
            self._scheduler.call_soon(self._load)
        self._queue.append(index)

    def _drop(self, index: int) -> None:
        assert self._coordinator is not None
        if index in self._loading or index in self._active:
            self._loading.pop(index, None)
            self._active.discard(index)
            if index in self._queue:
                self._queue.remove(index)
            self._coordinator.drop(index)
            logger.info("%s-%d is no longer coordinated here", self.topic, index)

    def _load(self) -> None:
        """Load for one turn; the next turn continues."""
        assert self._coordinator is not None
        until_ms = self._clock.monotonic_ms() + LOAD_TURN_MS
        while self._queue and self._clock.monotonic_ms() < until_ms:
            index = self._queue[0]
            try:
                next(self._loading[index])
            except StopIteration:
                self._queue.popleft()
                self._loaded(index)
                logger.info("%s-%d is coordinated here", self.topic, index)
            except Exception:  # an error in one partition must not keep the others from being loaded
                self._failed(index)
        if self._queue:
            self._scheduler.call_soon(self._load)

    def _loaded(self, index: int) -> None:
        assert self._coordinator is not None
        del self._loading[index]
        self._active.add(index)
        try:
            self._coordinator.loaded([index])
        except Exception:
            self._failed(index)

    def _failed(self, index: int) -> None:
        """Retry the load after a while; until then clients get COORDINATOR_LOAD_IN_PROGRESS."""
        assert self._coordinator is not None
        logger.exception("%s-%d could not be read back; it is tried again", self.topic, index)
        if index in self._queue:
            self._queue.remove(index)
        self._active.discard(index)
        self._loading[index] = iter(())
        self._coordinator.drop(index)
        self._scheduler.call_later(LOAD_RETRY_S, partial(self._again, index))

    def _again(self, index: int) -> None:
        if index in self._loading and index not in self._queue:
            del self._loading[index]
            self._take(index)


def replay(log: PartitionLog, take: Callable[[BatchHeader, Record], None]) -> None:
    """Pass every record of a partition to `take`, with the header of its batch.

    ``take`` raises ProtocolError for a record that it cannot parse, and then has applied nothing of it.
    """
    for _ in replay_slices(log, take, REPLAY_BYTES):
        pass


def replay_slices(
    log: PartitionLog, take: Callable[[BatchHeader, Record], None], slice_bytes: int = SLICE_BYTES
) -> Iterator[None]:
    """Do the same, a slice at a time, up to the current log end offset."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        offset = _replay_from(log, offset, slice_bytes, take)
        yield


def _replay_from(log: PartitionLog, offset: int, max_bytes: int, take: Callable[[BatchHeader, Record], None]) -> int:
    """Pass on the records of one read; return the offset of the next one."""
    data = log.read(offset, max_bytes, min_one_batch=True).read()
    next_offset = offset
    for position, header in scan(data):
        next_offset = header.next_offset
        try:
            records = decode_records(memoryview(data)[position : position + header.size])
        except ProtocolError as error:
            logger.error("%s, the batch at offset %d is skipped: %s", log.directory, header.base_offset, error)
            continue
        for record in records:
            try:
                take(header, record)
            except ProtocolError as error:
                logger.error("%s, offset %d is skipped: %s", log.directory, record.offset, error)
    return max(next_offset, offset + 1)
