"""The Spark types of Avro's schemas, as ``from_avro`` has them: Spark, SchemaConverters.scala.

What differs: every column may be null, since a value that does not parse has null in all.
"""

from __future__ import annotations

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
_WIDER = ({"int", "long"}, {"float", "double"})
"""Unions of these are the wider type."""


def spark_type(schema: avro.Schema, where: str = "the value") -> t.DataType:
    """Return the type of the column for a schema.

    Raises:
        AvroSchemaError: no column can hold it.
    """
    if isinstance(schema, avro.Record):
        if not schema.fields:
            raise AvroSchemaError(f"{where} is the record {schema.name} without fields, which no column can hold")
        return t.StructType(
            [t.StructField(each.name, spark_type(each.type, _below(where, each.name))) for each in schema.fields]
        )
    if isinstance(schema, avro.Array):
        return t.ArrayType(spark_type(schema.items, _below(where, "element")))
    if isinstance(schema, avro.Map):
        return t.MapType(t.StringType(), spark_type(schema.values, _below(where, "value")))
    if isinstance(schema, avro.Union):
        branches = [branch for branch in schema.branches if not is_null(branch)]
        if not branches:
            raise _always_null(where)
        if len(branches) == 1 or is_widened(branches):
            return spark_type(widest(branches), where)
        members = [(f"member{at}", branch) for at, branch in enumerate(branches)]
        return t.StructType([t.StructField(name, spark_type(each, _below(where, name))) for name, each in members])
    if isinstance(schema, avro.Enum):
        return t.StringType()
    if schema.decimal is not None:
        return t.DecimalType(schema.decimal.precision, schema.decimal.scale)
    if isinstance(schema, avro.Fixed):
        return t.BinaryType()
    return _primitive(schema, where)


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
