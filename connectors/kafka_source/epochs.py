"""Where a log diverges from what was read of it, found by leader epochs (KIP-101, KIP-320).

Every record has the epoch of the leader that wrote it, and epochs increase along a log. A log that was truncated, by an
unclean leader election or a broker restored to an older state, continues in another epoch. So each position has the
epoch of the record before it, and OffsetForLeaderEpoch shows whether the log still has that record: for epoch ``e`` a
leader returns the largest epoch up to ``e`` that its log has, and its end offset.

- It is the same epoch, and ends before the position: the log diverges there from what was read.
- It is an older one: the log has nothing of ``e``, and diverges from what was read no later than where that one ends.
- None, as ``e`` is newer than all that the leader knows: the log was restored to an older state. It diverges no later
  than where the leader's own epoch begins.

To be exact in the last two cases, all epochs of what was read would have to be kept (KIP-279). Records before the
latest possible offset are treated as read, so that nothing is read twice.

The epoch of a record in the middle of a log is found from the leader's own epoch downward: the end of the previous
epoch is where it begins. Requests are made only when a query starts, and for partitions whose leader epoch has changed.

Not detected: a log that was truncated and rewritten in the same epoch. Kafka assigns a new epoch to each leader after a
restart, but two copies of one data directory that are started equally often get the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import EpochEnd, TopicMetadata
from sparkonce.offset_store.offsets import Position, TopicPartition

AskEpochs = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, EpochEnd]]
"""Returns, for a leader epoch of each partition, its end offset; empty if brokers do not support that."""
LeaderEpoch = Callable[[TopicPartition], int]
"""Returns the epoch of a partition's leader, -1 if unknown."""

UNKNOWN = EpochEnd(-1, -1)


class Divergence(NamedTuple):
    """Where a log diverges from what was read of it."""

    offset: int
    is_exact: bool
    """Whether all records before it are those that were read; else it diverges here at the latest."""


MOST_EPOCHS = 100
"""How many epochs of a log are followed back; a position in an older one has no epoch."""


@dataclass(slots=True)
class Epochs:
    """The newest epochs of one log, newest first, as far as they were requested."""

    leader: int
    begins: list[tuple[int, int]] = field(default_factory=list)
    """Epochs, and where each begins."""
    older: int | None = None
    """The epoch before those; None if there is none, or it is unknown."""

    def __post_init__(self) -> None:
        self.older = self.leader

    def take(self, answer: EpochEnd) -> None:
        """Apply the response for the epoch before `older`, whose end is where `older` begins."""
        assert self.older is not None
        begin = 0 if self.older == 0 else answer.offset
        if begin < 0 or (self.begins and begin >= self.begins[-1][1]) or len(self.begins) >= MOST_EPOCHS:
            self.older = None  # the log has no older records, or their epochs are unknown
            return
        self.begins.append((self.older, begin))
        self.older = None if answer.epoch < 0 or begin == 0 else answer.epoch

    def before(self, offset: int) -> tuple[int, int] | None:
        """Return the epoch of the record before an offset and where that epoch begins; None if unknown."""
        return next(((epoch, begin) for epoch, begin in self.begins if begin < offset), None)

    def reaches(self, offset: int) -> bool:
        """Whether `before` needs no more requests."""
        return self.older is None or (bool(self.begins) and self.begins[-1][1] < offset)


