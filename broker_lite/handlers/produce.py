"""Produce, versions 3 to 13; from version 12 on the first write of a transaction adds the partition to it (KIP-890).

Absent: acks=1 and acks=all are the same with one replica.
"""

from __future__ import annotations

from broker_lite.coordinators.producer_state import Verification
from broker_lite.handlers.authorization import find_topic
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.leader import LEADER_EPOCH
from broker_lite.handlers.request import NO_ANSWER, Body, Request
from broker_lite.handlers.transaction_verification import NOTHING_ASKED, Said, is_transactional, verify_writes
from broker_lite.log.validation import InvalidRecordsError
from broker_lite.protocol import produce
from broker_lite.protocol.compression import Compression
from broker_lite.protocol.errors import ErrorCode, KafkaError, ProtocolError
from broker_lite.protocol.primitives import Buffer
from broker_lite.protocol.records import HEADER_BYTES, read_header
from broker_lite.security.acls import Operation, ResourceType
from broker_lite.security.authorizer import authorized
from exactly_once.crash_points import CrashPoint, reach

VALID_ACKS = (-1, 0, 1)
ZSTD_FROM = 7


def handle(broker: Broker, request: Request) -> Body:
    """Append each partition's batch; with acks=0 a failure can only be told by closing the connection."""
    version = request.version
    wanted = produce.decode_request(version, request.body)
    acks_error = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS) if wanted.acks not in VALID_ACKS else None
    now_ms = broker.clock.now_ms()
    failed = False
    topics = []
    by_id = version >= produce.TOPIC_ID_FROM
    found = [
        find_topic(broker, request, Operation.WRITE, name, topic_id if by_id else None)
        for name, topic_id, _ in wanted.topics
    ]
    said = NOTHING_ASKED
    if wanted.transactional_id is not None and acks_error is None:
        said = _verify(broker, request, wanted, [None if topic is None else topic.name for topic, _ in found])
    for (name, topic_id, partitions), (topic, refusal) in zip(wanted.topics, found, strict=True):
        results = []
        for index, records in partitions:
            try:
                if acks_error is not None:
                    raise acks_error
                if topic is None:
                    raise KafkaError(refusal)
                if wanted.transactional_id is None and records and is_transactional(records):
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no transactional id is named")
                if version < ZSTD_FROM and records:
                    _refuse_zstd(version, records)
                results.append(_append(broker, topic.name, index, records, now_ms, said))
            except KafkaError as error:
                failed = True
                results.append(_refused(broker, request, topic.name if topic else name, index, error))
        topics.append(produce.ProduceTopicResult(name, topic_id, results))
    if wanted.acks == 0:
        if failed:
            raise ProtocolError("a Produce with acks=0 failed, see above; closing is the only way to tell")
        return NO_ANSWER
    return [produce.encode_response(version, produce.ProduceResponse(topics))]


def _verify(broker: Broker, request: Request, wanted: produce.ProduceRequest, names: list[str | None]) -> Said:
    """Ask the transaction coordinator about what begins in this request, on the topics that the client may write to."""
    batches = [
        (topic, index, records)
        for topic, (_, _, partitions) in zip(names, wanted.topics, strict=True)
        for index, records in partitions
        if topic is not None and not broker.is_internal(topic)
    ]
    assert wanted.transactional_id is not None
    transactional_id = ResourceType.TRANSACTIONAL_ID
    if not authorized(broker, request, Operation.WRITE, transactional_id, wanted.transactional_id):
        refused = [place[:2] for place in batches if place[2] and is_transactional(place[2])]
        return dict.fromkeys(refused, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return verify_writes(broker, request.version, wanted.transactional_id, batches)


def _refuse_zstd(version: int, records: Buffer) -> None:
    """Refuse the codec to clients whose version says that they do not know it (KIP-110)."""
    if len(records) >= HEADER_BYTES and read_header(records).compression == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_FROM}; this is version {version}"
        )


def _append(
    broker: Broker, topic: str, index: int, records: Buffer | None, now_ms: int, said: Said
) -> produce.ProducePartitionResult:
    partition = broker.partition(topic, index)
    if broker.is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the broker alone")
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
    assert not isinstance(records, bytes)
    verification = said.get((topic, index), Verification.NONE)
    if isinstance(verification, ErrorCode):
        raise KafkaError(verification, "the transaction coordinator does not let the write begin a transaction here")
    reach(CrashPoint.BROKER_APPENDING)
    appended = partition.append(records, LEADER_EPOCH, now_ms, verification)
    reach(CrashPoint.BROKER_APPENDED)
    stable = partition.last_stable_offset > appended.last_offset
    broker.purgatory.appended(topic, index, len(records), stable)
    if broker.metrics is not None:
        broker.metrics.produced(topic, appended.last_offset - appended.base_offset + 1, len(records))
    return produce.ProducePartitionResult(
        index, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _refused(
    broker: Broker, request: Request, topic: str, index: int, error: KafkaError
) -> produce.ProducePartitionResult:
    if broker.metrics is not None:
        broker.metrics.not_produced(topic, broker.topic(topic) is not None)
    broker.note_refusal(f"{request.client_id or 'a client'}@{request.client_host}: Produce to {topic}-{index}: {error}")
    wrong = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return produce.ProducePartitionResult(
        index, int(error.code), record_errors=wrong, error_message=error.message or None
    )
