"""Converts record batches from a broker into Arrow record batches.

`RecordDecoder.scan` reads the batch headers only, so that the next fetch can be sent before this one is decoded. What
it found goes to `RecordDecoder.rows`, which drops what no consumer may see (control batches, aborted transactions,
records outside the wanted range), checks checksums, inflates, and has the compiled kernel write the columns. No record
becomes a Python object. The Arrow columns lie over the kernel's buffers, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from numpy.typing import NDArray

from sparkonce.connectors.kafka_source import kernel
from sparkonce.connectors.kafka_source.kernel import Column, Headers, Rows
from sparkonce.connectors.kafka_source.ranges import ReadCount
from sparkonce.connectors.runtime.compiled import Bytes, Int64s
from sparkonce.connectors.values.options import (
    COLUMNS,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    RAW_TIMESTAMP,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
    arrow_schema,
)
from sparkonce.connectors.values.record_times import out_of_range
from sparkonce.kafka.protocol.compression import decompress
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.fetch import AbortedTransaction
from sparkonce.kafka.protocol.limits import MAX_INFLATED_BYTES
from sparkonce.kafka.protocol.primitives import Reader

MAX_ROWS_PER_ARROW_BATCH = 65_536
MAX_BYTES_PER_ARROW_BATCH = 32 << 20
MAX_BYTES_PER_ARROW_COLUMN = (1 << 31) - 1
"""The limit of the offsets of Arrow's strings. Only the column topic can take more bytes than were read."""

_SMALLEST_RECORD = 7

_WANTED = {
    KEY: kernel.KEYS,
    VALUE: kernel.VALUES,
    OFFSET: kernel.OFFSETS,
    TIMESTAMP: kernel.TIMES,
    RAW_TIMESTAMP: kernel.RAW_TIMES,
    TIMESTAMP_TYPE: kernel.TIME_TYPES,
    HEADERS: kernel.WITH_HEADERS,
}
"""What the kernel writes for a column, except topic and partition."""

MOST_IN_ADVANCE = 1 << 20
"""Rows; more are only allocated if requested."""

_NO_BYTES = np.zeros(0, np.uint8)
_NO_INT32S = np.zeros(0, np.int32)
_NO_INT64S = np.zeros(0, np.int64)
_NO_COLUMN = Column(_NO_INT32S, _NO_BYTES, _NO_BYTES)
_NO_HEADERS = Headers(_NO_INT32S, _NO_BYTES, _NO_COLUMN, _NO_COLUMN)


class CorruptBatchError(RuntimeError):
    """Bytes that are not a valid record batch; the message names topic, partition and offset."""


