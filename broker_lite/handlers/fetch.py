"""Fetch, versions 4 to 18, with long polls.

Incremental fetches (KIP-227) are in `node/fetch_sessions.py`. A read_committed fetch ends at the last stable offset,
and returns the aborted transactions that overlap its records. Consumers read up to the high watermark, followers up to
the log end offset; if a fetch's last epoch ended earlier here, the diverging epoch is returned instead of records
(KIP-320, KIP-595). Absent: reading from followers (KIP-392).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.segment import Slice
from sparkonce.broker_lite.node.authorization import find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.crash_points import BrokerPoint
from sparkonce.broker_lite.node.fetch_sessions import FINAL_EPOCH, FetchContext
from sparkonce.broker_lite.node.leader import LedPartition, endpoints_of_leaders, leader_hint
from sparkonce.broker_lite.node.purgatory import PartitionKey
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.crash_points import reach
from sparkonce.kafka.protocol import fetch
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkonce.broker_lite.log.leader_epochs import EpochEnd

READ_COMMITTED = 1


class _Read(NamedTuple):
    topics: list[fetch.FetchTopicResult]
    size: int
    failed: bool
    keys: tuple[PartitionKey, ...]


async def handle(broker: Broker, request: Request) -> Body:
    """Answer at once if there is enough, an error, or no wait time; else wait, and read again."""
    wanted = fetch.decode_request(request.version, request.body)
    request.release_body()  # nothing of it lies in the read buffer any more, and a long poll keeps none
    is_follower = wanted.replica_id >= 0
    if is_follower and not authorized_on_cluster(broker, request, Operation.CLUSTER_ACTION):
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return fetch.encode_response(request.version, fetch.FetchResponse([], error_code=code))
    context = None
    if wanted.session_epoch != FINAL_EPOCH or wanted.session_id:
        uses_topic_ids = request.version >= fetch.TOPIC_ID_FROM
        context = broker.fetch_sessions.begin(wanted, uses_topic_ids, broker.clock.monotonic_ms())
        if context is not None:
            if context.error:
                return fetch.encode_response(request.version, fetch.FetchResponse([], error_code=int(context.error)))
            wanted = wanted._replace(topics=context.topics)
    deadline_ms = broker.clock.monotonic_ms() + wanted.max_wait_ms
    is_over = wanted.max_wait_ms <= 0
    least = min(wanted.min_bytes, wanted.max_bytes)
    if is_follower:
        idle = broker.cluster.follower_fetches.fetched(wanted, uses_topic_ids=request.version >= fetch.TOPIC_ID_FROM)
        if idle and least > 0 and not is_over:
            is_over = await _wait(broker, wanted, deadline_ms, idle, least)
    while True:
        if is_follower:
            follower_fetches = broker.cluster.follower_fetches
            if is_over and context is not None and follower_fetches.is_quiet(wanted, context.partitions()):
                return fetch.encode_response(request.version, context.response([], broker.clock.monotonic_ms()))
            follower_fetches.read(wanted.replica_id)
        read = _read(broker, request, wanted)
        missing = least - read.size
        if is_over or missing <= 0 or read.failed or not read.keys:
            return _answer(broker, request, context, read)
        keys = read.keys
        del read  # the results of all partitions, while it waits
        is_over = await _wait(broker, wanted, deadline_ms, keys, missing)


async def _wait(
    broker: Broker, wanted: fetch.FetchRequest, deadline_ms: int, keys: Collection[PartitionKey], missing: int
) -> bool:
    """Wait for that many bytes in these partitions; return whether the wait time is over."""
    purgatory = broker.cluster.purgatory if wanted.replica_id < 0 else broker.cluster.followers
    wait_ms = deadline_ms - broker.clock.monotonic_ms()
    return await purgatory.wait(keys, missing, wait_ms, wanted.isolation_level == READ_COMMITTED)


def _answer(broker: Broker, request: Request, context: FetchContext | None, read: _Read) -> Body:
    if read.size:
        reach(BrokerPoint.FETCHED)
    if broker.metrics is not None:
        broker.metrics.fetched(read.topics)
    response = fetch.FetchResponse(read.topics)
    if context is not None:
        response = context.response(read.topics, broker.clock.monotonic_ms())
    if read.failed:
        response = _with_endpoints(broker, request, response)
    return fetch.encode_response(request.version, response)


def _with_endpoints(broker: Broker, request: Request, response: fetch.FetchResponse) -> fetch.FetchResponse:
    """Add the endpoints of the leaders that a response hints at."""
    hints = [each.current_leader for topic in response.topics for each in topic.partitions if each.current_leader]
    nodes = endpoints_of_leaders(broker.member.image, broker.member.broker_id, request.endpoint, hints)
    return response._replace(node_endpoints=nodes)


def _read(broker: Broker, request: Request, wanted: fetch.FetchRequest) -> _Read:
    """Read each partition in the requested order, up to the request's byte limit."""
    left = min(wanted.max_bytes, broker.config.fetch_max_bytes)
    size, failed, keys = 0, False, []
    only_committed = wanted.isolation_level == READ_COMMITTED
    follower = wanted.replica_id >= 0
    topics = []
    for name, topic_id, partitions in wanted.topics:
        by_id = request.version >= fetch.TOPIC_ID_FROM
        find = _find_for_follower if follower else find_topic
        topic, refusal = find(broker, request, Operation.READ, name, topic_id if by_id else None)
        results = []
        for partition in partitions:
            try:
                if topic is None:
                    raise KafkaError(refusal)
                result, got = _read_partition(broker, topic.name, partition, left, size == 0, only_committed, follower)
                if result.diverging_epoch is not None:
                    failed = True
                keys.append((topic.name, partition.partition))
                size += got
                left -= got
            except (KafkaError, OSError) as error:
                failed = True
                result = _refused(broker, partition.partition, topic, _noted(broker, error))
            results.append(result)
        topics.append(fetch.FetchTopicResult(name, topic_id, results))
    return _Read(topics, size, failed, tuple(keys))


