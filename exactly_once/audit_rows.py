"""Rows counted by their coordinates, to check that every offset of the chains is there exactly once.

Exact, within bounded memory: the covered ranges are cut into pieces, and pieces are grouped into passes of at most
`MAX_OFFSETS_IN_MEMORY` offsets; each pass has a byte for each of its offsets and reads the rows once. Pieces of similar
offsets share a pass, so that a reader which knows the bounds of its files can skip most of them.

Two chains may cover the same offset of a topic's name: two applications that write into one table, or a topic that was
created again. Rows carry neither, so such an offset has one row for each chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sparkonce.exactly_once.audit_findings import Chain
from sparkonce.offset_store.offsets import OffsetRange

MAX_OFFSETS_IN_MEMORY = 64 << 20
PIECE_OFFSETS = 1 << 20
KEPT_EXAMPLES = 5
"""How many ranges of wrong offsets are reported for each partition."""
_MOST = 255
"""Rows of one offset are counted up to this; far fewer chains cover an offset."""

TopicPartitionName = tuple[str, int]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of offsets of one partition, and the expected number of rows of each."""

    key: TopicPartitionName
    start: int
    end: int
    wanted: int


@dataclass(slots=True)
class RowCount:
    """The counts of one partition, within the ranges of its chains."""

    total: int = 0
    distinct: int = 0
    duplicated: int = 0
    """Surplus rows."""
    missing: int = 0
    """Missing rows."""
    duplicated_at: list[OffsetRange] = field(default_factory=list)
    missing_at: list[OffsetRange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pass:
    """The pieces that are counted in one scan of the table."""

    pieces: tuple[Piece, ...]

    @property
    def bounds(self) -> OffsetRange:
        """The lowest counted offset, and the one after the highest."""
        return OffsetRange(min(piece.start for piece in self.pieces), max(piece.end for piece in self.pieces))


def plan_passes(
    chains: Iterable[Chain], by_topic: bool, most: int = MAX_OFFSETS_IN_MEMORY, piece_offsets: int = PIECE_OFFSETS
) -> list[Pass]:
    """Divide the ranges of chains into passes. Without ``by_topic`` rows do not name their topic: it is "" in the keys.

    A topic without a name in any kept commit has no kept range either.
    """
    edges: defaultdict[TopicPartitionName, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for chain in chains:
        for extent in chain.covered():
            at = edges[chain.topic if by_topic else "", chain.partition]
            at[extent.start] += 1
            at[extent.end] -= 1
    pieces = [piece for key, steps in edges.items() for piece in _cut(key, steps, piece_offsets)]
    passes: list[Pass] = []
    taken: list[Piece] = []
    room = most
    for piece in sorted(pieces, key=lambda each: (each.start, each.key)):
        if taken and piece.end - piece.start > room:
            passes.append(Pass(tuple(taken)))
            taken, room = [], most
        taken.append(piece)
        room -= piece.end - piece.start
    return [*passes, Pass(tuple(taken))] if taken else passes


def _cut(key: TopicPartitionName, steps: Mapping[int, int], piece_offsets: int) -> Iterator[Piece]:
    wanted = 0
    for start, end in pairwise(sorted(steps)):
        wanted += steps[start]
        if wanted:
            for begin in range(start, end, piece_offsets):
                yield Piece(key, begin, min(begin + piece_offsets, end), wanted)


@dataclass(slots=True)
class _Lane:
    """The pieces of one partition within a pass, in order, and where each begins in the array of counts."""

    starts: Offsets
    ends: Offsets
    places: Offsets
    total: int = 0


class PassCounter:
    """Counts the rows of one pass."""

    def __init__(self, planned: Pass) -> None:
        self._pieces: defaultdict[TopicPartitionName, list[Piece]] = defaultdict(list)
        for piece in planned.pieces:
            self._pieces[piece.key].append(piece)
        self._lanes: dict[TopicPartitionName, _Lane] = {}
        size = 0
        for key, pieces in self._pieces.items():
            pieces.sort(key=lambda each: each.start)
            lengths = np.array([each.end - each.start for each in pieces], np.int64)
            starts = np.array([each.start for each in pieces], np.int64)
            places = size + np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
            self._lanes[key] = _Lane(starts, starts + lengths, places)
            size += int(lengths.sum())
        self._counts = np.zeros(size, np.uint8)

    def add(self, topic: str, partitions: npt.NDArray[np.int64], offsets: Offsets) -> None:
        """Count rows of one topic ("" if rows do not name it): the partition and offset of each."""
        if not len(offsets):
            return
        order = np.lexsort((offsets, partitions))
        partitions, offsets = partitions[order], offsets[order]
        found, begins = np.unique(partitions, return_index=True)
        for partition, begin, end in zip(found, begins, [*begins[1:], len(offsets)], strict=True):
            lane = self._lanes.get((topic, int(partition)))
            if lane is not None:
                self._count(lane, offsets[begin:end])

    def _count(self, lane: _Lane, offsets: Offsets) -> None:
        piece = np.searchsorted(lane.starts, offsets, side="right") - 1
        inside = (piece >= 0) & (offsets < lane.ends[piece])
        piece, offsets = piece[inside], offsets[inside]
        lane.total += len(offsets)
        place, times = np.unique(lane.places[piece] + offsets - lane.starts[piece], return_counts=True)
        self._counts[place] = np.minimum(self._counts[place] + times, _MOST).astype(np.uint8)

    def collect(self, into: dict[TopicPartitionName, RowCount]) -> None:
        """Add what this pass counted to the counts of its partitions."""
        for key, pieces in self._pieces.items():
            lane, count = self._lanes[key], into.setdefault(key, RowCount())
            count.total += lane.total
            right = 0
            for piece, place in zip(pieces, lane.places, strict=True):
                seen = self._counts[place : place + piece.end - piece.start]
                covered = int(np.minimum(seen, piece.wanted).sum(dtype=np.int64))
                right += covered
                count.distinct += int(np.count_nonzero(seen))
                count.missing += piece.wanted * len(seen) - covered
                _note(count.missing_at, seen < piece.wanted, piece.start)
                _note(count.duplicated_at, seen > piece.wanted, piece.start)
            count.duplicated += lane.total - right


def _note(stretches: list[OffsetRange], wrong: npt.NDArray[np.bool_], start: int) -> None:
    """Add ranges of wrong offsets, up to the limit; one that continues the last is joined to it."""
    if not wrong.any():
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([False], wrong, [False])).astype(np.int8)))
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        extent = OffsetRange(start + int(begin), start + int(end))
        if stretches and stretches[-1].end == extent.start:
            stretches[-1] = OffsetRange(stretches[-1].start, extent.end)
        elif len(stretches) < KEPT_EXAMPLES:
            stretches.append(extent)
        else:
            return
