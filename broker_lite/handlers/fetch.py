"""Fetch, versions 4 to 18, with long polls.

Incremental fetches (KIP-227) are `coordinators/fetch_sessions.py`'s. A read_committed fetch ends at the last stable
offset, and gets the aborted transactions that overlap what it gets. Absent: followers.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_lite.coordinators.fetch_sessions import FINAL_EPOCH, FetchContext
from broker_lite.handlers.authorization import find_topic
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.leader import LEADER_EPOCH
from broker_lite.handlers.purgatory import PartitionKey, Waiter
from broker_lite.handlers.request import Body, Request
from broker_lite.log.partition_log import PartitionLog
from broker_lite.log.segment import Slice
from broker_lite.protocol import fetch
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.security.acls import Operation
from exactly_once.crash_points import CrashPoint, reach

READ_COMMITTED = 1


class _Read(NamedTuple):
    topics: list[fetch.FetchTopicResult]
    size: int
    failed: bool
    keys: tuple[PartitionKey, ...]


def handle(broker: Broker, request: Request) -> Body | None:
    """Answer at once if there is enough, an error, or no patience; else wait."""
    wanted = fetch.decode_request(request.version, request.body)
    context = None
    if wanted.session_epoch != FINAL_EPOCH or wanted.session_id:
        uses_topic_ids = request.version >= fetch.TOPIC_ID_FROM
        context = broker.fetch_sessions.begin(wanted, uses_topic_ids, broker.clock.monotonic_ms())
        if context is not None:
            if context.error:
                return fetch.encode_response(request.version, fetch.FetchResponse([], error_code=int(context.error)))
            wanted = wanted._replace(topics=context.topics)
    deadline_ms = broker.clock.monotonic_ms() + wanted.max_wait_ms
    return _answer_or_wait(broker, request, wanted, context, deadline_ms, final=wanted.max_wait_ms <= 0)


def _answer_or_wait(
    broker: Broker,
    request: Request,
    wanted: fetch.FetchRequest,
    context: FetchContext | None,
    deadline_ms: int,
    final: bool,
) -> Body | None:
    read = _read(broker, request, wanted)
    missing = min(wanted.min_bytes, wanted.max_bytes) - read.size
    if final or missing <= 0 or read.failed or not read.keys:
        if read.size:
            reach(CrashPoint.BROKER_FETCHED)
        if broker.metrics is not None:
            broker.metrics.fetched(read.topics)
        if context is None:
            return fetch.encode_response(request.version, fetch.FetchResponse(read.topics))
        return fetch.encode_response(request.version, context.response(read.topics, broker.clock.monotonic_ms()))

    def retry(final: bool) -> None:
        try:
            body = _answer_or_wait(broker, request, wanted, context, deadline_ms, final)
        except OSError as error:
            broker.note_refusal(f"Fetch by {request.client_id}@{request.client_host}: {error}")
            body = fetch.encode_response(
                request.version, fetch.FetchResponse([], error_code=int(ErrorCode.KAFKA_STORAGE_ERROR))
            )
        if body is not None:
            request.answer(body)

    only_committed = wanted.isolation_level == READ_COMMITTED
    waiter = Waiter(read.keys, missing, deadline_ms, retry, only_committed)
    broker.purgatory.wait(waiter, broker.clock.monotonic_ms())
    request.on_abandoned = lambda: broker.purgatory.cancel(waiter)
    return None


def _read(broker: Broker, request: Request, wanted: fetch.FetchRequest) -> _Read:
    """Read each partition in the order asked for, as far as the request's bytes go."""
    left = min(wanted.max_bytes, broker.config.fetch_max_bytes)
    size, failed, keys = 0, False, []
    only_committed = wanted.isolation_level == READ_COMMITTED
    topics = []
    for name, topic_id, partitions in wanted.topics:
        by_id = request.version >= fetch.TOPIC_ID_FROM
        topic, refusal = find_topic(broker, request, Operation.READ, name, topic_id if by_id else None)
        results = []
        for partition in partitions:
            try:
                if topic is None:
                    raise KafkaError(refusal)
                result, got = _read_partition(broker, topic.name, partition, left, size == 0, only_committed)
                keys.append((topic.name, partition.partition))
                size += got
                left -= got
            except KafkaError as error:
                failed = True
                result = fetch.FetchPartitionResult(partition.partition, int(error.code), -1)
            results.append(result)
        topics.append(fetch.FetchTopicResult(name, topic_id, results))
    return _Read(topics, size, failed, tuple(keys))


def _read_partition(
    broker: Broker, topic: str, wanted: fetch.FetchPartition, left: int, first: bool, only_committed: bool
) -> tuple[fetch.FetchPartitionResult, int]:
    log = broker.partition(topic, wanted.partition)
    if wanted.current_leader_epoch > LEADER_EPOCH:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    # The first partition with records gives a batch whatever its size, or a small fetch would never get past it.
    offset, stable = wanted.fetch_offset, log.last_stable_offset
    most = max(min(wanted.max_bytes, left), 0)
    stretch = log.read(offset, most, first, stable if only_committed else None)
    aborted = None
    if only_committed:
        aborted = _aborted(log, offset, stretch) if stretch.size else []
    # Filled by position: this runs for every partition of every fetch.
    result = fetch.FetchPartitionResult(
        wanted.partition, 0, log.high_watermark, stable, log.log_start_offset, stretch, aborted
    )
    return result, stretch.size


def _aborted(log: PartitionLog, offset: int, stretch: Slice) -> list[fetch.AbortedTransaction]:
    found = log.aborted_transactions(offset, log.upper_bound(offset, stretch))
    return [fetch.AbortedTransaction(each.producer_id, each.first_offset) for each in found]
