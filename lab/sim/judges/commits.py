"""What members of groups commit, and whether OffsetFetch returns it: `commits-kept` as seen by clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.sim.judges.ownership import NOTHING
from sparkonce.broker_lite.replication.invariants import ViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition


@dataclass(slots=True, eq=False)
class Commit:
    """One OffsetCommit; its number is the offset that it commits for each partition."""

    number: int
    sent_ms: int
    acknowledged_ms: int | None = None
    answered_ms: int | None = None
    is_stray: bool = False
    """Whether it got no response: then it may be written at any time."""


@dataclass(slots=True)
class Commits:
    """All commits of all groups."""

    count: int = 0
    of: dict[tuple[str, TopicPartition], dict[int, Commit]] = field(default_factory=dict)
    have_aged: bool = False
    """Whether clocks are past the retention: offsets of topics that no member subscribes to may have expired."""

    def send(self, group_id: str, places: Iterable[TopicPartition], now_ms: int) -> Commit:
        """Return a commit about to be sent."""
        commit = Commit(self.count, now_ms)
        self.count += 1
        for place in places:
            self.of.setdefault((group_id, place), {})[commit.number] = commit
        return commit

    def check(self, group_id: str, place: TopicPartition, number: int, asked_ms: int) -> None:
        """Check what OffsetFetch has returned for a request sent at `asked_ms`.

        Raises:
            ViolationError: commits-kept.
        """
        if number == NOTHING and self.have_aged:
            return
        known = self.of.get((group_id, place), {})
        where = f"group {group_id}, {place[0]}-{place[1]}"
        if number != NOTHING and number not in known:
            raise ViolationError("commits-kept", f"{where}: commit {number} is returned, which nobody has sent")
        told = known.get(number)
        for commit in known.values():
            if commit.acknowledged_ms is None or commit.acknowledged_ms >= asked_ms or commit is told:
                continue
            if told is None or (
                not told.is_stray and told.answered_ms is not None and told.answered_ms < commit.sent_ms
            ):
                text = f"commit {number} is returned, and {commit.number} was acknowledged before"
                raise ViolationError("commits-kept", f"{where}: {text}")
