"""Values of Avro whose schemas a registry has, written by Confluent's serializer, through whole queries."""

from __future__ import annotations

import datetime
import json
import random
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from google.protobuf import message_factory
from google.protobuf.json_format import MessageToDict
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import sparkonce
from sparkonce import EmbeddedRegistry, Ingestion
from sparkonce.connectors.ingest import ingestion
from sparkonce.connectors.values.protobuf import reading
from tests.avro_documents import encode
from tests.avro_resolution import CASES, Case
from tests.spark.source_support import DEADLINE_S, Topics, batch, stream

pytestmark = pytest.mark.spark

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
ADDED = {"name": "city", "type": "string", "default": "?"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
OTHER = 'syntax = "proto3"; message Other { int32 x = 1; }'
LETTERS = """
syntax = "proto3";
enum E { NONE = 0; A = 1; }
message Other { int32 x = 1; }
message Letter { E e = 1; int64 n = 2; }
"""
AT = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def registry(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(kafka.bootstrap_servers, topic="_schemas_of_values") as made:
        yield made


@pytest.fixture(scope="module")
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": registry.url})) as made:
        yield made


def record(*more: Any) -> str:
    return json.dumps({"type": "record", "name": "Person", "fields": [*FIELDS, *more]})


def serialized(client: SchemaRegistryClient, topic: str, schema: str, *rows: dict[str, Any]) -> list[bytes]:
    """Return the bytes that Confluent's serializer makes of rows; it registers the schema."""
    serializer = AvroSerializer(client, schema)
    context = SerializationContext(topic, MessageField.VALUE)
    return [serializer({"at": AT, **row}, context) for row in rows]


def options(registry: EmbeddedRegistry, **more: str) -> dict[str, str]:
    return {"valueFormat": "avro", "schemaRegistry.url": registry.url, **more}


def test_a_batch_of_several_writers_has_the_columns_of_the_latest_schema(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    topic = topics.create(1)
    values = serialized(client, topic, record(), {"id": 1, "name": "Ada"})
    values += serialized(client, topic, record(ADDED), {"id": 2, "name": None, "city": "Paris"})
    topics.produce(topic, [*values, b"\0\0\0\0\1junk", b"junk"])
    rows = batch(spark, topics, topic, **options(registry)).select("value.*").orderBy("id").collect()
    assert [(row.id, row.name, row.city) for row in rows] == [
        (None, None, None),
        (None, None, None),
        (1, "Ada", "?"),
        (2, None, "Paris"),
    ]
    assert rows[2].at.timestamp() == AT.timestamp()


@pytest.mark.parametrize("hand_over", ["rows", "ranges"])
def test_a_stream_into_delta_with_a_poisonous_record(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    hand_over: str,
) -> None:
    topic = topics.create(2)
    good = serialized(client, topic, record(), *({"id": number, "name": f"n{number}"} for number in range(20)))
    number = client.get_latest_version(f"{topic}-value").schema_id
    topics.produce(topic, [*good[:10], b"\0" + number.to_bytes(4, "big") + b"\xff" * 20, *good[10:]])
    given = options(registry, includeDeadLetters="true", columns="value", handOver=hand_over)
    if hand_over == "rows":
        with pytest.raises(PySparkException, match=f"valueSchemaId={number}, the latest now"):
            stream(spark, topics, topic, **given).writeStream.format("noop").start().processAllAvailable()
        given["valueSchemaId"] = str(number)
    rows = stream(spark, topics, topic, startingOffsets="earliest", **given)
    writer = (
        sparkonce.write_stream(rows)
        .format("delta_once")
        .option("path", str(tmp_path / "table"))
        .option("appId", "avro")
        .option("deadLetters", f"table:{tmp_path / 'letters'}")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    found = DeltaTable(tmp_path / "table").to_pyarrow_table().column("value").to_pylist()
    assert sorted((each["id"], each["name"]) for each in found) == [(at, f"n{at}") for at in range(20)]
    (letter,) = DeltaTable(tmp_path / "letters").to_pyarrow_table().to_pylist()
    assert f"schema id {number}: id: a number has too many bytes" in letter["reason"]


def test_a_registry_that_is_down_and_a_subject_that_it_does_not_have(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry
) -> None:
    topic = topics.create(1)
    with pytest.raises(PySparkException, match=f"Subject '{topic}-value' not found"):
        batch(spark, topics, topic, **options(registry))
    down = {**options(registry), "schemaRegistry.url": "http://127.0.0.1:1", "schemaRegistry.max.retries": "0"}
    with pytest.raises(PySparkException, match="does not answer"):
        batch(spark, topics, topic, **down)


def test_schemas_that_refer_to_others(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    from confluent_kafka.schema_registry import SchemaReference

    topic = topics.create(1)
    inner = json.dumps({"type": "enum", "namespace": "x", "name": "Color", "symbols": ["RED", "BLUE"]})
    client.register_schema(f"{topic}-color", Schema(inner))
    outer = {"type": "record", "name": "Car", "namespace": "x", "fields": [{"name": "color", "type": "x.Color"}]}
    outer["fields"].append({"name": "other", "type": ["null", "Color"]})  # type: ignore[attr-defined]
    reference = SchemaReference("x.Color", f"{topic}-color", 1)
    number = client.register_schema(f"{topic}-value", Schema(json.dumps(outer), references=[reference]))
    topics.produce(topic, [b"\0" + number.to_bytes(4, "big") + b"\2\2\0"])
    (row,) = batch(spark, topics, topic, **options(registry)).select("value.*").collect()
    assert (row.color, row.other) == ("BLUE", "RED")


def test_a_recursive_schema_is_cut_at_a_depth(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry, client: SchemaRegistryClient
) -> None:
    topic = topics.create(1)
    fields = [{"name": "id", "type": "long"}, {"name": "next", "type": ["null", "List"]}]
    schema = json.dumps({"type": "record", "name": "List", "fields": fields})
    value: dict[str, Any] = {"id": 3, "next": None}
    for number in (2, 1):
        value = {"id": number, "next": value}
    serializer = AvroSerializer(client, schema)
    topics.produce(topic, [serializer(value, SerializationContext(topic, MessageField.VALUE))])
    with pytest.raises(PySparkException, match=r"next is the record List within itself.*Set recursiveFieldMaxDepth"):
        batch(spark, topics, topic, **options(registry))
    (row,) = batch(spark, topics, topic, **options(registry, recursiveFieldMaxDepth="2")).select("value").collect()
    assert row.value.asDict(recursive=True) == {"id": 1, "next": {"id": 2}}


def test_java_reads_what_we_read(spark: SparkSession) -> None:
    """Each rule of schema resolution by Apache Avro's own reader, of which Spark has the classes."""
    differing = []
    for case in CASES:
        theirs = java_reads(spark, case)
        if case.problem:
            same = theirs is None
        else:
            same = theirs == json.loads(json.dumps(as_json(case.reader, case.expected), ensure_ascii=False))
        if not same:
            differing.append((case.name, theirs))
    assert differing == []


def java_reads(spark: SparkSession, case: Case) -> Any:
    """Return what Java reads, as JSON; None if it refuses."""
    jvm = spark._jvm
    assert jvm is not None
    avro = jvm.org.apache.avro
    writer, reader = (avro.Schema.Parser().parse(json.dumps(each)) for each in (case.writer, case.reader))
    data = bytearray(encode(case.writer, case.value, random.Random(1)))
    try:
        decoder = avro.io.DecoderFactory.get().binaryDecoder(data, None)
        found = avro.generic.GenericDatumReader(writer, reader).read(None, decoder)
        return json.loads(found.toString())
    except Py4JJavaError:
        return None


def as_json(schema: Any, value: Any) -> Any:
    """Return a value as Java's GenericRecord.toString writes it."""
    if isinstance(schema, list):
        return as_json(next((each for each in schema if each != "null"), "null"), value)
    if isinstance(value, bytes):
        return value.decode("latin-1") if not isinstance(schema, dict) else [*memoryview(value).cast("b")]
    if isinstance(value, dict):
        kinds = {field["name"]: field["type"] for field in schema["fields"]}
        return {name: as_json(kinds[name], each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


@pytest.mark.parametrize("form", ["avro", "json-schema", "protobuf"])
def test_typed_columns_are_written_with_a_schema_that_is_registered(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    form: str,
) -> None:
    source, target = topics.create(1), topics.create(1)
    rows = [{"id": number, "name": None if number % 3 else f"n{number}"} for number in range(20)]
    topics.produce(source, serialized(client, source, record(), *rows))
    frame = stream(spark, topics, source, startingOffsets="earliest", **options(registry))
    typed = frame.selectExpr("value", "struct(value.id, value.name) AS key")
    writer = (
        typed.writeStream.format("kafka_once")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(topic=target, appId=f"copy-{target}", valueFormat=form, keyFormat=form)
        .option("schemaRegistry.url", registry.url)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    if form == "avro":
        key, value = AvroDeserializer(client), AvroDeserializer(client)
    elif form == "json-schema":
        key, value = (JSONDeserializer(None, schema_registry_client=client) for _ in range(2))
    else:
        key, value = (message_reader(client, f"{target}-{part}") for part in ("key", "value"))
    contexts = (SerializationContext(target, MessageField.KEY), SerializationContext(target, MessageField.VALUE))
    found = [
        (key(bytes(row.key), contexts[0]), value(bytes(row.value), contexts[1]))
        for row in batch(spark, topics, target).collect()
    ]
    found.sort(key=lambda pair: int(pair[0]["id"]))
    if form == "avro":
        expected = [(row, {**row, "at": AT}) for row in rows]
    else:
        written = [{name: each for name, each in row.items() if each is not None} for row in rows]
        at = f"{AT:%Y-%m-%dT%H:%M:%S.%f}Z"
        if form == "protobuf":  # as JSON of Protobuf writes them
            written, at = [{**row, "id": str(row["id"])} for row in written], f"{AT:%Y-%m-%dT%H:%M:%S}Z"
        expected = [(row, {**row, "at": at}) for row in written]
    assert found == expected
    read = batch(spark, topics, target, **options(registry, valueFormat=form)).select("value.id", "value.at").collect()
    assert sorted(read) == [(row["id"], AT.replace(tzinfo=None)) for row in rows]
    assert client.get_latest_version(f"{target}-value").version == 1


def message_reader(client: SchemaRegistryClient, subject: str) -> Any:
    """Return Confluent's deserializer for the message of a subject, which returns dictionaries."""
    option = reading.as_option(client.get_latest_version(subject).schema.schema_str or "")
    read = ProtobufDeserializer(message_factory.GetMessageClass(reading.message_of(option, None)), {}, client)
    return lambda data, context: MessageToDict(read(data, context), preserving_proto_field_name=True)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"autoRegister": "false"}, "not found"),
        ({"valueSchema": '"string"'}, "struct<id:bigint> cannot be written as string"),
        ({"valueSchema": record()}, "the column lacks this field"),
        ({"valueSchema": "{"}, "is not JSON"),
        ({"valueFormat": "protobuf", "valueSchema": "message"}, "the schema is not valid"),
        ({"valueFormat": "protobuf", "valueSchema": OTHER}, "the message Other has no field id, which the column has"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry, more: dict[str, str], part: str
) -> None:
    target = topics.create(1)
    frame = spark.range(3).selectExpr("struct(id) AS value")
    writer = (
        frame.write.format("kafka_once")
        .mode("append")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(**{"topic": target, "valueFormat": "avro", "schemaRegistry.url": registry.url, **more})
    )
    with pytest.raises(PySparkException, match=re.escape(part)):
        writer.save()
    assert batch(spark, topics, target).count() == 0


def test_a_row_that_its_schema_does_not_take_is_named(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry
) -> None:
    target = topics.create(1)
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "e", "type": ENUM}]})
    frame = spark.createDataFrame([("A",), ("X",)], "e STRING").selectExpr("struct(e) AS value").coalesce(1)
    writer = (
        frame.write.format("kafka_once")
        .mode("append")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(**{"topic": target, "valueFormat": "avro", "schemaRegistry.url": registry.url, "valueSchema": schema})
    )
    with pytest.raises(PySparkException, match=r"e: it is none of the enum's symbols"):
        writer.save()


@pytest.mark.parametrize(("evolution", "merges"), [("restart", True), ("add-columns", None)])
def test_an_ingestion_reads_the_newer_schema_and_widens_the_table(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    evolution: str,
    merges: bool | None,
) -> None:
    monkeypatch.setattr(ingestion, "LOOK_INTERVAL_S", 0.05)
    topic = topics.create(1)

    def stored() -> list[Any]:
        place = str(tmp_path / topic)
        # A table's folder is there before its first version is.
        is_table = DeltaTable.is_deltatable(place)
        found = DeltaTable(place).to_pyarrow_table().column("value").to_pylist() if is_table else []
        return sorted((each["id"], each.get("city")) for each in found)

    def wait_for(made: Ingestion, count: int) -> None:
        for _ in range(DEADLINE_S * 20):
            if len(stored()) >= count:
                return
            assert not made.awaitTermination(0.05), "it has ended"

    with (
        caplog.at_level("WARNING"),
        sparkonce.ingest(
            spark,
            app_id=f"evolving-{evolution}",
            checkpoint=str(tmp_path / "checkpoints"),
            kafka={"bootstrap.servers": topics.bootstrap_servers},
            schema_registry={"url": registry.url},
            topic_pattern=f"^{topic}$",
            topic_interval_s=0.0,
            path=f"{tmp_path}/{{topic}}",
            value_format="avro",
            schema_evolution=evolution,
            columns="value",
            merge_schema=merges,
            trigger="100 milliseconds",
        ) as made,
    ):
        topics.produce(topic, serialized(client, topic, record(), {"id": 1, "name": "Ada"}))
        wait_for(made, 1)
        (before,) = made.queries.values()
        older = serialized(client, topic, record(), {"id": 2, "name": "Bob"})
        newer = serialized(client, topic, record(ADDED), {"id": 3, "name": "Cid", "city": "Paris"})
        topics.produce(topic, [*older, *newer])
        wait_for(made, 3)
        (after,) = made.queries.values()
        assert after is before
    assert "behind" not in caplog.text
    assert stored() == [(1, None), (2, "?"), (3, "Paris")]


@pytest.mark.parametrize("hand_over", ["rows", pytest.param("ranges", marks=pytest.mark.lab)])
def test_a_query_that_stops_for_a_newer_schema_reads_all_as_that_after_a_restart(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    hand_over: str,
) -> None:
    topic = topics.create(1)
    given = options(registry, schemaEvolution="restart", columns="value", handOver=hand_over)
    topics.produce(topic, serialized(client, topic, record(), {"id": 1, "name": "Ada"}))

    def run(rows: DataFrame) -> None:
        sparkonce.write_stream(rows).format("delta_once").trigger(availableNow=True).options(
            path=str(tmp_path / "table"),
            appId="evolving",
            mergeSchema="true",
            checkpointLocation=str(tmp_path / "checkpoint"),
        ).start().awaitTermination()

    def cities() -> list[Any]:
        found = DeltaTable(tmp_path / "table").to_pyarrow_table().column("value").to_pylist()
        return sorted((each["id"], each.get("city")) for each in found)

    before = stream(spark, topics, topic, **given)
    run(before)
    older = serialized(client, topic, record(), {"id": 2, "name": "Bob"})
    newer = serialized(client, topic, record(ADDED), {"id": 3, "name": "Cid", "city": "Paris"})
    topics.produce(topic, [*older, *newer])
    with pytest.raises(PySparkException, match="has version 2"):
        run(before)
    assert cities() == [(1, None)]
    run(stream(spark, topics, topic, **given))
    assert cities() == [(1, None), (2, "?"), (3, "Paris")]


@pytest.mark.parametrize(("name", "told"), [("", "e: it is none of the enum's symbols"), ("A", None)])
def test_messages_of_a_schema_of_ones_own(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    name: str,
    told: str | None,
) -> None:
    target = topics.create(1)
    frame = spark.sql(f"SELECT struct('{name}' AS e, 7L AS n) AS value, struct(1 AS x) AS key").coalesce(1)
    writer = (
        frame.write.format("kafka_once")
        .mode("append")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(**{"topic": target, "schemaRegistry.url": registry.url})
        .options(valueFormat="protobuf", valueSchema=LETTERS, valueMessage="Letter")
        .options(keyFormat="protobuf", keySchema=OTHER, keyMessage="Other")
    )
    if told is not None:
        with pytest.raises(PySparkException, match=told):
            writer.save()
        return
    writer.save()
    (row,) = batch(spark, topics, target).collect()
    numbers = [client.get_latest_version(f"{target}-{part}").schema_id for part in ("key", "value")]
    frames = [b"\0" + number.to_bytes(4, "big") for number in numbers]
    assert (bytes(row.key), bytes(row.value)) == (frames[0] + b"\0\x08\1", frames[1] + b"\2\2" + b"\x08\1\x10\7")


PEOPLE = 'syntax = "proto3"; message Person { int64 id = 1; optional string name = 2; repeated string tags = 3; }'


@pytest.mark.parametrize("hand_over", [pytest.param("rows", marks=pytest.mark.lab), "ranges"])
def test_messages_of_protobuf_into_delta(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    hand_over: str,
) -> None:
    topic = topics.create(1)
    number = client.register_schema(f"{topic}-value", Schema(PEOPLE, "PROTOBUF"))
    frame = b"\0" + number.to_bytes(4, "big") + b"\0"
    topics.produce(topic, [frame + b"\x08\x07\x12\3Ada\x1a\1x\x1a\1y", frame, b"junk"])
    rows = stream(spark, topics, topic, **{**options(registry, columns="value"), "valueFormat": "protobuf"},
                  handOver=hand_over)  # fmt: skip
    sparkonce.write_stream(rows).format("delta_once").trigger(availableNow=True).options(
        path=str(tmp_path / "table"), appId="people", checkpointLocation=str(tmp_path / "checkpoint")
    ).start().awaitTermination()
    found = DeltaTable(tmp_path / "table").to_pyarrow_table().column("value").to_pylist()
    assert sorted(found, key=str) == sorted(
        [
            {"id": 7, "name": "Ada", "tags": ["x", "y"]},
            {"id": 0, "name": None, "tags": []},
            {"id": None, "name": None, "tags": None},
        ],
        key=str,
    )
