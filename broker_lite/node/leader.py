"""A partition's leadership for handlers: its log, the leader epoch, and the check of a request's epoch.

A client that asked the wrong broker gets the current leader as a hint, without a metadata request (KIP-951).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.produce import LeaderHint, NodeEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkonce.broker_lite.controller.image import ClusterImage
    from sparkonce.broker_lite.log.partition_log import PartitionLog
    from sparkonce.broker_lite.node.request import Endpoint
    from sparkonce.broker_lite.replication.leader import PartitionLeader


class LedPartition(NamedTuple):
    """A partition that this broker leads."""

    log: PartitionLog
    leader_epoch: int
    replicas: PartitionLeader | None = None
    """The state of the followers; None without followers: what is appended is committed at once."""

    def check_epoch(self, told: int) -> None:
        """Check the leader epoch of a request, -1 if it has none (KIP-320).

        Raises:
            KafkaError: FENCED_LEADER_EPOCH if the request is behind, UNKNOWN_LEADER_EPOCH if it is ahead.
        """
        if told > self.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch here is {self.leader_epoch}")
        if 0 <= told < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch} by now")


def leader_hint(image: ClusterImage, topic: str, index: int) -> LeaderHint | None:
    """Return the current leader of a partition; None if there is none."""
    found = image.topic(topic)
    state = None if found is None else found.partitions.get(index)
    return None if state is None or state.leader not in image.brokers else LeaderHint(state.leader, state.leader_epoch)


def endpoints_of_leaders(
    image: ClusterImage, broker_id: int, endpoint: Endpoint, hints: Iterable[LeaderHint]
) -> Sequence[NodeEndpoint]:
    """Return the addresses of the brokers that hints name, at their listeners of the same name as `endpoint`."""
    leaders = {hint.leader_id for hint in hints}
    ours = image.brokers.get(broker_id)
    if not leaders or ours is None:
        return ()
    names = {name for name, host, port in ours.listeners if (host, port) == endpoint}
    return [
        NodeEndpoint(node_id, host, port)
        for node_id in sorted(leaders)
        for name, host, port in image.brokers[node_id].listeners
        if name in names
    ]
