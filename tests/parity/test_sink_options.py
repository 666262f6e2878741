"""What a sink refuses before a row is written: the cases of Spark's KafkaSinkStreamingSuiteBase that need no session.

Spark's sink says so when the first batch runs, and ours when it begins; the data source is asked as Spark asks it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from sparkonce.connectors.formats.kafka_once import KafkaOnceDataSource
from sparkonce.options import OptionError

TYPES = {"string": StringType(), "int": IntegerType()}


def refusal(folder: Path, columns: str, **options: str) -> str:
    """Return the message with which a stream of rows with these columns is refused."""
    fields = [StructField(name, TYPES[kind]) for name, kind in (column.split() for column in columns.split(", "))]
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "appid": "a", "checkpointlocation": str(folder)}
    with pytest.raises(OptionError) as caught:
        KafkaOnceDataSource({**given, **options}).streamWriter(StructType(fields), False)
    return str(caught.value)


def test_columns_that_are_missing(tmp_path: Path) -> None:
    """Rows need a value, and a topic from somewhere.

    Spark: KafkaSinkStreamingSuiteBase "streaming - write data with bad schema"
    """
    assert "topic" in refusal(tmp_path, "key string, value string")
    assert "'value'" in refusal(tmp_path, "topic string, key string")


@pytest.mark.parametrize(
    ("columns", "column", "expected"),
    [
        ("topic int, value string", "topic", "string"),
        ("topic string, value int", "value", "string or binary"),
        ("topic string, key int, value string", "key", "string or binary"),
        ("topic string, value string, partition string", "partition", "int"),
    ],
)
def test_columns_of_another_type(tmp_path: Path, columns: str, column: str, expected: str) -> None:
    """The message names the column, and the types it may have.

    Spark: KafkaSinkStreamingSuiteBase "streaming - write data with valid schema but wrong types"
    """
    said = refusal(tmp_path, columns)
    assert f"'{column}'" in said
    assert f"expected {expected}" in said


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_serializers(tmp_path: Path, name: str) -> None:
    """Rows are bytes already.

    Spark: KafkaSinkStreamingSuiteBase "streaming - exception on config serializer"
    """
    said = refusal(tmp_path, "value string", topic="t", **{f"kafka.{name}": "foo"})
    assert name in said
    assert "not supported" in said
