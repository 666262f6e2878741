"""May this batch be written? A pure comparison of what is stored with what the batch covers.

The same offsets do not mean the same batch: a watermark can run a batch without new records that still writes rows.
Nor does the same batch id: a checkpoint that was restored from a copy counts on from there, and cuts other batches.
So the batch id is compared first, then what the batch was, then the offsets, in this order:

1. this query has stored a batch id at or past ours. `Replay`, the rows are there, if what was stored under our id has
   our fingerprint; `ReusedBatchId` if the batch reaches past the stored offsets; else `DifferentBatch`. One exception:
   of the last batch of a query without state, and of `kafka_once` alone, the offsets are enough if no fingerprint is
   stored, since an earlier version of sparkonce wrote it: if all that it moves ends where it is stored, a `Replay`;
2. a stateful query that never wrote, over offsets that are already stored: `StatefulRestart`, its state is lost;
3. every partition that moves is stored at the batch's start, or not at all: `Fresh`, write it; unless Delta's own
   sink, from which the query moved here with its checkpoint, has written a batch of that number: `WrittenByDelta`; or
   the query's last batch is, in the checkpoint, another one of that number: `DivergedPredecessor`;
4. a query that never wrote, and every partition that moves is stored at or past its end: `AlreadyWritten`; unless it
   also reads other sources, whose rows of this batch are unknown: `ForeignRowsUnknown`;
5. anything else: `Mismatch`, an overlap or a gap.

A query that reads other sources, or has state, may write rows that no offset of ours shows. So each of its batches is
recorded, also one without rows, and 3 detects a copy of its checkpoint that diverged after that batch.
If every batch of a query must be stored, or once ``sparkonce offsets rewind --restore`` has removed batches, the next
one must also have the number that is due, or it is `MissingPredecessor`: the table is older than the checkpoint.

A query that never wrote must account for every partition that it reads, moved or not: where others of a source are
stored, one that is not and begins past offset 0 may have records before its start that were never read. That is
`PartitionNotStored`, in place of 3 and 4. So the first commit of a query also stores the positions of partitions
without new records (`BatchRecord.begun`).

A partition whose log was truncated since it was last read (`OffsetRange.cut_from`) begins below the stored offset: that
must be exactly what had been read before the truncation, so such a batch follows the stored offset as any other does.
A higher stored offset does not prove that the batch is there: it may be from before the truncation. Nor does an equal
one prove that it is not: another query may have written as many of the new records, which the leader epoch shows.

Before 3 says `Fresh` in a table of rows, it looks at each partition of which the application has stored nothing: this
may be another application under a new name, a source under a new name, or a topic that another application has written.
Where another application, or a source that the query does not read, is stored past the batch's start, these records
would be written twice: `CoveredByAnother`. Where the application has nothing at all in the table, and its checkpoint
has read records before the batch, they must be there: by another application that ends where the batch begins, or that
wrote the query's batch before this one. Otherwise the checkpoint is that of another table: `BeginsLate`. Where the
application has others of the same source there, and its checkpoint has read records of this one, that is so too: the
table was put back from a copy without it, or has refused these records. The user can allow each. And where each table
is to be of one application alone, a second one does not begin in it: `TableOfAnother`. The user can allow that where
both read one topic.

Partitions that do not move carry no rows and are not compared: a commit would not conflict on them either. A stateful
query is the exception: a watermark may write rows of records that were read before.

Why 1 keeps rows and state right: a copy of a checkpoint holds the state, and has read the records, of a beginning of
the history that the store knows. Equal fingerprints carry that on from batch to batch: from the same state, inputs and
clock Spark computes the same rows, which are there, and the same state. The first batch that differs is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import InternalError
from sparkonce.offset_store.fingerprint import RING, Fingerprint
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.other_apps import OtherApps
from sparkonce.offset_store.record import BatchRecord, PartitionKey


@dataclass(frozen=True, slots=True)
class Stored:
    """What one snapshot has stored for a batch's query and partitions."""

    version: int
    last_batch_id: int | None
    next_offsets: Mapping[PartitionKey, int]
    fingerprint: Fingerprint | None = None
    """The stored fingerprint of the batch's id, if that is not past the last one; None if unknown."""
    due: int | None = None
    """The last batch that may come next, where none may be left out; only for queries whose offsets do not show it."""
    is_other: bool = False
    """Whether the checkpoint of a later batch has another batch under the number of the last one; only for queries
    whose offsets do not show it."""
    others: OtherApps | None = None
    """What others have in a table of rows for the partitions of which this application has nothing; None if there are
    none, and for other stores."""
    epochs: Mapping[PartitionKey, int] = field(default_factory=dict)
    """The leader epoch of the record before the stored offset, where it is known and the log was truncated."""
    by_delta: int | None = None
    """The last batch of the query that Delta's own sink has written to the table, if that is this one or past it."""

    def precedes(self, key: PartitionKey, extent: OffsetRange) -> bool:
        """Whether a range follows the stored offset, or none is stored."""
        at = self.next_offsets.get(key, extent.follows)
        is_of_that_log = extent.cut_epoch is None or self.epochs.get(key, extent.cut_epoch) == extent.cut_epoch
        return at == extent.follows and is_of_that_log


