"""Where a log parts from what was read of it, found by leader epochs (KIP-101, KIP-320).

Every record has the epoch of the leader that wrote it, and epochs rise along a log. A log that was cut, by an unclean
election or a broker put back to an older state, is written on in another epoch. So each position has the epoch of the
record before it, and OffsetForLeaderEpoch tells whether the log still has that record: asked for epoch ``e`` a leader
gives the largest epoch up to ``e`` that its log has, and where that one ends.

- It ends before the position: the log parts there from what was read.
- It is another epoch, or none is known: other leaders wrote these offsets. The log parts no later than where the epoch
  begins in which it has the record before the position now.

The epoch of a record in the middle of a log is found from the leader's own epoch downward: the epoch before it tells
where it begins. Both are asked only when a query starts, and for a partition whose leader epoch has changed since.

What cannot be seen: a log that was cut and written anew in the very epoch that it had before. Kafka gives each leader
after a restart another epoch, but two copies of one data directory that are started equally often give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from connectors.kafka_once.client import EpochEnd
from offset_store.offsets import Position, TopicPartition

AskEpochs = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, EpochEnd]]
"""Gives, for a leader epoch of each partition, where it ended; nothing if brokers cannot tell."""
LeaderEpoch = Callable[[TopicPartition], int]
"""Gives the epoch of a partition's leader, -1 if it is not known."""

UNKNOWN = EpochEnd(-1, -1)
MOST_EPOCHS = 100
"""How far down a log's epochs are followed; a position in an older one has no epoch."""


@dataclass(slots=True)
class Epochs:
    """The newest epochs of one log, newest first, as far down as was asked."""

    leader: int
    begins: list[tuple[int, int]] = field(default_factory=list)
    """Epochs, and where each begins."""
    older: int | None = None
    """The epoch before those; None if there is none, or none is known."""

    def __post_init__(self) -> None:
        self.older = self.leader

    def take(self, answer: EpochEnd) -> None:
        """Take the answer for the epoch before `older`, which tells where `older` begins."""
        assert self.older is not None
        begin = 0 if self.older == 0 else answer.offset
        if begin < 0 or (self.begins and begin >= self.begins[-1][1]) or len(self.begins) >= MOST_EPOCHS:
            self.older = None  # the log has no older records, or does not tell their epochs
            return
        self.begins.append((self.older, begin))
        self.older = None if answer.epoch < 0 or begin == 0 else answer.epoch

    def before(self, offset: int) -> tuple[int, int] | None:
        """Return the epoch of the record before an offset and where that epoch begins; None if that is not known."""
        return next(((epoch, begin) for epoch, begin in self.begins if begin < offset), None)

    def reaches(self, offset: int) -> bool:
        """Whether nothing more is to be asked for `before`."""
        return self.older is None or (bool(self.begins) and self.begins[-1][1] < offset)


class LogEpochs:
    """The leader epochs of the partitions that one query reads."""

    def __init__(self, ask: AskEpochs, leader_epoch: LeaderEpoch) -> None:
        self._ask = ask
        self._leader_epoch = leader_epoch
        self._known: dict[TopicPartition, Epochs] = {}
        self._compared: dict[TopicPartition, int] = {}
        """The leader epoch in which a partition's log was last found to have what was read."""

    def parted(
        self, positions: Mapping[TopicPartition, Position], doubtful: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, int]:
        """Return the partitions whose logs have no longer what was read, and the offset at which each parts from it.

        Asks about those whose leader epoch is another than when this was last asked, and those that are ``doubtful``.
        """
        wanted = {
            tp: position.epoch
            for tp, position in positions.items()
            if position.epoch is not None
            and (tp in doubtful or self._leader_epoch(tp) != self._compared.get(tp))
            and self._leader_epoch(tp) >= 0
        }
        found: dict[TopicPartition, int] = {}
        others: list[TopicPartition] = []
        for tp, answer in (self._ask(wanted) if wanted else {}).items():
            if 0 <= answer.offset < positions[tp].next:
                found[tp] = answer.offset
            elif answer.epoch != wanted[tp]:
                others.append(tp)
            else:
                self._compared[tp] = self._leader_epoch(tp)
        return found | self._begin_of_others({tp: positions[tp].next for tp in others})

    def _begin_of_others(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the epoch begins that each log has before an offset now, or before its end if it is shorter."""
        ends = self._ask({tp: self._leader_epoch(tp) for tp in offsets}) if offsets else {}
        asked = {tp: min(offset, max(ends.get(tp, UNKNOWN).offset, 0)) for tp, offset in offsets.items()}
        self._follow(asked)
        found = {tp: self._known[tp].before(offset) for tp, offset in asked.items()}
        return {tp: 0 if at is None else at[1] for tp, at in found.items()}

    def before(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the epoch of the record before each offset, where it is known.

        The offsets must have been in the logs in the leader epochs that are known now.
        """
        wanted = {tp: offset for tp, offset in offsets.items() if offset > 0 and self._leader_epoch(tp) >= 0}
        self._follow(wanted)
        found = {tp: self._known[tp].before(offset) for tp, offset in wanted.items()}
        return {tp: at[0] for tp, at in found.items() if at is not None}

    def _follow(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Follow each log's epochs down to the record before an offset, one question for all partitions at a time."""
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
            first = [tp for tp, epoch in wanted.items() if epoch < 0]
            answers = {
                **self._ask({tp: epoch for tp, epoch in wanted.items() if epoch >= 0}),
                **dict.fromkeys(first, UNKNOWN),
            }
            for tp in wanted:
                self._known[tp].take(answers.get(tp, UNKNOWN))
