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
    """Increases with every change of the leader, and with every removal of a replica."""
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


def broken_invariant(before: PartitionState | None, after: PartitionState) -> tuple[str, str] | None:
    """Return the invariant (leader-in-sync, epochs-rise) that a state, or its change, breaks, and how; None if none.

    `before` is the state that `after` directly follows, if it is known.
    """
    in_sync, eligible = after.in_sync_replicas, after.eligible_leader_replicas
    if after.leader != NO_LEADER and after.leader not in in_sync:
        return "leader-in-sync", f"broker {after.leader} leads, in sync are {sorted(in_sync)}"
    if not set(in_sync).isdisjoint(eligible) or not {*in_sync, *eligible} <= set(after.replicas):
        return "leader-in-sync", f"{sorted(in_sync)} in sync, {sorted(eligible)} eligible: {after.replicas}"
    if before is not None:
        rises = after.leader_epoch - before.leader_epoch
        same_leader = after.leader == before.leader
        has_removed = not set(before.replicas) <= set(after.replicas)
        # Controllers of former versions removed a replica within an epoch.
        is_right = rises == 0 or (rises > 0 and has_removed) if same_leader else rises > 0
        if not is_right or after.partition_epoch <= before.partition_epoch:
            return "epochs-rise", f"from {before} to {after}"
    return None
