"""Invariants of groups: assignments that members receive, and committed offsets.

Theory of operation: each answer about an assignment or offset is checked with the epoch in which its broker leads the
group's partition of `__consumer_offsets`. Its state is safe by then, so every leader of that epoch or a later one
has it. A broker that does not know yet of another leader may still answer with what was true in its own epoch; one that
knows has no such excuse (`KNOWS_BETTER`).

    one-owner          in one generation of a group no partition is assigned to two members, and no member receives
                       two assignments. A static member is the same whatever id it has (KIP-345)
    generations-rise   SyncGroup in an epoch returns no generation older than it returned before, in that
                       epoch or an earlier one; and none of a later epoch has returned an older one
    one-holder         in a group of KIP-848 no partition is assigned while another member may still use it (`Holders`)
    commits-kept       OffsetFetch returns the commit that was written last of those in the coordinator's log; none
                       written before one that was acknowledged, in that epoch or an earlier one, before the fetch
                       arrived. No commit is written in a generation older than SyncGroup has returned

Allowed: a commit without a response, or answered with an error after it was written, may take
effect or not. One that is sent twice may be written twice, the second time after others: then it is the last again, as
long as its generation lasts. The log shows all of that: each write is known by its offset and leader epoch, which no
two writes share, so nothing has to be guessed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sparkonce.broker_lite.coordinators.offsets import OffsetKey
from sparkonce.broker_lite.coordinators.transaction_messages import TopicPartition
from sparkonce.broker_lite.replication.invariants import Batch, ViolationError

KNOWS_BETTER: Final = 1 << 31
"""The epoch of a broker that knows that it does not lead: it must know all earlier answers."""
NOTHING: Final = -1
"""What OffsetFetch returns where nothing was committed."""

Share = frozenset[TopicPartition]


class Written(NamedTuple):
    """Where a commit was appended."""

    epoch: int
    offset: int


@dataclass(slots=True, eq=False)
class Commit:
    """One OffsetCommit; its number is the offset that it commits for each partition."""

    number: int
    group_id: str
    generation: int
    places: tuple[TopicPartition, ...]
    written: list[Written] = field(default_factory=list)
    acknowledged: bool = False

    @property
    def keys(self) -> list[OffsetKey]:
        """The partitions that it commits."""
        return [OffsetKey(self.group_id, *place) for place in self.places]

    def __str__(self) -> str:
        return f"commit {self.number} of generation {self.generation}"


class Groups:
    """The answers about all groups."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self._commits_of: dict[OffsetKey, list[Commit]] = {}
        self._acknowledged: dict[OffsetKey, dict[int, int]] = {}
        """The highest offset of an acknowledged commit, by the epoch in which it was acknowledged."""
        self._shares: dict[tuple[str, int], dict[str, Share]] = {}
        self._generations: dict[str, dict[int, tuple[int, int]]] = {}
        """The oldest and the newest generation that SyncGroup has returned, by epoch."""
        self._removals: dict[str, list[Written]] = {}
        self.deleted: Counter[str] = Counter()
        """How often each group was deleted, by its id."""

    # Assignments.

    def synced(self, group_id: str, epoch: int, generation: int, owner: str, share: Share) -> None:
        """Check what SyncGroup returns to a member.

        Raises:
            ViolationError: one-owner, generations-rise.
        """
        self._check_generation(group_id, epoch, generation)
        shares = self._shares.setdefault((group_id, generation), {})
        for other, its_share in shares.items():
            if (share != its_share) if other == owner else (share & its_share):
                text = f"{other} has heard of {sorted(its_share)}, and {owner} hears of {sorted(share)}"
                raise ViolationError("one-owner", f"group {group_id}, generation {generation}: {text}")
        shares[owner] = share

    def removed(self, group_id: str, written: Written) -> None:
        """Note where a group's deletion was written: that may be lost, and then the group still exists."""
        self._removals.setdefault(group_id, []).append(written)
        self.deleted[group_id] += 1

    def know_by(self, group_id: str, log: Sequence[Batch]) -> None:
        """Forget a group that was deleted by its coordinator's log: generations of the next one start anew."""
        removals = self._removals.get(group_id, [])
        left = [each for each in removals if not has(log, each)]
        if len(left) < len(removals):
            self._removals[group_id] = left
            self._generations.pop(group_id, None)
            for key in [each for each in self._shares if each[0] == group_id]:
                del self._shares[key]

    def _check_generation(self, group_id: str, epoch: int, generation: int) -> None:
        told = self._generations.setdefault(group_id, {})
        for other, (oldest, newest) in told.items():
            if newest > generation if other <= epoch else oldest < generation:
                text = f"generation {generation} is told in epoch {epoch}, generations {oldest} to {newest} in {other}"
                raise ViolationError("generations-rise", f"group {group_id}: {text}")
        if epoch != KNOWS_BETTER:
            told[epoch] = told.get(epoch, (generation, generation))[0], generation

    # Commits.

    def commit(self, group_id: str, generation: int, places: Iterable[TopicPartition]) -> Commit:
        """Return a commit about to be sent."""
        commit = Commit(len(self.commits), group_id, generation, tuple(places))
        self.commits.append(commit)
        for key in commit.keys:
            self._commits_of.setdefault(key, []).append(commit)
        return commit

    def written(self, commit: Commit, written: Written) -> None:
        """Note that a coordinator has appended a commit.

        Raises:
            ViolationError: commits-kept.
        """
        for epoch, (_, newest) in self._generations.get(commit.group_id, {}).items():
            if epoch <= written.epoch and newest > commit.generation:
                text = f"{commit} is written in epoch {written.epoch}, generation {newest} was told in {epoch}"
                raise ViolationError("commits-kept", f"group {commit.group_id}: {text}")
        commit.written.append(written)

    def acknowledged(self, commit: Commit, epoch: int, written: Written) -> None:
        """Note that a commit, as it was appended there, is acknowledged in an epoch."""
        commit.acknowledged = True
        epoch = written.epoch if epoch == KNOWS_BETTER else epoch
        for key in commit.keys:
            offsets = self._acknowledged.setdefault(key, {})
            offsets[epoch] = max(offsets.get(epoch, written.offset), written.offset)

    def read(self, key: OffsetKey, number: int, epoch: int, log: Sequence[Batch]) -> str | None:
        """Return what is wrong with an offset that a coordinator is about to return; None if nothing is.

        `number` is the offset that it has found, `log` the contents of its log then.
        """
        last, offset = NOTHING, -1
        for commit in self._commits_of.get(key, ()):
            for written in commit.written:
                if written.offset > offset and has(log, written):
                    last, offset = commit.number, written.offset
        where = f"group {key.group_id}, {key.topic}-{key.partition}"
        if number != last:
            return f"{where}: commit {number} is told, and the last in the log is {last}"
        needed = max((each for told, each in self._acknowledged.get(key, {}).items() if told <= epoch), default=-1)
        if offset < needed:
            return f"{where}: commit {number} of offset {offset} is told, one of offset {needed} was acknowledged"
        return None

    def left_behind(self) -> Iterator[tuple[Commit, Written]]:
        """Return the written but never acknowledged commits, each with where it was written first."""
        return ((each, each.written[0]) for each in self.commits if each.written and not each.acknowledged)


