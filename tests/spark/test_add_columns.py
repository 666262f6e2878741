"""Direct queries with schemaEvolution=add-columns: each batch is read as the latest version of its subject."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from deltalake import DeltaTable
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import sparkonce
from lab.crash_plans import arm, fired, release
from sparkonce import EmbeddedRegistry, OptionError
from tests.spark.source_support import DEADLINE_S, Topics, stream

pytestmark = pytest.mark.spark

NEW_FIELDS = (
    {"name": "id", "type": "long"},
    {"name": "city", "type": "string", "default": "?"},
    {"name": "seat", "type": ["null", "long"], "default": None},
    {"name": "paid", "type": "boolean", "default": False},
)
"""Each version of the schema has one more."""


@pytest.fixture(scope="module")
def registry(kafka: Any) -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(kafka.bootstrap_servers, topic="_schemas_of_growing_tables") as made:
        yield made


@pytest.fixture(scope="module")
def client(registry: EmbeddedRegistry) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": registry.url})) as made:
        yield made


def register(client: SchemaRegistryClient, topic: str, fields: Any) -> int:
    text = json.dumps({"type": "record", "name": "Flight", "fields": fields})
    return client.register_schema(f"{topic}-value", Schema(text))


def version(client: SchemaRegistryClient, topic: str, count: int) -> bytes:
    """Register a version of the schema; return what its values begin with."""
    return b"\0" + register(client, topic, NEW_FIELDS[:count]).to_bytes(4, "big")


def value(head: bytes, number: int, count: int) -> bytes:
    """Return a value of the version with so many fields; numbers are below 64."""
    return head + b"".join([bytes([2 * number]), b"\x06Rom", b"\2\x02", b"\1"][:count])


def options(registry: EmbeddedRegistry, **more: str) -> dict[str, str]:
    known = {"valueFormat": "avro", "schemaRegistry.url": registry.url, "schemaRegistry.max.retries": "0"}
    chosen = {"schemaEvolution": "add-columns", "handOver": "ranges", "startingOffsets": "earliest"}
    return {**known, **chosen, "columns": "value", **more}


def start(
    spark: SparkSession, topics: Topics, topic: str, folder: Path, given: dict[str, str], **sink: str
) -> StreamingQuery:
    kept = {"appId": topic, "mergeSchema": "true", "checkpointLocation": str(folder / "checkpoint")}
    rows = stream(spark, topics, topic, **given)
    return sparkonce.write_stream(rows).format("delta_once").options(**kept | sink).start(f"{folder}/table")


def run(
    spark: SparkSession, topics: Topics, topic: str, folder: Path, given: dict[str, str], **sink: str
) -> list[dict[str, Any]]:
    """Read what is there, and return the rows of the table."""
    query = start(spark, topics, topic, folder, given, **sink)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return rows(folder)


def rows(folder: Path) -> list[dict[str, Any]]:
    found = DeltaTable(folder / "table").to_pyarrow_table().to_pylist()
    return sorted(([each.get("value") or each for each in found]), key=lambda row: row["id"])


@pytest.mark.parametrize("sql", [None, pytest.param("SELECT value.* FROM records", marks=pytest.mark.lab)])
def test_a_running_query_gets_three_new_columns(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    sql: str | None,
) -> None:
    topic = topics.create(1)
    heads = [version(client, topic, 1)]
    topics.produce(topic, [value(heads[0], 0, 1)])
    query = start(spark, topics, topic, tmp_path, options(registry), **({} if sql is None else {"sql": sql}))
    try:
        query.processAllAvailable()
        for count in (2, 3, 4):
            heads.append(version(client, topic, count))
            older = [value(head, 10 * count + at, at) for at, head in enumerate(heads, 1)]
            topics.produce(topic, older)
            query.processAllAvailable()
        assert query.isActive
    finally:
        query.stop()
    assert [(row["id"], row["city"], row["seat"], row["paid"]) for row in rows(tmp_path)] == [
        (0, None, None, None),
        (21, "?", None, None),
        (22, "Rom", None, None),
        (31, "?", None, None),
        (32, "Rom", None, None),
        (33, "Rom", 1, None),
        (41, "?", None, False),
        (42, "Rom", None, False),
        (43, "Rom", 1, False),
        (44, "Rom", 1, True),
    ]


def test_a_batch_whose_dead_letters_are_written_is_completed_with_its_version(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    crash_folder: Path,
) -> None:
    """What the first version cannot read, the second one can: so the batch must not be begun again with that."""
    topic = topics.create(1)
    note, city = {"name": "note", "type": "string"}, NEW_FIELDS[1]
    first = b"\0" + register(client, topic, [NEW_FIELDS[0], note]).to_bytes(4, "big")
    without_note = version(client, f"{topic}-else", 1)
    given = options(registry, includeDeadLetters="true", maxOffsetsPerTrigger="2")
    letters = {"deadLetters": f"table:{tmp_path / 'letters'}"}
    topics.produce(topic, [value(first, number, 2) for number in (0, 1)])
    assert len(run(spark, topics, topic, tmp_path, given, **letters)) == 2
    topics.produce(topic, [value(first, 2, 2), value(without_note, 3, 1)])
    plan = arm(crash_folder, topic, f"{topic}:sink.between_targets@1=raise")
    with pytest.raises(StreamingQueryException, match=r"sink\.between_targets, batch 1"):
        run(spark, topics, topic, tmp_path, given, **letters)
    assert fired(plan)
    register(client, topic, [NEW_FIELDS[0], {**note, "default": "none"}, city])
    topics.produce(topic, [value(without_note, 4, 1)])
    found = run(spark, topics, topic, tmp_path, given, **letters)
    assert [(row["id"], row["note"], row["city"]) for row in found] == [
        (0, "Rom", None),
        (1, "Rom", None),
        (2, "Rom", None),
        (4, "none", "?"),
    ]
    (letter,) = DeltaTable(tmp_path / "letters").to_pyarrow_table().to_pylist()
    assert (letter["offset"], letter["value"]) == (3, value(without_note, 3, 1))
    assert "note" in letter["reason"]


def test_a_schema_that_comes_late_makes_no_row_of_what_is_a_dead_letter_already(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    crash_folder: Path,
) -> None:
    """As from a replica of the registry that lags: the id is there when the batch is read again."""
    topic = topics.create(1)
    texts = [json.dumps({"type": "record", "name": "Late", "fields": NEW_FIELDS[:count]}) for count in (1, 2)]
    number = client.register_schema(f"{topic}-value", Schema(texts[0]))
    first, late = (b"\0" + each.to_bytes(4, "big") for each in (number, number + 1))
    given = options(registry, schemaEvolution="none", includeDeadLetters="true", maxOffsetsPerTrigger="2")
    letters = {"deadLetters": f"table:{tmp_path / 'letters'}"}
    topics.produce(topic, [value(first, 0, 1)])
    assert len(run(spark, topics, topic, tmp_path, given, **letters)) == 1
    topics.produce(topic, [value(late, 1, 2), value(first, 2, 1)])
    plan = arm(crash_folder, topic, f"{topic}:sink.between_targets@1=raise")
    with pytest.raises(StreamingQueryException, match=r"sink\.between_targets, batch 1"):
        run(spark, topics, topic, tmp_path, given, **letters)
    assert fired(plan)
    assert client.register_schema(f"{topic}-value", Schema(texts[1])) == number + 1
    topics.produce(topic, [value(late, 3, 2)])
    found = run(spark, topics, topic, tmp_path, {**given, "valueSchemaId": str(number)}, **letters)
    assert [row["id"] for row in found] == [0, 2, 3]
    (letter,) = DeltaTable(tmp_path / "letters").to_pyarrow_table().to_pylist()
    assert letter["offset"] == 1


@pytest.mark.parametrize("evolution", ["add-columns", pytest.param("restart", marks=pytest.mark.lab)])
def test_a_batch_that_is_completed_keeps_a_field_that_the_version_after_it_removes(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    crash_folder: Path,
    evolution: str,
) -> None:
    """Also where newer values lie behind the batch; where they are in it, the query stops."""
    topic = topics.create(1)
    both = version(client, topic, 2)
    given = options(registry, includeDeadLetters="true", schemaEvolution=evolution)
    sql = "SELECT value.* FROM records"
    sink = {"deadLetters": f"table:{tmp_path / 'letters'}", "sql": sql}
    topics.produce(topic, [value(both, 0, 2)])
    run(spark, topics, topic, tmp_path, given, **sink)
    topics.produce(topic, [value(both, 1, 2), b"junk"])
    plan = arm(crash_folder, topic, f"{topic}:sink.between_targets@1=raise")
    with pytest.raises(StreamingQueryException, match=r"sink\.between_targets, batch 1"):
        run(spark, topics, topic, tmp_path, given, **sink)
    assert fired(plan)
    without = b"\0" + register(client, topic, [NEW_FIELDS[0], NEW_FIELDS[3]]).to_bytes(4, "big")
    topics.produce(topic, [value(without, 2, 1) + b"\1"])
    shutil.rmtree(tmp_path / "checkpoint")
    reset = {"offsetStore": f"delta:{tmp_path / 'table'}", "appId": topic}
    with pytest.raises(StreamingQueryException, match="NewerThanBegunError"):
        run(spark, topics, topic, tmp_path, given | reset, **sink)
    shutil.rmtree(tmp_path / "checkpoint")
    found = run(spark, topics, topic, tmp_path, given | reset | {"maxOffsetsPerTrigger": "2"}, **sink)
    assert [(row["id"], row["city"], row["paid"]) for row in found] == [
        (0, "Rom", None),
        (1, "Rom", None),
        (2, None, True),
    ]
    assert DeltaTable(tmp_path / "letters").to_pyarrow_table().column("value").to_pylist() == [b"junk"]


def test_a_registry_that_is_down_when_a_batch_begins(
    spark: SparkSession, topics: Topics, kafka: Any, tmp_path: Path
) -> None:
    """Values of the version that the table has are read on; others make the batch fail, and are not lost."""
    topic, of_registry = topics.create(1), "_schemas_that_are_down"
    with EmbeddedRegistry(kafka.bootstrap_servers, topic=of_registry) as registry:
        given = options(registry)
        with closing(SchemaRegistryClient({"url": registry.url})) as client:
            first = version(client, topic, 1)
            topics.produce(topic, [value(first, 0, 1)])
            query = start(spark, topics, topic, tmp_path, given)
            query.processAllAvailable()
            second = version(client, topic, 2)
    try:
        topics.produce(topic, [value(first, 1, 1)])
        query.processAllAvailable()
        assert [row["id"] for row in rows(tmp_path)] == [0, 1]
        topics.produce(topic, [value(first, 2, 1), value(second, 3, 2)])
        with pytest.raises(PySparkException, match=f"asked for the latest version of subject {topic}-value"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert [row["id"] for row in rows(tmp_path)] == [0, 1]
    port = int(registry.url.rpartition(":")[2])
    with EmbeddedRegistry(kafka.bootstrap_servers, topic=of_registry, port=port):
        found = run(spark, topics, topic, tmp_path, given)
    assert [(row["id"], row["city"]) for row in found] == [(0, None), (1, None), (2, "?"), (3, "Rom")]


def test_of_two_drivers_with_different_versions_one_is_fenced(
    spark: SparkSession,
    topics: Topics,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    crash_folder: Path,
) -> None:
    topic = topics.create(1)
    first = version(client, topic, 1)
    given = options(registry, offsetStore=f"delta:{tmp_path / 'table'}", appId=topic)
    topics.produce(topic, [value(first, 0, 1)])
    plan = arm(crash_folder, topic, f"{topic}:sink.before_commit@0=hold")
    paused = start(spark, topics, topic, tmp_path, given)
    try:
        for _ in range(DEADLINE_S * 5):
            if fired(plan):
                break
            assert not paused.awaitTermination(0.2), "it has ended"  # type: ignore[arg-type]
        second = version(client, topic, 2)
        topics.produce(topic, [value(second, 1, 2)])
        other = {"checkpointLocation": str(tmp_path / "other")}
        expected = [(0, "?"), (1, "Rom")]
        assert [(row["id"], row["city"]) for row in run(spark, topics, topic, tmp_path, given, **other)] == expected
        release(plan)
        with pytest.raises(StreamingQueryException, match="FencedError"):
            paused.awaitTermination(DEADLINE_S)
    finally:
        release(plan)
        paused.stop()
    assert [(row["id"], row["city"]) for row in rows(tmp_path)] == expected


def test_a_type_that_the_column_cannot_have_stops_the_query_and_a_removed_field_stays(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic = topics.create(1)
    given, sql = options(registry), {"sql": "SELECT value.* FROM records"}
    both = version(client, topic, 2)
    topics.produce(topic, [value(both, 0, 2)])
    run(spark, topics, topic, tmp_path, given, **sql)
    alone = b"\0" + register(client, topic, NEW_FIELDS[:1]).to_bytes(4, "big")
    topics.produce(topic, [value(both, 1, 2), value(alone, 2, 1)])
    found = [(row["id"], row["city"]) for row in run(spark, topics, topic, tmp_path, given, **sql)]
    assert found == [(0, "Rom"), (1, None), (2, None)]
    wider = b"\0" + register(client, topic, [{"name": "id", "type": "double"}]).to_bytes(4, "big")
    topics.produce(topic, [value(wider, 3, 0)])
    with pytest.raises(PySparkException, match=rf"values are read as version 3 \(id \d+\) of {topic}-value"):
        run(spark, topics, topic, tmp_path, given, **sql)
    assert [(row["id"], row["city"]) for row in rows(tmp_path)] == found
    given |= {
        "schemaEvolution": "none",
        "valueSchemaId": str(int.from_bytes(alone[1:], "big")),
        "mode": "DROPMALFORMED",
    }
    assert [(row["id"], row["city"]) for row in run(spark, topics, topic, tmp_path, given, **sql)] == found


def test_what_cannot_add_columns_is_refused_at_the_start(
    spark: SparkSession, topics: Topics, registry: EmbeddedRegistry, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic = topics.create(1)
    version(client, topic, 1)
    with pytest.raises(PySparkException, match=r"needs handOver=ranges.*schemaEvolution=restart"):
        stream(spark, topics, topic, **options(registry, handOver="rows"))
    with pytest.raises(OptionError, match="allow that with mergeSchema=true"):
        start(spark, topics, topic, tmp_path, options(registry), mergeSchema="false")
    ranges = stream(spark, topics, topic, **options(registry))
    into_kafka = ranges.writeStream.format("kafka_once").option("topic", "x").option("appId", "x")
    into_kafka = into_kafka.option("kafka.bootstrap.servers", topics.bootstrap_servers)
    query = into_kafka.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException, match="a topic has none: set schemaEvolution=restart"):
        query.processAllAvailable()
