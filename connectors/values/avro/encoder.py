"""Encodes the values of a column as Avro."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro import writing
from sparkonce.connectors.values.avro.machine import AFTER, PROBLEM_BITS, SECOND, WIDTH
from sparkonce.connectors.values.avro.types import is_null
from sparkonce.connectors.values.avro.writing import MOST_BYTES_OF_A_CELL, PROBLEM_MASK, AvroEncoding, Output
from sparkonce.connectors.values.columns import SPAN_BITS, Column, Layout, binary_array, from_arrow
from sparkonce.connectors.values.unwritable import UnwritableRowError

_MEANING = {
    writing.IS_NULL: "it is null, which the schema does not take",
    writing.NO_SYMBOL: "it is none of the enum's symbols",
    writing.WRONG_LENGTH: "it is not as long as the schema's fixed",
    writing.OUT_OF_RANGE: "it does not fit the schema's type",
    writing.NO_MEMBER: "no member of the union has a value",
    writing.TWO_MEMBERS: "several members of the union have a value, of which only one could be written",
}
_INTS = (t.ByteType, t.ShortType, t.IntegerType)
ROOT = "topLevelRecord"
"""The name of the record in a schema for a column, as in Spark's to_avro."""


class AvroEncoder:
    """Writes a column of one type with one schema."""

    def __init__(self, schema: avro.Schema, kind: t.DataType, frame: bytes = b"") -> None:
        """``frame`` is the prefix of each value. Raises AvroSchemaError if the schema cannot hold the column."""
        self._layout = Layout(kind)
        compiler = _Compiler()
        compiler.value(schema, self._layout.root, "")
        compiler.emit(writing.END, "")
        self._where = compiler.where
        self._deepest = compiler.deepest
        self._fixed_bytes = compiler.fixed_bytes
        self._plan = AvroEncoding(
            np.array(compiler.operations, np.int32).reshape(-1, WIDTH),
            np.array(compiler.tables or [0], np.int32),
            np.array(compiler.symbols or [0], np.int64),
            np.frombuffer(bytes(compiler.pool) or b"\0", np.uint8),
            np.frombuffer(frame, np.uint8),
        )

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Return the values; null where the column is. Raises UnwritableRowError if a row does not fit the schema."""
        rows = len(column)
        filled = from_arrow(self._layout, column)
        wanted = filled.cells.valid[:rows]  # the root is the first column
        cells = int(filled.cells.values.shape[0])
        room = cells * (MOST_BYTES_OF_A_CELL + self._fixed_bytes) + filled.data.shape[0]
        output = Output(
            np.empty(room + (self._plan.frame.shape[0] + 1) * rows + 64, np.uint8),
            np.zeros(rows + 1, np.int32),
            np.zeros(self._deepest + 1, np.int64),
        )
        row, problem = writing.run(self._plan, filled.cells, filled.data, wanted, output)
        if row >= 0:
            where = self._where[problem >> PROBLEM_BITS]
            meaning = _MEANING[problem & PROBLEM_MASK]
            raise UnwritableRowError(f"{where}: {meaning}" if where else meaning)
        return binary_array(output.data[: int(output.offsets[-1])].copy(), output.offsets, wanted)


class _Compiler:
    """Makes the operations that write a schema."""

    def __init__(self) -> None:
        self.operations: list[list[int]] = []
        self.where: list[str] = []
        self.tables: list[int] = []
        self.symbols: list[int] = []
        self.pool = bytearray()
        self.deepest = self._depth = self.fixed_bytes = 0

    def value(self, schema: avro.Schema, column: Column, where: str) -> None:
        assert not isinstance(schema, avro.Recursion), "such schemas are refused"
        if isinstance(schema, avro.Union):
            self._union(schema, column, where)
        elif isinstance(schema, avro.RecordSchema):
            self._record(schema, column, where)
        elif isinstance(schema, avro.Array | avro.Map):
            self._items(schema, column, where)
        elif isinstance(schema, avro.Enum):
            self._expect(schema, column, where, t.StringType)
            self.emit(writing.ENUM, where, column, first=len(self.symbols), second=len(schema.symbols))
            self.symbols += [self._text(symbol.encode()) for symbol in schema.symbols]
        elif isinstance(schema, avro.Fixed):
            self.fixed_bytes = max(self.fixed_bytes, schema.size)
            if schema.decimal is not None and isinstance(column.kind, t.DecimalType):
                self._decimal(schema, schema.decimal, column, where)
                self.emit(writing.FIXED_DECIMAL, where, column, second=schema.size)
            else:
                self._expect(schema, column, where, t.BinaryType)
                self.emit(writing.FIXED, where, column, second=schema.size)
        else:
            self._primitive(schema, column, where)

    def _union(self, schema: avro.Union, column: Column, where: str) -> None:
        nulls = [at for at, branch in enumerate(schema.branches) if is_null(branch)]
        others = [branch for branch in schema.branches if not is_null(branch)]
        members = [column.field(f"member{at}") for at in range(len(others))] if _is_struct(column) else []
        if len(others) > 1 and members and all(members):
            pick = self._pick(nulls, -1, column, where) if nulls else None
            self._members(schema, others, [each for each in members if each is not None], where)
        else:
            fitting = _fitting(others, column)
            if fitting is None:
                raise self._unfit(schema, column, where)
            pick = self._pick(nulls, schema.branches.index(fitting), column, where)
            self.value(fitting, column, where)
        if pick is not None:
            self.operations[pick][AFTER] = len(self.operations)

    def _pick(self, nulls: list[int], branch: int, column: Column, where: str) -> int:
        """Emit the number of the branch; with ``branch`` -1, that of null only."""
        first = nulls[0] if nulls else -1
        if branch >= 0:
            return self.emit(writing.PICK, where, column, first=first, second=branch)
        return self.emit(writing.NULL_OR, where, column, first=first)

    def _members(self, schema: avro.Union, others: list[avro.Schema], members: list[Column], where: str) -> None:
        table = len(self.tables)
        self.tables += [0] * (2 * len(others))
        self.emit(writing.MEMBERS, where, first=table, second=len(others))
        jumps = []
        for at, (branch, member) in enumerate(zip(others, members, strict=True)):
            self.tables[table + 2 * at : table + 2 * at + 2] = [member.at, len(self.operations)]
            self.emit(writing.PICK, where, member, first=-1, second=schema.branches.index(branch))
            self.value(branch, member, f"{where}.member{at}".lstrip("."))
            jumps.append(self.emit(writing.JUMP, where))
        for jump in jumps:
            self.operations[jump][AFTER] = len(self.operations)

    def _record(self, schema: avro.RecordSchema, column: Column, where: str) -> None:
        if not isinstance(column.kind, t.StructType):
            raise self._unfit(schema, column, where)
        known = {field.name for field in schema.fields}
        strange = [name for name in column.kind.names if name not in known]
        if strange:
            raise avro.AvroSchemaError(
                f"{where or 'the value'}: the record {schema.name} has no field {strange[0]}, which the column has"
            )
        self.emit(writing.RECORD, where, column)
        for field in schema.fields:
            below = column.field(field.name)
            path = f"{where}.{field.name}".lstrip(".")
            if below is None:
                raise avro.AvroSchemaError(f"{path}: the column lacks this field of the record {schema.name}")
            self.value(field.type, below, path)

    def _items(self, schema: avro.Array | avro.Map, column: Column, where: str) -> None:
        is_map = isinstance(schema, avro.Map)
        fits = isinstance(column.kind, t.MapType) if is_map else isinstance(column.kind, t.ArrayType)
        if not fits:
            raise self._unfit(schema, column, where)
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        begin = self.emit(writing.LIST, where, column, first=column.below)
        if is_map:
            self._expect(avro.Primitive("string"), column.children[0], where, t.StringType)
            self.emit(writing.TEXT, f"{where}.key", column.children[0])
        items = schema.values if isinstance(schema, avro.Map) else schema.items
        self.value(items, column.children[-1], f"{where}.{'value' if is_map else 'element'}".lstrip("."))
        end = self.emit(writing.NEXT, where, first=column.below, second=begin + 1)
        self.operations[begin][SECOND] = end
        self._depth -= 1

    def _primitive(self, schema: avro.Primitive, column: Column, where: str) -> None:
        if schema.decimal is not None and isinstance(column.kind, t.DecimalType):
            self._decimal(schema, schema.decimal, column, where)
            self.emit(writing.DECIMAL, where, column)
            return
        op = _operation(schema, column.kind)
        if op is None:
            raise self._unfit(schema, column, where)
        self.emit(op, where, column, first=int(schema.kind == "int"))

    def _decimal(self, schema: avro.Schema, decimal: avro.Decimal, column: Column, where: str) -> None:
        assert isinstance(column.kind, t.DecimalType)
        if column.kind.scale != decimal.scale or column.kind.precision > decimal.precision:
            raise self._unfit(schema, column, where)

    def _expect(self, schema: avro.Schema, column: Column, where: str, kind: type[t.DataType]) -> None:
        if not isinstance(column.kind, kind):
            raise self._unfit(schema, column, where)

    def _unfit(self, schema: avro.Schema, column: Column, where: str) -> avro.AvroSchemaError:
        kind = column.kind.simpleString()
        return avro.AvroSchemaError(f"{where or 'the value'}: {kind} cannot be written as {avro.kind_of(schema)}")

    def emit(self, op: int, where: str, column: Column | None = None, *, first: int = 0, second: int = 0) -> int:
        self.operations.append([op, -1, -1 if column is None else column.at, first, second, 0])
        self.where.append(where)
        return len(self.operations) - 1

    def _text(self, text: bytes) -> int:
        start = len(self.pool)
        self.pool += text
        return (start << SPAN_BITS) | len(text)


def _is_struct(column: Column) -> bool:
    return isinstance(column.kind, t.StructType)


def _fitting(branches: list[avro.Schema], column: Column) -> avro.Schema | None:
    """Return the first branch that can represent a column; None if there is none."""
    for branch in branches:
        try:
            _Compiler().value(branch, column, "")
        except avro.AvroSchemaError:
            continue
        return branch
    return None


def _operation(schema: avro.Primitive, kind: t.DataType) -> int | None:
    """Return the operation for a column of a primitive type; None if there is none."""
    name, logical = schema.kind, schema.logical or ""
    if isinstance(kind, t.TimestampType | t.TimestampNTZType):
        plain = "local-timestamp-" if isinstance(kind, t.TimestampNTZType) else "timestamp-"
        by_unit = {"millis": writing.MILLIS, "micros": writing.WHOLE, "nanos": writing.NANOS}
        return by_unit.get(logical.removeprefix(plain)) if logical.startswith(plain) else None
    if isinstance(kind, t.DateType):
        return writing.WHOLE if logical == "date" else None
    if "timestamp" in logical or logical == "date":
        return None
    if isinstance(kind, t.BooleanType):
        return writing.BOOLEAN if name == "boolean" else None
    if isinstance(kind, t.StringType | t.BinaryType):
        return writing.TEXT if name == ("string" if isinstance(kind, t.StringType) else "bytes") else None
    if isinstance(kind, _INTS):
        return {"int": writing.WHOLE, "long": writing.WHOLE, "double": writing.DOUBLE_OF_WHOLE}.get(name)
    if isinstance(kind, t.LongType):
        return writing.WHOLE if name == "long" else None
    if isinstance(kind, t.FloatType):
        return {"float": writing.FLOAT, "double": writing.DOUBLE_OF_FLOAT}.get(name)
    return writing.DOUBLE if isinstance(kind, t.DoubleType) and name == "double" else None


def schema_for(kind: t.DataType) -> str:
    """Return a schema for a column, as text: everything inside the value may be null.

    As Spark's to_avro, but null comes first and is the default, so that a later column is compatible.

    Raises:
        AvroSchemaError: if no schema can hold it.
    """
    return json.dumps(_schema_for(kind, ROOT, ""))


def _schema_for(kind: t.DataType, name: str, space: str) -> Any:
    if type(kind) in _SCHEMAS:
        return _SCHEMAS[type(kind)]
    if isinstance(kind, t.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, t.ArrayType):
        return {"type": "array", "items": ["null", _schema_for(kind.elementType, name, space)]}
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return {"type": "map", "values": ["null", _schema_for(kind.valueType, name, space)]}
    if not isinstance(kind, t.StructType):
        raise avro.AvroSchemaError(f"{space or 'the value'}: {kind.simpleString()} has no schema of Avro")
    below = f"{space}.{name}".lstrip(".")
    fields = [
        {"name": each.name, "type": ["null", _schema_for(each.dataType, each.name, below)], "default": None}
        for each in kind
    ]
    return {"type": "record", "name": name, **({"namespace": space} if space else {}), "fields": fields}


_SCHEMAS: dict[type[t.DataType], Any] = {
    t.BooleanType: "boolean",
    t.ByteType: "int",
    t.ShortType: "int",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    t.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
