"""Produce, versions 3 to 13. Absent: transactions; acks=1 and acks=all are the same with one replica."""

from __future__ import annotations

from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import NO_ANSWER, Body, Request
from broker_lite.log.validation import InvalidRecordsError
from broker_lite.protocol import produce
from broker_lite.protocol.errors import ErrorCode, KafkaError, ProtocolError
from broker_lite.protocol.primitives import Buffer
from exactly_once.crash_points import CrashPoint, reach

LEADER_EPOCH = 0
VALID_ACKS = (-1, 0, 1)


def handle(broker: Broker, request: Request) -> Body:
    """Append each partition's batch; with acks=0 a failure can only be told by closing the connection."""
    version = request.version
    wanted = produce.decode_request(version, request.body)
    acks_error = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS) if wanted.acks not in VALID_ACKS else None
    now_ms = broker.clock.now_ms()
    failed = False
    topics = []
    for name, topic_id, partitions in wanted.topics:
        if version >= produce.TOPIC_ID_FROM:
            topic = broker.topic_by_id(topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = broker.topic(name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results = []
        for index, records in partitions:
            try:
                if acks_error is not None:
                    raise acks_error
                if topic is None:
                    raise KafkaError(unknown)
                results.append(_append(broker, topic.name, index, records, now_ms))
            except KafkaError as error:
                failed = True
                results.append(_refused(broker, request, topic.name if topic else name, index, error))
        topics.append(produce.ProduceTopicResult(name, topic_id, results))
    if wanted.acks == 0:
        if failed:
            raise ProtocolError("a Produce with acks=0 failed, see above; closing is the only way to tell")
        return NO_ANSWER
    return [produce.encode_response(version, produce.ProduceResponse(topics))]


def _append(
    broker: Broker, topic: str, index: int, records: Buffer | None, now_ms: int
) -> produce.ProducePartitionResult:
    partition = broker.partition(topic, index)
    if broker.is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the broker alone")
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
    assert not isinstance(records, bytes)
    reach(CrashPoint.BROKER_APPENDING)
    appended = partition.append(records, LEADER_EPOCH, now_ms)
    reach(CrashPoint.BROKER_APPENDED)
    broker.purgatory.appended(topic, index, len(records))
    return produce.ProducePartitionResult(
        index, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _refused(
    broker: Broker, request: Request, topic: str, index: int, error: KafkaError
) -> produce.ProducePartitionResult:
    broker.note_refusal(f"{request.client_id or 'a client'}@{request.client_host}: Produce to {topic}-{index}: {error}")
    wrong = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return produce.ProducePartitionResult(
        index, int(error.code), record_errors=wrong, error_message=error.message or None
    )
