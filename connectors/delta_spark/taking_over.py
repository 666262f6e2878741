"""A result that `delta_once` wrote before: its offsets are in its own commits, and are copied to the table of offsets.

This lets a query continue when its table gets a feature that `delta_once` rejects, a constraint for instance: with the
same ``appId``, from its checkpoint or without one. Everything that the application has stored is copied in one commit,
also the fingerprints of batches, so that a repeated batch is recognized. `delta_once` may continue after a
writer that was created and wrote nothing: its later offsets are copied again.

Before the first write that ends: a commit in the result moves the number of writes, to 0 or by a write itself, and
from then on `delta_once` rejects the table for this application, whose offsets there are old
(`offset_store.accounted_rows.check_no_numbered_writes`).
"""

from __future__ import annotations

from dataclasses import replace

from sparkonce.exactly_once.commit import MAX_CONFLICTS
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.exactly_once.recovery import plan_copy
from sparkonce.offset_store.accounted_rows import check_rows_have_offsets
from sparkonce.offset_store.administration import ChangeKind, ManualChange, OffsetsTable, Stored
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.protocol import unwritable
from sparkonce.offset_store.own_commits import TAKE_OVER_INFO_KEY
from sparkonce.offset_store.record import COMMIT_INFO_KEY
from sparkonce.offset_store.txn_ids import (
    intent_txn_id,
    is_of_application,
    merge_txn_id,
    offset_txn_id,
    query_txn_id,
)


def take_over(result: DeltaOffsetStore, offsets: DeltaOffsetStore) -> None:
    """Copy the offsets that ``result`` stores to ``offsets``, unless the application has moved its offsets there.

    Raises:
        RowsWithoutOffsetsError: if the result has rows of the application, and their offsets are in neither of the two.
        OffsetStoreError: if one of them cannot be read or written.
    """
    offsets.snapshot()  # creates it if it is missing
    app_id, target = offsets.app_id, OffsetsTable.open(offsets.location, offsets.storage_options)
    taken = any(is_of_application(txn_id, app_id) for txn_id in target.state.transactions)
    if taken and (_is_numbered(result) or not _is_only_copied(target, app_id)):
        return
    source = OffsetsTable.open(result.location, result.storage_options)
    stored, there = source.stored().of(app_id), target.stored().of(app_id)
    if not stored.app_ids:
        if not taken:
            check_rows_have_offsets(source.state, source.log.reader, result.location, app_id)
        return
    if (stored.offsets, stored.batches) == (there.offsets, there.batches):
        return
    change = _copy(there, stored, f"delta.`{result.location}` version {source.version}")
    try:
        target.log.commit(Proposal(_own(source, app_id), {COMMIT_INFO_KEY: change.to_commit_info()}), target.state)
    except CommitConflictError:  # another driver of the application copied them first: look again
        take_over(result, offsets)


def take_over_for_good(result: DeltaOffsetStore, offsets: DeltaOffsetStore, *, numbered: bool) -> None:
    """Copy the offsets, and prevent `delta_once` from writing more rows of the application into ``result``.

    That commit also writes the application's transaction ids once more, unchanged. So a batch that
    `delta_once` commits at the same time conflicts: it is either copied too, or rejected. No commit is needed for a
    table with a feature that is unknown here, or without offsets where the writes that follow are ``numbered``.

    Raises:
        RowsWithoutOffsetsError, OffsetStoreError: as `take_over`.
        DeliveryError: if others commit all the time.
    """
    conflict: CommitConflictError | None = None
    for _ in range(MAX_CONFLICTS):
        if _is_numbered(result):
            return
        source = OffsetsTable.open(result.location, result.storage_options)
        take_over(result, offsets)
        own = _own(source, result.app_id)
        if unwritable(source.state.protocol) or (numbered and not own):
            return
        info = {TAKE_OVER_INFO_KEY: {"appId": result.app_id}}
        try:
            source.log.commit(Proposal({**own, merge_txn_id(result.app_id): 0}, info), source.state)
            return
        except CommitConflictError as error:  # another commit landed meanwhile: copy that, too
            conflict = error
    raise DeliveryError(
        f"gave up taking over the offsets of appId {result.app_id} in {result.location} after {MAX_CONFLICTS} "
        f"conflicts. Stop the query of delta_once that writes there; the last: {conflict}"
    ) from conflict


def _own(source: OffsetsTable, app_id: str) -> dict[str, int]:
    """Return an application's transaction ids, except those that count writes of delta-spark."""
    numbers = {intent_txn_id(app_id), merge_txn_id(app_id)}
    return {
        txn_id: at
        for txn_id, at in source.state.transactions.items()
        if is_of_application(txn_id, app_id) and txn_id not in numbers
    }


def _is_numbered(result: DeltaOffsetStore) -> bool:
    """Whether delta-spark has written rows of the application, so that `delta_once` no longer does."""
    return result.snapshot().look_up(merge_txn_id(result.app_id)) is not None


def _is_only_copied(target: OffsetsTable, app_id: str) -> bool:
    """Whether all of an application's stored offsets were copied, and are unchanged since."""
    stored, last = target.stored().of(app_id), target.last_moved()
    ids = [offset_txn_id(key.app_id, key.source, key.partition) for key in stored.offsets]
    ids += [query_txn_id(key.app_id, key.query_id) for key in stored.batches]
    changes = [last[txn_id].change if txn_id in last else None for txn_id in ids]
    return bool(ids) and all(change is not None and change.kind is ChangeKind.COPY for change in changes)


def _copy(there: Stored, stored: Stored, copied_from: str) -> ManualChange:
    change = plan_copy(replace(there, offsets={}, batches={}), stored, copied_from)
    moves = tuple(replace(move, before=there.offsets.get(move.key)) for move in change.moves)
    batches = tuple(replace(move, before=there.batches.get(move.key, move.before)) for move in change.batches)
    return replace(change, moves=moves, batches=batches)
