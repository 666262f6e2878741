"""OffsetCommit, versions 2 to 10; from version 10 topics are named by id. Absent: retention by request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from sparkonce.broker_lite.coordinators.offsets import CommittedOffset, java_length
from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.node.authorization import find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import commit_error
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import ZERO_UUID

TOPIC_ID_FROM = 10


async def handle(broker: Broker, request: Request) -> Body:
    """Commit a group's offsets; acknowledged once they are replicated."""
    wanted, version = request.message(), request.version
    refusal = group_refusal(broker, request, Operation.READ, wanted.group_id) or _group_error(broker, wanted, version)
    commits: dict[tuple[str, int], CommittedOffset | None] = {}
    results: list[tuple[Any, list[tuple[int, ErrorCode]]]] = []
    now_ms = broker.clock.now_ms()
    for each in wanted.topics:
        by_id = version >= TOPIC_ID_FROM
        topic_id = (each.topic_id or ZERO_UUID) if by_id else None  # zeros are decoded as None
        topic, topic_error = find_topic(broker, request, Operation.READ, each.name, topic_id)
        errors = []
        for partition in each.partitions:
            error = refusal or topic_error
            if error is ErrorCode.NONE:
                error = _partition_error(broker, topic, partition)
            if error is ErrorCode.NONE and topic is not None:
                commits[topic.name, partition.partition_index] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms,
                    topic.topic_id,
                )
            errors.append((partition.partition_index, error))
        results.append((each, errors))
    failed = _commit(broker, wanted.group_id, commits)
    if commits:
        failed = await broker.groups.partitions.safe_error(wanted.group_id) or failed
    return request.response(topics=[_topic(request, each, errors, failed) for each, errors in results])


def _commit(broker: Broker, group_id: str, commits: dict[tuple[str, int], CommittedOffset | None]) -> ErrorCode:
    if not commits:
        return ErrorCode.NONE
    try:
        broker.groups.commit(group_id, commits)
    except KafkaError as error:
        broker.note_refusal(f"OffsetCommit of group {group_id}: {error}")
        return commit_error(error.code)
    return ErrorCode.NONE


def _topic(request: Request, wanted: Any, errors: list[tuple[int, ErrorCode]], failed: ErrorCode) -> Any:
    types, version = apis.response_class(request.api_key), request.version
    partitions = [
        types.OffsetCommitResponseTopic.OffsetCommitResponsePartition(
            version=version, partition_index=index, error_code=int(failed if error is ErrorCode.NONE else error)
        )
        for index, error in errors
    ]
    name_or_id = {"topic_id": wanted.topic_id} if version >= TOPIC_ID_FROM else {"name": wanted.name}
    return types.OffsetCommitResponseTopic(version=version, partitions=partitions, **name_or_id)


def _group_error(broker: Broker, wanted: Any, version: int) -> ErrorCode:
    return broker.groups.commit_error(
        wanted.group_id,
        wanted.member_id,
        wanted.group_instance_id,
        wanted.generation_id_or_member_epoch,
        lambda: _partitions(broker, wanted, version),
        version,
    )


def _partitions(broker: Broker, wanted: Any, version: int) -> Iterator[tuple[uuid.UUID, int]]:
    for each in wanted.topics:
        topic = None if version >= TOPIC_ID_FROM else broker.topic(each.name)
        topic_id = each.topic_id if topic is None else topic.topic_id
        for partition in each.partitions:
            yield topic_id, partition.partition_index


def _partition_error(broker: Broker, topic: Topic | None, partition: Any) -> ErrorCode:
    assert topic is not None
    if not 0 <= partition.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if java_length(partition.committed_metadata) > broker.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE
