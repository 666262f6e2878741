"""Encodes the values of a column as Protobuf."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from pyspark.sql import types as t

from sparkonce.connectors.values.columns import SPAN_BITS, Column, Layout, binary_array, from_arrow
from sparkonce.connectors.values.protobuf import machine, writing
from sparkonce.connectors.values.protobuf.finishing import unnamed_prefix
from sparkonce.connectors.values.protobuf.machine import PROBLEM_BITS
from sparkonce.connectors.values.protobuf.message_tree import MESSAGES, describe
from sparkonce.connectors.values.protobuf.program import WIRES
from sparkonce.connectors.values.protobuf.schema import ProtobufSchemaError
from sparkonce.connectors.values.protobuf.types import DURATION, TIMESTAMP, UNSIGNED_LONG, WRAPPERS, is_map
from sparkonce.connectors.values.protobuf.writing import (
    MOST_BYTES_OF_A_CELL,
    PROBLEM_MASK,
    WIDTH,
    Output,
    ProtobufEncoding,
)
from sparkonce.connectors.values.unwritable import UnwritableRowError

F = FieldDescriptor
_MEANING = {
    writing.IS_NULL: "it is null, which the schema does not take",
    writing.NO_PRESENCE: "it is null, and would be read as 0 or empty, since the field has no presence: declare it "
    "optional, or replace nulls, as with coalesce",
    writing.IS_NULL_LIST: "it is null, which Protobuf cannot tell from an empty one: replace nulls, as with coalesce",
    writing.NO_SYMBOL: "it is none of the enum's symbols",
    writing.OUT_OF_RANGE: "it does not fit the schema's type",
    writing.NOT_UTF8: "the text is not UTF-8",
    writing.SEVERAL: "more than one of its fields has a value",
}
_SMALL = (t.ByteType, t.ShortType)
_INTS = (*_SMALL, t.IntegerType)
_SIGNED32 = (F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32)
_UNSIGNED32 = (F.TYPE_UINT32, F.TYPE_FIXED32)
_SIGNED64 = (F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64)
_UNSIGNED64 = (F.TYPE_UINT64, F.TYPE_FIXED64)
_NUMBERS = {
    **dict.fromkeys((F.TYPE_FIXED32, F.TYPE_SFIXED32), writing.WORD32),
    **dict.fromkeys((F.TYPE_FIXED64, F.TYPE_SFIXED64), writing.WORD64),
    **dict.fromkeys((F.TYPE_SINT32, F.TYPE_SINT64), writing.ZIGZAG),
}
"""How whole numbers are written, by the type of the field; `writing.WHOLE` for others."""
_GROUP = 1
MAX_BYTES = (1 << 31) - 1
"""Of all values of one call: the limit of Arrow's offsets."""


class ProtobufEncoder:
    """Writes a column of one type as one message."""

    def __init__(self, message: Descriptor, kind: t.DataType, frame: bytes = b"") -> None:
        """``frame`` is the prefix of each value. Raises ProtobufSchemaError if the message cannot hold the column."""
        if not isinstance(kind, t.StructType):
            raise ProtobufSchemaError(f"the value: {kind.simpleString()} cannot be written as {message.full_name}")
        self._layout = Layout(kind)
        compiler = _Compiler()
        compiler.message(message, self._layout.root, "")
        compiler.emit(writing.END, "")
        self._where = compiler.where
        self._deepest = compiler.deepest
        self._plan = ProtobufEncoding(
            np.array(compiler.operations, np.int64).reshape(-1, WIDTH),
            np.array(compiler.tables or [0], np.int32),
            np.array(compiler.symbols or [0], np.int64),
            np.array(compiler.numbers or [0], np.int32),
            np.frombuffer(bytes(compiler.pool) or b"\0", np.uint8),
            np.frombuffer(frame, np.uint8),
        )

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Return the values; null where the column is.

        Raises:
            UnwritableRowError: for a row that does not fit the schema.
            OverflowError: the values are more bytes than Arrow holds in one column.
        """
        rows = len(column)
        filled = from_arrow(self._layout, column)
        wanted = filled.cells.valid[:rows]  # the root is the first column
        room = int(filled.cells.values.shape[0]) * MOST_BYTES_OF_A_CELL + filled.data.shape[0]
        output = Output(
            np.empty(room + self._plan.frame.shape[0] * rows, np.uint8),
            np.zeros(rows + 1, np.int64),
            np.zeros(2 * self._deepest + 1, np.int64),
        )
        row, problem = writing.run(self._plan, filled.cells, filled.data, wanted, output)
        if row >= 0:
            where = self._where[problem >> PROBLEM_BITS]
            meaning = _MEANING[problem & PROBLEM_MASK]
            raise UnwritableRowError(f"{where}: {meaning}" if where else meaning)
        first, last = int(output.starts[0]), int(output.starts[-1])
        if last - first > MAX_BYTES:
            raise OverflowError(f"{last - first} bytes of values in one column are more than Arrow holds")
        return binary_array(output.data[first:last].copy(), (output.starts - first).astype(np.int32), wanted)


class _Compiler:
    """Makes the operations that write a message: see `writing`."""

    def __init__(self) -> None:
        self.operations: list[list[int]] = []
        self.where: list[str] = []
        self.tables: list[int] = []
        self.symbols: list[int] = []
        self.numbers: list[int] = []
        self.pool = bytearray()
        self.deepest = self._depth = self._messages = 0

    def message(self, message: Descriptor, column: Column, where: str) -> None:
        """Emit the fields of a message, of which ``column`` is the struct."""
        assert isinstance(column.kind, t.StructType)
        strange = [name for name in column.kind.names if name not in message.fields_by_name]
        if strange:
            raise ProtobufSchemaError(
                f"{where or 'the value'}: the message {message.full_name} has no field {strange[0]}, which the column "
                "has"
            )
        self._messages += 1
        if self._messages > machine.DEEPEST:
            raise ProtobufSchemaError(f"{where}: more than {machine.DEEPEST} messages are in each other")
        for oneof in message.oneofs:
            members = [below.at for each in oneof.fields if (below := column.field(each.name)) is not None]
            if len(members) > 1:
                self.emit(
                    writing.ONEOF, f"{where}.{oneof.name}".lstrip("."), first=len(self.tables), second=len(members)
                )
                self.tables += members
        for field in sorted(message.fields, key=lambda each: each.number, reverse=True):
            self._field(field, column.field(field.name), f"{where}.{field.name}".lstrip("."))
        self._messages -= 1

    def _field(self, field: FieldDescriptor, column: Column | None, where: str) -> None:
        if column is None:
            if field.is_required:
                raise ProtobufSchemaError(
                    f"{where}: the column lacks this field, which the message {field.containing_type.full_name} "
                    "requires"
                )
        elif field.is_repeated:
            self._list(field, column, where)
        elif field.is_required:
            self._single(field, column, where, writing.REFUSED)
        else:
            self._single(field, column, where, writing.LEFT_OUT if field.has_presence else writing.HAS_NO_PRESENCE)

    def _list(self, field: FieldDescriptor, column: Column, where: str) -> None:
        if not isinstance(column.kind, t.MapType if is_map(field) else t.ArrayType):
            raise _unfit(field, column, where)
        packed = field.is_packed
        begin = self._open(writing.LIST, where, column, writing.REFUSED, first=column.below, kind=int(packed))
        if is_map(field):
            self._open(writing.OPEN, where)
            for number, below in ((2, column.children[1]), (1, column.children[0])):
                inner = field.message_type.fields_by_number[number]
                self._single(inner, below, f"{where}.{inner.name}", writing.REFUSED)
            self._close(writing.CLOSE, where, tag=_tag(field))
        else:
            element = column.children[0]
            self._single(field, element, f"{where}.element", writing.REFUSED, tag=0 if packed else None)
        self._close(writing.NEXT, where, first=column.below, second=begin + 1)
        if packed:
            self.emit(writing.CLOSE, where, tag=_tag(field))
        self.operations[begin][writing.AFTER] = len(self.operations)

    def _single(self, field: FieldDescriptor, column: Column, where: str, nulls: int, tag: int | None = None) -> None:
        """Emit one value of a field."""
        if field.type in MESSAGES:
            self._within(field, column, where, nulls)
            return
        first = second = 0
        if field.type == F.TYPE_ENUM and isinstance(column.kind, t.StringType):
            kind, check = writing.SYMBOL, writing.UNCHECKED
            first, second = self._names(field.enum_type)
        else:
            found = _operation(field, column.kind)
            if found is None:
                raise _unfit(field, column, where)
            kind, check = found
            if kind == writing.LISTED:
                numbers = sorted({each.number for each in field.enum_type.values})
                first, second = len(self.tables), len(numbers)
                self.tables += numbers
        self.emit(
            writing.VALUE,
            where,
            column,
            tag=_tag(field) if tag is None else tag,
            nulls=nulls,
            kind=kind,
            check=check,
            first=first,
            second=second,
        )

    def _within(self, field: FieldDescriptor, column: Column, where: str, nulls: int) -> None:
        """Emit a message or group that is a field's value."""
        message, is_group = field.message_type, field.type == F.TYPE_GROUP
        ending = field.number << 3 | machine.END_GROUP if is_group else 0
        begin = self._open(writing.OPEN, where, column, nulls, tag=ending)
        if isinstance(column.kind, t.StructType):
            self.message(message, column, where)
        elif message.full_name == TIMESTAMP and isinstance(column.kind, t.TimestampType):
            self.emit(writing.VALUE, where, column, nulls=writing.REFUSED, kind=writing.TIMESTAMP)
        elif message.full_name == DURATION and isinstance(column.kind, t.LongType):
            self.emit(writing.VALUE, where, column, nulls=writing.REFUSED, kind=writing.DURATION)
        elif message.full_name in WRAPPERS:
            inner = message.fields_by_number[1]
            if _operation(inner, column.kind) is None:
                raise _unfit(field, column, where)
            self._single(inner, column, where, writing.HAS_NO_PRESENCE)
        else:
            raise _unfit(field, column, where)
        self._close(writing.CLOSE, where, tag=_tag(field), kind=_GROUP if is_group else 0)
        self.operations[begin][writing.AFTER] = len(self.operations)

    def _open(
        self,
        op: int,
        where: str,
        column: Column | None = None,
        nulls: int = 0,
        *,
        kind: int = 0,
        first: int = 0,
        tag: int = 0,
    ) -> int:
        """Emit an operation that pushes onto the stack, and that a `_close` pops."""
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        return self.emit(op, where, column, nulls=nulls, kind=kind, first=first, tag=tag)

    def _close(self, op: int, where: str, *, tag: int = 0, kind: int = 0, first: int = 0, second: int = 0) -> None:
        self._depth -= 1
        self.emit(op, where, tag=tag, kind=kind, first=first, second=second)

    def _names(self, enum: EnumDescriptor) -> tuple[int, int]:
        """Add the names of an enum; return where they begin, and how many there are."""
        first, values = len(self.symbols), list(enum.values)
        self.symbols += [self._text(each.name) for each in values]
        self.symbols.append(self._text("" if enum.is_closed else unnamed_prefix(enum)))
        self.numbers += [*(each.number for each in values), 0]
        return first, len(values)

    def _text(self, text: str) -> int:
        start, content = len(self.pool), text.encode()
        self.pool += content
        return (start << SPAN_BITS) | len(content)

    def emit(
        self,
        op: int,
        where: str,
        column: Column | None = None,
        *,
        tag: int = 0,
        nulls: int = 0,
        kind: int = 0,
        check: int = 0,
        first: int = 0,
        second: int = 0,
    ) -> int:
        after = len(self.operations) + 1
        at = -1 if column is None else column.at
        self.operations.append([op, at, tag, nulls, kind, check, first, second, after])
        self.where.append(where)
        return len(self.operations) - 1


