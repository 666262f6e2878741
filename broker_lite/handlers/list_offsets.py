"""ListOffsets, versions 1 to 11: earliest, latest, by timestamp, the largest timestamp (KIP-734), local (KIP-405).

With isolation level read_committed the log ends at the last stable offset, for a follower at the log end offset.
Absent: tiered storage, so the earliest local offset is the earliest, and there is no tiered one.
"""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.authorization import check_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.crash_points import BrokerPoint
from sparkonce.broker_lite.node.leader import LedPartition
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import ITEM
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.crash_points import reach
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
MINIMUM_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
LOOKED_UP = 20
"""The units of work to find the batch of a timestamp; reading it is charged by its size."""
NOT_FOUND = (-1, -1)
ISOLATION_FROM = 2
READ_COMMITTED = 1


async def handle(broker: Broker, request: Request) -> Body:
    """Return a timestamp and an offset for each partition."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    only_committed = version >= ISOLATION_FROM and wanted.isolation_level == READ_COMMITTED
    follower = wanted.replica_id >= 0
    topics = []
    for topic in wanted.topics:
        partitions = []
        for each in topic.partitions:
            await broker.turns.spend(request, ITEM if each.timestamp in (LATEST, EARLIEST) else LOOKED_UP)
            partitions.append(await _partition(broker, request, types, topic.name, each, only_committed, follower))
        topics.append(types.ListOffsetsTopicResponse(version=version, name=topic.name, partitions=partitions))
    reach(BrokerPoint.OFFSETS)
    return request.response(topics=topics)


async def _partition(
    broker: Broker, request: Request, types: Any, topic: str, wanted: Any, only_committed: bool, follower: bool
) -> Any:
    error, found, epoch = ErrorCode.NONE, NOT_FOUND, -1
    try:
        check_topic(broker, request, Operation.DESCRIBE, topic)
        led, found = await _look_up(broker, request, topic, wanted, only_committed, follower)
        epoch = _epoch_of(led, wanted.timestamp, found[1])
    except KafkaError as refused:
        error = refused.code
    timestamp, offset = found
    return types.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
        version=request.version,
        partition_index=wanted.partition_index,
        error_code=int(error),
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


async def _look_up(
    broker: Broker, request: Request, topic: str, wanted: Any, only_committed: bool, follower: bool
) -> tuple[LedPartition, tuple[int, int]]:
    version, timestamp = request.version, wanted.timestamp
    led = _leading(broker, version, topic, wanted)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return led, (-1, led.log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return led, NOT_FOUND
    end = _end(led, version, only_committed, follower)
    if timestamp == LATEST:
        return led, (-1, end)
    log = led.log
    steps = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    late = await broker.turns.do(request, steps)
    # Other requests had their turn meanwhile.
    led = _leading(broker, version, topic, wanted)
    end = _end(led, version, only_committed, follower)
    return led, NOT_FOUND if late is None or late.offset >= end else (late.timestamp_ms, late.offset)


def _leading(broker: Broker, version: int, topic: str, wanted: Any) -> LedPartition:
    led = broker.leading(topic, wanted.partition_index)
    if wanted.current_leader_epoch is not None:
        led.check_epoch(wanted.current_leader_epoch)
    if version < MINIMUM_VERSION.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    return led


def _end(led: LedPartition, version: int, only_committed: bool, follower: bool) -> int:
    """Return the offset up to which the client may read."""
    log = led.log
    if led.replicas is not None and not follower and log.high_watermark < led.replicas.epoch_start_offset:
        # A new leader does not know its predecessor's high watermark yet: offsets would seem to go back (KIP-207).
        text = "the new leader's high watermark has not reached the start of its epoch"
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE, text)
    return log.last_stable_offset if only_committed else log.log_end_offset if follower else log.high_watermark


def _epoch_of(led: LedPartition, timestamp: int, offset: int) -> int:
    """Return the leader epoch of the found offset, -1 for none; the log end offset is in the leader's current one."""
    if offset < 0 or led.replicas is None or timestamp == LATEST:
        return led.leader_epoch if offset >= 0 else -1
    return led.log.leader_epochs.epoch_at(offset)
