"""A guarantee for any result: what to give to ``writeStream.foreachBatch``.

Spark calls the function with a batch's rows and number, after it has logged the batch's offsets and before it notes
down that the batch is done. So the same look, decision and order of writes as in the sink `delta_once` fit in: only the
rows are a DataFrame here rather than files, and their result is whatever the caller makes of them. A result that can
write rows and offsets in one transaction (a database) gets exactly-once; one that cannot (files, a web service) has its
offsets in a store apart, and gets one of the other two.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from exactly_once.batch import read_batch
from exactly_once.checkpoint import Checkpoint
from exactly_once.commit import Delivery, Place, SnapshotSource
from exactly_once.errors import CheckpointError
from exactly_once.guarantee import ORDERS, Guarantee

THE_RESULT = Place("the result", "<a store that has these offsets>")


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """Writes each batch of a query to ``result``, once, at most once or at least once.

    Args:
        result: gives snapshots whose ``commit`` writes the rows, ``commit.files``: a sequence of one DataFrame.
        checkpoint: the query's ``checkpointLocation``.
        app_id: a name for this pipeline, stable over restarts: offsets are kept under it.
        guarantee: what a crash may do to the rows.
        offsets: where the offsets live, if not in the result. Exactly-once has them there, in the rows' transaction.
        place: what messages call a result that holds the offsets, and the source's option ``offsetStore`` for it.
    """

    result: SnapshotSource
    checkpoint: str
    app_id: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    offsets: SnapshotSource | None = None
    place: Place = THE_RESULT

    def __post_init__(self) -> None:
        if not self.app_id.strip():
            raise ValueError("app_id is empty; give this pipeline a name that stays the same")
        self._delivery()

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Write one batch, unless it is there already.

        Raises:
            DeliveryError: if it must not be written; the query then stops.
        """
        checkpoint = Checkpoint.open(self.checkpoint)
        newest = checkpoint.latest_batch_id()
        if newest != batch_id:
            raise CheckpointError(
                f"Spark runs batch {batch_id}, and {newest} is the newest in {checkpoint.location}: give the directory "
                "that is the query's checkpointLocation"
            )
        batch = read_batch(checkpoint, batch_id, self.app_id, str(uuid.uuid4()))
        delivery = self._delivery()
        delivery.finish(batch, delivery.begin(batch), [rows])

    def _delivery(self) -> Delivery:
        return Delivery(self.result, ORDERS[self.guarantee], self.offsets, self.place)
