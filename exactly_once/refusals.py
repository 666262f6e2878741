"""Error messages for batches that must not be written: what was found, possible causes, and what to do.

`exactly_once.decision` decides; the messages here name offsets, commits and commands.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.decision import (
    BeginsLate,
    CoveredByAnother,
    Decision,
    DifferentBatch,
    DivergedPredecessor,
    ForeignRowsUnknown,
    Mismatch,
    MissingPredecessor,
    PartitionNotStored,
    Refused,
    ReusedBatchId,
    StatefulRestart,
    TableOfAnother,
    WrittenByDelta,
)
from sparkonce.exactly_once.errors import (
    DeliveryError,
    FencedError,
    OffsetMismatchError,
    StatefulRestartError,
)
from sparkonce.offset_store.administration import CommitEntry
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.fingerprint import RING
from sparkonce.offset_store.record import BatchRecord, CommittedBatch, Writes
from sparkonce.offset_store.store import Snapshot

HISTORY_FOR_ERRORS = 200
"""How many commits an error searches for the one that it should name."""


@dataclass(frozen=True, slots=True)
class StoreName:
    """Where the offsets are stored, for messages: as text, and as the source's option ``offsetStore``."""

    name: str
    spec: str | None
    """None if the source cannot read them there."""
    holds_rows: bool = False
    """Whether that is a Delta table with the rows in the same commits: then both can be restored together."""
    covered_twice: str | None = None
    """The setting to write rows beside existing ones, if it is not the option of `delta_once`."""


_PARTLY_REFUSED = "; or Kafka refused some partitions of that batch's commit, whose error came first"
_OTHERS_BEGIN = "The other sources begin where their own options say: rows that they read again are duplicated"
THE_TABLE = StoreName("the table", "delta:<path of this table>", holds_rows=True)


_BEGINS_LATE = " and beginsLate=true on the sink"


def _beside(store: StoreName, batch: Batch | None = None) -> str:
    """Return what a new appId needs to write rows beside those there, from this batch or with a new checkpoint."""
    if store.covered_twice is not None:
        return f" and {store.covered_twice}"
    is_late = batch is not None and batch.record.batch_id > 0
    both = "coveredTwice=true and beginsLate=true" if is_late else "coveredTwice=true"
    return f" and {both} on the sink" if store.holds_rows else ""


def fenced(
    decision: Decision, batch: Batch, snapshot: Snapshot, planned_version: int, store: StoreName
) -> DeliveryError:
    """Explain why a batch that was planned as fresh can no longer be written."""
    found_first = (
        StatefulRestart
        | MissingPredecessor
        | DivergedPredecessor
        | CoveredByAnother
        | TableOfAnother
        | BeginsLate
        | WrittenByDelta
    )
    if isinstance(decision, found_first) or (isinstance(decision, Mismatch) and not decision.is_overlap):
        return refusal(decision, batch, snapshot, store)
    return FencedError(
        f"{batch} was free to be written at version {planned_version}; since then "
        f"{_winner(batch.record, snapshot, store) or _NOBODY}. "
        "Another driver runs with the same appId: stop one of the two, or give each its own "
        f"appId{_beside(store, batch)}"
    )


