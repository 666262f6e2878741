"""Confluent's own client and serializers with the embedded registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel, ServerConfig
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.connectors.schema_registry.protobuf_text import descriptor_set
from tests.certificates import Authority
from tests.unit.registry.rest import ask

AVRO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":["null","string"]}]}'
JSON = '{"title":"R","type":"object","properties":{"a":{"type":"integer"},"b":{"type":["string","null"]}}}'
ROW = {"a": 1, "b": "x"}
VALUE = SerializationContext("topic", MessageField.VALUE)


@pytest.fixture
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": registry.url})) as made:
        yield made


@pytest.fixture
def fresh(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    """A client that has cached nothing."""
    with closing(SchemaRegistryClient({"url": registry.url})) as made:
        yield made


def test_avro_and_json_round_trips(client: SchemaRegistryClient, fresh: SchemaRegistryClient) -> None:
    for serializer, deserializer in (
        (AvroSerializer(client, AVRO), AvroDeserializer(fresh)),
        (JSONSerializer(JSON, client), JSONDeserializer(None, schema_registry_client=fresh)),
    ):
        context = SerializationContext(type(serializer).__name__, MessageField.VALUE)
        assert deserializer(serializer(ROW, context), context) == ROW


def test_guids_in_headers(client: SchemaRegistryClient, fresh: SchemaRegistryClient) -> None:
    serializer = AvroSerializer(client, AVRO, conf={"schema.id.serializer": header_schema_id_serializer})
    context = SerializationContext("topic", MessageField.VALUE, headers=[])
    row = {**ROW, "b": "longer than what the deserializer takes for a frame"}
    data = serializer(row, context)
    assert data is not None
    assert data[:1] != b"\0"
    assert AvroDeserializer(fresh)(data, context) == row


def test_protobuf_with_references(client: SchemaRegistryClient, fresh: SchemaRegistryClient) -> None:
    other = 'syntax = "proto3"; package x; message A { int32 n = 1; }'
    main = (
        'syntax = "proto3"; import "folder/a.proto"; import "google/protobuf/timestamp.proto"; message Other {} '
        "message B { x.A a = 1; google.protobuf.Timestamp t = 2; message C { string s = 1; } }"
    )
    pool = DescriptorPool()
    for file in descriptor_set(main, [("folder/a.proto", other)]).file:
        pool.Add(file)
    kinds: list[Any] = [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in ("B", "B.C")]
    contents: list[dict[str, Any]] = [{"a": {"n": 7}}, {"s": "x"}]
    for kind, values in zip(kinds, contents, strict=True):
        message = kind(**values)
        context = SerializationContext(kind.DESCRIPTOR.name, MessageField.VALUE)
        data = ProtobufSerializer(kind, client)(message, context)
        found: Any = ProtobufDeserializer(kind, {}, fresh)(data, context)
        assert found.SerializeToString() == message.SerializeToString()
    assert "folder/a.proto" in fresh.get_subjects()


def test_all_that_the_client_can_ask(client: SchemaRegistryClient, fresh: SchemaRegistryClient) -> None:
    one, two = Schema(AVRO), Schema(AVRO.replace('["null","string"]', '["null","string","int"]'))
    number = client.register_schema("s", one)
    assert (client.register_schema("s", two), fresh.register_schema("s", two)) == (number + 1, number + 1)
    registered = fresh.register_schema_full_response("s", one)
    assert (registered.schema_id, registered.version) == (number, 1)
    assert fresh.get_schema(number).schema_str == AVRO
    assert fresh.get_schema_by_guid(registered.guid).schema_str == AVRO
    assert fresh.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    assert fresh.get_subjects_by_schema_id(number) == ["s"]
    assert [(each.subject, each.version) for each in fresh.get_schema_versions(number)] == [("s", 1)]
    assert fresh.lookup_schema("s", one).version == 1
    assert fresh.get_latest_version("s").version == 2
    assert fresh.get_version("s", 1).schema_id == number
    assert fresh.get_versions("s") == [1, 2]
    assert fresh.get_subjects() == ["s"]
    assert fresh.test_compatibility("s", two)
    assert not fresh.test_compatibility("s", Schema('"int"'))
    assert fresh.test_compatibility_all_versions("s", two)
    fresh.set_config("s", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert fresh.get_compatibility("s") == "FULL"
    assert fresh.get_compatibility() == "BACKWARD"
    assert fresh.get_config("s").compatibility_level == "FULL"
    fresh.delete_config("s")
    assert fresh.update_mode("s", "READONLY") == "READONLY"
    assert fresh.get_mode("s") == "READONLY"
    fresh.delete_mode("s")
    assert fresh.get_global_mode() == "READWRITE"
    assert fresh.get_contexts() == ["."]
    reference = Schema('{"type":"array","items":"R"}', references=[SchemaReference("R", "s", 1)])
    below = fresh.register_schema("r", reference)
    assert fresh.get_referenced_by("s", 1) == [below]
    assert fresh.delete_subject("r") == [1]
    assert fresh.delete_subject("r", permanent=True) == [1]
    assert fresh.delete_version("s", 2) == 2
    with pytest.raises(SchemaRegistryError) as caught:
        fresh.get_version("s", 2)
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40402)


def test_logging_in(broker: EmbeddedBroker) -> None:
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas_login", user_info="ada:s:ecret") as registry:
        assert ask(registry.url, "GET /subjects").status == 401
        assert ask(registry.url, "GET /subjects", headers={"Authorization": "Basic YWRhOg=="}).status == 401
        with closing(SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": "ada:s:ecret"})) as client:
            assert client.get_subjects() == []


def test_certificates(broker: EmbeddedBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, user = authority.issue("server.pem"), authority.issue("user.pem")
    files: dict[str, str] = {}
    for name, text in (
        ("key", server.key_text()),
        ("certificate", server.chain),
        ("client_ca", authority.text),
    ):
        files[name] = str(tmp_path / f"{name}.pem")
        Path(files[name]).write_text(text)
    with EmbeddedRegistry(broker.bootstrap_servers, topic="_schemas_tls", **files) as registry:  # type: ignore[arg-type]
        assert registry.url.startswith("https://")
        conf = {"url": registry.url, "ssl.ca.location": str(authority.file), "max.retries": 0}
        mutual = {**conf, "ssl.certificate.location": str(user.file), "ssl.key.location": str(user.file)}
        with closing(SchemaRegistryClient(mutual)) as client:
            assert client.get_subjects() == []
        with (
            closing(SchemaRegistryClient(conf)) as client,
            pytest.raises(Exception, match=r"(?i)certificate|disconnect|reset|closed"),
        ):
            client.get_subjects()
