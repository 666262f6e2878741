"""The strategies' subjects, as those of Confluent's serializers."""

from __future__ import annotations

import json

import pytest

from sparkonce.connectors.schema_registry.client import AVRO, JSON_SCHEMA, PROTOBUF, RegisteredSchema
from sparkonce.connectors.schema_registry.subjects import record_name, subject_of
from tests.cases import each_case

PERSON = RegisteredSchema(AVRO, json.dumps({"type": "record", "name": "Person", "namespace": "x.y", "fields": []}))


@each_case(
    ("strategy", "part", "schema", "subject"),
    [
        ("TopicNameStrategy", "value", None, "t-value"),
        ("TopicNameStrategy", "key", PERSON, "t-key"),
        ("io.confluent.kafka.serializers.subject.TopicNameStrategy", "key", None, "t-key"),
        ("RecordNameStrategy", "value", PERSON, "x.y.Person"),
        ("TopicRecordNameStrategy", "value", PERSON, "t-x.y.Person"),
        ("TopicRecordNameStrategy", "key", "my.Message", "t-my.Message"),
    ],
)
def test_subjects(strategy: str, part: str, schema: RegisteredSchema | str | None, subject: str) -> None:
    assert subject_of(strategy, "t", part, schema) == subject


def test_a_strategy_that_is_unknown_or_finds_no_name() -> None:
    with pytest.raises(ValueError, match=r"expected one of TopicNameStrategy, .*, found 'MyStrategy'"):
        subject_of("MyStrategy", "t", "value")
    for schema in (None, RegisteredSchema(AVRO, '"string"'), RegisteredSchema(PROTOBUF, "message A {}")):
        with pytest.raises(ValueError, match="RecordNameStrategy needs a schema of a record"):
            subject_of("RecordNameStrategy", "t", "value", schema)


@each_case(
    ("kind", "text", "name"),
    [
        (AVRO, '{"type": "enum", "name": "a.B", "namespace": "ignored", "symbols": []}', "a.B"),
        (AVRO, '{"type": "enum", "name": "B", "symbols": []}', "B"),
        (AVRO, "nothing", None),
        (AVRO, "[" * 100_000, None),
        (JSON_SCHEMA, '{"title": "Order", "namespace": "x"}', "Order"),
        (JSON_SCHEMA, "true", None),
    ],
)
def test_names_of_schemas(kind: str, text: str, name: str | None) -> None:
    assert record_name(RegisteredSchema(kind, text)) == name
