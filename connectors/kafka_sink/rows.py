"""Which columns of a DataFrame become which parts of a Kafka record, and where their bytes lie.

The columns are those of Spark's own Kafka sink: `value`, and optionally `key`, `headers`, `topic` and `partition`;
others are ignored, as Spark does. `RowLayout.of` checks the types once, on the driver. `RowLayout.columns` passes the
Arrow buffers of one batch to the compiled kernel, without touching a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from sparkonce.connectors.kafka_sink.buffers import Bytes, Columns, Headers, Int32s, RowError, Rows, Values
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.options import OptionError

if TYPE_CHECKING:
    from sparkonce.connectors.kafka_sink.encoding import RowEncoder

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_MOST_BYTES = 1 << 30
"""A batch of more bytes is split, since the kernel reads Arrow's 32-bit offsets."""
_LARGE = {pa.large_binary(): pa.binary(), pa.large_string(): pa.binary(), pa.binary_view(): pa.binary()} | {
    pa.string_view(): pa.binary()
}


class ColumnEncoding(Protocol):
    """Makes bytes of a column's values; see `typed_values`."""

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Return the bytes; raise RowError for a row that cannot be written."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where the parts of a record are: columns' positions, or None; ``topic`` is for all rows, or there is a column."""

    topic: str | None
    value: int
    key: int | None = None
    topic_column: int | None = None
    partition: int | None = None
    headers: int | None = None
    encodings: Mapping[str, ColumnEncoding] = field(default_factory=dict)
    """By column, what makes bytes of those that are not bytes or text."""

    @classmethod
    def of(
        cls,
        schema: StructType,
        topic: str | None,
        include_headers: bool = True,
        encodings: Mapping[str, ColumnEncoding] | None = None,
    ) -> RowLayout:
        """Find the columns in ``schema``; ``topic``, the option, overrides the column of that name.

        Without ``include_headers`` the column ``headers`` is ignored. Columns with one of ``encodings`` may have any
        type.

        Raises:
            OptionError: if a column is missing or has another type.

        """
        found = {name: position for position, name in reversed(list(enumerate(schema.names)))}
        if "value" not in found:
            raise OptionError(
                "kafka_once: the rows have no column 'value', which becomes the value of the record; they have "
                f"{', '.join(map(repr, schema.names))}. Select one: to_json(struct(*)) AS value, or with "
                "valueFormat=avro struct(*) AS value"
            )
        if topic is None and "topic" not in found:
            raise OptionError("kafka_once: no topic for the rows: set the option topic, or add a string column 'topic'")
        if not include_headers:
            found.pop("headers", None)
        if topic is not None:
            found.pop("topic", None)
        encodings = encodings or {}
        for name, position in found.items():
            if name not in encodings:
                _check_type(name, schema[position].dataType)
        return cls(
            topic,
            found["value"],
            found.get("key"),
            found.get("topic"),
            found.get("partition"),
            found.get("headers"),
            encodings,
        )

    def encoder(
        self, partition_count: Callable[[str, int | None], int], settings: ProducerSettings, start: int
    ) -> RowEncoder:
        """Return an encoder of such rows, with the arguments that it takes."""
        # Here, because it loads the compiler: the driver's processes know this module too.
        from sparkonce.connectors.kafka_sink.encoding import RowEncoder

        return RowEncoder(self, partition_count, settings, start)

    def rows(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        """Yield the buffers of a batch; in several pieces if it is very large.

        Raises:
            RowError: if a row has no topic, or a header no key.

        """
        if batch.num_rows > 1 and batch.nbytes > _MOST_BYTES:
            half = batch.num_rows // 2
            yield from self.rows(batch.slice(0, half))
            yield from self.rows(batch.slice(half))
        elif batch.num_rows:
            names, codes = self._topics(batch)
            partitions, partition_bits, first_bit = _NO_INT32S, _NO_BYTES, 0
            if self.partition is not None:
                partitions, partition_bits, first_bit = _partitions(batch.column(self.partition))
            columns = Columns(
                _NO_VALUES if self.key is None else _values(self._encoded("key", batch.column(self.key))),
                _values(self._encoded("value", batch.column(self.value))),
                _NO_HEADERS if self.headers is None else _header_lists(batch.column(self.headers)),
                partitions,
                partition_bits,
                first_bit,
                codes,
            )
            yield Rows(batch.num_rows, columns, names)

    def _encoded(self, name: str, column: pa.Array) -> pa.Array:
        encoding = self.encodings.get(name)
        return column if encoding is None else encoding.encode(column)

    def _topics(self, batch: pa.RecordBatch) -> tuple[tuple[str, ...], Int32s]:
        if self.topic_column is None:
            assert self.topic is not None
            return (self.topic,), _NO_INT32S
        column = batch.column(self.topic_column)
        if column.null_count:
            raise RowError(
                "kafka_once: a row has null in its column 'topic': set the option topic, or fill the column before"
            )
        encoded = column.dictionary_encode()
        names = tuple(encoded.dictionary.to_pylist())
        codes = _array(encoded.indices.buffers()[1], np.dtype(np.int32), encoded.offset, batch.num_rows)
        return names, _NO_INT32S if len(names) == 1 else codes


def _check_type(name: str, kind: DataType) -> None:
    if name in ("key", "value"):
        fits, expected = isinstance(kind, (StringType, BinaryType)), "string or binary"
    elif name == "topic":
        fits, expected = isinstance(kind, StringType), "string"
    elif name == "partition":
        fits, expected = isinstance(kind, IntegerType), "int"
    elif name == "headers":
        fits, expected = kind.simpleString() == _HEADERS_TYPE, _HEADERS_TYPE
    else:
        return
    if not fits:
        raise OptionError(
            f"kafka_once: column {name!r} is of type {kind.simpleString()}, expected {expected}: cast it before"
        )


def _read_only(array: Any) -> Any:
    array.flags.writeable = False  # so that the kernel is compiled for one kind of array only
    return array


_NO_BYTES: Bytes = _read_only(np.zeros(0, np.uint8))
_NO_INT32S: Int32s = _read_only(np.zeros(0, np.int32))
_NO_VALUES = Values(_NO_INT32S, _NO_BYTES, _NO_BYTES, 0)
_NO_HEADERS = Headers(_NO_INT32S, _NO_BYTES, 0, _NO_VALUES, _NO_VALUES)


def _array(buffer: pa.Buffer | None, kind: np.dtype[Any], first: int, count: int) -> Any:
    """Return ``count`` numbers of a buffer from the one at ``first`` on, without a copy."""
    if buffer is None or not count:
        return _read_only(np.zeros(0, kind))
    array = np.frombuffer(buffer, kind, count, first * kind.itemsize)
    if not array.flags.aligned:
        array = array.copy()
    return _read_only(array)


def _bits(column: pa.Array) -> Bytes:
    """Return the null bitmap; empty if there is none. They begin at the array's offset."""
    if not column.null_count:
        return _NO_BYTES
    buffer = column.buffers()[0]
    return _read_only(np.frombuffer(buffer, np.uint8)) if buffer is not None else _NO_BYTES


def _values(column: pa.Array) -> Values:
    if column.type in _LARGE:
        column = column.cast(_LARGE[column.type])
    _, offsets, data = column.buffers()
    return Values(
        _array(offsets, np.dtype(np.int32), column.offset, len(column) + 1),
        _array(data, np.dtype(np.uint8), 0, data.size if data is not None else 0),
        _bits(column),
        column.offset,
    )


def _partitions(column: pa.Array) -> tuple[Int32s, Bytes, int]:
    numbers = _array(column.buffers()[1], np.dtype(np.int32), column.offset, len(column))
    return numbers, _bits(column), column.offset


def _header_lists(column: pa.Array) -> Headers:
    if isinstance(column, pa.LargeListArray):
        column = column.cast(pa.list_(column.type.value_field))
    if column.null_count:
        entries = column.flatten()  # without what lies below a null list
    else:
        entries = column.values.slice(column.offsets[0].as_py(), column.offsets[-1].as_py() - column.offsets[0].as_py())
    if entries.null_count or entries.field(0).null_count:
        raise RowError("kafka_once: a row has a header that is null or has a null key; Kafka needs a key in each")
    every = column.values
    lists = _array(column.buffers()[1], np.dtype(np.int32), column.offset, len(column) + 1)
    return Headers(lists, _bits(column), column.offset, _values(every.field(0)), _values(every.field(1)))
