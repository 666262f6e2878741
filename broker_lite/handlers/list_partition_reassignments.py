"""ListPartitionReassignments v0 (KIP-455): the reassignments under way. Absent: nothing."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode


async def handle(broker: Broker, request: Request) -> Body:
    """List the reassignments under way, of the given partitions or of all."""
    wanted, version = request.message(), request.version
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE):
        return request.response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), error_message=None, topics=[])
    asked = None
    if wanted.topics is not None:
        asked = {each.name: frozenset(each.partition_indexes) for each in wanted.topics}
    kind = apis.response_class(request.api_key).OngoingTopicReassignment
    topics = []
    for topic in broker.member.image.topics.values():
        partitions = [
            kind.OngoingPartitionReassignment(
                version=version,
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding_replicas),
                removing_replicas=list(state.removing_replicas),
            )
            for index, state in topic.partitions.items()
            if (state.adding_replicas or state.removing_replicas)
            and (asked is None or index in asked.get(topic.name, ()))
        ]
        if partitions:
            topics.append(kind(version=version, name=topic.name, partitions=partitions))
    return request.response(error_code=0, error_message=None, topics=topics)
