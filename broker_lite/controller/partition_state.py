"""The cluster's state of one partition."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_LEADER: Final = -1
NO_BROKER_EPOCH: Final = -1


class PartitionState(NamedTuple):
    """The cluster's state of one partition; replicas are broker ids, the preferred leader first."""

    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    leader: int
    """NO_LEADER while no replica may lead."""
    leader_epoch: int
    """Increases with every change of the leader."""
    partition_epoch: int
    """Increases with every change; a proposal names the one that it is based on."""
    eligible_leader_replicas: tuple[int, ...] = ()
    """Out of sync, but with all records acknowledged under `min.insync.replicas` (KIP-966)."""
    last_known_leader: int = NO_LEADER
    """The last leader, kept while no replica is in sync: it alone may lead again without an unclean election."""
    adding_replicas: tuple[int, ...] = ()
    """New replicas that a reassignment waits for (KIP-455); also in `replicas`."""
    removing_replicas: tuple[int, ...] = ()
    """Replicas that are removed at the end of the reassignment."""