def refusal(decision: Refused, batch: Batch, snapshot: Snapshot, store: StoreName) -> DeliveryError:
    """Return the error for a rejected batch."""
    if isinstance(decision, DifferentBatch):
        return _different_batch(decision, batch, snapshot, store)
    if isinstance(decision, MissingPredecessor):
        return _missing_predecessor(decision, batch, store)
    if isinstance(decision, DivergedPredecessor):
        return _diverged_predecessor(decision, batch, snapshot, store)
    if isinstance(decision, TableOfAnother):
        return _of_another(decision, batch, store)
    if isinstance(decision, BeginsLate):
        return _begins_late(decision, batch)
    if isinstance(decision, WrittenByDelta):
        return _written_by_delta(decision, batch)
    source, tp = decision.key
    where = f"source {source!r}, {tp} (topic id {tp.topic_id})"
    if isinstance(decision, ReusedBatchId):
        stored = "none" if decision.stored is None else str(decision.stored)
        return OffsetMismatchError(
            f"{batch} is older than the last batch of this query in {store.name}, {decision.stored_batch_id}, but it "
            f"reaches past {store.name}'s offsets: {where}: stored {stored}, batch start {decision.extent.start}, "
            f"batch end {decision.extent.end}. So another batch was written under this number, and the checkpoint is "
            f"older than {store.name}: restored from a copy, or part of it deleted"
            f"{_PARTLY_REFUSED if (store.spec or '').startswith('group:') else ''}. "
            f"{_begin_at_stored(batch, snapshot, store)}",
            is_overlap=True,
        )
    if isinstance(decision, StatefulRestart):
        return StatefulRestartError(
            f"{batch} is the first of a stateful query with a new checkpoint, but {store.name} already holds offsets "
            f"of this appId: {where} is stored at {decision.stored}. The state that belongs to those rows was in the "
            "old checkpoint. Start from the old checkpoint; or write to a new table; or, if results from an empty "
            f"state are what you want beside the old rows, use a new appId{_beside(store, batch)}"
        )
    if isinstance(decision, CoveredByAnother):
        return _covered(decision, where, batch, store)
    if isinstance(decision, PartitionNotStored):
        return _skipping(decision, where, batch, snapshot, store)
    if isinstance(decision, ForeignRowsUnknown):
        return OffsetMismatchError(
            f"{batch} is the first of this query in {store.name}, and the records of kafka_once in it are there: "
            f"{where}: stored {decision.stored}, batch start {decision.extent.start}, batch end {decision.extent.end}. "
            "The query also reads sources that are not kafka_once, and whether their rows of this batch are there "
            f"is unknown, so it is neither written nor skipped. {_begin_at_stored(batch, snapshot, store)}. "
            f"{_OTHERS_BEGIN}"
        )
    extent = decision.extent
    what = "an overlap" if decision.is_overlap else "a gap"
    winner = _winner(batch.record, snapshot, store)
    if not decision.is_overlap:
        missing = f"records [{decision.stored}, {extent.start}) are in neither {store.name} nor this batch"
    else:
        overlap = f"records [{extent.start}, {min(decision.stored, extent.end)}) of it"
        missing = f"{overlap} are in {store.name} already" if winner else f"{overlap} lie before the stored offset"
    return OffsetMismatchError(
        f"{batch} has {what} with {store.name}'s offsets: {where}: stored {decision.stored}, batch start "
        f"{extent.start}, batch end {extent.end}; {missing}; {winner or _NOBODY}. "
        + _way_out(decision, batch, snapshot, store),
        is_overlap=decision.is_overlap,
    )


def _different_batch(
    decision: DifferentBatch, batch: Batch, snapshot: Snapshot, store: StoreName
) -> OffsetMismatchError:
    record, last = batch.record, decision.stored_batch_id
    why = f"another batch was written under this number: {_what_differs(batch)} differ"
    if not decision.is_known:
        why = f"nothing there shows whether this is the batch of that number (at most the last {RING} are kept)"
    so = f"So the checkpoint is older than {store.name}: restored from a copy, or part of it deleted"
    if not decision.is_known and last == record.batch_id:
        so += (
            ". Or sparkonce was upgraded when this batch was written and Spark had not committed it: then run the "
            "query with the previous version until it has written one more batch, and upgrade then"
        )
    return OffsetMismatchError(
        f"{batch} is not past the last batch of this query in {store.name}, {last}, and {why}. {so}. "
        f"{_other_ways(batch, snapshot, store)}",
        is_overlap=True,
    )


def _what_differs(batch: Batch) -> str:
    return "the offsets of its sources (of a file source: the files)" + (
        ", its watermark or its time" if batch.stateful else ""
    )


def _other_ways(batch: Batch, snapshot: Snapshot, store: StoreName, may_revert: bool = True) -> str:
    ways = _begin_at_stored(batch, snapshot, store, may_revert)
    if batch.foreign and batch.record.ranges and not batch.stateful:
        ways += f". {_OTHERS_BEGIN}"
        back = _revert_table(batch, snapshot, store) if may_revert else ""
        ways += f". Or {back}" if back else ""
    return ways


