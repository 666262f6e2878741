"""Whether a write may open a transaction on a partition (KIP-890).

Theory of operation: a transactional batch on a partition where its producer has no open transaction needs the
coordinator's confirmation. With older clients the partition must have been added before (part 1: a batch that was
delayed until after its transaction never opens another one). Clients with part 2 let the write itself add it. An error
is returned as one that the request's version knows, as Kafka's AddPartitionsToTxnManager and ReplicaManager do. In a
cluster the coordinator may be another broker, and its answer comes later: the verification begins in the partition
before the request (`ProducerStates.begin_verification`), and the write checks whether it is still valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkonce.broker_lite.coordinators.transaction_messages import EPOCH_BUMP, Producer, TopicPartition
from sparkonce.broker_lite.log.producer_state import Verification
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import Buffer
from sparkonce.kafka.protocol.records import HEADER_BYTES, MAGIC, read_header

ABORTABLE_FROM = 11
"""From this version on, clients of Produce know TRANSACTION_ABORTABLE."""
ADDS_FROM = 12
"""From this version of Produce on, a transaction's first write adds the partition."""

_BATCHED = 5
"""The version of AddPartitionsToTxn that brokers send to each other."""

_COORDINATOR_IS_AWAY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


Errors = dict[TopicPartition, ErrorCode]


async def verify(
    broker: Broker,
    producer: Producer,
    places: Sequence[TopicPartition],
    *,
    adds: bool,
    abortable: bool,
) -> Errors:
    """Ask the coordinator about partitions that a producer begins to write to; return the result of each.

    `adds`: the client lets its writes add partitions. `abortable`: it knows
    TRANSACTION_ABORTABLE.
    """
    here = broker.transactions.partitions.error_of(producer.transactional_id)
    if here is ErrorCode.NOT_COORDINATOR:
        errors = await _ask_coordinator(broker, producer, places, adds)
    else:
        errors = await _decide(broker, producer, places, adds)
    return {place: _translate(error, adds, abortable) for place, error in errors.items()}


async def _decide(broker: Broker, producer: Producer, places: Sequence[TopicPartition], adds: bool) -> Errors:
    """Decide as the coordinator."""
    coordinator, name = broker.transactions, producer.transactional_id
    await coordinator.ended(name)
    here = coordinator.partitions.error_of(name)
    if here is not ErrorCode.NONE:
        return dict.fromkeys(places, here)
    if adds:
        decision = coordinator.transactions.add_partitions(producer, places, EPOCH_BUMP, broker.clock.now_ms())
        errors = dict.fromkeys(places, coordinator.carry_out(decision).error)
    else:
        errors = coordinator.transactions.verify_partitions(producer, places)
    unsafe = await coordinator.partitions.safe_error(name)
    return errors if unsafe is ErrorCode.NONE else dict.fromkeys(places, unsafe)


async def _ask_coordinator(broker: Broker, producer: Producer, places: Sequence[TopicPartition], adds: bool) -> Errors:
    """Ask the broker that coordinates the transaction."""
    member = broker.member
    away = dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = broker.transactions.partitions.leader_of(producer.transactional_id)
    if leader is None:
        return away
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    asked = (producer.transactional_id, producer.producer_id, producer.epoch, not adds, list(topics.items()))
    request = apis.request(ApiKey.ADD_PARTITIONS_TO_TXN, _BATCHED, transactions=[asked])
    answer = await member.ask(leader, request)
    if answer is None or answer.error_code or not answer.results_by_transaction:
        return away
    return away | {
        (topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
        for topic in answer.results_by_transaction[0].topic_results
        for each in topic.results_by_partition
    }


VerificationResults = Mapping[TopicPartition, Verification | ErrorCode]
"""The coordinator's result for each batch of a request that begins a transaction on its partition."""

NOTHING_TO_VERIFY: VerificationResults = {}
_MAGIC_POSITION = 16
_ATTRIBUTES_POSITION = 22
_TRANSACTIONAL = 0x10


def is_transactional(records: Buffer) -> bool:
    """Whether a batch belongs to a transaction; reads no more than needed."""
    return (
        len(records) >= HEADER_BYTES
        and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL != 0
        and records[_MAGIC_POSITION] == MAGIC
    )


async def verify_writes(
    broker: Broker, version: int, transactional_id: str, batches: Iterable[tuple[str, int, Buffer | None]]
) -> VerificationResults:
    """Ask the coordinator once about all batches of a Produce that begin a transaction on their partition."""
    producers: set[tuple[int, int]] = set()
    begun: dict[TopicPartition, Verification] = {}
    adds = version >= ADDS_FROM
    for topic, index, records in batches:
        if not records or not is_transactional(records):
            continue
        header = read_header(records)
        producers.add((header.producer_id, header.producer_epoch))
        try:
            known = broker.leading(topic, index).log.producers
        except KafkaError:
            continue  # the append will report it
        if not known.in_transaction(header.producer_id, header.producer_epoch):
            begun[topic, index] = known.begin_verification(header.producer_id, header.producer_epoch, adds)
    if not begun:
        return NOTHING_TO_VERIFY
    if len(producers) > 1:
        return dict.fromkeys(begun, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    producer = Producer(transactional_id, *producers.pop())
    errors = await verify(broker, producer, list(begun), adds=adds, abortable=version >= ABORTABLE_FROM)
    return {place: errors[place] or verification for place, verification in begun.items()}


def _translate(error: ErrorCode, adds: bool, abortable: bool) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    if error in _COORDINATOR_IS_AWAY or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # old clients retry it at once, without a metadata request
    return error
