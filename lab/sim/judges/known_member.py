"""What a KIP-848 member may rely on: its coordinator knows it.

    member-stays    a coordinator knows a member that was sent an epoch, under that epoch, as long as its heartbeats
                    are in time. A coordinator that answers before its state is safe breaks this, or its
                    successor does: it receives a member or an epoch that it has never read

It applies to answers of the coordinator by the durable log, before and after, and over at most one change of leader:
a new leader restarts the sessions of all members. A heartbeat that has timed out may arrive after later ones. It can
move the member to another epoch, or start its rebalance timeout, without the member's knowledge. So answers after a
heartbeat that has timed out do not count until the member joins again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.sim.plan import GroupPlan


class KnownMember:
    """How long one member may rely on the last answer."""

    def __init__(self, plan: GroupPlan) -> None:
        # A member that is late to revoke is not removed before one of these has passed.
        self._limit_ms = min(plan.session_ms, plan.rebalance_ms)
        self._told: tuple[int, int] | None = None
        """When the last answered heartbeat was sent, and the coordinator's leader epoch then."""
        self._unanswered = 0
        """Heartbeats without an answer since it has joined: each may have taken effect, or may yet."""

    def joins(self) -> None:
        """Note that it joins."""
        self._unanswered = 0

    def is_told(self, sent_ms: int, leader_epoch: int) -> None:
        """Note an answer of any coordinator."""
        if not self._unanswered:
            self._told = (sent_ms, leader_epoch)

    def hears_nothing(self) -> None:
        """Note a heartbeat without an answer: whether it took effect is unknown."""
        self._unanswered += 1

    def lapse(self) -> None:
        """Rely on nothing."""
        self._told = None

    def is_known(self, now_ms: int, leader_epoch: int, leads_ms: Mapping[int, int]) -> bool:
        """Whether a coordinator must know the member; `leads_ms`: since when the leader of each epoch leads."""
        if self._told is None:
            return False
        since_ms, told_epoch = self._told
        if leader_epoch == told_epoch + 1 and leader_epoch in leads_ms:
            if leads_ms[leader_epoch] - since_ms >= self._limit_ms:
                return False
            since_ms, told_epoch = leads_ms[leader_epoch], leader_epoch
        return leader_epoch == told_epoch and now_ms - since_ms < self._limit_ms

    def has_epoch(self, *, tells_all: bool) -> bool:
        """Whether its epoch is valid: the current one, or for a heartbeat that tells all the one before it."""
        return self._unanswered <= (1 if tells_all else 0)
