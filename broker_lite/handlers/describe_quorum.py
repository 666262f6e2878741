"""DescribeQuorum, versions 0 to 2 (KIP-595, KIP-836): the controller, and the brokers that can become it.

There is no quorum: the brokers of a cluster share one metadata log, and any of them may be the controller.
So each is returned as a voter, at the offset that this broker has read up to; a fenced one has never been seen. A
standalone broker is returned as the leader of its own decisions since its start.
"""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.log.directories import KRAFT_METADATA_TOPIC
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID

PARTITION = 0
TIMES_FROM = 1
NODES_FROM = 2
NEVER = -1
_NOT_HERE = "This server does not host this topic-partition."


async def handle(broker: Broker, request: Request) -> Body:
    """Describe the only partition of the metadata log; a request for any other is an error."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), topics=[])
    asked = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in wanted.topics]
    if asked == [(KRAFT_METADATA_TOPIC, [PARTITION])]:
        nodes = {"nodes": _nodes(broker, request)} if version >= NODES_FROM else {}
        return request.response(topics=[_topic(request, KRAFT_METADATA_TOPIC, [_log(broker, request)])], **nodes)
    return request.response(
        topics=[_topic(request, name, [_unknown(request, index) for index in indexes]) for name, indexes in asked]
    )


def _log(broker: Broker, request: Request) -> Any:
    image = broker.member.image
    alive = {each.broker_id: not each.fenced for each in image.brokers.values()}
    voters = _voters(broker, request, image.next_offset, alive)
    return _partition(request, image.controller_id, image.controller_epoch, voters, image.next_offset)


def _voters(broker: Broker, request: Request, end: int, alive: dict[int, bool]) -> list[Any]:
    kind, version = apis.response_class(request.api_key).TopicData.PartitionData.ReplicaState, request.version
    now_ms = broker.clock.now_ms()
    found = []
    for node_id, runs in alive.items():
        time_ms = now_ms if runs else NEVER
        times = {"last_fetch_timestamp": time_ms, "last_caught_up_timestamp": time_ms}
        more: dict[str, Any] = times if version >= TIMES_FROM else {}
        if version >= NODES_FROM:
            more["replica_directory_id"] = ZERO_UUID
        found.append(kind(version=version, replica_id=node_id, log_end_offset=end if runs else NEVER, **more))
    return found


def _nodes(broker: Broker, request: Request) -> list[Any]:
    kind, version = apis.response_class(request.api_key).Node, request.version
    image = broker.member.image
    brokers = [(each.broker_id, each.listeners) for each in image.brokers.values()]
    if len(brokers) == 1:  # its address is the one used, as Kafka's combined nodes return their controllers' listener
        brokers = [(image.controller_id, (("CONTROLLER", request.endpoint.host, request.endpoint.port),))]
    return [
        kind(
            version=version,
            node_id=node_id,
            listeners=[
                kind.Listener(version=version, name=name, host=host, port=port) for name, host, port in listeners
            ],
        )
        for node_id, listeners in brokers
    ]


def _topic(request: Request, name: str, partitions: list[Any]) -> Any:
    return apis.response_class(request.api_key).TopicData(
        version=request.version, topic_name=name, partitions=partitions
    )


def _partition(request: Request, leader: int, epoch: int, voters: list[Any], end: int = 0) -> Any:
    return apis.response_class(request.api_key).TopicData.PartitionData(
        version=request.version,
        partition_index=PARTITION,
        error_code=0,
        leader_id=leader,
        leader_epoch=epoch,
        high_watermark=end,
        current_voters=voters,
        observers=[],
    )


def _unknown(request: Request, index: int) -> Any:
    text = {"error_message": _NOT_HERE} if request.version >= NODES_FROM else {}
    return apis.response_class(request.api_key).TopicData.PartitionData(
        version=request.version,
        partition_index=index,
        error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        current_voters=[],
        observers=[],
        **text,
    )
