"""The columns of a Kafka record, as Spark's own Kafka connector names and types them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

KEY, VALUE, TOPIC, PARTITION = "key", "value", "topic", "partition"
OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = "offset", "timestamp", "timestampType", "headers"

COLUMNS = (KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE)
"""What is read unless something else is asked for, in this order."""

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK: dict[str, DataType] = {
    KEY: BinaryType(),
    VALUE: BinaryType(),
    TOPIC: StringType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    TIMESTAMP: TimestampType(),
    TIMESTAMP_TYPE: IntegerType(),
    HEADERS: ArrayType(_HEADER),
}
_ARROW_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(pa.field("element", _ARROW_HEADER)),
}
ALL_COLUMNS = tuple(_SPARK)


def default_columns(include_headers: bool) -> tuple[str, ...]:
    """Return the columns of Spark's own connector; ``headers`` comes last, and only if it was asked for."""
    return (*COLUMNS, HEADERS) if include_headers else COLUMNS


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the schema of records with these columns."""
    return StructType([StructField(name, _SPARK[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the same schema as Spark expects it from a worker: it compares types, names and nullability exactly."""
    return pa.schema([pa.field(name, _ARROW[name]) for name in columns])
