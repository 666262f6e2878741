"""What the cluster knows of one partition."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_LEADER: Final = -1
NO_BROKER_EPOCH: Final = -1


class PartitionState(NamedTuple):
    """What the cluster knows of one partition; replicas are broker ids, the preferred leader first."""

    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    leader: int
    """NO_LEADER while no replica may lead."""
    leader_epoch: int
    """Rises with every change of the leader."""
    partition_epoch: int
    """Rises with every change; a proposal names the one that it is based on."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """Out of sync, but with all that was ever acknowledged under `min.insync.replicas` (KIP-966)."""
    last_known_leader: int = NO_LEADER
    """The last leader, kept while no replica is in sync: it alone may come back without an unclean election."""
    adding_replicas: tuple[int, ...] = ()
    """Replicas that a move is waiting for, to be in sync (KIP-455); `replicas` has them already."""
    removing_replicas: tuple[int, ...] = ()
    """Replicas that go when it is over."""
