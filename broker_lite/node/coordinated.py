"""Which partitions of an internal topic this broker coordinates, and when a coordinator's answers may be sent.

Theory of operation: a group or a transactional id belongs to the partition of `__consumer_offsets` or
`__transaction_state` that Kafka's hash of its name selects, and the leader of that partition coordinates it. A
standalone broker leads all of them, from the start on, and answers at once. In a cluster (`coordinated_in_cluster.py`)
partitions come and go, and an answer waits until all that is in the coordinator's partition by then is safe: otherwise
a client could see what the next coordinator does not know.

A coordinator's partition is read back at the start, or when this broker comes to lead it, oldest record first. A record
that cannot be read, as a later Kafka may have written it, is logged and ignored: the others still count, and a broker
that did not start would serve none of them. Kafka's CoordinatorLoaderImpl ignores records of unknown types, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparkonce.broker_lite.coordinators.offsets import partition_of
from sparkonce.broker_lite.coordinators.producer_state import Verification
from sparkonce.broker_lite.log.partition_log import Appended, PartitionLog
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.protocol.errors import ErrorCode, ProtocolError
from sparkonce.broker_lite.protocol.records import BatchHeader, Record, decode_records, scan

if TYPE_CHECKING:
    from sparkonce.broker_lite.node.broker import Broker

Refusals = Mapping[str, ErrorCode]
"""The error of each group or transactional id that cannot be answered for after all."""

NO_REFUSALS: Refusals = {}

logger = logging.getLogger(__name__)

REPLAY_BYTES = 4 * 1024 * 1024
"""How much is read at a time, in bytes; a batch that is larger is read whole."""

SLICE_BYTES = 128 * 1024
"""The same where requests are served in between: some ten milliseconds of work."""


class Placed(NamedTuple):
    """Where a coordinator's batch was put."""

    partition: int
    appended: Appended
    is_stable: bool
    """Whether it is below the last stable offset already."""


class Coordinator(Protocol):
    """What keeps the state of the partitions."""

    def load(self, partitions: Mapping[int, PartitionLog]) -> Iterator[None]:
        """Load partitions, a step at a time; what they hold is known when there is no step left."""

    def loaded(self, _partitions: Collection[int]) -> None:
        """Go on with what they hold: from now on it counts."""

    def drop(self, partition: int) -> None:
        """Forget a partition: another broker leads it."""


class Coordinated:
    """All partitions of one internal topic, of a standalone broker."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self.topic = topic

    def begin(self, coordinator: Coordinator) -> None:
        """Let a coordinator load its partitions."""
        topic = self._broker.topic(self.topic)
        logs = topic.logs if topic is not None else {}
        for _ in coordinator.load(logs):
            pass
        coordinator.loaded(logs)

    def close(self) -> None:
        """Coordinate nothing any more: the broker stops."""

    @property
    def is_loading(self) -> bool:
        """Whether there is a partition that will be coordinated here, but is not yet."""
        return False

    def error_of(self, _name: str) -> ErrorCode:
        """Return whether this broker coordinates a group or transactional id: NONE, or the client's error."""
        return ErrorCode.NONE

    def leader_of(self, _name: str) -> int | None:
        """Return the broker that coordinates a name; None if there is none now."""
        return self._broker.config.node_id

    def has(self, _partition: int) -> bool:
        """Whether the names of a partition are coordinated here."""
        return True

    def epoch_of(self, name: str) -> int:
        """Return the epoch in which this broker coordinates a name."""
        return self._broker.leading(self.topic, self.index_of(name)).leader_epoch

    def index_of(self, name: str) -> int:
        """Return the partition that keeps a group or transactional id; the topic is made if need be.

        Raises:
            KafkaError: if it cannot be, or not at once.
        """
        return partition_of(name, self._broker.internal_topic(self.topic).partition_count)

    def kept_in(self, partition: int, names: Iterable[str]) -> list[str]:
        """Return those of some names that a partition keeps."""
        return [name for name in names if self.index_of(name) == partition]

    def append(
        self,
        name: str,
        batch: bytearray,
        verification: Verification | None = None,
        by_coordinator: bool = False,
    ) -> Placed:
        """Append a batch to a name's partition, and wake its waiting fetches; the rest as `PartitionLog.append`.

        Raises:
            KafkaError: if it could not be written; then nothing was.
        """
        broker, index = self._broker, self.index_of(name)
        led = broker.leading(self.topic, index)
        size = len(batch)
        appended = led.log.append(batch, led.leader_epoch, broker.clock.now_ms(), verification, by_coordinator)
        # In a cluster nothing is stable yet, and no fetch waits for it: what is safe is reported later
        # (`cluster.appended`).
        is_stable = broker.cluster is None and led.log.last_stable_offset > appended.last_offset
        broker.purgatory.appended(self.topic, index, size, is_stable)
        return Placed(index, appended, is_stable)

    def when_safe(self, _names: Iterable[str], then: Callable[[Refusals], None]) -> None:
        """Call back once all that the partitions of these names hold now is safe."""
        then(NO_REFUSALS)

    def answer(
        self,
        _request: Request,
        _names: Collection[str],
        body: Body,
        _refused: Callable[[Refusals], Body],
    ) -> Body | None:
        """Return an answer about these names, now or (then this is None) when all that it depends on is safe.

        `_refused` builds the answer instead if some names cannot be answered for after all.
        """
        return body


def error_answer(request: Request, **fields: Any) -> Callable[[Refusals], Body]:
    """Return what answers a request about one name with nothing but an error, and these fields."""
    return lambda refusals: request.response(error_code=int(next(iter(refusals.values()))), **fields)


def coordinated(broker: Broker, topic: str) -> Coordinated:
    """Return the partitions of an internal topic that this broker coordinates by."""
    if broker.member is None:
        return Coordinated(broker, topic)
    from sparkonce.broker_lite.node.coordinated_in_cluster import CoordinatedInCluster

    return CoordinatedInCluster(broker, topic, broker.member)


def replay(log: PartitionLog, take: Callable[[BatchHeader, Record], None]) -> None:
    """Hand over every record of a partition with the header of its batch.

    ``take`` raises ProtocolError for a record that it cannot read, and then has applied nothing of it.
    """
    for _ in replay_slices(log, take, REPLAY_BYTES):
        pass


def replay_slices(
    log: PartitionLog, take: Callable[[BatchHeader, Record], None], slice_bytes: int = SLICE_BYTES
) -> Iterator[None]:
    """Do the same a slice at a time, up to where the log ends by then."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        offset = _replay_from(log, offset, slice_bytes, take)
        yield


def _replay_from(log: PartitionLog, offset: int, max_bytes: int, take: Callable[[BatchHeader, Record], None]) -> int:
    """Hand over the records of one read; return where the next one begins."""
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