def _noted(broker: Broker, error: KafkaError | OSError) -> KafkaError:
    """Note a disk error; return the partition's error, so that the others are still answered."""
    broker.logs.note_failure(error)
    return error if isinstance(error, KafkaError) else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def _find_for_follower(
    broker: Broker, _request: Request, _operation: Operation, name: str, topic_id: uuid.UUID | None
) -> tuple[Topic | None, ErrorCode]:
    """Return a topic for another broker, which may read all topics."""
    if topic_id is not None:
        return broker.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    return broker.topic(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(broker: Broker, index: int, topic: Topic | None, error: KafkaError) -> fetch.FetchPartitionResult:
    hint = None
    if topic is not None and error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        hint = leader_hint(broker.member.image, topic.name, index)
    return fetch.FetchPartitionResult(index, int(error.code), -1, current_leader=hint)


def _read_partition(
    broker: Broker,
    topic: str,
    wanted: fetch.FetchPartition,
    left: int,
    first: bool,
    only_committed: bool,
    follower: bool,
) -> tuple[fetch.FetchPartitionResult, int]:
    log, leader_epoch, replicas = broker.leading(topic, wanted.partition)
    if 0 <= wanted.current_leader_epoch != leader_epoch:
        LedPartition(log, leader_epoch).check_epoch(wanted.current_leader_epoch)
    # The first partition with records returns a batch of any size, or a small fetch would never get past it.
    offset, stable = wanted.fetch_offset, log.last_stable_offset
    limit = stable if only_committed else None
    if replicas is not None:
        if wanted.last_fetched_epoch >= 0:
            parted = replicas.check_fetch(-1, wanted.last_fetched_epoch, offset)
            if parted is not None:
                return _diverging(wanted.partition, log, parted), 0
        limit = None if follower else stable if only_committed else log.high_watermark
    most = max(min(wanted.max_bytes, left), 0)
    stretch = log.read(offset, most, first, limit)
    aborted = None
    if only_committed:
        aborted = _aborted(log, offset, stretch) if stretch.size else []
    # Positional arguments, for speed.
    result = fetch.FetchPartitionResult(
        wanted.partition, 0, log.high_watermark, stable, log.log_start_offset, stretch, aborted
    )
    return result, stretch.size


def _diverging(index: int, log: PartitionLog, parted: EpochEnd) -> fetch.FetchPartitionResult:
    """Return the diverging epoch: the end of the log that matches ours (KIP-595)."""
    end = fetch.EpochEndOffset(parted.epoch, parted.end_offset)
    return fetch.FetchPartitionResult(
        index, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset, b"", None, diverging_epoch=end
    )


def _aborted(log: PartitionLog, offset: int, stretch: Slice) -> list[fetch.AbortedTransaction]:
    found = log.aborted_transactions(offset, log.upper_bound(offset, stretch))
    return [fetch.AbortedTransaction(each.producer_id, each.first_offset) for each in found]