class TimestampRangeError(CorruptBatchError):
    """A record whose timestamp Spark cannot hold (KAFKA_MALFORMED_RECORD_TIMESTAMP of Spark's connector)."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """The whole batches of one fetch. ``next_offset`` is None if there is none."""

    table: Int64s
    next_offset: int | None


class RecordDecoder:
    """Decodes what is fetched from one partition."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        columns: Sequence[str] = COLUMNS,
        check_crcs: bool = True,
        max_rows: int = MAX_ROWS_PER_ARROW_BATCH,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._columns = tuple(columns)
        self._wanted = sum(_WANTED.get(name, 0) for name in self._columns)
        self._check_crcs = check_crcs
        self._max_rows = max_rows
        self._schema = arrow_schema(self._columns)
        self._constants = Constants(topic, partition)

    def scan(self, data: Bytes, at_offset: int) -> Scanned:
        """Find the whole batches in ``data``, fetched at ``at_offset``; a partial batch at the end is left out.

        Raises:
            CorruptBatchError: if the bytes are not batches of format v2.

        """
        data = data.view()
        data.flags.writeable = False
        table = np.empty((data.shape[0] // kernel.BATCH_HEADER_SIZE, kernel.COLUMNS), np.int64)
        count, _, status = kernel.scan_batches(data, data.shape[0], table)
        if status == kernel.OLD_FORMAT:
            raise self.corrupt(
                at_offset,
                "a batch is not of record format v2; records of formats v0 and v1 (written before Kafka 0.11) are not "
                "supported: write them again with a current producer",
            )
        if status == kernel.BAD_HEADER:
            raise self.corrupt(at_offset, "the header of a batch is damaged")
        if not count:
            return Scanned(table[:0], None)
        last = table[count - 1]
        return Scanned(table[:count], int(last[kernel.BASE_OFFSET] + last[kernel.LAST_DELTA] + 1))

    def rows(
        self,
        data: Bytes,
        scanned: Scanned,
        start_offset: int,
        end_offset: int,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with ``start_offset <= offset < end_offset``; empty Arrow batches are left out.

        ``data`` may be used again by the caller once the iterator is exhausted.

        Raises:
            CorruptBatchError: for a wrong checksum, bytes that do not inflate, or records that do not fit their batch.
            TimestampRangeError: for a timestamp that does not fit into microseconds, if that column is read.

        """
        table = self.visible(data, scanned, start_offset, end_offset, aborted)
        for buffer, group in self.inflated(data, table):
            batch = self._decode(buffer, group, start_offset, end_offset)
            if batch.num_rows:
                yield batch

    def visible(
        self,
        data: Bytes,
        scanned: Scanned,
        start_offset: int,
        end_offset: int,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> Int64s:
        """Return the rows of the table of batches that consumers see and that reach into the wanted offsets.

        Raises:
            CorruptBatchError: for a wrong checksum, and for a batch that does not follow the one before.

        """
        table = scanned.table
        base = table[:, kernel.BASE_OFFSET]
        back = base[1:] <= (base + table[:, kernel.LAST_DELTA])[:-1]
        if back.any():
            raise self.corrupt(int(base[1:][back][0]), kernel.REASONS[kernel.BAD_ORDER])
        if aborted:
            table = table[committed_batches(data, table, aborted)]
            base = table[:, kernel.BASE_OFFSET]
        seen: Int64s = table[
            (table[:, kernel.ATTRIBUTES] & kernel.CONTROL == 0)
            & (base < end_offset)
            & (base + table[:, kernel.LAST_DELTA] >= start_offset)
        ]
        if self._check_crcs:
            self._verify(data, seen)
        return seen

    def _verify(self, data: Bytes, table: Int64s) -> None:
        view = data.data
        for start, end, expected in table[:, (kernel.START, kernel.END, kernel.CRC)].tolist():
            if crc32c(view[start + kernel.CRC_START : end]) != expected:
                offset = int.from_bytes(view[start : start + 8], "big")
                raise self.corrupt(offset, "the checksum of the batch does not match its bytes")

    def inflated(self, data: Bytes, table: Int64s) -> Iterator[tuple[Bytes, Int64s]]:
        """Split batches into groups of one Arrow batch each; yield their records in one buffer, and a table for that.

        Raises:
            CorruptBatchError: for bytes that do not inflate, or too few for the number of records.

        """
        compressed = bool((table[:, kernel.ATTRIBUTES] & kernel.COMPRESSION_MASK).any())
        first = rows = size = 0
        pieces: list[Bytes] = []
        for index, (count, begin, end) in enumerate(
            table[:, (kernel.COUNT, kernel.RECORDS, kernel.END)].tolist(),
        ):
            piece = self._inflate(data, table[index]) if compressed else data[begin:end]
            if count > piece.shape[0] // _SMALLEST_RECORD:
                raise self.corrupt(int(table[index, kernel.BASE_OFFSET]), kernel.REASONS[kernel.BAD_COUNT])
            full = rows + count > self._max_rows or size + piece.shape[0] > MAX_BYTES_PER_ARROW_BATCH
            if full and index > first:
                yield _joined(table[first:index], pieces) if compressed else (data, table[first:index])
                first, rows, size, pieces = index, 0, 0, []
            rows += count
            size += piece.shape[0]
            pieces.append(piece)
        if first < table.shape[0]:
            yield _joined(table[first:], pieces) if compressed else (data, table[first:])

    def _inflate(self, data: Bytes, header: Int64s) -> Bytes:
        raw = data[header[kernel.RECORDS] : header[kernel.END]]
        codec = int(header[kernel.ATTRIBUTES] & kernel.COMPRESSION_MASK)
        if codec == 0:
            return raw
        try:
            inflated = decompress(codec, raw.data, MAX_INFLATED_BYTES)
        except ProtocolError as error:
            raise self.corrupt(int(header[kernel.BASE_OFFSET]), f"its records do not inflate: {error}") from error
        return np.frombuffer(inflated, np.uint8)

    def _decode(self, buffer: Bytes, table: Int64s, start_offset: int, end_offset: int) -> pa.RecordBatch:
        capacity = int(table[:, kernel.COUNT].sum())
        if TOPIC in self._columns and capacity * len(self._topic.encode()) > MAX_BYTES_PER_ARROW_COLUMN:
            offset = int(table[0, kernel.BASE_OFFSET])
            raise self.corrupt(offset, f"its {capacity} records are more than the column topic can hold")
        size = int((table[:, kernel.END] - table[:, kernel.RECORDS]).sum())
        rows = allocate(capacity, size, self._wanted)
        buffer = buffer.view()
        buffer.flags.writeable = False  # so that the kernel is compiled for one kind of array only
        state = np.zeros(kernel.STATE_SLOTS, np.int64)
        kernel.decode_batches(buffer, table, start_offset, end_offset, rows, self._wanted, state)
        if state[kernel.STATUS] == kernel.BAD_TIMESTAMP:
            raise self._out_of_range(int(state[kernel.FAILED_OFFSET]), int(state[kernel.FAILED_TIME]))
        if state[kernel.STATUS] != kernel.OK:
            raise self.corrupt(int(state[kernel.FAILED_OFFSET]), kernel.REASONS[int(state[kernel.STATUS])])
        return self._arrow(rows, state)

    def _arrow(self, rows: Rows, state: Int64s) -> pa.RecordBatch:
        count = int(state[kernel.ROWS])
        make: dict[str, Callable[[], pa.Array]] = {
            KEY: lambda: binary(pa.binary(), rows.keys, count, state, kernel.KEY_BYTES),
            VALUE: lambda: binary(pa.binary(), rows.values, count, state, kernel.VALUE_BYTES),
            TOPIC: lambda: self._constants.topics(count),
            PARTITION: lambda: self._constants.partitions(count),
            OFFSET: lambda: fixed(pa.int64(), rows.offsets, count),
            TIMESTAMP: lambda: fixed(pa.timestamp("us", tz="UTC"), rows.times, count),
            RAW_TIMESTAMP: lambda: fixed(pa.int64(), rows.times, count),
            TIMESTAMP_TYPE: lambda: fixed(pa.int32(), rows.time_types, count),
            HEADERS: lambda: header_lists(self._schema.field(HEADERS).type, rows.headers, count, state),
        }
        return pa.RecordBatch.from_arrays([make[name]() for name in self._columns], schema=self._schema)

    def _out_of_range(self, offset: int, timestamp: int) -> TimestampRangeError:
        return TimestampRangeError(
            f"the record in topic {self._topic}, partition {self._partition}, at offset {offset} has "
            f"{out_of_range(timestamp)}. Correct the producer; such records can be read without the column timestamp "
            "(option columns), or be dead letters (includeDeadLetters=true)"
        )

    def corrupt(self, offset: int, what: str) -> CorruptBatchError:
        """Return the error for what is damaged in the batch at ``offset``."""
        return CorruptBatchError(
            f"corrupt data in topic {self._topic}, partition {self._partition}, in the batch at offset {offset}: "
            f"{what}. If the broker's copy is damaged, restore it from a replica, or start after this batch with "
            "startingOffsets"
        )


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Record batches of one partition, as they were fetched.

    Of the batches in ``table`` (columns of `connectors.kafka_source.kernel`), which consumers see, the records with
    ``start <= offset < end`` are wanted.
    """

    topic: str
    partition: int
    data: Bytes
    table: Int64s
    start: int
    end: int
    decoder: RecordDecoder
    count: ReadCount
    """Whoever uses the records adds them."""

    @property
    def num_rows(self) -> int:
        """The number of batches: as of an Arrow batch, 0 if there is nothing to write."""
        return int(self.table.shape[0])


def committed_batches(data: Bytes, table: Int64s, aborted: Sequence[AbortedTransaction]) -> NDArray[np.bool_]:
    """Return which batches a read_committed consumer may see, as in Kafka's consumer (KIP-98).

    Along the log, a producer's batches are ignored from the first offset of an aborted transaction to its marker.
    """
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    void: set[int] = set()
    keep = np.ones(table.shape[0], np.bool_)
    columns = (kernel.BASE_OFFSET, kernel.LAST_DELTA, kernel.ATTRIBUTES, kernel.PRODUCER, kernel.RECORDS, kernel.END)
    for index, (base, last_delta, attributes, producer, records, end) in enumerate(table[:, columns].tolist()):
        while waiting and waiting[-1].first_offset <= base + last_delta:
            void.add(waiting.pop().producer_id)
        if attributes & kernel.CONTROL:
            if _is_abort_marker(data[records:end]):
                void.discard(producer)
        elif attributes & kernel.TRANSACTIONAL and producer in void:
            keep[index] = False
    return keep


def _is_abort_marker(records: Bytes) -> bool:
    """Read the type from the key of a control record: version int16, type int16, and 0 means abort."""
    reader = Reader(records.data)
    reader.varint()  # length of the record
    reader.int8()  # attributes
    reader.varlong()  # timestamp delta
    reader.varint()  # offset delta
    return reader.varint() >= 4 and reader.int16() >= 0 and reader.int16() == 0


def _joined(table: Int64s, pieces: Sequence[Bytes]) -> tuple[Bytes, Int64s]:
    """Concatenate inflated records, and return the table for them."""
    ends = np.cumsum([piece.shape[0] for piece in pieces])
    moved = table.copy()
    moved[:, kernel.END] = ends
    moved[1:, kernel.RECORDS] = ends[:-1]
    moved[0, kernel.RECORDS] = 0
    return np.concatenate(pieces), moved


def allocate(capacity: int, size: int, wanted: int) -> Rows:
    """Allocate the ``wanted`` columns of ``capacity`` records that take ``size`` bytes together.

    No column can hold more bytes than were read, so there is nothing to count beforehand; pages that stay untouched
    cost nothing.
    """
    return Rows(
        np.empty(capacity, np.int64) if wanted & kernel.OFFSETS else _NO_INT64S,
        np.empty(capacity, np.int64) if wanted & (kernel.TIMES | kernel.RAW_TIMES) else _NO_INT64S,
        np.empty(capacity, np.int32) if wanted & kernel.TIME_TYPES else _NO_INT32S,
        _column(capacity, size) if wanted & kernel.KEYS else _NO_COLUMN,
        _column(capacity, size) if wanted & kernel.VALUES else _NO_COLUMN,
        _header_columns(capacity, size) if wanted & kernel.WITH_HEADERS else _NO_HEADERS,
    )


def fixed(kind: pa.DataType, values: NDArray[np.int64] | NDArray[np.int32], count: int) -> pa.Array:
    """Return the first ``count`` values as a column without nulls."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values[:count])], 0)


def binary(kind: pa.DataType, column: Column, count: int, state: Int64s, used_slot: int) -> pa.Array:
    """Return the first ``count`` values of a column of variable length."""
    nulls = int(state[used_slot + 1])
    buffers = [
        pa.py_buffer(column.bits[: (count + 7) // 8]) if nulls else None,
        pa.py_buffer(column.offsets[: count + 1]),
        pa.py_buffer(column.data[: int(state[used_slot])]),
    ]
    return pa.Array.from_buffers(kind, count, buffers, nulls)


def header_lists(kind: pa.ListType, headers: Headers, count: int, state: Int64s) -> pa.Array:
    """Return the column of headers; as in Spark's connector it is null for a record that has none."""
    entries = int(state[kernel.HEADERS])
    keys = valid_text(binary(pa.string(), headers.keys, entries, state, kernel.HEADER_KEY_BYTES))
    values = binary(pa.binary(), headers.values, entries, state, kernel.HEADER_VALUE_BYTES)
    entry = pa.Array.from_buffers(kind.value_type, entries, [None], 0, children=[keys, values])
    validity = pa.py_buffer(headers.list_bits[: (count + 7) // 8])
    lists = pa.py_buffer(headers.lists[: count + 1])
    nulls = count - int(state[kernel.HEADER_LISTS])
    return pa.Array.from_buffers(kind, count, [validity, lists], nulls, children=[entry])


def valid_text(texts: pa.StringArray) -> pa.StringArray:
    """Return texts with U+FFFD for what is not UTF-8, as Kafka's own client returns the keys of headers.

    A producer may send any bytes there. A table with such a text could not be read by most readers of Parquet.
    """
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([each.decode(errors="replace") for each in texts.cast(pa.binary()).to_pylist()], pa.string())
    return texts


class Constants:
    """Columns that hold one value throughout, created once and sliced."""

    def __init__(self, topic: str, partition: int) -> None:
        self._name = topic.encode()
        self._partition = partition
        self._topics = pa.array([], pa.string())
        self._partitions = pa.array([], pa.int32())

    def topics(self, count: int) -> pa.Array:
        """Return the column topic for ``count`` rows."""
        if count > len(self._topics):
            capacity = _capacity(count, len(self._topics))
            offsets = np.arange(capacity + 1, dtype=np.int32) * len(self._name)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._name * capacity)]
            self._topics = pa.Array.from_buffers(pa.string(), capacity, buffers, 0)
        return self._topics.slice(0, count)

    def partitions(self, count: int) -> pa.Array:
        """Return the column partition for ``count`` rows."""
        if count > len(self._partitions):
            capacity = _capacity(count, len(self._partitions))
            self._partitions = pa.array(np.full(capacity, self._partition, np.int32))
        return self._partitions.slice(0, count)


def _capacity(count: int, so_far: int) -> int:
    return max(count, min(2 * so_far, MOST_IN_ADVANCE))


def _column(capacity: int, size: int) -> Column:
    offsets = np.empty(capacity + 1, np.int32)
    offsets[0] = 0
    return Column(offsets, np.zeros((capacity + 7) // 8, np.uint8), np.empty(size, np.uint8))


def _header_columns(capacity: int, size: int) -> Headers:
    most = size // 2 + 1  # a header takes two bytes at least: two lengths
    lists = np.empty(capacity + 1, np.int32)
    lists[0] = 0
    return Headers(lists, np.zeros((capacity + 7) // 8, np.uint8), _column(most, size), _column(most, size))
