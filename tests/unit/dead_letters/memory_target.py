"""A target whose rows are in the commits of a store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sparkonce.connectors.sinks.target import TargetPlan, Task, TaskWriter
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery, DeliveryPlan, look
from sparkonce.exactly_once.decision import Stored
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.offset_store.memory import MemoryOffsetStore
from sparkonce.offset_store.record import BatchCounts, BatchRecord, PartitionKey


@dataclass
class ListWriter:
    rows: list[tuple[int, int]] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), strict=True)

    def close(self) -> object | None:
        return self.rows or None

    def discard(self) -> None:
        self.rows.clear()

    @property
    def written(self) -> BatchCounts:
        return BatchCounts(rows=len(self.rows))


@dataclass
class MemoryTarget:
    """A target whose rows are in the commits of a store in memory."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    store: MemoryOffsetStore = field(default_factory=lambda: MemoryOffsetStore("app", now_ms=lambda: 0))
    begun: list[Batch] = field(default_factory=list)

    @property
    def offsets_first(self) -> bool:
        return self.guarantee is Guarantee.AT_MOST_ONCE

    def stored(self, batch: Batch) -> Stored:
        return look(self.store.snapshot(), batch)

    def records(self, app_id: str) -> list[BatchRecord]:
        return [commit.record for commit in reversed(self.store.commits) if commit.record.app_id == app_id]

    def begin(self, batch: Batch) -> DeliveryPlan:
        self.begun.append(batch)
        return Delivery(self.store, ORDERS[self.guarantee]).begin(batch)

    def open(self, plan: TargetPlan, task: Task) -> TaskWriter | None:
        return ListWriter() if plan.writes_rows else None

    def finish(self, batch: Batch, plan: TargetPlan, parts: Sequence[object]) -> None:
        assert isinstance(plan, DeliveryPlan)
        files = [row for part in parts for row in part]  # type: ignore[attr-defined]
        Delivery(self.store, ORDERS[self.guarantee]).finish(batch, plan, files)

    def abort(self, batch: Batch, plan: TargetPlan, parts: Sequence[object], *, every_task_answered: bool) -> None:
        raise AssertionError("nothing to undo")

    @property
    def rows(self) -> Counter[object]:
        return Counter(row for commit in self.store.commits for row in commit.files)

    def next_offset(self, key: PartitionKey) -> int:
        return self.store.read(key[0], [key[1]]).get(key[1], 0)
