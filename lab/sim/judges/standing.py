"""What a member of KIP-848 may count on: what it has been told that it is, it stays.

    member-stays    a member that its coordinator has told an epoch is known to it, and under that epoch, as long as it
                    is in time. A coordinator that answers what could still be lost breaks that promise, or its
                    successor does: it hears of a member, or of an epoch, that it has never read

It is said of answers of whoever coordinates by the durable log, before and after, and over one change of the leader at
most: a successor lets the sessions of all members begin anew when it leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.sim.plan import GroupPlan


class Standing:
    """How long one member may count on what it was told last."""

    def __init__(self, plan: GroupPlan) -> None:
        # Whoever gives nothing up late is not removed before one of these is over.
        self._limit_ms = min(plan.session_ms, plan.rebalance_ms)
        self._told: tuple[int, int] | None = None
        """When it has sent what was answered last, and the coordinator's leader epoch then."""
        self._unanswered = 0

    def is_told(self, sent_ms: int, leader_epoch: int) -> None:
        """Take an answer of whoever coordinates."""
        self._told = (sent_ms, leader_epoch)
        self._unanswered = 0

    def hears_nothing(self) -> None:
        """Take a heartbeat without an answer: what it has changed is not known."""
        self._unanswered += 1

    def lapse(self) -> None:
        """Count on nothing."""
        self._told = None

    def is_known(self, now_ms: int, leader_epoch: int, leads_ms: Mapping[int, int]) -> bool:
        """Whether a coordinator cannot but know of the member; `leads_ms` is since when which epoch's leader leads."""
        if self._told is None:
            return False
        since_ms, told_epoch = self._told
        if leader_epoch == told_epoch + 1 and leader_epoch in leads_ms:
            if leads_ms[leader_epoch] - since_ms >= self._limit_ms:
                return False
            since_ms, told_epoch = leads_ms[leader_epoch], leader_epoch
        return leader_epoch == told_epoch and now_ms - since_ms < self._limit_ms

    def has_epoch(self) -> bool:
        """Whether its epoch is one that a coordinator that knows it goes by: the present one or that before it."""
        return self._unanswered <= 1
