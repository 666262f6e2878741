"""Metadata, versions 0 to 13; topics by name or id, created on first use if configured (KIP-430, KIP-516).

As in Kafka (`AutoTopicCreationManager`), a topic that is being made is unknown in this answer, and in those that follow
until it exists. So is one that cannot be made; the log says why.
"""

from __future__ import annotations

import uuid
from typing import Any

from sparkonce.broker_lite.log.directories import KRAFT_METADATA_TOPIC, check_topic_name
from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.node import cluster_view
from sparkonce.broker_lite.node.authorization import NOT_ASKED, as_set, check_topic, cluster_operations, find_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import FILES, ITEM, WRITTEN
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_cluster, authorized_operations
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import ZERO_UUID

_ALL_IN_VERSION_0 = 0


async def handle(broker: Broker, request: Request) -> Body:
    """Return the brokers and the requested topics; for all topics, those that the client may see."""
    wanted = request.message()
    await broker.member.failover()
    version = request.version
    types = apis.response_class(request.api_key)
    answer = _Answer(broker, request, bool(wanted.include_topic_authorized_operations))
    everything = wanted.topics is None or (version == _ALL_IN_VERSION_0 and not wanted.topics)
    topics = []
    if everything:
        for topic in broker.topics():
            await broker.turns.spend(request, ITEM)
            if authorized(broker, request, Operation.DESCRIBE, ResourceType.TOPIC, topic.name, log_denial=False):
                topics.append(await answer.topic(topic))
    else:
        create = wanted.allow_auto_topic_creation or version < 4
        for each in {(each.name, each.topic_id): each for each in wanted.topics}.values():
            made = answer.created
            topics.append(await answer.wanted_topic(each, create))
            await broker.turns.spend(request, ITEM + (WRITTEN + FILES) * (answer.created - made))
    brokers = [
        types.MetadataResponseBroker(version=version, node_id=each.node_id, host=each.host, port=each.port, rack=None)
        for each in cluster_view.nodes(broker.member, request)
    ]
    with_operations = bool(wanted.include_cluster_authorized_operations)
    return request.response(
        brokers=brokers,
        cluster_id=broker.cluster_id,
        controller_id=broker.member.image.controller_id,
        topics=topics,
        authorized_operations=as_set(cluster_operations(broker, request) if with_operations else NOT_ASKED),
    )


class _Answer:
    """The topics of one response."""

    def __init__(self, broker: Broker, request: Request, with_operations: bool) -> None:
        self._broker = broker
        self._request = request
        self._types = apis.response_class(request.api_key)
        self._with_operations = with_operations
        self.created = 0
        """How many requested topics have been created."""

    async def wanted_topic(self, wanted: Any, create: bool) -> Any:
        """Describe a topic that the client named, by its name or, where that is null, by its id."""
        broker, request, name = self._broker, self._request, wanted.name
        if name is None:
            topic_id = wanted.topic_id or ZERO_UUID
            topic, error = find_topic(broker, request, Operation.DESCRIBE, None, topic_id)
            return await self.topic(topic) if topic is not None else self._refused(None, topic_id, error)
        topic, error = find_topic(broker, request, Operation.DESCRIBE, name)
        if topic is not None:
            return await self.topic(topic)
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not broker.member.registered:
            # It may not have read of the topic yet. Kafka does not listen before; to librdkafka, unknown may be final.
            return self._refused(name, ZERO_UUID, ErrorCode.LEADER_NOT_AVAILABLE)
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            create = create and broker.config.auto_create_topics_enable
            try:
                if create:
                    self._check_create(name)
                if name != KRAFT_METADATA_TOPIC:  # as unknown to clients as any topic that does not exist
                    check_topic_name(name)
            except KafkaError as refused:
                error = refused.code
            else:
                if create:
                    self._create(name)
        return self._refused(name, ZERO_UUID, error)

    def _create(self, name: str) -> None:
        self.created += 1
        try:
            self._broker.request_topic(name)
        except KafkaError as refused:
            text = f"topic {name} is not created, though a client asks for it: {refused.code.name}"
            self._broker.note_refusal(f"{text} ({refused.message})" if refused.message else text)

    def _check_create(self, name: str) -> None:
        if not authorized_on_cluster(self._broker, self._request, Operation.CREATE, log_denial=False):
            check_topic(self._broker, self._request, Operation.CREATE, name)

    def _refused(self, name: str | None, topic_id: uuid.UUID, error: ErrorCode) -> Any:
        version = self._request.version
        # Only newer versions can have a null name.
        shown = name if name is not None or version >= 12 else ""
        return self._types.MetadataResponseTopic(
            version=version,
            error_code=int(error),
            name=shown,
            topic_id=topic_id,
            is_internal=error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._broker.is_internal(name or ""),
            partitions=[],
        )

    async def topic(self, topic: Topic) -> Any:
        """Describe a topic."""
        broker, version, types = self._broker, self._request.version, self._types
        partitions = []
        for index, view in cluster_view.partitions(broker.member.image, topic, range(topic.partition_count)):
            partition = types.MetadataResponseTopic.MetadataResponsePartition(
                version=version,
                error_code=int(view.error),
                partition_index=index,
                leader_id=view.leader,
                leader_epoch=view.leader_epoch,
                replica_nodes=view.replicas,
                isr_nodes=view.in_sync,
                offline_replicas=view.offline,
            )
            partitions.append(partition)
            await broker.turns.spend(self._request, ITEM)
        operations = NOT_ASKED
        if self._with_operations:
            operations = authorized_operations(broker, self._request, ResourceType.TOPIC, topic.name)
        return types.MetadataResponseTopic(
            version=version,
            error_code=0,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=broker.is_internal(topic.name),
            partitions=partitions,
            authorized_operations=as_set(operations),
        )