def _tag(field: FieldDescriptor) -> int:
    packed = field.is_repeated and field.is_packed
    return int(field.number << 3 | (machine.LENGTH if packed else WIRES.get(field.type, machine.VARINT)))


def _operation(field: FieldDescriptor, kind: t.DataType) -> tuple[int, int] | None:
    """Return the operation for a column as a field that is no message, and its check; None if there is none.

    INT and BIGINT hold the bits of unsigned numbers of their size, as the decoder makes them; other columns hold the
    numbers themselves.
    """
    whole = _whole(field.type, kind)
    if whole is not None:
        return whole
    plain = writing.UNCHECKED
    if field.type == F.TYPE_ENUM and isinstance(kind, t.IntegerType):
        return (writing.LISTED if field.enum_type.is_closed else writing.WHOLE), plain
    if field.type == F.TYPE_BOOL and isinstance(kind, t.BooleanType):
        return writing.WHOLE, plain
    if field.type == F.TYPE_STRING and isinstance(kind, t.StringType):
        return writing.TEXT, plain
    if field.type == F.TYPE_BYTES and isinstance(kind, t.BinaryType):
        return writing.RAW, plain
    if field.type == F.TYPE_FLOAT and isinstance(kind, t.FloatType):
        return writing.WORD32, plain
    if field.type != F.TYPE_DOUBLE:
        return None
    if isinstance(kind, _INTS):
        return writing.DOUBLE_OF_WHOLE, plain
    if isinstance(kind, t.FloatType):
        return writing.DOUBLE_OF_FLOAT, plain
    return (writing.WORD64, plain) if isinstance(kind, t.DoubleType) else None


def _whole(field_type: int, kind: t.DataType) -> tuple[int, int] | None:
    """Return the result of `_operation` for integers; None for others."""
    how = _NUMBERS.get(field_type, writing.WHOLE)
    if field_type in (*_SIGNED32, *_SIGNED64) and isinstance(kind, _INTS):
        return how, writing.UNCHECKED
    if field_type in (*_SIGNED64, *_UNSIGNED64) and isinstance(kind, t.LongType):
        return how, writing.UNCHECKED
    if field_type in _UNSIGNED32 and isinstance(kind, t.IntegerType):
        return (writing.LOW_WORD if how == writing.WHOLE else how), writing.UNCHECKED
    if field_type in _UNSIGNED32 and isinstance(kind, t.LongType):
        return how, writing.FITS_WORD
    if field_type in (*_UNSIGNED32, *_UNSIGNED64) and isinstance(kind, _INTS):
        return how, writing.NOT_NEGATIVE
    if field_type in _UNSIGNED64 and kind == UNSIGNED_LONG:
        return how, writing.NO_HIGH_WORD
    return None


def _unfit(field: FieldDescriptor, column: Column, where: str) -> ProtobufSchemaError:
    return ProtobufSchemaError(f"{where}: {column.kind.simpleString()} cannot be written as {describe(field)}")
