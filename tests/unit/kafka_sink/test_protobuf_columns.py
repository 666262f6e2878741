"""Columns that the sink writes as Protobuf: their schemas in a registry, and what Confluent's client reads."""

from __future__ import annotations

import base64
import datetime
import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from google.protobuf.json_format import MessageToDict
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_type

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.connectors.kafka_sink.buffers import RowError
from sparkonce.connectors.kafka_sink.options import KafkaBatchOptions
from sparkonce.connectors.kafka_sink.typed_values import Encoding, encodings
from sparkonce.connectors.schema_registry.client import close_registries
from sparkonce.connectors.schema_registry.settings import RegistrySettings
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.options import SchemaOptions
from sparkonce.connectors.values.protobuf import reading
from sparkonce.connectors.values.protobuf.types import spark_type
from sparkonce.connectors.values.registered_values import RegisteredValues
from sparkonce.options import OptionError

NOON = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=datetime.UTC)
FLIGHT = "id BIGINT, origin STRING, at TIMESTAMP, legs ARRAY<STRUCT<`to`: STRING>>"
ROWS = [
    {"id": 1, "origin": "PAR", "at": NOON, "legs": [{"to": "NYC"}, {"to": None}]},
    None,
    {"id": 0, "origin": None, "at": None, "legs": []},
]
NESTED = """
syntax = "proto3";
package air;
message Other { int32 x = 1; }
message Flight {
  message Leg { optional string to = 1; }
  message Short { optional int64 id = 1; optional string origin = 2; }
  int64 id = 1;
}
"""
_topics = itertools.count()


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap_servers) as made:
        yield made
    close_registries()


@pytest.fixture(scope="module")
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": registry.url})) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"flights{next(_topics)}"


def encoding(registry: EmbeddedRegistry, topic: str, ddl: str = FLIGHT, column: str = "value", **more: str) -> Encoding:
    """Return what the sink's options make of a column; ``more`` without ``value`` or ``key`` in front."""
    given = {"kafka.bootstrap.servers": "h:1", "topic": topic, "schemaRegistry.url": registry.url}
    given |= {f"{column}Format": "protobuf"}
    given |= {name if name == "autoRegister" else f"{column}{name}": value for name, value in more.items()}
    schema = t.StructType([t.StructField("value", t.BinaryType()), t.StructField(column, parse_schema(ddl))])
    schema = t.StructType(schema.fields[column == "value" :])
    return encodings(KafkaBatchOptions.read(given), schema)[column]


def refusal(registry: EmbeddedRegistry, topic: str, ddl: str = FLIGHT, **more: str) -> str:
    with pytest.raises(OptionError) as caught:
        encoding(registry, topic, ddl, **more)
    assert f"kafka_once: the column 'value' as protobuf, subject {topic}-value: " in str(caught.value)
    return str(caught.value)


def values(made: Encoding, rows: list[Any]) -> list[Any]:
    assert isinstance(made.kind, t.StructType)
    return made.encode(pa.array(rows, to_arrow_type(made.kind, timezone="UTC"))).to_pylist()


def confluent(client: SchemaRegistryClient, made: Encoding, value: Any, topic: str) -> Any:
    """Return what Confluent's deserializer reads, as a dictionary."""
    kind = message_factory.GetMessageClass(reading.message_of(made.schema, made.message))
    part = MessageField.KEY if made.column == "key" else MessageField.VALUE
    found = ProtobufDeserializer(kind, {}, client)(value, SerializationContext(topic, part))
    return None if found is None else MessageToDict(found, preserving_proto_field_name=True)


@pytest.mark.parametrize("column", ["value", "key"])
def test_confluents_deserializer_and_our_source_read_what_is_written(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, topic: str, column: str
) -> None:
    made = encoding(registry, topic, column=column)
    found = values(made, ROWS)
    registered = client.get_latest_version(f"{topic}-{column}")
    assert registered.schema.schema_type == "PROTOBUF"
    assert f"message {topic.capitalize()}{column.capitalize()} {{" in registered.schema.schema_str
    assert found[0][:6] == b"\0" + registered.schema_id.to_bytes(4, "big") + b"\0"
    assert found[1] is None
    at = "2024-02-29T12:30:15.123456Z"
    full = {"id": "1", "origin": "PAR", "at": at, "legs": [{"to": "NYC"}, {}]}
    assert [confluent(client, made, each, topic) for each in found] == [full, None, {"id": "0"}]
    message = reading.message_of(made.schema, None)
    assert spark_type(message) == made.kind
    options = SchemaOptions(
        made.kind, made.schema, registry=RegistrySettings((registry.url,)), format="protobuf", column=column
    )
    array, problems = RegisteredValues(options).decode(pa.array(found, pa.binary()))
    assert (array.to_pylist(), problems) == (ROWS, {})


@pytest.mark.parametrize(("name", "path"), [("Short", b"\4\2\2"), ("air.Flight.Leg", b"\4\2\0"), ("air.Other", b"\0")])
def test_values_name_their_message_by_its_path(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, topic: str, name: str, path: bytes
) -> None:
    ddl = {"Short": "id BIGINT", "air.Flight.Leg": "`to` STRING", "air.Other": "x INT"}[name]
    made = encoding(registry, topic, ddl, Schema=NESTED, Message=name)
    row = {"id": 5} if name == "Short" else {"to": "x"} if name != "air.Other" else {"x": 5}
    (value,) = values(made, [row])
    assert value[5 : 5 + len(path)] == path
    found = confluent(client, made, value, topic)
    assert {each: str(part) for each, part in found.items()} == {each: str(part) for each, part in row.items()}
    assert client.get_latest_version(f"{topic}-value").schema.schema_str == NESTED, "as it is in the option"