def has(log: Sequence[Batch], written: Written) -> bool:
    """Whether a log contains a write, by offset and epoch."""
    index = bisect_left(log, written.offset, key=_base_offset)
    return index < len(log) and (log[index].base_offset, log[index].epoch) == (written.offset, written.epoch)


def _base_offset(batch: Batch) -> int:
    return batch.base_offset


def encode_share(places: Iterable[TopicPartition]) -> bytes:
    """Encode a member's assignment as its leader sends it; the coordinator does not interpret it."""
    return " ".join(f"{topic}/{partition}" for topic, partition in sorted(places)).encode()


def decode_share(data: bytes) -> Share:
    """Decode an assignment."""
    pairs = (each.split("/") for each in data.decode().split())
    return frozenset((topic, int(partition)) for topic, partition in pairs)


class Told(NamedTuple):
    """The assignment that a member receives; `end` is where the coordinator's log ended when it was computed."""

    member_id: str
    share: Share
    epoch: int
    end: int
    joins: int = 0
    """How often the member had joined when it was computed."""


@dataclass(slots=True, eq=False)
class _Holder:
    """The partitions that a member may be using."""

    share: Share = frozenset()
    epoch: int = -1
    end: int = -1
    joins: int = 0
    removals: list[Written] = field(default_factory=list)

    def is_out(self, log: Sequence[Batch]) -> bool:
        """Whether a log has the member's removal after its last assignment."""
        return any(each.offset >= self.end and has(log, each) for each in self.removals)


class Holders:
    """The members of all KIP-848 groups: who may be using which partition.

    A member may use what a coordinator has assigned, until it reports itself that it owns less, or leaves, or until the
    log of the answering coordinator has its removal. Assignments in answers are safe, and so were computed from
    a prefix of the one log that all leaders share: their offsets show which of answer and removal came first. A
    coordinator that does not know yet of another leader may repeat what was true in its own epoch; that changes
    nothing for a member that has received a later epoch, or was removed by it.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, _Holder]] = {}

    def joins(self, group_id: str, member_id: str) -> int:
        """Note that a member joins, owning nothing, and expects no earlier answer; return how often it has."""
        holder = self._holder(group_id, member_id)
        holder.share, holder.joins = frozenset(), holder.joins + 1
        return holder.joins

    def joined(self, group_id: str, member_id: str) -> int:
        """Return how often a member has joined."""
        return self._holder(group_id, member_id).joins

    def says(self, group_id: str, member_id: str, owned: Share) -> None:
        """Note what a member reports as owned: it no longer uses the rest."""
        self._holder(group_id, member_id).share &= owned

    def removed(self, group_id: str, member_id: str, written: Written) -> None:
        """Note that a member was removed, and where that is written."""
        self._holder(group_id, member_id).removals.append(written)

    def told(self, group_id: str, told: Told, log: Sequence[Batch]) -> None:
        """Check the assignment that a coordinator with that log sends to a member.

        Raises:
            ViolationError: if another member may still be using some of it.
        """
        holder = self._holder(group_id, told.member_id)
        if told.epoch < holder.epoch or any(told.epoch < each.epoch for each in holder.removals):
            return
        if told.joins < holder.joins:
            return  # to a request that it has given up
        for other_id, other in self._groups[group_id].items():
            both = other.share & told.share
            if other is not holder and both and other.epoch <= told.epoch and not other.is_out(log):
                text = f"{told.member_id} is told of {sorted(both)}, which {other_id} may still be using"
                raise ViolationError("one-holder", f"group {group_id}: {text}")
        if holder.is_out(log):
            holder.share = frozenset()  # it has rejoined, owning nothing
        holder.share |= told.share
        holder.epoch, holder.end = told.epoch, max(holder.end, told.end)

    def _holder(self, group_id: str, member_id: str) -> _Holder:
        return self._groups.setdefault(group_id, {}).setdefault(member_id, _Holder())
