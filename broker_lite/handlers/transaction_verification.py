"""Whether a write may open a transaction on a partition (KIP-890).

Theory of operation: a transactional batch on a partition where its producer has nothing open yet needs the
coordinator's word. Of older clients the partition must have been added before (part 1: a batch that was delayed until
after its transaction never opens another one). Clients with part 2 let the write itself add it. What the coordinator
refuses is told in the words that the version of the request allows, as Kafka's AddPartitionsToTxnManager and
ReplicaManager do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker_lite.coordinators.producer_state import Verification
from broker_lite.coordinators.transaction_messages import EPOCH_BUMP, Producer, TopicPartition
from broker_lite.handlers.broker import Broker
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.primitives import Buffer
from broker_lite.protocol.records import HEADER_BYTES, MAGIC, read_header

ABORTABLE_FROM = 11
"""From this version of Produce on clients know TRANSACTION_ABORTABLE."""
ADDS_FROM = 12
"""From this version of Produce on a transaction's first write adds the partition."""

_COORDINATOR_IS_AWAY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def verify(
    broker: Broker, producer: Producer, places: Sequence[TopicPartition], *, adds: bool, abortable: bool
) -> tuple[Verification, dict[TopicPartition, ErrorCode]]:
    """Ask the coordinator about partitions that a producer begins to write to; gives what it says of each.

    `adds`: the client lets its writes add partitions. `abortable`: it knows TRANSACTION_ABORTABLE.
    """
    coordinator = broker.transactions
    if adds:
        decision = coordinator.transactions.add_partitions(producer, places, EPOCH_BUMP, broker.clock.now_ms())
        errors = dict.fromkeys(places, coordinator.carry_out(decision).error)
    else:
        errors = coordinator.transactions.verify_partitions(producer, places)
    verification = Verification.EPOCH_BUMP if adds else Verification.LEGACY
    return verification, {place: _translate(error, adds, abortable) for place, error in errors.items()}


Said = Mapping[TopicPartition, Verification | ErrorCode]
"""What the coordinator says of the batches of one request that begin a transaction on their partition."""

NOTHING_ASKED: Said = {}
_MAGIC_POSITION = 16
_ATTRIBUTES_POSITION = 22
_TRANSACTIONAL = 0x10


def is_transactional(records: Buffer) -> bool:
    """Whether a batch belongs to a transaction, looking no further than needed."""
    return (
        len(records) >= HEADER_BYTES
        and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL != 0
        and records[_MAGIC_POSITION] == MAGIC
    )


def verify_writes(
    broker: Broker,
    version: int,
    transactional_id: str,
    batches: Iterable[tuple[str, int, Buffer | None]],
) -> Said:
    """Ask the coordinator once about all batches of a Produce that begin a transaction on their partition."""
    producers: set[tuple[int, int]] = set()
    places: list[TopicPartition] = []
    for topic, index, records in batches:
        if not records or not is_transactional(records):
            continue
        header = read_header(records)
        producers.add((header.producer_id, header.producer_epoch))
        try:
            log = broker.partition(topic, index)
        except KafkaError:
            continue  # the append will say so
        if not log.producers.in_transaction(header.producer_id, header.producer_epoch):
            places.append((topic, index))
    if not places:
        return NOTHING_ASKED
    if len(producers) > 1:
        return dict.fromkeys(places, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    producer = Producer(transactional_id, *producers.pop())
    verification, errors = verify(
        broker, producer, places, adds=version >= ADDS_FROM, abortable=version >= ABORTABLE_FROM
    )
    return {place: verification if error is ErrorCode.NONE else error for place, error in errors.items()}


def _translate(error: ErrorCode, adds: bool, abortable: bool) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error in _COORDINATOR_IS_AWAY or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # old clients retry it at once, without asking for metadata
    return error
