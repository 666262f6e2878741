"""A schema with every type that records can have, and batches of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkonce.connectors.sql.select import Selected, check_select
from sparkonce.connectors.sql.types import arrow_schema

ITEM = StructType().add("sku", StringType()).add("price", DoubleType())
VALUE = (
    StructType()
    .add("id", LongType())
    .add("name", StringType())
    .add("quantity", IntegerType())
    .add("tiny", ByteType())
    .add("small", ShortType())
    .add("amount", DoubleType())
    .add("score", FloatType())
    .add("price", DecimalType(10, 2))
    .add("ok", BooleanType())
    .add("day", DateType())
    .add("at", TimestampType())
    .add("local", TimestampNTZType())
    .add("tags", ArrayType(StringType()))
    .add("items", ArrayType(ITEM))
    .add("counts", MapType(StringType(), LongType()))
    .add("nested", StructType().add("deep", StructType().add("x", LongType())))
)
RECORDS = (
    StructType()
    .add("key", BinaryType())
    .add("value", VALUE)
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
)
UTC = dt.UTC


def record(number: int) -> dict[str, Any]:
    """Return a record whose fields are all there and follow from its number."""
    return {
        "key": f"k{number}".encode(),
        "value": {
            "id": number,
            "name": f"n{number}",
            "quantity": number % 10,
            "tiny": number % 100,
            "small": number,
            "amount": number * 1.5,
            "score": number / 4,
            "price": Decimal(number) / 4,
            "ok": number % 2 == 0,
            "day": dt.date(2020, 1, 1 + number % 28),
            "at": dt.datetime(2020, 1, 1, number % 24, tzinfo=UTC),
            "local": dt.datetime(2020, 1, 1, number % 24),
            "tags": [f"t{tag}" for tag in range(number % 3)],
            "items": [{"sku": f"s{place}", "price": place * 1.0} for place in range(number % 3)],
            "counts": [("a", number)],
            "nested": {"deep": {"x": number}},
        },
        "topic": "events",
        "partition": 0,
        "offset": number,
        "timestamp": dt.datetime(2020, 1, 1, tzinfo=UTC),
    }


def batch(rows: Sequence[dict[str, Any]] | int, columns: StructType = RECORDS) -> pa.RecordBatch:
    """Return a batch of these rows, or of the first records."""
    given = [record(number) for number in range(rows)] if isinstance(rows, int) else list(rows)
    return pa.RecordBatch.from_pylist(given, arrow_schema(columns))


def run(text: str, rows: pa.RecordBatch | int = 5, columns: StructType = RECORDS) -> Selected:
    """Return what a SELECT makes of a batch."""
    given = rows if isinstance(rows, pa.RecordBatch) else batch(rows, columns)
    return check_select(text, columns).runner().run(given)


def values(text: str, rows: pa.RecordBatch | int = 5, columns: StructType = RECORDS) -> list[tuple[Any, ...]]:
    """Return its rows, of which none may fail, as tuples."""
    selected = run(text, rows, columns)
    assert not selected.failed
    return [tuple(row.values()) for row in selected.rows.to_pylist()]
