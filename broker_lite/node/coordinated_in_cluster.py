"""The coordinator's share of an internal topic in a cluster: partitions come and go with their leadership.

Theory of operation: when this broker becomes the leader of a partition, the partition is loaded, a few milliseconds at
a time between the requests; until that is done clients get COORDINATOR_LOAD_IN_PROGRESS. When another broker leads it,
or none, its state is dropped at once, and clients get NOT_COORDINATOR. What was appended here but not replicated then
may or may not be known to the next coordinator, so it was never reported: each answer waits for the high watermark to
pass the end that the partition had when the answer was built. The same holds for reads, since what they show may depend
on a record that could still be lost.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.coordinators.offsets import partition_of
from sparkonce.broker_lite.coordinators.producer_state import Verification
from sparkonce.broker_lite.node.client_errors import coordinator_error
from sparkonce.broker_lite.node.coordinated import Coordinated, Coordinator, Placed, Refusals
from sparkonce.broker_lite.node.producer_ids import ProducerIdBlocks
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.replication.replicas import Event, HighWatermarkMoved, Leads

if TYPE_CHECKING:
    import uuid

    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.node.broker import Broker

logger = logging.getLogger(__name__)

SAFE_TIMEOUT_MS: Final = 5_000
"""How long an answer waits to be safe; Kafka's default of `offsets.commit.timeout.ms`."""

LOAD_TURN_MS: Final = 5
"""For how long partitions are loaded before other requests have their turn."""

LOAD_RETRY_S: Final = 1.0
"""After how long a partition that could not be loaded is loaded again."""


