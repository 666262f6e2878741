"""AlterPartition v2 and v3: leaders propose in-sync replicas (KIP-497, KIP-903)."""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.controller.controller import InSyncProposal
from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, PartitionState
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.controller_requests import decide, once_written
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import KafkaError

EPOCHS_FROM = 3
"""From this version on, brokers are named with their epochs."""


@once_written
async def handle(broker: Broker, request: Request) -> Body:
    """Handle a leader's proposals of in-sync replicas; answer each partition with its new state, or the error."""
    wanted, version = request.message(), request.version
    proposals = [
        _proposal((topic.topic_id, each.partition_index), each, version)
        for topic in wanted.topics
        for each in topic.partitions
    ]
    code, answers = decide(
        broker, request, lambda controller: controller.alter_in_sync(wanted.broker_id, wanted.broker_epoch, proposals)
    )
    if answers is None:
        return request.response(error_code=int(code), topics=[])
    kind = apis.response_class(request.api_key).TopicData
    topics: dict[Any, list[Any]] = {}
    for proposal, answer in zip(proposals, answers, strict=True):
        topic_id, index = proposal.key
        partition = kind.PartitionData(version=version, partition_index=index, **_altered(answer))
        topics.setdefault(topic_id, []).append(partition)
    return request.response(
        error_code=0,
        topics=[kind(version=version, topic_id=topic_id, partitions=found) for topic_id, found in topics.items()],
    )


def _proposal(key: PartitionKey, partition: Any, version: int) -> InSyncProposal:
    if version < EPOCHS_FROM:
        in_sync = tuple((broker_id, NO_BROKER_EPOCH) for broker_id in partition.new_isr)
    else:
        in_sync = tuple((each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs)
    return InSyncProposal(key, partition.leader_epoch, partition.partition_epoch, in_sync)


def _altered(answer: PartitionState | KafkaError) -> dict[str, Any]:
    if isinstance(answer, KafkaError):
        nobody = {"leader_id": -1, "leader_epoch": -1, "isr": [], "partition_epoch": -1}
        return {"error_code": int(answer.code), **nobody}
    return {
        "error_code": 0,
        "leader_id": answer.leader,
        "leader_epoch": answer.leader_epoch,
        "isr": list(answer.in_sync_replicas),
        "partition_epoch": answer.partition_epoch,
    }
