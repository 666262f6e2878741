"""Recursive schemas, cut at each depth as Spark's from_avro cuts them: types and values, of Avro and of Protobuf.

Spark's classes are called as from_avro calls them. Nobody has the jar of from_protobuf here; by its source, types of
Protobuf are cut by the same rule. So each type is made of Protobuf, too, and what is left of it compared with Avro's.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro import types as avro_types
from sparkonce.connectors.values.avro.decoder import AvroDecoder
from sparkonce.connectors.values.protobuf import reading
from sparkonce.connectors.values.protobuf import types as protobuf_types
from sparkonce.connectors.values.protobuf.decoder import ProtobufDecoder
from tests.cases import each_case
from tests.recursive_schemas import Types, random_types

pytestmark = pytest.mark.spark

VALUES = 6


class Spark:
    """Spark's reader of one schema at one depth."""

    def __init__(self, spark: SparkSession, schema: str, depth: int) -> None:
        self._jvm: Any = spark._jvm
        self._avro, sql = self._jvm.org.apache.avro, self._jvm.org.apache.spark.sql
        self._schema = self._avro.Schema.Parser().parse(schema)
        self._kind = sql.avro.SchemaConverters.toSqlType(self._schema, False, "", depth).dataType()
        self.type = StructType.fromJson(json.loads(self._kind.json()))
        self._reader = self._avro.generic.GenericDatumReader(self._schema)
        self._deserializer = sql.avro.AvroDeserializer(self._schema, self._kind, "CORRECTED", False, "", depth)

    def read(self, value: bytes) -> Any:
        """Return a value as JSON."""
        decoder = self._avro.io.DecoderFactory.get().binaryDecoder(bytearray(value), None)
        row = self._deserializer.deserialize(self._reader.read(None, decoder)).get()
        converters = self._jvm.org.apache.spark.sql.catalyst.CatalystTypeConverters
        return json.loads(converters.convertToScala(row, self._kind).json())


def without_empty(kind: DataType) -> DataType | None:
    """Return a type without structs that have no fields, and what has nothing else; every field may be null."""
    if isinstance(kind, ArrayType):
        element = without_empty(kind.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(kind, MapType):
        value = without_empty(kind.valueType)
        return None if value is None else MapType(kind.keyType, value)
    if not isinstance(kind, StructType):
        return kind
    fields = [(field.name, without_empty(field.dataType)) for field in kind]
    left = [StructField(name, inner) for name, inner in fields if inner is not None]
    return StructType(left) if left else None


def only(kind: DataType, value: Any) -> Any:
    """Return of a value in JSON, or one of Arrow, what a type has; maps as what JSON has for them."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [only(kind.elementType, each) for each in value]
    if isinstance(kind, MapType):
        return {key: only(kind.valueType, each) for key, each in dict(value).items()}
    if isinstance(kind, StructType):
        return {field.name: only(field.dataType, value.get(field.name)) for field in kind}
    return value


def decoded(decoder: AvroDecoder | ProtobufDecoder, entry: int, values: list[bytes]) -> list[Any]:
    data, starts, ends = wire.bounds(pa.array(values, pa.binary()))
    array, problems = decoder.decode(data, starts, ends, np.full(len(values), entry, np.int32))
    assert problems == {}
    array.validate(full=True)
    return array.to_pylist()


def compare(spark: SparkSession, types: Types, depth: int, chance: random.Random) -> None:
    """Compare types, and what values become."""
    theirs = Spark(spark, types.avro, depth)
    expected = without_empty(theirs.type)
    tree, message = avro.parse(types.avro, recursive=True), reading.message_of(reading.as_option(types.protobuf), None)
    if expected is None:
        with pytest.raises(avro.AvroSchemaError, match="nothing is left"):
            avro_types.spark_type(tree, depth)
        with pytest.raises(ValueError, match="has no fields"):
            protobuf_types.spark_type(message, most_within=depth)
        return
    kind = avro_types.spark_type(tree, depth)
    twin = protobuf_types.spark_type(message, most_within=depth)
    assert kind == twin == expected
    values = [types.value(chance) for _ in range(VALUES)]
    wanted = [only(kind, theirs.read(types.encoded(value))) for value in values]
    decoder = AvroDecoder(tree, kind)
    found = decoded(decoder, decoder.add(tree), [types.encoded(value) for value in values])
    assert [only(kind, each) for each in found] == wanted
    written = [google_bytes(message, value) for value in values]
    other = ProtobufDecoder(message, twin)
    assert [only(kind, each) for each in decoded(other, other.add(message), written)] == wanted


def google_bytes(message: Any, value: Any) -> bytes:
    """Return a value as Google's writer of Protobuf writes it."""
    made = message_factory.GetMessageClass(message)()
    return bytes(json_format.ParseDict(value, made).SerializeToString())


@each_case(("seed", "depth"), [(seed, depth) for seed in range(12) for depth in (1, 2, 3)])
def test_types_and_values_are_cut_where_spark_cuts_them(spark: SparkSession, seed: int, depth: int) -> None:
    compare(spark, random_types(seed), depth, random.Random(seed))


@pytest.mark.lab
@each_case(("seed", "depth"), [(seed, depth) for seed in range(100, 160) for depth in (1, 2)])
def test_many_types_and_values_are_cut_where_spark_cuts_them(spark: SparkSession, seed: int, depth: int) -> None:
    compare(spark, random_types(seed), depth, random.Random(seed))


def test_a_time_in_microseconds_is_a_time_there_and_a_number_here(spark: SparkSession) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "t", "type": {"type": "long", "logicalType": "%s"}}]}'
    found = []
    for logical in ("time-micros", "timestamp-nanos", "local-timestamp-nanos"):
        ours = avro_types.spark_type(avro.parse(schema % logical))
        found.append((Spark(spark, schema % logical, -1).type.simpleString(), ours.simpleString()))
    assert found == [
        ("struct<t:time(6)>", "struct<t:bigint>"),
        ("struct<t:bigint>", "struct<t:timestamp>"),
        ("struct<t:bigint>", "struct<t:timestamp_ntz>"),
    ]