@dataclass(frozen=True, slots=True)
class Fresh:
    """The batch is not written yet: write it."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The query wrote this batch before, but Spark did not commit it in the checkpoint."""

    stored_batch_id: int


@dataclass(frozen=True, slots=True)
class ReusedBatchId:
    """The query wrote a batch of this number, but not all of this one: its checkpoint is older than the table."""

    key: PartitionKey
    stored: int | None
    extent: OffsetRange
    stored_batch_id: int


@dataclass(frozen=True, slots=True)
class DifferentBatch:
    """The query wrote another batch under this number, or that is unknown: its checkpoint is older than the store."""

    stored_batch_id: int
    is_known: bool
    """Whether the store still knows what was written under this number."""


@dataclass(frozen=True, slots=True)
class MissingPredecessor:
    """The batch follows others that are no longer in the table: its checkpoint is ahead of the table."""

    due: int
    """The batch that must come next."""


@dataclass(frozen=True, slots=True)
class DivergedPredecessor:
    """The batch follows one that has the number of the last stored batch, but is another: its checkpoint diverged."""

    stored_batch_id: int


@dataclass(frozen=True, slots=True)
class AlreadyWritten:
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
        return self.stored >= self.extent.follows  # equal: records of a log that was truncated and read on


@dataclass(frozen=True, slots=True)
class PartitionNotStored:
    """A partition of a new query that begins past records which may not be written, while others are stored."""

    key: PartitionKey
    extent: OffsetRange


@dataclass(frozen=True, slots=True)
class CoveredByAnother:
    """The first batch of a partition by an application, over records that another, or another source, has written."""

    key: PartitionKey
    extent: OffsetRange
    app_id: str
    source: str
    stored: int
    """Where that one ends."""


@dataclass(frozen=True, slots=True)
class TableOfAnother:
    """The first batch of an application, into a table that another one has, which must be alone in it."""

    app_id: str


@dataclass(frozen=True, slots=True)
class BeginsLate:
    """The first batch of an application, or of a partition, whose checkpoint has read records that are not there."""

    key: PartitionKey | None
    """None if no offset of ours shows it, only the number of the batch."""
    extent: OffsetRange | None
    origin: int = 0
    """Where the checkpoint began to read the partition."""
    is_first: bool = True
    """Whether the application has nothing in the table; else nothing of this partition."""


@dataclass(frozen=True, slots=True)
class WrittenByDelta:
    """Delta's own sink has written this batch of the query, or a later one."""

    last_batch: int


@dataclass(frozen=True, slots=True)
class ForeignRowsUnknown:
    """The first partition of a batch whose range is written, but whose rows of other sources may not be."""

    key: PartitionKey
    stored: int
    extent: OffsetRange


Refused = (
    ReusedBatchId
    | DifferentBatch
    | MissingPredecessor
    | DivergedPredecessor
    | StatefulRestart
    | Mismatch
    | PartitionNotStored
    | CoveredByAnother
    | TableOfAnother
    | BeginsLate
    | WrittenByDelta
    | ForeignRowsUnknown
)
Decision = Fresh | Replay | AlreadyWritten | Refused


