"""Dead letters as columns: records that cannot be used, with the reason."""

from __future__ import annotations

from pyspark.sql import types as t

COLUMN = "_dead_letter"
"""The column that sinks read."""
REASON = "reason"

LETTER = t.StructType(
    [
        t.StructField(REASON, t.StringType()),
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
    ]
)
"""What the column holds, and the columns of a table of dead letters."""
