"""What leadership means to handlers: a log, the epoch that it is led in, and what a request may say of that epoch.

A standalone broker leads every partition of its topics, in one epoch from its start to its end
(`LogManager.leader_epoch`). A member of a cluster leads what the cluster's image says (`Broker.leading`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.partition_log import PartitionLog
    from sparkonce.broker_lite.replication.leader import PartitionLeader


class Led(NamedTuple):
    """A partition that this broker leads."""

    log: PartitionLog
    leader_epoch: int
    replicas: PartitionLeader | None = None
    """What is known of the followers; None where there cannot be any."""

    def check_epoch(self, told: int) -> None:
        """Compare the epoch that a request names, -1 if it names none (KIP-320).

        Raises:
            KafkaError: FENCED_LEADER_EPOCH if the request is behind, UNKNOWN_LEADER_EPOCH if it is ahead.
        """
        if told > self.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch here is {self.leader_epoch}")
        if 0 <= told < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch} by now")
