"""What Spark's from_json makes of documents, and what our decoder makes of them, in one form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.json_values import JsonDecoder
from sparkonce.connectors.values.options import JsonOptions
from tests.json_documents import plain, without_java

ZONE = "America/New_York"


def by_spark(spark: SparkSession, schema: str, values: list[bytes], **options: str) -> list[Any]:
    """What from_json gives."""
    rows = spark.createDataFrame([(at, value) for at, value in enumerate(values)], "at INT, value BINARY").coalesce(1)
    given = {"timeZone": ZONE, **options}
    parsed = rows.select("at", f.from_json(f.col("value").cast("string"), schema, given).alias("value")).sort("at")
    # The text of a corrupt record may be no UTF-8, which Arrow's strings must be.
    names = [name for name in parse_schema(schema).names if name != "_corrupt_record"]
    parts = [f.col(f"value.{name}").alias(name) for name in names]
    corrupt = f.col("value._corrupt_record").isNotNull().alias("corrupt")
    table = parsed.select(f.col("value").isNull().alias("none"), corrupt, *parts).toArrow().combine_chunks()
    return plain(pa.StructArray.from_arrays([_whole(column) for column in table.columns], names=table.column_names))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def by_us(schema: str, values: list[bytes], **options: Any) -> list[Any]:
    """What our decoder gives, in the same form."""
    found, problems = JsonDecoder(JsonOptions(parse_schema(schema), time_zone=ZONE, **options)).decode(pa.array(values))
    rows = []
    for at, row in enumerate(plain(found)):
        fields = row or dict.fromkeys(found.type.names)
        fields.pop("_corrupt_record")
        rows.append({"none": row is None, "corrupt": at in problems, **fields})
    return rows


def same(spark: SparkSession, schema: str, values: list[bytes], ours: list[Any] | None = None, **options: str) -> None:
    """Fail where our decoder's rows, those of ``ours`` if given, are not Spark's."""
    theirs = by_spark(spark, schema, values, **options)
    for value, one, other in zip(values, by_us(schema, values) if ours is None else ours, theirs, strict=True):
        assert without_java(repr(one)) == without_java(repr(other)), (schema, value)