def decide(stored: Stored, batch: Batch) -> Decision:
    """Decide; see the module's docstring for the order."""
    record, moved = batch.record, batch.record.moved
    if stored.last_batch_id is not None and stored.last_batch_id >= record.batch_id:
        return _written_before(stored, stored.last_batch_id, batch)
    query_is_known = stored.last_batch_id is not None
    if batch.stateful and not query_is_known:
        for key in sorted(record.ranges):
            if key in stored.next_offsets:
                return StatefulRestart(key, stored.next_offsets[key])
    # A stateful query writes rows without new records too: they belong where its other partitions stand.
    compared = record.ranges if batch.stateful else moved
    at_start = {key: stored.precedes(key, extent) for key, extent in compared.items()}
    skipping = None if query_is_known else _partition_not_stored(stored, record)
    if all(at_start.values()):
        if stored.by_delta is not None:
            return WrittenByDelta(stored.by_delta)
        if stored.last_batch_id is not None and stored.is_other:
            return DivergedPredecessor(stored.last_batch_id)
        if stored.due is not None and record.batch_id > stored.due:
            return MissingPredecessor(stored.due)
        return skipping or _under_another_name(stored, batch) or Fresh()
    past_end = (
        extent.cut_from is None and stored.next_offsets.get(key, -1) >= extent.end for key, extent in compared.items()
    )
    if not query_is_known and all(past_end):
        if skipping is None and batch.foreign:
            key = min(compared)
            return ForeignRowsUnknown(key, stored.next_offsets[key], compared[key])
        return skipping or AlreadyWritten()
    first = min(key for key, matches in at_start.items() if not matches)
    return Mismatch(first, stored.next_offsets[first], compared[first], query_is_known)


def check_ranges(batch: Batch, stored: Mapping[PartitionKey, int]) -> None:
    """Check what `Fresh` means, right before a commit: every range begins where the ``stored`` offset ends.

    Raises:
        InternalError: if one does not, or ends before it begins.
    """
    for (source, tp), extent in batch.record.ranges.items():
        at = stored.get((source, tp), extent.follows)
        if extent.end < extent.start or (extent.end > extent.start and at != extent.follows):
            raise InternalError(
                f"{batch}: internal error, nothing was committed: the range [{extent.start}, {extent.end}) of {tp} "
                f"(source {source!r}) follows offset {extent.follows}, but {at} is stored. Report this message "
                "with the files of the batch in the checkpoint's folders offsets and commits"
            )


def _written_before(stored: Stored, last_batch_id: int, batch: Batch) -> Replay | ReusedBatchId | DifferentBatch:
    """Decide about a batch whose number the query has used."""
    record, moved = batch.record, batch.record.moved
    for key in sorted(moved):
        if stored.next_offsets.get(key, -1) < moved[key].end:
            return ReusedBatchId(key, stored.next_offsets.get(key), moved[key], last_batch_id)
    known = stored.fingerprint if last_batch_id - record.batch_id < RING else None
    if known is not None and record.fingerprint is not None:
        is_same = known.matches(record.fingerprint, stateful=batch.stateful)
    else:
        ends_there = all(stored.next_offsets[key] == extent.end for key, extent in moved.items())
        is_same = record.batch_id == last_batch_id and not (batch.stateful or batch.foreign) and ends_there
    return Replay(last_batch_id) if is_same else DifferentBatch(last_batch_id, is_known=known is not None)


def _under_another_name(stored: Stored, batch: Batch) -> CoveredByAnother | TableOfAnother | BeginsLate | None:
    """Compare partitions that an application has not written before with what others have there."""
    others = stored.others
    if others is None:
        return None
    ranges = batch.record.ranges
    for key, ends in sorted(others.next_offsets.items()):
        past = {reader: at for reader, at in ends.items() if at > ranges[key].start}
        if past and not others.may_cover_twice:
            reader = max(past, key=lambda each: (past[each], each))
            return CoveredByAnother(key, ranges[key], *reader, past[reader])
    if others.owner is not None and not (others.may_cover_twice and others.owner in _readers(others)):
        return TableOfAnother(others.owner)
    if others.may_begin_late or not others.keeps_offsets or batch.record.batch_id == 0:
        return None
    handed_over = {key for key, ends in others.next_offsets.items() if ranges[key].follows in ends.values()}
    begun = batch.read_before.keys() - handed_over
    if not others.is_first:
        new = batch.record.moved.keys() - stored.next_offsets.keys() if batch.is_one_of_all else set()
        begun = {key for key in begun & new if key[0] in others.own_sources}
    elif others.last_batch == batch.record.batch_id - 1:
        return None
    for key in sorted(begun):
        return BeginsLate(key, ranges[key], batch.read_before[key], is_first=others.is_first)
    is_recorded = others.is_first and batch.is_one_of_all and not batch.is_determined_by_offsets
    return BeginsLate(None, None) if is_recorded and not handed_over else None


def _readers(others: OtherApps) -> set[str]:
    """Return the applications that have read the new partitions."""
    return {app_id for ends in others.next_offsets.values() for app_id, _ in ends}


def _partition_not_stored(stored: Stored, record: BatchRecord) -> PartitionNotStored | None:
    sources = {source for source, _ in stored.next_offsets}
    for key, extent in sorted(record.ranges.items()):
        if key not in stored.next_offsets and key[0] in sources and extent.start > 0:
            return PartitionNotStored(key, extent)
    return None
