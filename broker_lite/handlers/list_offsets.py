"""ListOffsets, versions 1 to 11: earliest, latest, by timestamp, the largest timestamp (KIP-734), local (KIP-405).

With isolation level read_committed the log ends at the last stable offset. Absent: tiered storage, so the earliest
local offset is the earliest, and there is no tiered one.
"""

from __future__ import annotations

from typing import Any

from broker_lite.handlers.authorization import check_topic
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.leader import LEADER_EPOCH
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.security.acls import Operation
from exactly_once.crash_points import CrashPoint, reach

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
MINIMUM_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NOT_FOUND = (-1, -1)
ISOLATION_FROM = 2
READ_COMMITTED = 1


def handle(broker: Broker, request: Request) -> Body:
    """Give a timestamp and an offset for each partition."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    only_committed = version >= ISOLATION_FROM and wanted.isolation_level == READ_COMMITTED
    topics = [
        types.ListOffsetsTopicResponse(
            version=version,
            name=topic.name,
            partitions=[
                _partition(broker, request, types, topic.name, each, only_committed) for each in topic.partitions
            ],
        )
        for topic in wanted.topics
    ]
    reach(CrashPoint.BROKER_OFFSETS)
    return request.response(topics=topics)


def _partition(broker: Broker, request: Request, types: Any, topic: str, wanted: Any, only_committed: bool) -> Any:
    error, found = ErrorCode.NONE, NOT_FOUND
    try:
        check_topic(broker, request, Operation.DESCRIBE, topic)
        found = _look_up(broker, request.version, topic, wanted, only_committed)
    except KafkaError as refused:
        error = refused.code
    timestamp, offset = found
    return types.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
        version=request.version,
        partition_index=wanted.partition_index,
        error_code=int(error),
        timestamp=timestamp,
        offset=offset,
        leader_epoch=LEADER_EPOCH if offset >= 0 else -1,
    )


def _look_up(broker: Broker, version: int, topic: str, wanted: Any, only_committed: bool) -> tuple[int, int]:
    log = broker.partition(topic, wanted.partition_index)
    end = log.last_stable_offset if only_committed else log.high_watermark
    if (wanted.current_leader_epoch or LEADER_EPOCH) > LEADER_EPOCH:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    timestamp: int = wanted.timestamp
    if version < MINIMUM_VERSION.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == LATEST:
        return -1, end
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    return NOT_FOUND if found is None or found.offset >= end else (found.timestamp_ms, found.offset)