def restored(restore: CommitEntry, batch: Batch, store: StoreName) -> OffsetMismatchError:
    """Explain why a batch whose rows were removed by a RESTORE is not skipped."""
    _, _, path = (store.spec or "").partition(":")
    back = f"revert the offsets of {store.name} to match its rows"
    if store.holds_rows:
        target = "<the version that it went to>" if restore.restored_to is None else restore.restored_to
        back += f": sparkonce offsets rewind {path} --to-version {target} --restore"
    return OffsetMismatchError(
        f"{batch} was written before, and version {restore.version} (RESTORE) removed its rows and left the offsets, "
        f"so skipping it would lose them. Stop every driver and {back}; then start from the checkpoint of that time"
        f"{'' if batch.stateful or batch.foreign else ', or with a new one and offsetStore'}",
        is_overlap=True,
    )


def _missing_predecessor(decision: MissingPredecessor, batch: Batch, store: StoreName) -> OffsetMismatchError:
    return OffsetMismatchError(
        f"{batch} follows batches that are no longer in {store.name}: it was reverted (sparkonce offsets rewind "
        f"--restore), or restored from a copy, batch {decision.due} was not written again, and the checkpoint is "
        "newer. Rows would be missing. Start from the checkpoint that matches the stored offsets, a copy of that "
        f"time; or, to continue without these rows, use a new appId{_BEGINS_LATE if store.holds_rows else ''}"
    )


def _diverged_predecessor(
    decision: DivergedPredecessor, batch: Batch, snapshot: Snapshot, store: StoreName
) -> OffsetMismatchError:
    last = decision.stored_batch_id
    return OffsetMismatchError(
        f"{batch} does not continue from what is in {store.name}: batch {last}, the last one there, is not the one "
        "in the checkpoint: its offsets (of a file source: its files), its watermark or its time differ. So the "
        "checkpoint was restored from a copy, or the table was reverted. Rows would be duplicated, or missing. "
        f"{_other_ways(batch, snapshot, store, may_revert=False)}",
        is_overlap=True,
    )


def _covered(decision: CoveredByAnother, where: str, batch: Batch, store: StoreName) -> OffsetMismatchError:
    app_id, extent, old = decision.app_id, decision.extent, repr(decision.source)
    spec, said = store.spec, store.covered_twice
    if said is None:  # `delta_once`, wherever its offsets are
        spec, said = THE_TABLE.spec, "coveredTwice=true on the sink"
    store = THE_TABLE
    again = f"offsetStore={spec} and a new checkpointLocation"
    if app_id == batch.record.app_id:
        whose = f"another source of this appId, {old}"
        remedy = f"If this is that source under a new name, set its name again: source={decision.source}, with {again}"
        both = ""
    else:
        whose = f"another appId, {app_id!r}"
        remedy = (
            f"If this is that pipeline under a new name, set its name again: appId={app_id} on source and sink, with "
            f"{again} (an entry of sparkonce ingest: name as it was; or table_app_id, and without the checkpoint of "
            "this start)"
        )
        both = ", such as queries that divide the topic by WHERE"
    return OffsetMismatchError(
        f"{batch} is the first of this appId in {store.name} that reads {where}, and {store.name} has its records of "
        f"{whose}, up to offset {decision.stored}: batch start {extent.start}, batch end {extent.end}. Records "
        f"[{extent.start}, {decision.stored}) would be written a second time. {remedy}. If both are to write these "
        f"records{both}, set {said}"
    )


def _of_another(decision: TableOfAnother, batch: Batch, store: StoreName) -> OffsetMismatchError:
    return OffsetMismatchError(
        f"{batch} is the first of this appId in {store.name}, which has rows of appId {decision.app_id!r}: those of "
        "another topic or entry. Have each topic write a table of its own: choose a path with what tells them apart, "
        "or move that table away. Or, if that topic is gone and this one continues its table, set table_app_id = "
        f"{decision.app_id!r} for this one"
    )


