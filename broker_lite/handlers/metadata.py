"""Metadata, versions 0 to 13; topics by name or id, made on first use if the broker is set so.

Absent: authorized operations (there are no ACLs yet; the fields carry "unknown").
"""

from __future__ import annotations

import uuid
from typing import Any

from broker_lite.handlers.broker import Broker, Topic
from broker_lite.handlers.produce import LEADER_EPOCH
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.primitives import ZERO_UUID

_ALL_IN_VERSION_0 = 0


def handle(broker: Broker, request: Request) -> Body:
    """Tell of the broker and of the topics asked for."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key)
    everything = wanted.topics is None or (version == _ALL_IN_VERSION_0 and not wanted.topics)
    if everything:
        topics = [_topic(broker, types, version, topic) for topic in broker.topics()]
    else:
        create = wanted.allow_auto_topic_creation or version < 4
        topics = [_wanted_topic(broker, types, version, each, create) for each in wanted.topics]
    node = types.MetadataResponseBroker(
        version=version,
        node_id=broker.config.node_id,
        host=request.endpoint.host,
        port=request.endpoint.port,
        rack=None,
    )
    return request.response(
        brokers=[node], cluster_id=broker.cluster_id, controller_id=broker.config.node_id, topics=topics
    )


def _wanted_topic(broker: Broker, types: Any, version: int, wanted: Any, create: bool) -> Any:
    name, topic_id = wanted.name, wanted.topic_id or ZERO_UUID
    if name is None:
        topic = broker.topic_by_id(topic_id)
        return _topic(broker, types, version, topic, None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    topic, error = broker.topic(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None and create and broker.config.auto_create_topics_enable:
        try:
            topic = broker.create_topic(name, broker.config.num_partitions, {})
        except KafkaError as refused:
            error = refused.code
    return _topic(broker, types, version, topic, name, ZERO_UUID, error)


def _topic(
    broker: Broker,
    types: Any,
    version: int,
    topic: Topic | None,
    name: str | None = None,
    topic_id: uuid.UUID = ZERO_UUID,
    error: ErrorCode = ErrorCode.NONE,
) -> Any:
    if topic is None:
        # A name that is null is only for versions that can say so.
        shown = name if name is not None or version >= 12 else ""
        return types.MetadataResponseTopic(
            version=version, error_code=int(error), name=shown, topic_id=topic_id, partitions=[]
        )
    node = [broker.config.node_id]
    partitions = [
        types.MetadataResponseTopic.MetadataResponsePartition(
            version=version,
            error_code=0,
            partition_index=index,
            leader_id=node[0],
            leader_epoch=LEADER_EPOCH,
            replica_nodes=node,
            isr_nodes=node,
            offline_replicas=[],
        )
        for index in range(len(topic.partitions))
    ]
    return types.MetadataResponseTopic(
        version=version,
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=broker.is_internal(topic.name),
        partitions=partitions,
    )
