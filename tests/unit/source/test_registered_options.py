"""Options that name schemas of a registry: which of them a query reads values and keys as."""

from __future__ import annotations

import pytest

from sparkonce import OptionError
from sparkonce.connectors.formats.kafka_once import KafkaOnceDataSource
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.schema_registry.client import AVRO, RegisteredSchema, Version
from sparkonce.connectors.values import registered

GIVEN = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "schemaRegistry.url": "http://localhost:1"}


class OneSchema:
    """A registry whose subjects all have one schema, with an id for values and one for keys."""

    def latest(self, subject: str) -> Version:
        return Version(subject, 3, 77 if subject.endswith("-value") else 78, self.schema(0))

    def schema(self, _: int) -> RegisteredSchema:
        return RegisteredSchema(AVRO, '"long"')


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "shared_registry", lambda _: OneSchema())


def stream(**options: str) -> None:
    source = KafkaOnceDataSource({**GIVEN, "includeDeadLetters": "true", **options})
    source.streamReader(source.schema())


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"valueFormat": "avro"}, "valueSchemaId=77"),
        ({"keyFormat": "avro"}, "keySchemaId=78"),
        ({"keyFormat": "avro", "valueFormat": "json", "valueSchema": "a INT"}, "keySchemaId=78"),
        ({"keyFormat": "avro", "valueFormat": "avro", "valueSchemaId": "5"}, "keySchemaId=78"),
        ({"keyFormat": "avro", "valueFormat": "avro"}, "valueSchemaId=77 and keySchemaId=78"),
    ],
)
def test_a_stream_with_dead_letters_through_spark_needs_schemas_that_stay(options: dict[str, str], ids: str) -> None:
    with pytest.raises(OptionError, match=f"needs a schema that stays: .* or {ids}, the latest now$"):
        stream(**options)


def test_a_stream_with_dead_letters_and_schemas_that_stay() -> None:
    stream(valueFormat="avro", valueSchemaId="77", keyFormat="avro", keySchema='"long"')


@pytest.mark.parametrize("column", ["value", "key"])
@pytest.mark.parametrize("number", ["abc", "-5", "1.0", ""])
def test_an_id_that_is_no_number_is_not_replaced_by_the_latest(column: str, number: str) -> None:
    options = {**GIVEN, f"{column}Format": "avro", f"{column}SchemaId": number}
    with pytest.raises(OptionError, match=f"option {column}SchemaId='{number}': "):
        KafkaOnceDataSource(options).schema()


def test_an_id_may_have_spaces_around_it() -> None:
    resolved = registered.resolved(OPTIONS, {**GIVEN, "valueFormat": "avro", "VALUESCHEMAID": " 5 "})
    assert SourceOptions.read(resolved).rows.value_schema_id == 5


LIST = (
    '{"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "R"]}]}'
)
MESSAGE = 'syntax = "proto3"; message R { int32 v = 1; R next = 2; }'


@pytest.mark.parametrize("column", ["value", "key"])
@pytest.mark.parametrize(("form", "schema"), [("avro", LIST), ("protobuf", MESSAGE)])
def test_a_recursive_schema_is_cut_where_an_option_says(column: str, form: str, schema: str) -> None:
    options = {**GIVEN, f"{column}Format": form, f"{column}Schema": schema, "columns": column}
    del options["schemaRegistry.url"]
    with pytest.raises(OptionError, match="Set recursiveFieldMaxDepth"):
        KafkaOnceDataSource(options).schema()
    cut = KafkaOnceDataSource({**options, "recursiveFieldMaxDepth": "2"}).schema()
    assert cut.simpleString() == f"struct<{column}:struct<v:int,next:struct<v:int>>>"


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"valueFormat": "avro", "valueSchema": LIST, "recursiveFieldMaxDepth": "16"}, "must be at most 15"),
        ({"valueFormat": "avro", "valueSchema": LIST, "recursiveFieldMaxDepth": "0"}, "must be at least 1"),
        ({"valueFormat": "protobuf", "valueSchema": MESSAGE, "recursiveFieldMaxDepth": "11"}, "it is at most 10"),
        ({"recursiveFieldMaxDepth": "2"}, "recursiveFieldMaxDepth is for decoded values"),
        ({"valueFormat": "json", "valueSchema": "a INT", "recursiveFieldMaxDepth": "2"}, "is for decoded values"),
    ],
)
def test_a_depth_that_no_format_has(options: dict[str, str], part: str) -> None:
    given = {name: each for name, each in GIVEN.items() if name != "schemaRegistry.url"}
    with pytest.raises(OptionError, match=part):
        KafkaOnceDataSource({**given, **options}).schema()


def test_another_depth_makes_other_rows() -> None:
    given = {**GIVEN, "valueFormat": "avro", "valueSchema": LIST}
    digests = {
        SourceOptions.read({**given, "recursiveFieldMaxDepth": depth}).rows.digest() for depth in ("1", "2", "3")
    }
    assert len(digests) == 3