def _begins_late(decision: BeginsLate, batch: Batch) -> OffsetMismatchError:
    record, store = batch.record, THE_TABLE
    if decision.key is None or decision.extent is None:
        what = f"its checkpoint has run batches 0 to {record.batch_id - 1}"
    else:
        source, tp = decision.key
        read = f"[{decision.origin}, {decision.extent.start})"
        what = f"its checkpoint has read records {read} of source {source!r}, {tp} (topic id {tp.topic_id})"
    if decision.is_first:
        first, why = "this appId", f"of another appId, or {store.name} was deleted and created again"
    else:
        first, why = "this partition", f"{store.name} is a copy from before it was added"
    return OffsetMismatchError(
        f"{batch} is the first of {first} in {store.name}, and {what}, and nothing shows that their rows are there: "
        f"the checkpoint is that of another table, or {why}. "
        f"If these rows are to be in {store.name}, start with a new checkpointLocation, which begins at "
        "startingOffsets; or name the table, and the appId, that the checkpoint belongs to. If they are to be left "
        "out, set beginsLate=true on the sink"
    )


def _written_by_delta(decision: WrittenByDelta, batch: Batch) -> OffsetMismatchError:
    return OffsetMismatchError(
        f"{batch} is in the table already: Delta's own sink has written batch {decision.last_batch} of this query, as "
        "the table's transaction identifiers say: the query was stopped before its checkpoint had that, or the "
        "checkpoint is an older copy, or a RESTORE has taken the rows out. Written again, they may be there twice. "
        "Store where the table's rows end, then start with a new checkpointLocation, and with offsetStore=delta:<path "
        "of this table> and this appId on the source: sparkonce offsets set TABLE --from-checkpoint CHECKPOINT "
        f"--app-id {batch.record.app_id} --bootstrap-servers HOST:PORT (docs/moves.md); where that is refused, name "
        "the offsets: --topic, --partition and --offset"
    )


def _skipping(
    decision: PartitionNotStored, where: str, batch: Batch, snapshot: Snapshot, store: StoreName
) -> OffsetMismatchError:
    start, (source, tp) = decision.extent.start, decision.key
    kind, _, at = (store.spec or "").partition(":")
    if kind == "delta":
        words = f"{at} --app-id {batch.record.app_id} --source {source} --topic {tp.topic} --topic-id {tp.topic_id}"
        leave_out = f": sparkonce offsets set {words} --partition {tp.partition} --offset {start} --apply"
    else:
        leave_out = " there by hand" if kind else f"; or use another appId{_beside(store, batch)}"
    return OffsetMismatchError(
        f"{batch} is the first of this query in {store.name}, which has offsets of other partitions of this source and "
        f"none of one: {where}: stored none, batch start {start}, batch end {decision.extent.end}; records "
        f"[0, {start}) may be in neither {store.name} nor this batch. "
        f"{_begin_at_stored(batch, snapshot, store)}. Such a partition is then read from the beginning of its log. "
        f"To leave these out, or if the log begins at {start} since older ones have expired, store that{leave_out}"
    )


def _way_out(decision: Mismatch, batch: Batch, snapshot: Snapshot, store: StoreName) -> str:
    if decision.query_is_known:
        # After a gap the table is behind the checkpoint: reverting it further does not help.
        begin = _begin_at_stored(batch, snapshot, store, may_revert=decision.is_overlap)
        return f"{_why_known(decision, batch, snapshot, store)} {begin}"
    beside = f"To write these records beside the old rows on purpose, use another appId{_beside(store, batch)}"
    if store.spec is None:
        return f"{_begin_at_stored(batch, snapshot, store)}. {beside}"
    return (
        f"Set offsetStore={store.spec} and this appId on the source, and start with a new checkpointLocation: it then "
        f"begins at the stored offsets. {beside}. {_without_store(batch, snapshot)}"
    )


def _why_known(decision: Mismatch, batch: Batch, snapshot: Snapshot, store: StoreName) -> str:
    if not decision.is_overlap:
        return (
            f"This query wrote to {store.name} before, and no driver moves stored offsets back: {store.name} was "
            "reverted to an older state (a RESTORE, or a copy of it), or its offsets were moved by hand."
        )
    winner = _winning(batch.record, snapshot)
    if winner and winner.record.query_id == batch.record.query_id:
        return (
            "This query wrote these records itself, and its checkpoint begins before them again: a topic was left out "
            "of subscribe for a time, so that Spark forgot its position, or the checkpoint was changed."
        )
    why = "another driver with the same appId wrote since, or the offsets there were moved by hand"
    return f"This query wrote to {store.name} before, so {why}. Stop the other driver if there is one."


