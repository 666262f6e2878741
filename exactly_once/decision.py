"""May this batch be written? A pure comparison of what is stored with what the batch covers.

The same offsets do not mean the same batch: a watermark can run a batch without new records that still writes rows.
So the batch id is looked at first, then the offsets, in this order:

1. this query has stored a batch id at or past ours: `Replay`, the rows are there; unless the batch reaches past what
   is stored, so its number was given twice: `ReusedBatchId`;
2. a stateful query that never wrote, over offsets that are already stored: `StatefulRestart`, its state is lost;
3. every partition that moves is stored at the batch's start, or not at all: `Fresh`, write it;
4. a query that never wrote, and every partition that moves is stored at or past its end: `AlreadyThere`; unless it
   also reads other sources, whose rows of this batch nobody knows of: `OthersUnknown`;
5. anything else: `Mismatch`, an overlap or a gap.

A query that never wrote must account for every partition that it reads, moved or not: where others of a source are
stored, one that is not and begins behind offset 0 may have records before its start that nobody has read. That is
`NeverStored`, in place of 3 and 4.

Partitions that do not move carry no rows and are not compared: a commit would not conflict on them either. A stateful
query is the exception: a watermark may write rows of records that were read before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactly_once.batch import Batch
from offset_store.offsets import OffsetRange
from offset_store.record import BatchRecord, PartitionKey


@dataclass(frozen=True, slots=True)
class Stored:
    """What one snapshot of the store says about a batch's query and partitions."""

    version: int
    last_batch_id: int | None
    next_offsets: Mapping[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nobody has written this batch: write it."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The query wrote this batch before; Spark did not get to note it down."""

    stored_batch_id: int


@dataclass(frozen=True, slots=True)
class ReusedBatchId:
    """The query wrote a batch of this number, but not all of this one: its checkpoint is older than the table."""

    key: PartitionKey
    stored: int | None
    extent: OffsetRange
    stored_batch_id: int


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """Another query, or this one with an older checkpoint, wrote this range."""


@dataclass(frozen=True, slots=True)
class StatefulRestart:
    """The range is known to the store, and the state that goes with it is gone."""

    key: PartitionKey
    stored: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first partition, in order, whose stored offset is not where the batch starts."""

    key: PartitionKey
    stored: int
    extent: OffsetRange
    query_is_known: bool

    @property
    def is_overlap(self) -> bool:
        """Whether part of the batch is there already; otherwise records before the batch are missing."""
        return self.stored > self.extent.start


@dataclass(frozen=True, slots=True)
class NeverStored:
    """A partition of a new query that begins behind records which may be nowhere, beside partitions that are stored."""

    key: PartitionKey
    extent: OffsetRange


@dataclass(frozen=True, slots=True)
class OthersUnknown:
    """The first partition of a batch whose range is there, which may have rows of other sources that are not."""

    key: PartitionKey
    stored: int
    extent: OffsetRange


Refused = ReusedBatchId | StatefulRestart | Mismatch | NeverStored | OthersUnknown
Decision = Fresh | Replay | AlreadyThere | Refused


def decide(stored: Stored, batch: Batch) -> Decision:
    """Compare; see the module's docstring for the order."""
    record, moved = batch.record, batch.record.moved
    if stored.last_batch_id is not None and stored.last_batch_id >= record.batch_id:
        for key in sorted(moved):
            if stored.next_offsets.get(key, -1) < moved[key].end:
                return ReusedBatchId(key, stored.next_offsets.get(key), moved[key], stored.last_batch_id)
        return Replay(stored.last_batch_id)
    query_is_known = stored.last_batch_id is not None
    if batch.stateful and not query_is_known:
        for key in sorted(record.ranges):
            if key in stored.next_offsets:
                return StatefulRestart(key, stored.next_offsets[key])
    # A stateful query writes rows without new records too: they belong where its other partitions stand.
    compared = record.ranges if batch.stateful else moved
    at_start = {key: stored.next_offsets.get(key, extent.start) == extent.start for key, extent in compared.items()}
    skipping = None if query_is_known else _never_stored(stored, record)
    if all(at_start.values()):
        return skipping or Fresh()
    past_end = (stored.next_offsets.get(key, -1) >= extent.end for key, extent in compared.items())
    if not query_is_known and all(past_end):
        if skipping is None and batch.foreign:
            key = min(compared)
            return OthersUnknown(key, stored.next_offsets[key], compared[key])
        return skipping or AlreadyThere()
    first = min(key for key, matches in at_start.items() if not matches)
    return Mismatch(first, stored.next_offsets[first], compared[first], query_is_known)


def _never_stored(stored: Stored, record: BatchRecord) -> NeverStored | None:
    sources = {source for source, _ in stored.next_offsets}
    for key, extent in sorted(record.ranges.items()):
        if key not in stored.next_offsets and key[0] in sources and extent.start > 0:
            return NeverStored(key, extent)
    return None
