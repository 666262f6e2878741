"""TxnOffsetCommit, versions 0 to 5: offsets that take effect with the producer's transaction.

From version 3 on the request has the member and its generation, so that one that has lost its partitions cannot commit
(KIP-447). From version 5 on the commit itself adds the group's partition of `__consumer_offsets` to the transaction
(KIP-890 part 2). Absent: nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC, CommittedOffset, OffsetKey, encode, java_length
from sparkonce.broker_lite.coordinators.transaction_messages import Producer
from sparkonce.broker_lite.log.producer_state import Verification
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import commit_error
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.transaction_verification import verify
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import encode_batch

ABORTABLE_FROM = 4
ADDS_FROM = 5


async def handle(broker: Broker, request: Request) -> Body:
    """Append offsets to the log; they are not visible before the transaction is committed."""
    wanted = request.message()
    refusal = _refusal(broker, request, wanted)
    offsets: dict[OffsetKey, CommittedOffset] = {}
    errors: dict[tuple[str, int], ErrorCode] = {}
    now_ms = broker.clock.now_ms()
    for topic in wanted.topics:
        for each in topic.partitions:
            error = refusal if refusal is not ErrorCode.NONE else _partition_error(broker, request, topic.name, each)
            errors[topic.name, each.partition_index] = error
            if error is ErrorCode.NONE:
                known = broker.topic(topic.name)
                assert known is not None
                offsets[OffsetKey(wanted.group_id, topic.name, each.partition_index)] = CommittedOffset(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                    now_ms,
                    known.topic_id,
                )
    failed = await _commit(broker, request, wanted, offsets) if offsets else ErrorCode.NONE
    topics = [
        (topic.name, [(each.partition_index, int(errors[topic.name, each.partition_index] or failed))
                      for each in topic.partitions])
        for topic in wanted.topics
    ]  # fmt: skip
    return request.response(topics=topics)


def _refusal(broker: Broker, request: Request, wanted: Any) -> ErrorCode:
    transactional_id = ResourceType.TRANSACTIONAL_ID
    if not authorized(broker, request, Operation.WRITE, transactional_id, wanted.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not authorized(broker, request, Operation.READ, ResourceType.GROUP, wanted.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not wanted.group_id:
        return ErrorCode.INVALID_GROUP_ID
    return broker.groups.partitions.error_of(wanted.group_id)


def _partition_error(broker: Broker, request: Request, name: str, wanted: Any) -> ErrorCode:
    if not authorized(broker, request, Operation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = broker.topic(name)
    if topic is None or not 0 <= wanted.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if java_length(wanted.committed_metadata) > broker.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


Offsets = dict[OffsetKey, CommittedOffset]


async def _commit(broker: Broker, request: Request, wanted: Any, offsets: Offsets) -> ErrorCode:
    """Add the group's partition to the transaction, and write the offsets; return NONE or the error."""
    producer = Producer(wanted.transactional_id, wanted.producer_id, wanted.producer_epoch)
    try:
        index = broker.groups.partitions.index_of(wanted.group_id)
        producers = broker.leading(OFFSETS_TOPIC, index).log.producers
    except KafkaError as refused:
        return _answer_to(broker, wanted, refused)
    verification: Verification | None = None
    if not producers.in_transaction(producer.producer_id, producer.epoch):
        adds, abortable = request.version >= ADDS_FROM, request.version >= ABORTABLE_FROM
        place = (OFFSETS_TOPIC, index)
        verification = producers.begin_verification(producer.producer_id, producer.epoch, adds)
        errors = await verify(broker, producer, [place], adds=adds, abortable=abortable)
        error = errors.get(place, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if error is not ErrorCode.NONE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.NOT_ENOUGH_REPLICAS else error
    error = _write(broker, request, wanted, offsets, verification)
    return error or await broker.groups.partitions.safe_error(wanted.group_id)


def _write(
    broker: Broker, request: Request, wanted: Any, offsets: Offsets, verification: Verification | None
) -> ErrorCode:
    partitions, now_ms = broker.groups.partitions, broker.clock.now_ms()
    error = partitions.error_of(wanted.group_id) or _group_error(broker, request, wanted)
    if error is not ErrorCode.NONE:
        return error
    records = [encode(key, value, now_ms) for key, value in offsets.items()]
    batch = encode_batch(
        records, producer_id=wanted.producer_id, producer_epoch=wanted.producer_epoch, transactional=True
    )
    try:
        placed = partitions.append(wanted.group_id, batch, verification, by_coordinator=True)
    except KafkaError as refused:
        return _answer_to(broker, wanted, refused)
    offset = placed.appended.base_offset
    waiting = [replace(record, offset=offset + delta) for delta, record in enumerate(records)]
    broker.pending_offsets.add(placed.partition, wanted.producer_id, waiting)
    return ErrorCode.NONE


def _answer_to(broker: Broker, wanted: Any, refused: KafkaError) -> ErrorCode:
    """Return the client's error when the offsets could not be written."""
    broker.note_refusal(f"TxnOffsetCommit of group {wanted.group_id}: {refused}")
    return commit_error(refused.code)


def _group_error(broker: Broker, request: Request, wanted: Any) -> ErrorCode:
    """Check a member against its group's generation; commits without a member are not checked (KIP-447)."""

    def partitions() -> Iterator[tuple[uuid.UUID, int]]:
        for each in wanted.topics:
            topic = broker.topic(each.name)
            if topic is not None:
                yield from ((topic.topic_id, partition.partition_index) for partition in each.partitions)

    error = broker.groups.commit_error(
        wanted.group_id,
        wanted.member_id,
        wanted.group_instance_id,
        wanted.generation_id,
        partitions,
        request.version,
        transactional=True,
    )
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error
