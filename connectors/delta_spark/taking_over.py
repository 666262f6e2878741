"""A result that `delta_once` wrote before: its offsets are in its own commits, and move to the table of offsets.

That is how a query goes on when its table gets a feature that `delta_once` rejects, a constraint for instance: with the
same ``appId``, from its checkpoint or without one. Everything that the application has stored is copied in one commit,
also the fingerprints of batches, so that a batch that Spark runs again is recognized. From then on `delta_once` rejects
the table for this application (`offset_store.accounted_rows.check_no_numbered_writes`), whose offsets there are old.
"""

from __future__ import annotations

from sparkonce.exactly_once.recovery import plan_copy
from sparkonce.offset_store.accounted_rows import check_rows_have_offsets
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.record import COMMIT_INFO_KEY
from sparkonce.offset_store.tables import append
from sparkonce.offset_store.txn_ids import intent_txn_id, is_of_application, merge_txn_id


def take_over(result: DeltaOffsetStore, offsets: DeltaOffsetStore) -> None:
    """Copy the offsets that ``result`` stores to ``offsets``, unless the application has some there.

    Raises:
        RowsWithoutOffsetsError: if the result has rows of the application, and their offsets are in neither of the two.
        OffsetStoreError: if one of them cannot be read or written.
    """
    offsets.snapshot()  # creates it if it is missing
    target = OffsetsTable.open(offsets.location, offsets.storage_options)
    if any(is_of_application(txn_id, offsets.app_id) for txn_id in target.log.transactions(target.version)):
        return
    source = OffsetsTable.open(result.location, result.storage_options)
    stored = source.stored().of(result.app_id)
    if not stored.app_ids:
        check_rows_have_offsets(source.table, source.log, result.location, result.app_id)
        return
    change = plan_copy(target.stored(), stored, f"delta.`{result.location}` version {source.version}")
    numbers = {intent_txn_id(result.app_id), merge_txn_id(result.app_id)}
    copied = {
        txn_id: at
        for txn_id, at in source.log.transactions(source.version).items()
        if is_of_application(txn_id, result.app_id) and txn_id not in numbers
    }
    try:
        append(target.table, copied, {COMMIT_INFO_KEY: change.to_commit_info()})
    except CommitConflictError:  # another driver of the application copied them first: look again
        take_over(result, offsets)
