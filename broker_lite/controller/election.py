"""The leader of a partition, and the eligible ones: a pure function of states (Kafka's PartitionChangeBuilder).

A clean leader has all acknowledged records. That is any in-sync replica; and, since nothing is acknowledged while
fewer than `min.insync.replicas` are in sync, any replica that was in sync when their number fell below it (KIP-966:
eligible leader replicas), unless it has since restarted after an unclean shutdown and may have lost records. If none of
these is left, the last leader may lead again when it is back; any other replica would be an unclean election, which
loses records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sparkonce.broker_lite.controller.partition_state import NO_LEADER, PartitionState


def next_state(
    state: PartitionState,
    in_sync_replicas: Collection[int],
    may_lead: Callable[[int], bool],
    min_in_sync_replicas: int,
    *,
    unclean: bool = False,
    forgetful: Collection[int] = (),
    prefer_first: bool = False,
) -> PartitionState:
    """Return the state with `in_sync_replicas`, and a suitable leader; `state` itself if nothing changes.

    Args:
        state: the current state.
        in_sync_replicas: the new in-sync replicas, in the order of the replicas.
        may_lead: whether a broker is alive, and not shutting down.
        min_in_sync_replicas: the topic's setting; at most the number of replicas.
        unclean: whether any replica may lead, if no other can.
        forgetful: brokers that may have lost the end of their logs, and so are neither in sync nor eligible.
        prefer_first: whether the first replica must lead if it can, although the current leader is valid.
    """
    in_sync = tuple(each for each in state.replicas if each in in_sync_replicas and each not in forgetful)
    least = min(min_in_sync_replicas, len(state.replicas))
    eligible = _eligible(state, in_sync, least, forgetful)
    leader, clean = _elect(state, in_sync, eligible, may_lead, unclean=unclean, prefer_first=prefer_first)
    if leader != NO_LEADER and leader not in in_sync:
        in_sync = (leader,)
        eligible = _eligible(state, in_sync, least, forgetful) if clean else ()
    changed = state._replace(
        in_sync_replicas=in_sync,
        eligible_leader_replicas=eligible,
        leader=leader,
        leader_epoch=state.leader_epoch + (leader != state.leader),
        last_known_leader=_last_known(state, leader),
    )
    return state if changed == state else changed._replace(partition_epoch=state.partition_epoch + 1)


def _eligible(
    state: PartitionState, in_sync: tuple[int, ...], least: int, forgetful: Collection[int]
) -> tuple[int, ...]:
    if len(in_sync) >= least:
        return ()
    could = {*state.in_sync_replicas, *state.eligible_leader_replicas} - {*in_sync, *forgetful}
    return tuple(each for each in state.replicas if each in could)


def _elect(
    state: PartitionState,
    in_sync: tuple[int, ...],
    eligible: tuple[int, ...],
    may_lead: Callable[[int], bool],
    *,
    unclean: bool,
    prefer_first: bool,
) -> tuple[int, bool]:
    """Return the leader, and whether it is clean: whether it has all acknowledged records."""
    clean = [each for each in state.replicas if each in in_sync and may_lead(each)]
    clean = clean or [each for each in state.replicas if each in eligible and may_lead(each)]
    if state.leader in clean and not (prefer_first and state.replicas[0] in clean):
        return state.leader, True
    if clean:
        return clean[0], True
    if not in_sync and not eligible and may_lead(state.last_known_leader):
        return state.last_known_leader, False
    there = [each for each in state.replicas if may_lead(each)] if unclean else []
    return (there[0], False) if there else (NO_LEADER, True)


def _last_known(state: PartitionState, leader: int) -> int:
    if leader != NO_LEADER:
        return NO_LEADER
    return state.leader if state.leader != NO_LEADER else state.last_known_leader
