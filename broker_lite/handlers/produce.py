"""Produce, versions 3 to 13; from version 12 on the first write of a transaction adds the partition to it (KIP-890).

With acks=all the response waits until all in-sync replicas have the records: without followers that is at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.log.validation import InvalidRecordsError
from sparkonce.broker_lite.node.authorization import find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.crash_points import BrokerPoint
from sparkonce.broker_lite.node.leader import endpoints_of_leaders, leader_hint
from sparkonce.broker_lite.node.request import Body, CloseConnectionError, Request
from sparkonce.broker_lite.node.transaction_verification import (
    NOTHING_TO_VERIFY,
    VerificationResults,
    is_transactional,
    verify_writes,
)
from sparkonce.broker_lite.node.turns import FILES
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.broker_lite.waiting import Promise
from sparkonce.crash_points import reach
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import Buffer
from sparkonce.kafka.protocol.records import HEADER_BYTES, read_header

ACKS_ALL = -1
VALID_ACKS = (ACKS_ALL, 0, 1)
ZSTD_FROM = 7
MAX_PARTITIONS_AT_ONCE = 50
"""With more partitions of one topic than this, other requests get a turn in between."""
APPENDED = 5
"""The units of work of an append; bytes are limited elsewhere."""


async def handle(broker: Broker, request: Request) -> Body | None:
    """Append each partition's batch; with acks=0 the only way to report a failure is to close the connection.

    Records are written to the file from the buffer that they were read into. A Produce waits for the transaction's
    coordinator, if a transaction begins here; for turns, if it has many partitions; and with acks=all for followers.
    """
    wanted = produce.decode_request(request.version, request.body)
    acks_error = None if wanted.acks in VALID_ACKS else KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    verified = NOTHING_TO_VERIFY
    if wanted.transactional_id is not None and acks_error is None:
        verified = await _verify(broker, request, wanted)
    by_id = request.version >= produce.TOPIC_ID_FROM
    now_ms = broker.clock.now_ms()
    failed = False
    # Nearly always one topic: no partitions have to be counted then.
    in_turns = len(wanted.topics) != 1 or len(wanted.topics[0].partitions) > MAX_PARTITIONS_AT_ONCE
    topics: list[produce.ProduceTopicResult] = []
    unsafe: list[_Unsafe] = []
    for name, topic_id, partitions in wanted.topics:
        topic, refusal = find_topic(broker, request, Operation.WRITE, name, topic_id if by_id else None)
        results: list[produce.ProducePartitionResult] = []
        for index, records in partitions:
            if in_turns:
                # All is appended though the client goes, which with acks=0 it may as soon as it has sent it.
                await broker.turns.spend(request, _units(topic, index), ends_with_client=False)
                # Meanwhile the topic may have been deleted, or the client's rights taken.
                topic, refusal = find_topic(broker, request, Operation.WRITE, name, topic_id if by_id else None)
            try:
                if acks_error is not None:
                    raise acks_error
                if topic is None:
                    raise KafkaError(refusal)
                _check_records(request, wanted, records)
                result, last_offset = _append(broker, topic.name, index, records, now_ms, verified, wanted.acks)
                if last_offset is not None:
                    # Requested now: leadership may be lost, and regained over other records, before all are appended.
                    key = broker.member.key(topic.name, index)
                    promise = broker.member.safe(key, last_offset, wanted.timeout_ms)
                    unsafe.append(_Unsafe(results, len(results), topic.name, promise))
                results.append(result)
            except KafkaError as error:
                failed = True
                results.append(_refused(broker, request, topic.name if topic else name, index, error))
        topics.append(produce.ProduceTopicResult(name, topic_id, results))
    if wanted.acks == 0:
        if failed:
            raise CloseConnectionError("a Produce with acks=0 failed, see above; this is the only way to tell")
        return None
    if unsafe:
        # The next writes of this client may be appended meanwhile: they need the read buffer, which this one does not.
        request.release_body()
        del wanted, partitions, records
        request.overlaps = True
        await _wait_until_safe(broker, unsafe)
    nodes = _leaders(broker, request, topics) if failed or unsafe else ()
    return [produce.encode_response(request.version, produce.ProduceResponse(topics, node_endpoints=nodes))]


def _units(topic: Topic | None, index: int) -> int:
    return APPENDED if topic is None or index not in topic.logs or topic.logs[index].is_made else FILES


def _check_records(request: Request, wanted: produce.ProduceRequest, records: Buffer | None) -> None:
    if not records:
        return
    if wanted.transactional_id is None and is_transactional(records):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no transactional id is named")
    if request.version < ZSTD_FROM:
        _refuse_zstd(request.version, records)


async def _verify(broker: Broker, request: Request, wanted: produce.ProduceRequest) -> VerificationResults:
    """Verify the transactions that begin in this request, on topics that the client may write to."""
    by_id = request.version >= produce.TOPIC_ID_FROM
    batches = []
    for name, topic_id, partitions in wanted.topics:
        topic, _ = find_topic(broker, request, Operation.WRITE, name, topic_id if by_id else None)
        if topic is not None and not broker.is_internal(topic.name):
            batches += [(topic.name, index, records) for index, records in partitions]
    assert wanted.transactional_id is not None
    transactional_id = ResourceType.TRANSACTIONAL_ID
    if not authorized(broker, request, Operation.WRITE, transactional_id, wanted.transactional_id):
        refused = [place[:2] for place in batches if place[2] and is_transactional(place[2])]
        return dict.fromkeys(refused, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return await verify_writes(broker, request.version, wanted.transactional_id, batches)


def _refuse_zstd(version: int, records: Buffer) -> None:
    """Reject the codec for clients whose version does not know it (KIP-110)."""
    if len(records) >= HEADER_BYTES and read_header(records).compression == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_FROM}; this is version {version}"
        )


def _append(
    broker: Broker,
    topic: str,
    index: int,
    records: Buffer | None,
    now_ms: int,
    verified: VerificationResults,
    acks: int,
) -> tuple[produce.ProducePartitionResult, int | None]:
    """Append one batch; returns the result, and the last offset if it must be replicated first."""
    led = broker.leading(topic, index)
    log, leader_epoch, replicas = led
    if broker.is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the broker alone")
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
    assert not isinstance(records, bytes)
    verification = verified.get((topic, index))
    if isinstance(verification, ErrorCode):
        raise KafkaError(verification, "the transaction coordinator does not let the write begin a transaction here")
    if replicas is not None and acks == ACKS_ALL:
        replicas.check_acks_all()
    reach(BrokerPoint.APPENDING)
    appended = log.append(records, leader_epoch, now_ms, verification)
    reach(BrokerPoint.APPENDED)
    broker.cluster.appended(topic, index, led, len(records), appended.last_offset)
    if broker.metrics is not None:
        broker.metrics.produced(topic, appended.last_offset - appended.base_offset + 1, len(records))
    result = produce.ProducePartitionResult(
        index, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )
    return result, None if replicas is None or acks != ACKS_ALL else appended.last_offset


def _refused(
    broker: Broker, request: Request, topic: str, index: int, error: KafkaError
) -> produce.ProducePartitionResult:
    if broker.metrics is not None:
        broker.metrics.not_produced(topic, broker.topic(topic) is not None)
    broker.note_refusal(f"{request.client_id or 'a client'}@{request.client_host}: Produce to {topic}-{index}: {error}")
    wrong = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    hint = leader_hint(broker.member.image, topic, index) if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
    return produce.ProducePartitionResult(
        index, int(error.code), record_errors=wrong, error_message=error.message or None, current_leader=hint
    )


class _Unsafe(NamedTuple):
    """A result that is valid once the batch is replicated: the one at `position` of its topic's results."""

    results: list[produce.ProducePartitionResult]
    position: int
    topic: str
    promise: Promise[ErrorCode]


async def _wait_until_safe(broker: Broker, unsafe: list[_Unsafe]) -> None:
    """Wait until all is replicated, or cannot be; put the error into the result of a batch that is not."""
    for results, position, topic, promise in unsafe:
        code = await promise
        if code is not ErrorCode.NONE:
            index = results[position].partition
            moved = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            hint = leader_hint(broker.member.image, topic, index) if moved else None
            results[position] = produce.ProducePartitionResult(index, int(code), current_leader=hint)


def _leaders(
    broker: Broker, request: Request, topics: list[produce.ProduceTopicResult]
) -> Sequence[produce.NodeEndpoint]:
    """Return the endpoints of the leaders that the results hint at."""
    hints = [each.current_leader for topic in topics for each in topic.partitions if each.current_leader]
    return endpoints_of_leaders(broker.member.image, broker.member.broker_id, request.endpoint, hints)
