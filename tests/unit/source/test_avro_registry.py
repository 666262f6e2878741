"""Values as Confluent's serializers write them, and ours as their deserializers read them, for every type of Avro."""

from __future__ import annotations

import datetime
import json
import uuid
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.connectors.direct.source import DirectSource
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.schema_registry.client import (
    AVRO,
    RegisteredSchema,
    Registry,
    UnreachableRegistryError,
    shared_registry,
)
from sparkonce.connectors.schema_registry.settings import RegistrySettings
from sparkonce.connectors.schema_registry.wire import frame
from sparkonce.connectors.values.avro.encoder import AvroEncoder
from sparkonce.connectors.values.avro.schema import parse
from sparkonce.connectors.values.avro.types import spark_type
from sparkonce.connectors.values.evolution import NewerThanBegunError
from sparkonce.connectors.values.options import SchemaOptions
from sparkonce.connectors.values.registered import resolved
from sparkonce.connectors.values.registered_values import RegisteredValues
from sparkonce.options import OptionError
from tests.cases import each_case

NOON = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
UTC = NOON.replace(tzinfo=datetime.UTC)
MILLIS, MILLIS_UTC = NOON.replace(microsecond=123000), UTC.replace(microsecond=123000)
ID = uuid.UUID(int=7)
ENUM = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
CASES: dict[str, tuple[Any, Any, Any]] = {
    "boolean": ("boolean", True, True),
    "int": ("int", -(2**31), -(2**31)),
    "long": ("long", 2**63 - 1, 2**63 - 1),
    "float": ("float", 0.25, 0.25),
    "double": ("double", 1e300, 1e300),
    "string": ("string", "Grüße 🙂", "Grüße 🙂"),
    "bytes": ("bytes", b"\0\xff", b"\0\xff"),
    "fixed": ({"type": "fixed", "name": "Two", "size": 2}, b"ab", b"ab"),
    "enum": (ENUM, "BLUE", "BLUE"),
    "array": ({"type": "array", "items": "long"}, [1, 2, 3], [1, 2, 3]),
    "map": ({"type": "map", "values": "string"}, {"a": "b"}, [("a", "b")]),
    "record": (
        {"type": "record", "name": "In", "fields": [{"name": "x", "type": ["null", "int"]}]},
        {"x": None},
        {"x": None},
    ),
    "null in a union": (["null", "string"], None, None),
    "value in a union": (["null", "string"], "x", "x"),
    "union of several": (["null", "int", "string"], "x", {"member0": None, "member1": "x"}),
    "date": ({"type": "int", "logicalType": "date"}, NOON.date(), NOON.date()),
    "time-millis": ({"type": "int", "logicalType": "time-millis"}, datetime.time(0, 0, 1), 1000),
    "time-micros": ({"type": "long", "logicalType": "time-micros"}, datetime.time(0, 0, 1), 1_000_000),
    "timestamp-millis": ({"type": "long", "logicalType": "timestamp-millis"}, MILLIS_UTC, MILLIS_UTC),
    "timestamp-micros": ({"type": "long", "logicalType": "timestamp-micros"}, UTC, UTC),
    "local-timestamp-millis": ({"type": "long", "logicalType": "local-timestamp-millis"}, MILLIS, MILLIS),
    "local-timestamp-micros": ({"type": "long", "logicalType": "local-timestamp-micros"}, NOON, NOON),
    "uuid": ({"type": "string", "logicalType": "uuid"}, ID, str(ID)),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
        Decimal("-123456789.0001"),
        Decimal("-123456789.0001"),
    ),
    "fixed decimal": (
        {"type": "fixed", "name": "D", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 2},
        Decimal("99.50"),
        Decimal("99.50"),
    ),
}
"""By name: the type, what the serializer takes, and what the column has."""


def options(registry: EmbeddedRegistry, schema: str) -> SchemaOptions:
    return SchemaOptions(spark_type(parse(schema)), schema, registry=RegistrySettings((registry.url,), retries=0))


@each_case("name", CASES)
def test_each_type_goes_both_ways(registry: EmbeddedRegistry, client: SchemaRegistryClient, name: str) -> None:
    kind, given, expected = CASES[name]
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})
    context = SerializationContext(name.replace(" ", "-"), MessageField.VALUE)
    value = AvroSerializer(client, schema)({"a": given}, context)
    column, problems = RegisteredValues(options(registry, schema)).decode(pa.array([value, None], pa.binary()))
    assert (column.to_pylist(), problems) == ([{"a": expected}, None], {})
    number = client.get_latest_version(f"{context.topic}-value").schema_id
    again = AvroEncoder(parse(schema), spark_type(parse(schema)), frame(number)).encode(column)
    deserialize = AvroDeserializer(client)
    assert deserialize(again[0].as_py(), context) == deserialize(value, context)
    assert again[1].as_py() is None


