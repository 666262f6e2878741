"""Produce, versions 3 to 13; from version 12 on the first write of a transaction adds the partition to it (KIP-890).

With acks=all the response waits until all in-sync replicas have the records: without followers that is at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.validation import InvalidRecordsError
from sparkonce.broker_lite.node.authorization import find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.crash_points import BrokerPoint
from sparkonce.broker_lite.node.leader import endpoints_of_leaders, leader_hint
from sparkonce.broker_lite.node.request import DROP, NO_ANSWER, Body, Request
from sparkonce.broker_lite.node.transaction_verification import (
    NOTHING_TO_VERIFY,
    VerificationResults,
    is_transactional,
    verify_writes,
)
from sparkonce.broker_lite.node.turns import FILES, Steps
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.crash_points import reach
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.primitives import Buffer
from sparkonce.kafka.protocol.records import HEADER_BYTES, read_header

ACKS_ALL = -1
VALID_ACKS = (ACKS_ALL, 0, 1)
ZSTD_FROM = 7
MAX_PARTITIONS_AT_ONCE = 50
"""With more partitions than this, other requests get a turn in between."""
APPENDED = 5
"""The units of work of an append; bytes are limited elsewhere."""


def handle(broker: Broker, request: Request) -> Body | None:
    """Append each partition's batch; with acks=0 the only way to report a failure is to close the connection.

    The response is sent later if another broker is the transaction coordinator, or acks=all waits for followers.
    """
    wanted = produce.decode_request(request.version, request.body)
    if wanted.transactional_id is None or wanted.acks not in VALID_ACKS:
        return _write(broker, request, request.body, wanted, NOTHING_TO_VERIFY)
    now: list[VerificationResults] = []
    kept: bytearray | None = None

    def then(verified: VerificationResults) -> None:
        if kept is None:
            now.append(verified)
            return
        _write_later(broker, request, memoryview(kept), verified)

    _verify(broker, request, wanted, then)
    if now:
        return _write(broker, request, request.body, wanted, now[0])
    kept = bytearray(request.body)  # another broker is asked, and the read buffer is reused meanwhile
    return None


def _write_later(broker: Broker, request: Request, kept: memoryview, verified: VerificationResults) -> None:
    """Append the batches that waited for the coordinator's result, and answer."""
    try:
        body = _write(broker, request, kept, produce.decode_request(request.version, kept), verified)
    except (ProtocolError, OSError) as error:
        broker.note_refusal(f"closing connection of {request.client_id}@{request.client_host}: Produce: {error}")
        body = DROP
    if body is not None:
        request.answer(body)


def _write(
    broker: Broker, request: Request, body: memoryview, wanted: produce.ProduceRequest, verified: VerificationResults
) -> Body | None:
    """Append; many partitions in turns, from a copy, since the read buffer is reused in between."""
    if sum(len(partitions) for _, _, partitions in wanted.topics) <= MAX_PARTITIONS_AT_ONCE:
        return finish(_steps(broker, request, wanted, verified))
    copied = produce.decode_request(request.version, memoryview(bytearray(body)))
    return broker.turns.run(request, _steps(broker, request, copied, verified))


