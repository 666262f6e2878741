"""A Delta table with batches of ours in it, written as the sink writes them, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema

from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import AddFile
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, Writes
from sparkonce.offset_store.txn_ids import OffsetTxn

APP, QUERY, SOURCE = "orders", "6f1c", "kafka"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BOTH = Writes.ROWS | Writes.OFFSETS


def partition(number: int = 0, topic: str = "shop.orders", topic_id: str = TOPIC_ID) -> TopicPartition:
    return TopicPartition(topic, topic_id, number)


def key(number: int = 0, app_id: str = APP) -> OffsetTxn:
    return OffsetTxn(app_id, SOURCE, partition(number))


@dataclass
class Pipeline:
    """One application that writes to ``path``: each record is one row, its offset in the column ``x``."""

    path: Path
    app_id: str = APP

    @classmethod
    def create(cls, path: Path, configuration: Mapping[str, str | None] | None = None) -> Pipeline:
        DeltaTable.create(
            str(path),
            Schema.from_arrow(pa.schema([("x", pa.int64())])),
            configuration=dict(configuration) if configuration else None,
        )
        return cls(path)

    def store(self) -> DeltaOffsetStore:
        return DeltaOffsetStore(Location.parse(str(self.path)), self.app_id)

    def commit(
        self,
        batch_id: int,
        ranges: Mapping[int, tuple[int, int]],
        writes: Writes = BOTH,
        attempt_id: str | None = None,
        query_id: str = QUERY,
    ) -> None:
        extents = {(SOURCE, partition(number)): OffsetRange(*extent) for number, extent in ranges.items()}
        record = BatchRecord(self.app_id, query_id, batch_id, attempt_id or uuid.uuid4().hex, extents)
        files = [self.write([x for start, end in ranges.values() for x in range(start, end)])]
        self.store().snapshot().commit(Commit(record, writes, files if Writes.ROWS in writes else ()))

    def write(self, values: list[int]) -> AddFile:
        """Write a data file that no commit names yet."""
        name = f"part-{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), self.path / name)
        size = (self.path / name).stat().st_size
        return AddFile(name, size, {}, 0, f'{{"numRecords":{len(values)}}}', len(values))

    def rows(self) -> list[int]:
        return sorted(DeltaTable(str(self.path)).to_pyarrow_table()["x"].to_pylist())

    def opened(self) -> OffsetsTable:
        return OffsetsTable.open(Location.parse(str(self.path)))

    def offsets(self) -> dict[int, int]:
        return {each.partition.partition: at for each, at in self.opened().stored().of(self.app_id).offsets.items()}

    @property
    def version(self) -> int:
        return DeltaTable(str(self.path)).version()
