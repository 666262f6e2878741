"""The rows of a table, read and counted for an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sparkonce.exactly_once.audit_findings import Chain, Finding, Problem
from sparkonce.exactly_once.audit_rows import Pass, PassCounter, RowCount, TopicPartitionName, plan_passes
from sparkonce.offset_store.errors import plain
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.secrets import hidden_secrets
from sparkonce.words import counted

BATCH_ROWS = 1 << 17
"""The minimal number of rows counted at once."""


class CoordinatesError(ValueError):
    """Rows cannot be counted by the given columns."""


class RowsError(RuntimeError):
    """Rows cannot be read; the message is that of delta-rs."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The columns with each row's partition, offset and topic; without a topic column, all rows are of one topic."""

    partition: str
    offset: str
    topic: str | None = None

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        """Read ``PARTITION,OFFSET`` or ``PARTITION,OFFSET,TOPIC``.

        Raises:
            ValueError: for anything else.
        """
        names = [name.strip() for name in text.split(",")]
        if len(names) not in (2, 3) or not all(names) or len(set(names)) < len(names):
            raise ValueError("expected PARTITION_COLUMN,OFFSET_COLUMN or PARTITION_COLUMN,OFFSET_COLUMN,TOPIC_COLUMN")
        return cls(*names)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [self.partition, self.offset, *([self.topic] if self.topic else [])]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The rows of a table by partition, and those outside the chains of all kept commits."""

    by_partition: Mapping[TopicPartitionName, RowCount]
    outside: int


def count_rows(table: DeltaTable, chains: Sequence[Chain], coordinates: Coordinates) -> RowCounts:
    """Count the rows of a table by chains, in several passes if needed to limit memory.

    delta-rs's own query engine reads them. Unlike its pyarrow dataset it knows clones, deletion vectors and V2
    checkpoints.

    Raises:
        CoordinatesError: if the columns are missing, have the wrong type, or do not distinguish topics.
        RowsError: if rows cannot be read.
    """
    _check_columns(table, coordinates)
    topics = sorted({chain.topic for chain in chains if chain.ranges})
    if coordinates.topic is None and len(topics) > 1:
        raise CoordinatesError(
            f"the chains are of the topics {', '.join(topics)}, and offsets of different topics are alike: name the "
            "column of the topic too, --coordinates PARTITION,OFFSET,TOPIC, or choose one --app-id and --source"
        )
    counts: dict[TopicPartitionName, RowCount] = {}
    for planned in plan_passes(chains, by_topic=coordinates.topic is not None):
        counter = PassCounter(planned)
        for batch in _batches(table, coordinates, planned):
            _count_batch(counter, batch, coordinates)
        counter.collect(counts)
    (total,) = (batch.column(0)[0].as_py() for batch in query(table, "SELECT count(*) FROM counted"))
    return RowCounts(counts, total - sum(count.total for count in counts.values()))


def _check_columns(table: DeltaTable, coordinates: Coordinates) -> None:
    schema = pa.schema(table.schema().to_arrow())
    for column in coordinates.columns:
        if column not in schema.names:
            raise CoordinatesError(f"there is no column {column!r}; the table has {', '.join(schema.names)}")
    for column in (coordinates.partition, coordinates.offset):
        kind = schema.field(column).type
        if not pa.types.is_integer(kind):
            raise CoordinatesError(f"column {column!r} is of type {kind}; partitions and offsets are whole numbers")
    if coordinates.topic is not None and pa.types.is_nested(schema.field(coordinates.topic).type):
        kind = schema.field(coordinates.topic).type
        raise CoordinatesError(f"column {coordinates.topic!r} is of type {kind}; topics are texts")


def _batches(table: DeltaTable, coordinates: Coordinates, planned: Pass) -> Iterator[pa.RecordBatch]:
    bounds: OffsetRange = planned.bounds
    columns, offset = ", ".join(map(quoted, coordinates.columns)), quoted(coordinates.offset)
    within = f"{offset} >= {bounds.start} AND {offset} < {bounds.end}"
    waiting: list[pa.RecordBatch] = []
    for batch in query(table, f"SELECT {columns} FROM counted WHERE {within}"):  # noqa: S608  # quoted
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= BATCH_ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def query(table: DeltaTable, text: str) -> Iterator[pa.RecordBatch]:
    """Yield the results of delta-rs's query engine; the table is ``counted``.

    Raises:
        RowsError: if rows cannot be read.
    """
    with hidden_secrets(table._storage_options or {}):
        try:
            for batch in QueryBuilder().register("counted", table).execute(text):
                yield pa.record_batch(batch)
        except Exception as error:  # delta-rs raises plain exceptions for unreadable files
            raise RowsError(plain(error)) from error


def quoted(column: str) -> str:
    """Write a column's name in SQL."""
    return '"' + column.replace('"', '""') + '"'


def _count_batch(counter: PassCounter, batch: pa.RecordBatch, coordinates: Coordinates) -> None:
    batch = batch.drop_null()
    partitions = batch.column(coordinates.partition).cast(pa.int64()).to_numpy(zero_copy_only=False)
    offsets = batch.column(coordinates.offset).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if coordinates.topic is None:
        counter.add("", partitions, offsets)
        return
    topics = batch.column(coordinates.topic).cast(pa.string()).dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        chosen = np.flatnonzero(codes == code)
        counter.add(topic, partitions[chosen], offsets[chosen])


def judge_rows(rows: RowCounts, expect_all: bool) -> Iterator[Finding]:
    """Find rows that are there twice or missing; ``expect_all``: the query leaves none out."""
    for (topic, partition), count in sorted(rows.by_partition.items()):
        where = f"{topic}-{partition}" if topic else f"partition {partition}"
        if count.duplicated:
            message = (
                f"{where}: {counted(count.duplicated, 'row')} too many, at offsets {_stretches(count, duplicated=True)}"
            )
            yield Finding(Problem.DUPLICATED, message)
        if count.missing:
            why = " (a filter of the query, dead letters, or a transaction's markers, leave offsets out too)"
            missing = f"{counted(count.missing, 'offset')} without a row"
            message = f"{where}: {missing}, at {_stretches(count, duplicated=False)}{'' if expect_all else why}"
            yield Finding(Problem.MISSING if expect_all else Problem.MISSING_ALLOWED, message)


def _stretches(count: RowCount, duplicated: bool) -> str:
    stretches = count.duplicated_at if duplicated else count.missing_at
    named = ", ".join(f"[{extent.start}, {extent.end})" for extent in stretches)
    whole = sum(extent.end - extent.start for extent in stretches) == (
        count.duplicated if duplicated else count.missing
    )
    return named if whole else named + ", …"