def test_a_schema_in_a_file_and_as_a_descriptor(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    file, descriptors = tmp_path / "a.proto", tmp_path / "a.desc"
    file.write_text(NESTED)
    whole = reading.as_option(NESTED)
    descriptors.write_bytes(base64.b64decode(whole.removeprefix(reading.PREFIX)))
    bare = reading.message_of(whole, None).file.serialized_pb
    numbers = set()
    for at, schema in enumerate((f"file:{file}", f"file:{descriptors}", whole, base64.b64encode(bare).decode())):
        made = encoding(registry, f"{topic}-{at}", "id BIGINT", Schema=schema, Message="air.Flight.Short")
        numbers.add(made.number)
        assert confluent(client, made, values(made, [{"id": 7}])[0], f"{topic}-{at}") == {"id": "7"}
    assert refusal(registry, topic, Schema=f"file:{tmp_path}/b.proto").endswith(
        f"No such file or directory: '{tmp_path}/b.proto'"
    )
    (tmp_path / "c.proto").write_text("message")
    assert "the schema is not valid: " in refusal(registry, topic, Schema=f"file:{tmp_path}/c.proto")


def test_a_schema_that_is_looked_up(registry: EmbeddedRegistry, client: SchemaRegistryClient, topic: str) -> None:
    assert "not found" in refusal(registry, topic, autoRegister="false")
    common = client.register_schema(
        f"{topic}-common", Schema('syntax = "proto3"; message C { int32 y = 1; }', "PROTOBUF")
    )
    assert common > 0
    text = (
        'syntax = "proto3"; import "c.proto"; message A { int32 x = 1; } message B { int32 x = 1; optional C c = 2; }'
    )
    references = [SchemaReference("c.proto", f"{topic}-common", 1)]
    number = client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF", references))
    made = encoding(registry, topic, "x INT, c STRUCT<y: INT>", autoRegister="false", Message="B")
    assert made.number == number
    (value,) = values(made, [{"x": 1, "c": {"y": 2}}])
    assert value[5:] == b"\2\2" + b"\x08\1\x12\2\x08\2"
    told = refusal(registry, topic, "y INT", autoRegister="false", Message="C")
    assert "the message C is of c.proto, which the schema imports" in told
    assert "x: string cannot be written as int32" in refusal(registry, topic, "x STRING", autoRegister="false")
    assert "register it, leave it out of the options and set autoRegister=false" in refusal(
        registry, topic, Schema=made.schema, Message="B"
    )


def test_a_column_may_be_added_at_the_end_only(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    first = encoding(registry, topic)
    assert encoding(registry, topic).number == first.number
    second = encoding(registry, topic, FLIGHT + ", city STRING")
    assert second.number > first.number
    newer = values(second, [{**ROWS[0], "city": "Paris"}])[0]  # type: ignore[dict-item]
    assert confluent(client, first, newer, topic)["origin"] == "PAR"
    told = refusal(registry, topic, FLIGHT.replace("origin STRING", "city STRING, origin STRING"))
    assert "field city would have the number 2, at which the subject's latest schema has origin" in told
    assert "add new ones at the end" in told
    assert len(client.get_versions(f"{topic}-value")) == 2


def test_a_name_for_the_schema_that_is_made(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    made = encoding(registry, topic, Message="air.Flight")
    text = client.get_latest_version(f"{topic}-value").schema.schema_str
    assert "package air;" in text
    assert "message Flight {" in text
    assert confluent(client, made, values(made, ROWS)[0], topic)["id"] == "1"


@pytest.mark.parametrize(
    ("ddl", "more", "told"),
    [
        ("a DATE", {}, "a: date has no type of Protobuf: cast it to STRING or TIMESTAMP"),
        ("a INT", {"Schema": "message"}, "the schema is not valid: "),
        ("a INT", {"Schema": NESTED}, "the message air.Other has no field a, which the column has"),
        ("x INT", {"Schema": NESTED, "Message": "No"}, "no message is called 'No': there are air.Flight, "),
        ("x INT", {"Message": "no name"}, "a message cannot be called 'no name'"),
        ("a_b INT, aB INT", {}, "the schema is not valid: "),
    ],
)
def test_what_does_not_fit_is_refused_and_not_registered(
    registry: EmbeddedRegistry, client: SchemaRegistryClient, topic: str, ddl: str, more: dict[str, str], told: str
) -> None:
    assert told in refusal(registry, topic, ddl, **more)
    assert f"{topic}-value" not in client.get_subjects()


def test_a_row_that_is_not_taken_is_named(registry: EmbeddedRegistry, topic: str) -> None:
    made = encoding(registry, topic)
    with pytest.raises(RowError) as caught:
        values(made, [ROWS[0], {"id": 1, "origin": "x", "at": NOON, "legs": [None]}])
    told = f"a row's column 'value' cannot be written with the schema of id {made.number}: legs.element: it is null"
    assert told in str(caught.value)


def test_a_message_is_for_protobuf_only(registry: EmbeddedRegistry) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "schemaRegistry.url": registry.url}
    with pytest.raises(OptionError, match="option valueMessage is for valueFormat=protobuf: leave it out"):
        KafkaBatchOptions.read({**given, "valueFormat": "avro", "valueMessage": "M"})
    with pytest.raises(OptionError, match="option keyMessage is for typed columns: set keyFormat=avro, protobuf or"):
        KafkaBatchOptions.read({**given, "valueFormat": "protobuf", "keyMessage": "M"})
    with pytest.raises(OptionError, match=r"valueFormat=protobuf needs schemaRegistry\.url"):
        KafkaBatchOptions.read({"kafka.bootstrap.servers": "h:1", "topic": "t", "valueFormat": "protobuf"})