def ask_epochs(
    client: Client, known: dict[str, TopicMetadata], wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """Request with `Client.epoch_ends`, which updates ``known``."""
    found = client.epoch_ends({(tp.topic, tp.partition): epoch for tp, epoch in wanted.items()}, known)
    return {tp: found[tp.topic, tp.partition] for tp in wanted if (tp.topic, tp.partition) in found}


class LeadersChangedError(RuntimeError):
    """A leader changed while a batch was planned: the responses may be of different logs."""


class LogEpochs:
    """The leader epochs of the partitions that one query reads."""

    def __init__(self, ask: AskEpochs, leader_epoch: LeaderEpoch) -> None:
        self._ask = ask
        self._leader_epoch = leader_epoch
        self._known: dict[TopicPartition, Epochs] = {}
        self._compared: dict[TopicPartition, tuple[int, int | None, int]] = {}
        """A partition's state at the last check: the leader's epoch, and the position's epoch and offset.

        Not the leader's epoch alone: a plan that goes back to where a log diverges may be discarded, and then the next
        one begins at the position that this log does not have.
        """

    def parted(
        self, positions: Mapping[TopicPartition, Position], doubtful: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, Divergence]:
        """Return the partitions whose logs no longer have what was read, and where each diverges from it.

        That is the position itself if no record before it is known to be new.

        Only checks partitions whose leader epoch, or position, is not that of the last check, and ``doubtful`` ones.
        """
        wanted = {
            tp: position.epoch
            for tp, position in positions.items()
            if position.epoch is not None
            and (tp in doubtful or self._compared.get(tp) != (self._leader_epoch(tp), position.epoch, position.next))
            and self._leader_epoch(tp) >= 0
        }
        answers = dict(self._ask(wanted)) if wanted else {}
        newer = [tp for tp, answer in answers.items() if answer.epoch < 0]
        for tp, begin in self._own_begins(newer).items():
            answers[tp] = EpochEnd(UNKNOWN.epoch, begin)
        found: dict[TopicPartition, Divergence] = {}
        for tp, (epoch, end) in answers.items():
            is_same, read_to = epoch == wanted[tp], positions[tp].next
            if not is_same or end < read_to:
                found[tp] = Divergence(min(end, read_to), is_same)
            if end >= read_to:
                self._compared[tp] = (self._leader_epoch(tp), wanted[tp], read_to)
        return found

    def _own_begins(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the epochs of the leaders themselves begin."""
        while True:
            asked = {tp: self._leader_epoch(tp) - 1 for tp in partitions if self._leader_epoch(tp) > 0}
            answers = self._ask(asked) if asked else {}
            if all(self._leader_epoch(tp) - 1 == epoch for tp, epoch in asked.items()):  # else another leader responded
                return {tp: max(answers.get(tp, UNKNOWN).offset, 0) for tp in partitions}

    def before(
        self, offsets: Mapping[TopicPartition, int], asked_in: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the epoch of the record before each offset, where it is known.

        The offsets were in the logs in the leader epochs ``asked_in``: in these they need not be compared again.

        Raises:
            LeadersChangedError: if a leader epoch has changed.
        """
        wanted = {tp: offset for tp, offset in offsets.items() if offset > 0 and self._leader_epoch(tp) >= 0}
        self._follow(wanted)
        for tp in wanted:
            if self._leader_epoch(tp) != asked_in.get(tp):
                raise LeadersChangedError(f"the leader of {tp} changed while a batch was planned")
        known = {tp: self._known[tp].before(offset) for tp, offset in wanted.items()}
        found = {tp: at[0] for tp, at in known.items() if at is not None}
        self._compared |= {tp: (self._leader_epoch(tp), epoch, wanted[tp]) for tp, epoch in found.items()}
        return found

    def _follow(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Follow each log's epochs down to the record before an offset, one request for all partitions at a time."""
        while True:
            wanted: dict[TopicPartition, int] = {}
            for tp, offset in offsets.items():
                leader = self._leader_epoch(tp)
                if tp not in self._known or self._known[tp].leader != leader:
                    self._known[tp] = Epochs(leader)
                known = self._known[tp]
                if not known.reaches(offset):
                    assert known.older is not None
                    wanted[tp] = known.older - 1
            if not wanted:
                return
            asked = {tp: epoch for tp, epoch in wanted.items() if epoch >= 0}
            answers = self._ask(asked) if asked else {}
            for tp in wanted:
                self._known[tp].take(answers.get(tp, UNKNOWN))
