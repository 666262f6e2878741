"""Which columns a sink takes, and what it says of those that it cannot take."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from sparkonce.connectors.kafka_sink.buffers import RowError
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.options import OptionError
from tests.cases import each_case

STRING, BINARY, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def headers(value: DataType = BINARY) -> DataType:
    return ArrayType(schema(key=STRING, value=value))


def test_finds_the_columns_wherever_they_are_and_passes_over_others() -> None:
    given = schema(extra=DoubleType(), headers=headers(), topic=STRING, value=STRING, key=BINARY, partition=INT)
    expected = RowLayout(None, value=3, key=4, topic_column=2, partition=5, headers=1)
    assert RowLayout.of(given, None) == expected


def test_the_option_beats_the_column() -> None:
    assert RowLayout.of(schema(value=STRING, topic=INT), "orders") == RowLayout("orders", value=0)


def test_headers_are_left_out_if_asked_for() -> None:
    both = schema(value=STRING, headers=headers())
    assert RowLayout.of(both, "t").headers == 1
    assert RowLayout.of(both, "t", include_headers=False).headers is None


@each_case(
    ("columns", "topic", "says"),
    [
        (schema(key=STRING), "t", "no column 'value'.*'key'"),
        (schema(value=STRING), None, "option topic.*column 'topic'"),
        (schema(value=INT), "t", "column 'value' is of type int, expected string or binary"),
        (schema(value=STRING, key=LONG), "t", "column 'key' is of type bigint"),
        (schema(value=STRING, topic=BINARY), None, "column 'topic' is of type binary, expected string"),
        (schema(value=STRING, partition=LONG), "t", "column 'partition' is of type bigint, expected int"),
        (schema(value=STRING, headers=MapType(STRING, BINARY)), "t", "column 'headers' .*expected array<struct"),
        (schema(value=STRING, headers=headers(STRING)), "t", "column 'headers'"),
    ],
)
def test_refuses_a_column_that_is_missing_or_of_another_type(columns: StructType, topic: str | None, says: str) -> None:
    with pytest.raises(OptionError, match=f"^kafka_once: .*{says}"):
        RowLayout.of(columns, topic)


def test_refuses_a_row_without_a_topic() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["a", None], "value": [b"1", b"2"]})
    with pytest.raises(RowError, match="null in its column 'topic'"):
        list(RowLayout(None, value=1, topic_column=0).rows(batch))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_refuses_a_header_without_a_key(header: object) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "a", "value": None}], None, [header]], kind)
    batch = pa.RecordBatch.from_arrays([pa.array([b"1", b"2", b"3"]), headers], ["value", "headers"])
    layout = RowLayout("t", value=0, headers=1)
    assert len(list(layout.rows(batch.slice(0, 2)))) == 1
    with pytest.raises(RowError, match="header that is null or has a null key"):
        list(layout.rows(batch))