def test_an_id_in_the_header_counts(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    schema = json.dumps({"type": "record", "name": "Header", "fields": [{"name": "a", "type": "string"}]})
    serializer = AvroSerializer(client, schema, conf={"schema.id.serializer": header_schema_id_serializer})
    headers: list[tuple[str, bytes]] = []
    value = serializer({"a": "x"}, SerializationContext("header", MessageField.VALUE, headers))
    assert value == b"\2x"
    kind = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    lists = pa.array([[], [("other", b"1"), *headers], None], kind)
    values = RegisteredValues(options(registry, schema))
    column, problems = values.decode(pa.array([value, value, value]), lists)
    assert column.to_pylist() == [{"a": None}, {"a": "x"}, {"a": None}]
    assert sorted(problems) == [0, 2]
    assert "a schema's id takes 5" in problems[0]


def test_ids_that_are_unknown_and_schemas_of_other_kinds(
    registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    schema = json.dumps({"type": "record", "name": "Known", "fields": [{"name": "a", "type": "int"}]})
    shared = shared_registry(RegistrySettings((registry.url,), retries=0))
    from confluent_kafka.schema_registry import Schema

    json_id = client.register_schema("json-value", Schema('{"type": "object"}', "JSON"))
    values = [frame(9999) + b"\2", frame(json_id) + b"{}", b"", b"\0\0\0", b"\1\0\0\0\1\2"]
    column, problems = RegisteredValues(options(registry, schema)).decode(pa.array(values, pa.binary()))
    assert column.to_pylist() == [{"a": None}] * 5
    assert "schema id 9999" in problems[0]
    assert "not found" in problems[0]
    assert "it is a schema of JSON" in problems[1]
    assert ["a schema's id" in problems[row] for row in (2, 3, 4)] == [True] * 3
    assert shared.schema(json_id).kind == "JSON"


def test_a_registry_that_is_down_and_one_that_is_made_anew_at_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKONCE_SCHEMA_CACHE", str(tmp_path))
    text, other = '"string"', '"long"'
    with EmbeddedBroker() as broker:
        with EmbeddedRegistry(broker.bootstrap_servers) as first:
            settings = RegistrySettings((first.url,), retries=0)
            with closing(Registry(settings)) as asked:
                assert asked.register("a", RegisteredSchema(AVRO, text)) == 1
                assert asked.schema(1).text == text
        with closing(Registry(settings)) as later:
            assert later.schema(1).text == text, "it was seen here"
            with pytest.raises(UnreachableRegistryError, match="does not answer"):
                later.schema(2)
            with pytest.raises(UnreachableRegistryError, match="does not answer"):
                later.latest("a")
        port = int(first.url.rpartition(":")[2])
        again = EmbeddedRegistry(broker.bootstrap_servers, port=port, topic="_another")
        with again, closing(Registry(settings)) as anew:
            assert anew.register("b", RegisteredSchema(AVRO, other)) == 1
            assert anew.schema(1).text == other
    (kept,) = tmp_path.rglob("*.json")
    kept.write_text(kept.read_text().replace("long", "lone"))
    with closing(Registry(settings)) as damaged, pytest.raises(UnreachableRegistryError):
        damaged.schema(1)


PEOPLE = """
syntax = "proto3";
package people;
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Person {
  int64 id = 1;
  optional string name = 2;
  google.protobuf.Timestamp at = 3;
  message Tag { string text = 1; }
  repeated Tag tags = 4;
}
"""


def test_messages_that_confluents_serializer_writes(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    from confluent_kafka.schema_registry import topic_record_subject_name_strategy
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf import message_factory

    from sparkonce.connectors.values.protobuf import reading, types

    option = reading.as_option(PEOPLE)
    person = reading.message_of(option, "people.Person")
    made = message_factory.GetMessageClass(person)
    tag = message_factory.GetMessageClass(person.nested_types_by_name["Tag"])
    conf = {"use.deprecated.format": False, "subject.name.strategy": topic_record_subject_name_strategy}
    context = SerializationContext("people", MessageField.VALUE)
    ada = made(id=1, name="Ada", tags=[tag(text="a"), tag(text="b")])
    ada.at.FromDatetime(UTC)
    values = [ProtobufSerializer(made, client, conf)(each, context) for each in (ada, made(id=2))]
    values.append(ProtobufSerializer(tag, client, conf)(tag(text="no person"), context))
    settings = RegistrySettings((registry.url,), retries=0)
    options = SchemaOptions(
        types.spark_type(person), option, registry=settings, format="protobuf", message="people.Person"
    )
    column, problems = RegisteredValues(options).decode(pa.array([*values, None, values[0][:5] + b"\x99"], pa.binary()))
    rows = column.to_pylist()
    assert rows[:2] == [
        {"id": 1, "name": "Ada", "at": UTC, "tags": [{"text": "a"}, {"text": "b"}]},
        {"id": 2, "name": None, "at": None, "tags": []},
    ]
    assert rows[3] is None
    assert set(problems) == {2, 4}
    assert "the path to its message" in problems[4]


def decoding(source: DirectSource) -> SchemaOptions:
    found = source.options.rows.decoding
    assert isinstance(found, SchemaOptions)
    return found


def test_a_batch_is_completed_with_the_version_it_was_begun_with(
    registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    from confluent_kafka.schema_registry import Schema

    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": "?"}]
    texts = [json.dumps({"type": "record", "name": "Begun", "fields": fields[:count]}) for count in (1, 2)]
    old, new = (client.register_schema("begun-value", Schema(text)) for text in texts)
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "begun",
        "valueFormat": "avro",
        "schemaRegistry.url": registry.url,
        "schemaEvolution": "restart",
        "handOver": "ranges",
    }
    whole = resolved(OPTIONS, given)
    source = DirectSource(SourceOptions.read(whole), HandOver.of(whole))
    digest, _, number = source.rules.partition("@")
    assert int(number.partition("~")[0]) == new
    older = source.with_rules(f"{digest}@{old}")
    assert older is not None
    assert older.rules == f"{digest}@{old}"
    older_value, newer_value = (pa.array([each], pa.binary()) for each in (frame(old) + b"\2", frame(new) + b"\2\2x"))
    for each, value, text in ((source, older_value, "?"), (source, newer_value, "x"), (older, older_value, None)):
        column, problems = RegisteredValues(decoding(each)).decode(value)
        assert (column.to_pylist(), problems) == ([{"a": 1, "b": text}], {})
    with pytest.raises(NewerThanBegunError, match=f"a value came with the schema {new}, which is newer"):
        RegisteredValues(decoding(older)).decode(newer_value)
    assert source.with_rules(f"{'0' * 16}@{old}") is None
    assert source.with_rules(digest) is None


def test_what_is_wrong_with_the_schema_of_a_query(registry: EmbeddedRegistry, client: SchemaRegistryClient) -> None:
    from confluent_kafka.schema_registry import Schema

    client.register_schema("told-value", Schema('"string"'))
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "told",
        "valueFormat": "avro",
        "schemaRegistry.url": registry.url,
    }
    wrong: list[tuple[dict[str, str], str]] = [
        ({"valueSchemaId": "x"}, r"kafka_once: option valueSchemaId='x': expected"),
        ({"keyFormat": "avro", "keySchemaId": "-1"}, r"kafka_once: option keySchemaId='-1': must be at least 1"),
        ({"valueSchemaId": "99"}, r"Schema 99 not found \(HTTP 404\)\. Check valueSchemaId"),
        ({"valueFormat": "protobuf"}, "the registry has it as AVRO: that is the format avro, and not protobuf"),
        ({"subscribe": "told,more"}, r"kafka_once: which of the registry's schemas are values read as\? Set"),
        ({"subscribe": "nowhere"}, r"\(HTTP 404\)\. Check the topic's name .* or set valueSubject or valueSchema"),
        ({"schemaRegistry.url": "http://127.0.0.1:1", "schemaRegistry.max.retries": "0"}, "whether it runs$"),
    ]
    for options_, told in wrong:
        with pytest.raises(OptionError, match=told):
            SourceOptions.read(resolved(OPTIONS, {**given, **options_}))


def test_bare_values_that_name_a_schema_hint_at_the_registry() -> None:
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "valueFormat": "avro", "valueSchema": '"long"'}
    decoding = SourceOptions.read(given).rows.decoding
    assert isinstance(decoding, SchemaOptions)
    _, problems = RegisteredValues(decoding).decode(pa.array([frame(7) + b"\2", b"\2", b"\2\2"], pa.binary()))
    assert problems[0].endswith("; its first five bytes may name schema id 7 of a registry: set schemaRegistry.url")
    assert problems[2] == "bytes are left after the value: it was written with another schema"
