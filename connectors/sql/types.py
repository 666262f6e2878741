"""Types of the engine's columns, as Arrow shows them: Spark's types for them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkonce.connectors.settings.options import OptionError

_SIMPLE: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
}


def spark_type(name: str, kind: pa.DataType) -> DataType:
    """Return Spark's type of an output column.

    Raises:
        OptionError: Spark and Delta have none.
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return ArrayType(spark_type(name, kind.value_type))
    if pa.types.is_map(kind):
        return MapType(spark_type(name, kind.key_type), spark_type(name, kind.item_type))
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, spark_type(name, field.type)) for field in kind])
    if pa.types.is_null(kind):
        raise OptionError(f"sql: column {name} has no type: cast NULL, as in CAST(NULL AS STRING)")
    raise OptionError(f"sql: column {name}: Spark and Delta have no equivalent of the type {kind}; cast it")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of batches as Spark expects them."""
    return to_arrow_schema(schema, timezone="UTC")
