"""A batch for a target that may be ahead of the batch's start: the part that it does not have yet.

Two targets of one query, dead letters and rows, each have their own chain of offsets, and the first is finished
before the second. A crash between the two leaves the first ahead. While the checkpoint exists, the same batch
is replayed and recognized by its number. Without it a query begins at the offsets of the second target, with other
batch borders, so those of the first may lie anywhere in its batches, or past their ends. Then each partition of the
batch begins, for the first target, at the offset stored there: ``min(max(start, stored), end)``. Earlier records are
already there, and are skipped.

That is only possible for rows that name the record they come from: dead letters do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.decision import Stored
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import PartitionKey

Starts = Mapping[PartitionKey, int]
"""Where partitions of a batch begin for a target that is ahead of them; empty if it is ahead of none."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A partition of which the target lacks records before the batch."""

    key: PartitionKey
    stored: int
    extent: OffsetRange


def clip(batch: Batch, stored: Stored) -> dict[PartitionKey, int] | Behind:
    """Return where the batch begins for a target, from the offsets stored there.

    A batch that the query has written there before is not clipped: its number shows that it is a replay. Nor is one
    behind a cut of the log (`OffsetRange.cut_from`), unless the leader epoch shows that what is stored is of the log as
    it is now: a higher offset may be from before the cut. The decision then refuses the batch.
    """
    record = batch.record
    if stored.last_batch_id is not None and stored.last_batch_id >= record.batch_id:
        return {}
    starts = {}
    for key, extent in sorted(record.moved.items()):
        at = stored.next_offsets.get(key, extent.follows)
        may_be_of_cut_log = extent.cut_from is not None and stored.epochs.get(key, -1) != extent.epoch
        if stored.precedes(key, extent) or may_be_of_cut_log:
            continue
        if at < extent.start:
            return Behind(key, at, extent)
        if at > extent.start:
            starts[key] = min(at, extent.end)
    return starts


def clipped(batch: Batch, starts: Starts) -> Batch:
    """Return the batch for the target that ``starts`` belongs to, which may have missed earlier batches."""
    ranges = {
        key: OffsetRange(starts[key], extent.end, extent.epoch) if key in starts else extent
        for key, extent in batch.record.ranges.items()
    }
    return replace(batch, record=replace(batch.record, ranges=ranges), is_one_of_all=False)


def still_there(starts: Starts, stored: Stored) -> bool:
    """Whether the target has all skipped records, by a later snapshot than the one passed to `clip`."""
    return all(stored.next_offsets.get(key, -1) >= start for key, start in starts.items())