def _steps(broker: Broker, request: Request, wanted: produce.ProduceRequest, verified: VerificationResults) -> Steps:
    version = request.version
    acks_error = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS) if wanted.acks not in VALID_ACKS else None
    now_ms = broker.clock.now_ms()
    failed = False
    topics = []
    # With acks=all and followers: the results that wait for replication.
    unreplicated: list[UnreplicatedResult] = []
    for (name, topic_id, partitions), (topic, refusal) in zip(
        wanted.topics, _topics(broker, request, wanted), strict=True
    ):
        results: list[produce.ProducePartitionResult] = []
        for index, records in partitions:
            yield APPENDED if topic is None or index not in topic.logs or topic.logs[index].is_made else FILES
            try:
                if acks_error is not None:
                    raise acks_error
                if topic is None:
                    raise KafkaError(refusal)
                if wanted.transactional_id is None and records and is_transactional(records):
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no transactional id is named")
                if version < ZSTD_FROM and records:
                    _refuse_zstd(version, records)
                result, last_offset = _append(broker, topic.name, index, records, now_ms, verified, wanted.acks)
                if last_offset is not None:
                    key = broker.member.key(topic.name, index)  # in a later turn the name may be another topic's
                    unreplicated.append(UnreplicatedResult(results, len(results), topic.name, key, last_offset))
                results.append(result)
            except KafkaError as error:
                failed = True
                results.append(_refused(broker, request, topic.name if topic else name, index, error))
        topics.append(produce.ProduceTopicResult(name, topic_id, results))
    if wanted.acks == 0:
        if failed:
            where = f"closing connection from {request.client_host}"
            broker.note_refusal(f"{where}: a Produce with acks=0 failed, see above; this is the only way to tell")
            return DROP
        return NO_ANSWER
    if unreplicated:
        return answer_when_safe(broker, request, topics, unreplicated, wanted.timeout_ms)
    return answer(broker, request, topics)


def _topics(broker: Broker, request: Request, wanted: produce.ProduceRequest) -> list[tuple[Topic | None, ErrorCode]]:
    by_id = request.version >= produce.TOPIC_ID_FROM
    return [
        find_topic(broker, request, Operation.WRITE, name, topic_id if by_id else None)
        for name, topic_id, _ in wanted.topics
    ]


def _verify(
    broker: Broker, request: Request, wanted: produce.ProduceRequest, then: Callable[[VerificationResults], None]
) -> None:
    """Verify the transactions that begin in this request, on topics that the client may write to."""
    batches = [
        (topic.name, index, records)
        for (topic, _), (_, _, partitions) in zip(_topics(broker, request, wanted), wanted.topics, strict=True)
        for index, records in partitions
        if topic is not None and not broker.is_internal(topic.name)
    ]
    assert wanted.transactional_id is not None
    transactional_id = ResourceType.TRANSACTIONAL_ID
    if not authorized(broker, request, Operation.WRITE, transactional_id, wanted.transactional_id):
        refused = [place[:2] for place in batches if place[2] and is_transactional(place[2])]
        then(dict.fromkeys(refused, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    verify_writes(broker, request.version, wanted.transactional_id, batches, then)


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


class UnreplicatedResult(NamedTuple):
    """A result that is valid once the batch is replicated: the one at `position` of its topic's results."""

    results: list[produce.ProducePartitionResult]
    position: int
    topic: str
    key: PartitionKey
    last_offset: int


def answer(broker: Broker, request: Request, topics: list[produce.ProduceTopicResult]) -> Body:
    """Encode a response, with the endpoints of the leaders that it hints at."""
    nodes: Sequence[produce.NodeEndpoint] = ()
    hints = [each.current_leader for topic in topics for each in topic.partitions if each.current_leader]
    if hints:
        nodes = endpoints_of_leaders(broker.member.image, broker.member.broker_id, request.endpoint, hints)
    return [produce.encode_response(request.version, produce.ProduceResponse(topics, node_endpoints=nodes))]


def answer_when_safe(
    broker: Broker,
    request: Request,
    topics: list[produce.ProduceTopicResult],
    unreplicated: list[UnreplicatedResult],
    timeout_ms: int,
) -> Body | None:
    """Answer once all is replicated, or cannot be: at once, if it already is."""
    member = broker.member
    left = len(unreplicated)
    at_once = True

    def on_safe(of: UnreplicatedResult, code: ErrorCode) -> None:
        nonlocal left
        left -= 1
        if code is not ErrorCode.NONE:
            index = of.results[of.position].partition
            moved = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            hint = leader_hint(broker.member.image, of.topic, index) if moved else None
            of.results[of.position] = produce.ProducePartitionResult(index, int(code), current_leader=hint)
        if not left and not at_once:
            request.answer(answer(broker, request, topics))

    for each in unreplicated:
        member.when_safe(each.key, each.last_offset, timeout_ms, partial(on_safe, each))
    at_once = False
    request.overlaps = left > 0
    return None if left else answer(broker, request, topics)