def _begin_at_stored(batch: Batch, snapshot: Snapshot, store: StoreName, may_revert: bool = True) -> str:
    if batch.stateful or not batch.record.ranges:
        what = "has state" if batch.stateful else "reads no kafka_once, so only its checkpoint has its offsets"
        back = _revert_table(batch, snapshot, store) if may_revert else ""
        return (
            f"This query {what}, which a new checkpoint would begin without: start from the checkpoint that matches "
            f"the stored offsets; {f'or {back}; ' if back else ''}or write to a new table with a new "
            f"checkpoint; or use a new appId and a new checkpoint{_beside(store)}"
        )
    if store.spec is None:
        return (
            f"Start with a new checkpointLocation and {_starting_offsets(batch, snapshot)}: the source then begins at "
            "the stored offsets"
        )
    return (
        f"Start with a new checkpointLocation and offsetStore={store.spec} with this appId on the source, which begins "
        f"at the stored offsets. {_without_store(batch, snapshot)}"
    )


def _revert_table(batch: Batch, snapshot: Snapshot, store: StoreName) -> str:
    """Describe how to restore the table to match an older checkpoint; "" if rows and offsets cannot be restored."""
    kind, _, path = (store.spec or "").partition(":")
    if kind != "delta" or not store.holds_rows:
        return ""
    record = batch.record
    for entry in snapshot.history(HISTORY_FOR_ERRORS):
        is_earlier = entry.record.query_id == record.query_id and entry.record.batch_id < record.batch_id
        if is_earlier and Writes.OFFSETS in entry.writes:
            return (
                f"revert the table to where this checkpoint is, batch {entry.record.batch_id}, rows and offsets in "
                f"one commit: sparkonce offsets rewind {path} --to-version {entry.version} --restore"
            )
    return ""


def _without_store(batch: Batch, snapshot: Snapshot) -> str:
    return f"Without offsetStore, {_starting_offsets(batch, snapshot)} does the same"


_EARLIEST = -2
"""Earliest, in the JSON of the source's option startingOffsets, as in Spark's own connector."""


def _starting_offsets(batch: Batch, snapshot: Snapshot) -> str:
    """Return the stored offsets as the option of each source; it must name every partition that the source reads.

    A partition that is not stored has no record in the result. A query that is known there read it up to this batch;
    the checkpoint of an unknown one may have begun past records that were never read, so it is read from its start.
    """
    record = batch.record
    try:
        stored = snapshot.next_offsets(record.ranges)
    except OffsetStoreError:  # an uncompared partition is another application's: still show ours
        return "startingOffsets set to the stored offsets"
    is_known = snapshot.last_batch(record.query_id) is not None
    sources: dict[str, dict[str, dict[str, int]]] = {}
    for key, extent in sorted(record.ranges.items()):
        source, tp = key
        topic = sources.setdefault(source, {}).setdefault(tp.topic, {})
        topic[str(tp.partition)] = stored.get(key, extent.start if is_known else _EARLIEST)
    options = {source: f"startingOffsets={json.dumps(each, separators=(',', ':'))}" for source, each in sources.items()}
    if len(options) == 1:
        return next(iter(options.values()))
    return " and ".join(f"{option} on source {source!r}" for source, option in options.items())


_NOBODY = "none of the newest commits is of a batch with them: it is an old one, or the offsets were moved by hand"


def _winner(record: BatchRecord, snapshot: Snapshot, store: StoreName) -> str | None:
    if (found := _winning(record, snapshot)) is None:
        return None
    batch = f"batch {found.record.batch_id} of query {found.record.query_id}"
    return f"version {found.version} of {store.name} holds {batch}"


def _winning(record: BatchRecord, snapshot: Snapshot) -> CommittedBatch | None:
    """Return the newest kept commit that wrote this batch or part of its range, if there is one among the newest."""
    for entry in snapshot.history(HISTORY_FOR_ERRORS):
        other = entry.record
        if other.app_id != record.app_id or other.attempt_id == record.attempt_id:
            continue
        same_batch = (other.query_id, other.batch_id) == (record.query_id, record.batch_id)
        if same_batch or _touches(other, record):
            return entry
    return None


def _touches(other: BatchRecord, record: BatchRecord) -> bool:
    return any(
        key in record.moved and extent.start < record.moved[key].end and record.moved[key].start < extent.end
        for key, extent in other.moved.items()
    )
