"""A delivery guarantee for any result: the function for ``writeStream.foreachBatch``.

Spark calls the function with a batch's rows and number, after it has logged the batch's offsets and before it commits
the batch in the checkpoint. So the comparison, decision and order of writes are those of the sink `delta_once`: only
the rows are a DataFrame instead of files, and the caller decides where they go. A result that can write rows and
offsets in one transaction (a database) gets exactly-once; one that cannot (files, a web service) has its offsets in a
separate store, and gets one of the other two.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkonce.exactly_once.batch import read_batch
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.exactly_once.refusals import StoreName
from sparkonce.offset_store.record import BatchRecord, Commit, FileT, Writes
from sparkonce.offset_store.store import SnapshotSource, SnapshotWithoutOffsets
from sparkonce.shipping import Shipped

THE_RESULT = StoreName("the result", None)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForeachBatch(metaclass=Shipped):
    """Writes each batch of a query to ``result``, once, at most once or at least once.

    Args:
        result: returns snapshots whose ``commit`` writes the rows, ``commit.files``: a sequence of one DataFrame.
        checkpoint: the query's ``checkpointLocation``.
        app_id: a name for this pipeline, stable over restarts: offsets are kept under it.
        guarantee: what a crash may do to the rows.
        offsets: where the offsets are stored, if not in the result. Exactly-once stores them in the rows' transaction.
        store_name: how messages name a result that holds the offsets, and the source's option ``offsetStore`` for it,
            if it can read them there.
        storage_options: for a checkpoint in an object store, as delta-rs takes them.
    """

    result: SnapshotSource
    checkpoint: str
    app_id: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    offsets: SnapshotSource | None = None
    store_name: StoreName = THE_RESULT
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.result, RowsOnly) and self.offsets is None:
            raise ValueError(
                "RowsOnly holds no offsets: pass a store for them, and a guarantee other than exactly-once"
            )
        if not self.app_id.strip():
            raise ValueError("app_id is empty; choose a name for this pipeline that stays the same")
        self._delivery()

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Write one batch; if it is already written, log a warning instead.

        Raises:
            DeliveryError: if it must not be written; the query then stops.
        """
        checkpoint = Checkpoint.open(self.checkpoint, self.storage_options)
        newest = checkpoint.latest_batch_id()
        if newest != batch_id:
            raise CheckpointError(
                f"Spark runs batch {batch_id}, and {newest} is the newest in {checkpoint.location}: pass the directory "
                "that is the query's checkpointLocation"
            )
        batch = read_batch(checkpoint, batch_id, self.app_id, str(uuid.uuid4()))
        delivery = self._delivery()
        if delivery.finish(batch, delivery.begin(batch), [rows]):
            return
        stored = f"its rows are in {self.store_name.name} already, nothing is written again"
        if self.guarantee is Guarantee.AT_MOST_ONCE:
            stored = (
                "its offsets are stored already, and at-most-once writes nothing again: rows that were not yet written "
                "at a crash are lost"
            )
        _log.warning(
            "%s: %s. That is expected after a crash. A function that writes a batch in parts needs an app_id for each "
            "of them",
            batch,
            stored,
        )
        if checkpoint.is_stateful():
            # Spark saves the state of a batch when its rows are read: otherwise the next batch would not find it.
            rows.write.format("noop").mode("overwrite").save()

    def _delivery(self) -> Delivery:
        return Delivery(self.result, ORDERS[self.guarantee], self.offsets, self.store_name)


@dataclass(frozen=True, slots=True)
class RowsOnly(SnapshotSource, SnapshotWithoutOffsets):
    """A result that does not store offsets: files, a web service. Its offsets are in a separate store.

    ``write`` gets a batch's DataFrame, and the `BatchRecord` that identifies the batch: a file named after query and
    batch is overwritten when the batch is replayed.
    """

    write: Callable[[Any, BatchRecord], None]

    def snapshot(self) -> RowsOnly:
        """Return itself: there is nothing to read."""
        return self

    @property
    def version(self) -> int:
        """See `Snapshot.version`; it has only one."""
        return 0

    def commit(self, commit: Commit[FileT]) -> None:
        """Write a batch's rows."""
        assert commit.writes == Writes.ROWS, "`ForeachBatch` has a store for the offsets"
        for rows in commit.files:
            self.write(rows, commit.record)
