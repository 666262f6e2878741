"""OffsetFetch, versions 1 to 10; several groups from version 8 (KIP-709), topics by id from version 10.

From version 7 a client may require stable offsets: UNSTABLE_OFFSET_COMMIT while a transaction is open (KIP-447).
Absent: nothing.
"""

from __future__ import annotations

import uuid
from typing import Any

from sparkonce.broker_lite.coordinators.offsets import CommittedOffset
from sparkonce.broker_lite.node.authorization import find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.client_errors import fetch_error
from sparkonce.broker_lite.node.group_answers import group_refusal
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID

GROUP_ERROR_FROM = 2
REQUIRE_STABLE_FROM = 7
SEVERAL_GROUPS_FROM = 8
TOPIC_ID_FROM = 10
NOTHING_COMMITTED = CommittedOffset(-1, -1, "", -1)


async def handle(broker: Broker, request: Request) -> Body:
    """Return the committed offsets of groups; -1 where there is none."""
    wanted, version = request.message(), request.version
    require_stable = version >= REQUIRE_STABLE_FROM and bool(wanted.require_stable)
    if version < SEVERAL_GROUPS_FROM:
        return await _one_group(broker, request, wanted, require_stable)
    kind = apis.response_class(request.api_key).OffsetFetchResponseGroup
    groups = []
    for each in wanted.groups:
        error = group_refusal(broker, request, Operation.DESCRIBE, each.group_id) or _member_error(broker, each)
        topics = _Topics(broker, request, kind.OffsetFetchResponseTopics, each.group_id, require_stable)
        found = topics.all(each.topics) if error is ErrorCode.NONE else []
        groups.append(kind(version=version, group_id=each.group_id, topics=found, error_code=int(error)))
    refusals = await broker.groups.partitions.safe([each.group_id for each in groups])
    unsafe = {
        group_id: kind(version=version, group_id=group_id, topics=[], error_code=int(fetch_error(error)))
        for group_id, error in refusals.items()
    }
    return request.response(groups=[unsafe.get(each.group_id, each) for each in groups])


async def _one_group(broker: Broker, request: Request, wanted: Any, require_stable: bool) -> Body:
    """Answer a version with one group; before version 2, errors are returned with each partition only."""
    kind, group_id = apis.response_class(request.api_key).OffsetFetchResponseTopic, wanted.group_id
    topics = _Topics(broker, request, kind, group_id, require_stable)

    def refused(error: ErrorCode) -> Body:
        listed = [topics.topic(each.name, ZERO_UUID, each.partition_indexes, error) for each in wanted.topics or ()]
        return request.response(topics=listed if request.version < GROUP_ERROR_FROM else [], error_code=int(error))

    refusal = group_refusal(broker, request, Operation.DESCRIBE, group_id)
    if refusal is not ErrorCode.NONE:
        return refused(refusal)
    found = topics.all(wanted.topics)
    unsafe = await broker.groups.partitions.safe_error(group_id)
    return request.response(topics=found, error_code=0) if unsafe is ErrorCode.NONE else refused(fetch_error(unsafe))


def _member_error(broker: Broker, wanted: Any) -> ErrorCode:
    """Check the member of version 9 and later (KIP-848); classic groups ignore it."""
    group = broker.groups.consumer_group(wanted.group_id)
    return ErrorCode.NONE if group is None else group.fetch_error(wanted.member_id, wanted.member_epoch)


class _Topics:
    """The topics of one group's response."""

    def __init__(self, broker: Broker, request: Request, kind: Any, group_id: str, require_stable: bool) -> None:
        self._broker = broker
        self._request = request
        self._kind = kind
        self._by_id = request.version >= TOPIC_ID_FROM
        self._committed = broker.groups.offsets.of_group(group_id)
        self._unstable: frozenset[tuple[str, int]] = frozenset()
        if require_stable:
            # The partitions with offsets in an open transaction (KIP-447).
            pending = broker.pending_offsets.keys_of_group(group_id)
            self._unstable = frozenset((key.topic, key.partition) for key in pending)

    def all(self, wanted: Any) -> list[Any]:
        """Return the requested offsets; with None, all committed ones, of topics that the client may see."""
        if wanted is None:
            by_topic: dict[str, list[int]] = {}
            for name, partition in sorted(self._committed):
                by_topic.setdefault(name, []).append(partition)
            seen = [name for name in by_topic if self._may_see(name, log_denial=False)]
            found = [(name, self._id_of(name), by_topic[name]) for name in seen]
            return [self.topic(*each) for each in found if not self._by_id or each[1] != ZERO_UUID]
        topics = []
        for each in wanted:
            if self._by_id:
                topic_id = each.topic_id or ZERO_UUID  # zeros are decoded as None
                topic, error = find_topic(self._broker, self._request, Operation.DESCRIBE, None, topic_id)
                shown = topic.name if topic is not None else None
                topics.append(self.topic(shown, topic_id, each.partition_indexes, error))
            else:
                error = ErrorCode.NONE if self._may_see(each.name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topics.append(self.topic(each.name, ZERO_UUID, each.partition_indexes, error))
        return topics

    def _may_see(self, name: str, *, log_denial: bool = True) -> bool:
        kind = ResourceType.TOPIC
        return authorized(self._broker, self._request, Operation.DESCRIBE, kind, name, log_denial=log_denial)

    def _id_of(self, name: str) -> uuid.UUID:
        topic = self._broker.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def topic(
        self, name: str | None, topic_id: uuid.UUID, indexes: list[int], error: ErrorCode = ErrorCode.NONE
    ) -> Any:
        """Return one topic's partitions; with an error, only that for each."""
        kind, version = self._kind, self._request.version
        several = version >= SEVERAL_GROUPS_FROM
        partition_kind = kind.OffsetFetchResponsePartitions if several else kind.OffsetFetchResponsePartition
        partitions = []
        for index in indexes:
            value, partition_error = self._value(name, topic_id, index, error)
            partition = partition_kind(
                version=version,
                partition_index=index,
                committed_offset=value.offset,
                committed_leader_epoch=value.leader_epoch,
                metadata=value.metadata,
                error_code=int(partition_error),
            )
            partitions.append(partition)
        named = {"topic_id": topic_id} if self._by_id else {"name": name}
        return kind(version=version, partitions=partitions, **named)

    def _value(
        self, name: str | None, topic_id: uuid.UUID, index: int, error: ErrorCode
    ) -> tuple[CommittedOffset, ErrorCode]:
        if error is not ErrorCode.NONE or name is None:
            return NOTHING_COMMITTED, error
        if (name, index) in self._unstable:
            return NOTHING_COMMITTED, ErrorCode.UNSTABLE_OFFSET_COMMIT
        value = self._committed.get((name, index), NOTHING_COMMITTED)
        if self._by_id and not value.is_for(topic_id):
            value = NOTHING_COMMITTED  # an older topic of that name
        return value, ErrorCode.NONE