class CoordinatedInCluster(Coordinated):
    """The partitions of one internal topic that this broker leads."""

    def __init__(self, broker: Broker, topic: str, member: ClusterMember) -> None:
        super().__init__(broker, topic)
        self._member = member
        self._topic_id: uuid.UUID | None = None
        """Of the topic whose partitions are kept, which may be gone from the image already."""
        self._partition_count = 0
        self._active: set[int] = set()
        self._loading: dict[int, Iterator[None]] = {}
        self._queue: deque[int] = deque()
        self._coordinator: Coordinator | None = None

    def begin(self, coordinator: Coordinator) -> None:
        """Go with the leadership from now on."""
        self._coordinator = coordinator
        self._member.listen(self._on_event)
        for key in list(self._member.replicas.roles):
            if self._is_ours(key[0]) and self._leads(key[1]):
                self._take(key[1])

    def close(self) -> None:
        """Coordinate nothing any more: the broker stops."""
        self._active.clear()
        self._loading.clear()
        self._queue.clear()

    @property
    def is_loading(self) -> bool:
        """Whether there is a partition that will be coordinated here, but is not yet.

        One that could not be loaded is not counted: lists of what is here would be empty as long as that lasts.
        """
        return bool(self._queue)

    def error_of(self, name: str) -> ErrorCode:
        """Return whether this broker coordinates a name: NONE, COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        topic = self._broker.topic(self.topic)
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
        """Whether the names of a partition are coordinated here by now."""
        return partition in self._active

    def kept_in(self, partition: int, names: Iterable[str]) -> list[str]:
        """Return those of some names that a partition keeps or has kept."""
        return [name for name in names if partition_of(name, self._partition_count) == partition]

    def append(
        self,
        name: str,
        batch: bytearray,
        verification: Verification | None = None,
        by_coordinator: bool = False,
    ) -> Placed:
        """Append a batch as a producer with acks=all would.

        Raises:
            KafkaError: as there; NOT_COORDINATOR, or COORDINATOR_NOT_AVAILABLE where too few replicas are in sync.
        """
        index = self.index_of(name)
        try:
            replicas = self._broker.leading(self.topic, index).replicas
            if replicas is not None:
                replicas.check_acks_all()
        except KafkaError as error:
            raise KafkaError(coordinator_error(error.code), error.message) from error
        placed = super().append(name, batch, verification, by_coordinator)
        assert self._broker.cluster is not None
        self._broker.cluster.appended(self.topic, index)
        return placed

    def when_safe(self, names: Iterable[str], then: Callable[[Refusals], None]) -> None:
        """Call back once all that the partitions of these names hold now is safe; with what could not wait for it."""
        by_index: dict[int, list[str]] = {}
        topic = self._broker.topic(self.topic)
        for name in names if topic is not None else ():
            assert topic is not None
            by_index.setdefault(partition_of(name, topic.partition_count), []).append(name)
        waits: dict[int, int] = {}
        refusals: dict[str, ErrorCode] = {}
        for index in self._active & by_index.keys():
            try:
                log = self._broker.leading(self.topic, index).log
            except KafkaError:  # lost just now; what follows from that is under way
                refusals.update(dict.fromkeys(by_index[index], ErrorCode.NOT_COORDINATOR))
                continue
            if log.high_watermark < log.log_end_offset:
                waits[index] = log.log_end_offset
        if not waits:
            then(refusals)
            return
        left = set(waits)

        def safe(index: int, error: ErrorCode) -> None:
            left.discard(index)
            if error is not ErrorCode.NONE:
                refusals.update(dict.fromkeys(by_index[index], coordinator_error(error)))
            if not left:
                then(refusals)

        for index, end in waits.items():
            key = self._member.key(self.topic, index)
            self._member.when_safe(key, end - 1, SAFE_TIMEOUT_MS, partial(safe, index))

    def answer(
        self, request: Request, names: Collection[str], body: Body, refused: Callable[[Refusals], Body]
    ) -> Body | None:
        """Return the answer if it is safe already; else send it when it is."""
        now: list[Body] = []
        answered_at_once = True

        def send(refusals: Refusals) -> None:
            told = refused(refusals) if refusals else body
            if answered_at_once:
                now.append(told)
            else:
                request.answer(told)

        self.when_safe(names, send)
        answered_at_once = False
        return now[0] if now else None

    # Leadership.

    def _is_ours(self, topic_id: uuid.UUID) -> bool:
        if topic_id == self._topic_id:
            return True
        topic = self._member.image.topic(self.topic)
        return topic is not None and topic.topic_id == topic_id

    def _leads(self, index: int) -> bool:
        try:
            self._broker.leading(self.topic, index)
        except KafkaError:
            return False
        return True

    def _on_event(self, event: Event) -> None:
        if isinstance(event, HighWatermarkMoved) or not self._is_ours(event.key[0]):
            return
        index = event.key[1]
        self._drop(index)
        if isinstance(event, Leads):
            self._take(index)

    def _take(self, index: int) -> None:
        assert self._coordinator is not None
        log = self._broker.leading(self.topic, index).log
        topic = self._broker.topic(self.topic)
        assert topic is not None
        self._topic_id, self._partition_count = topic.topic_id, topic.partition_count
        self._loading[index] = self._coordinator.load({index: log})
        if not self._queue:
            self._broker.scheduler.call_soon(self._load)
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
        """Read back for one turn; in the next one the rest."""
        assert self._coordinator is not None
        clock = self._broker.clock
        until_ms = clock.monotonic_ms() + LOAD_TURN_MS
        while self._queue and clock.monotonic_ms() < until_ms:
            index = self._queue[0]
            try:
                next(self._loading[index])
            except StopIteration:
                self._loaded(index)
            except Exception:  # an error in one partition must not keep the others from being loaded
                self._failed(index)
        if self._queue:
            self._broker.scheduler.call_soon(self._load)

    def _loaded(self, index: int) -> None:
        assert self._coordinator is not None
        self._queue.popleft()
        del self._loading[index]
        self._active.add(index)
        try:
            self._coordinator.loaded([index])
        except Exception:
            self._failed(index)
        else:
            logger.info("%s-%d is coordinated here", self.topic, index)

    def _failed(self, index: int) -> None:
        """Load again after a while; until then clients get COORDINATOR_LOAD_IN_PROGRESS."""
        assert self._coordinator is not None
        logger.exception("%s-%d could not be read back; it is tried again", self.topic, index)
        if index in self._queue:
            self._queue.remove(index)
        self._active.discard(index)
        self._loading[index] = iter(())
        self._coordinator.drop(index)
        self._broker.scheduler.call_later(LOAD_RETRY_S, partial(self._again, index))

    def _again(self, index: int) -> None:
        if index in self._loading and index not in self._queue:
            del self._loading[index]
            self._take(index)


def coordinate(broker: Broker, member: ClusterMember) -> None:
    """Let a broker coordinate what it leads; to be called once its partitions go with the cluster."""
    broker.producer_ids = ProducerIdBlocks(member)
    _ = broker.groups, broker.transactions
