"""Who may be using which partition in groups of KIP-848: none is assigned while another member still may use it.

Theory of operation: a member may use what a coordinator has told it, until it says itself that it owns less, or leaves,
or until the log of whoever tells others has it that the group goes on without it. What an answer says is safe, and so
was made up of a part of the one log that all leaders share: which of an answer and a removal came first shows by their
offsets. A coordinator that does not know yet that another one leads may repeat what was true in its own epoch; that
changes nothing, for a member that has heard of a later one, or was removed by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkonce.broker_lite.replication.invariants import Batch, ViolationError
from sparkonce.broker_lite.sim.ownership import Share, Written, has

INVARIANT = "one-holder"


class Told(NamedTuple):
    """What a member is told to own; `end` is where the coordinator's log ended when that was made up."""

    member_id: str
    share: Share
    epoch: int
    end: int


@dataclass(slots=True, eq=False)
class _Holder:
    """What a member may be using."""

    share: Share = frozenset()
    epoch: int = -1
    end: int = -1
    removals: list[Written] = field(default_factory=list)

    def is_out(self, log: Sequence[Batch]) -> bool:
        """Whether a log has it that the member was removed after it was told what it may be using."""
        return any(each.offset >= self.end and has(log, each) for each in self.removals)


class Holders:
    """The members of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, _Holder]] = {}

    def says(self, group_id: str, member_id: str, owned: Share) -> None:
        """Note what a member says that it owns: it does not use the rest any more."""
        self._holder(group_id, member_id).share &= owned

    def removed(self, group_id: str, member_id: str, written: Written) -> None:
        """Note that a member was removed, and where that is written."""
        self._holder(group_id, member_id).removals.append(written)

    def told(self, group_id: str, told: Told, log: Sequence[Batch]) -> None:
        """Check the assignment that a coordinator with that log sends to a member.

        Raises:
            ViolationError: if another one may still be using some of it.
        """
        holder = self._holder(group_id, told.member_id)
        if told.epoch < holder.epoch or any(told.epoch < each.epoch for each in holder.removals):
            return
        for other_id, other in self._groups[group_id].items():
            both = other.share & told.share
            if other is not holder and both and other.epoch <= told.epoch and not other.is_out(log):
                text = f"{told.member_id} is told of {sorted(both)}, which {other_id} may still be using"
                raise ViolationError(INVARIANT, f"group {group_id}: {text}")
        holder.share |= told.share
        holder.epoch, holder.end = told.epoch, max(holder.end, told.end)

    def _holder(self, group_id: str, member_id: str) -> _Holder:
        return self._groups.setdefault(group_id, {}).setdefault(member_id, _Holder())
