"""The Spark types of Avro's schemas, as in ``from_avro``: Spark, SchemaConverters.scala.

What differs: every column may be null, since a value that does not parse has null in all; a ``time-micros`` is a
BIGINT, since tables cannot hold TIME(6); nanoseconds become timestamps, which are BIGINT there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import types as t

from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro.schema import AvroSchemaError

_PRIMITIVES: dict[str, type[t.DataType]] = {
    "boolean": t.BooleanType,
    "int": t.IntegerType,
    "long": t.LongType,
    "float": t.FloatType,
    "double": t.DoubleType,
    "bytes": t.BinaryType,
    "string": t.StringType,
}
OPTION = "recursiveFieldMaxDepth"
MAX_FIELDS = avro.MAX_PARTS
"""The maximal number of fields in a column: a recursive schema of depth 2 has twice as many at each level."""
_WIDER = ({"int", "long"}, {"float", "double"})
"""Unions of these are the wider type."""


def spark_type(schema: avro.Schema, most_within: int = 0, too_large: str = f"set a smaller {OPTION}") -> t.DataType:
    """Return the type of the column for a schema.

    With ``most_within``, a record is nested at most so many times, the outermost counted; deeper ones
    has no column, as with ``recursiveFieldMaxDepth`` of Spark. Nor has what nothing is left of, unlike in Spark, where
    it is a struct without fields. ``too_large`` is what an error says of a schema with too many fields or levels.

    Raises:
        AvroSchemaError: no column can hold it.
    """
    found = _Types(most_within, too_large).type(schema, {}, "the value")
    if found is None:
        raise AvroSchemaError(f"of the value nothing is left with {OPTION}={most_within}")
    return found


class _Types:
    """Each of these takes how often records are around a schema, and returns None for what is cut off."""

    def __init__(self, most_within: int, too_large: str) -> None:
        self._most_within, self._too_large = most_within, too_large
        self._fields = 0

    def type(self, schema: avro.Schema, around: Mapping[str, int], where: str) -> t.DataType | None:
        if isinstance(schema, avro.Recursion | avro.RecordSchema):
            return self._record(schema, around, where)
        if isinstance(schema, avro.Array):
            element = self.type(schema.items, around, _below(where, "element"))
            return None if element is None else t.ArrayType(element)
        if isinstance(schema, avro.Map):
            value = self.type(schema.values, around, _below(where, "value"))
            return None if value is None else t.MapType(t.StringType(), value)
        if isinstance(schema, avro.Union):
            return self._union(schema, around, where)
        if isinstance(schema, avro.Enum):
            return t.StringType()
        if schema.decimal is not None:
            return t.DecimalType(schema.decimal.precision, schema.decimal.scale)
        if isinstance(schema, avro.Fixed):
            return t.BinaryType()
        return _primitive(schema, where)

    def _record(
        self, schema: avro.Recursion | avro.RecordSchema, around: Mapping[str, int], where: str
    ) -> t.StructType | None:
        times = around.get(schema.name, 0)
        if times and not self._most_within:
            raise AvroSchemaError(
                f"{where} is the record {schema.name} within itself, which no column can hold. Set {OPTION} to the "
                "number of times that it may be within itself, itself counted: what is deeper is left out"
            )
        if times and times >= self._most_within:
            return None
        record = avro.expanded(schema)
        assert isinstance(record, avro.RecordSchema)
        if not record.fields:
            raise AvroSchemaError(f"{where} is the record {schema.name} without fields, which no column can hold")
        return self._struct(
            [(each.name, each.type) for each in record.fields], {**around, schema.name: times + 1}, where
        )

    def _union(self, schema: avro.Union, around: Mapping[str, int], where: str) -> t.DataType | None:
        branches = [branch for branch in schema.branches if not is_null(branch)]
        if not branches:
            raise _always_null(where)
        if len(branches) == 1 or is_widened(branches):
            return self.type(widest(branches), around, where)
        return self._struct([(f"member{at}", branch) for at, branch in enumerate(branches)], around, where)

    def _struct(
        self, parts: Sequence[tuple[str, avro.Schema]], around: Mapping[str, int], where: str
    ) -> t.StructType | None:
        if where.count(".") > avro.MAX_DEPTH:
            raise AvroSchemaError(f"{where[:40]}… is more than {avro.MAX_DEPTH} levels deep: {self._too_large}")
        fields = []
        for name, part in parts:
            self._fields += 1
            if self._fields > MAX_FIELDS:
                raise AvroSchemaError(f"{where} has more than {MAX_FIELDS:,} fields: {self._too_large}")
            kind = self.type(part, around, _below(where, name))
            if kind is not None:
                fields.append(t.StructField(name, kind))
        return t.StructType(fields) if fields else None


def _primitive(schema: avro.Primitive, where: str) -> t.DataType:
    logical = schema.logical or ""
    if logical == "date":
        return t.DateType()
    if logical.startswith("timestamp-"):
        return t.TimestampType()
    if logical.startswith("local-timestamp-"):
        return t.TimestampNTZType()
    if schema.kind == "null":
        raise _always_null(where)
    return _PRIMITIVES[schema.kind]()


def _always_null(where: str) -> AvroSchemaError:
    return AvroSchemaError(f"{where} is always null, which no column can hold; name a reader's schema without it")


def is_null(schema: avro.Schema) -> bool:
    """Return whether a schema has the value null only."""
    return isinstance(schema, avro.Primitive) and schema.kind == "null"


def is_widened(branches: list[avro.Schema]) -> bool:
    """Return whether one column of a primitive type holds all branches of a union, as Spark has it."""
    return len(branches) == 2 and {avro.kind_of(each) for each in branches} in _WIDER


def widest(branches: list[avro.Schema]) -> avro.Schema:
    """Return the branch whose type holds all others."""
    if len(branches) == 1:
        return branches[0]
    return avro.Primitive("long" if avro.kind_of(branches[0]) in ("int", "long") else "double")


def _below(where: str, name: str) -> str:
    return name if where == "the value" else f"{where}.{name}"
