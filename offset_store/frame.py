"""The history of a store as a table: which query committed which range, when, in which version.

One row for each commit and each partition that it moved, newest commit first. A commit that moved no partition (a batch
of rows only, as after an advance of the watermark) has no row. The history reaches as far back as the store keeps
commits: a Delta table as far as its log does (``delta.logRetentionDuration``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from sparkonce.offset_store.record import BatchCounts, CommittedBatch, Writes
from sparkonce.offset_store.store import OffsetStore, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HISTORY_SCHEMA = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("app_id", pa.string(), nullable=False),
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
        pa.field("attempt_id", pa.string(), nullable=False),
        pa.field("writes", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("start_offset", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("counts", pa.struct([pa.field(each.name, pa.int64()) for each in fields(BatchCounts)])),
    ]
)
"""``writes`` holds ``rows``, ``offsets`` or both; ``[start_offset, end_offset)`` are Kafka's. ``counts`` are those of
the whole commit, the same in each of its rows (`offset_store.record.BatchCounts`); null if nothing was counted."""

_ROWS_AT_ONCE = 1 << 16


def history_arrow(store: OffsetStore | Snapshot, limit: int | None = None) -> pa.Table:
    """Return the ranges of the newest ``limit`` commits (all that are kept, by default), of every application.

    Raises:
        StoreMissingError: if the store is empty.
        OffsetStoreError: if it cannot be read.
    """
    snapshot = cast(Snapshot, store) if hasattr(store, "history") else store.snapshot()
    rows = (row for entry in snapshot.history(limit) for row in _rows(entry))
    batches = [pa.RecordBatch.from_pylist(some, HISTORY_SCHEMA) for some in _some_at_once(rows)]
    return pa.Table.from_batches(batches, HISTORY_SCHEMA)


def history_frame(spark: SparkSession, store: OffsetStore | Snapshot, limit: int | None = None) -> DataFrame:
    """Return `history_arrow` as a Spark DataFrame; ``committed_at`` is a timestamp in the session's time zone."""
    return spark.createDataFrame(history_arrow(store, limit))


def _rows(entry: CommittedBatch) -> Iterator[dict[str, Any]]:
    record = entry.record
    commit = {
        "version": entry.version,
        "committed_at": entry.timestamp_ms * 1000,
        "app_id": record.app_id,
        "query_id": record.query_id,
        "batch_id": record.batch_id,
        "attempt_id": record.attempt_id,
        "counts": None if record.counts is None else asdict(record.counts),
        "writes": [part.name.lower() for part in Writes if part in entry.writes and part.name],
    }
    for (source, tp), extent in sorted(record.moved.items()):
        yield {
            **commit,
            "source": source,
            "topic": tp.topic,
            "topic_id": tp.topic_id,
            "partition": tp.partition,
            "start_offset": extent.start,
            "end_offset": extent.end,
        }


def _some_at_once(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in lists, so that only one list of Python objects is in memory at a time."""
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        yield some
