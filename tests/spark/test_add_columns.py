"""Direct queries with schemaEvolution=add-columns: each batch is read as the latest version of its subject."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import sparkonce
from sparkonce import EmbeddedRegistry
from tests.spark.source_support import Topics, stream

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
    kept = {"appId": "growing", "mergeSchema": "true", "checkpointLocation": str(folder / "checkpoint")}
    rows = stream(spark, topics, topic, **given)
    return sparkonce.write_stream(rows).format("delta_once").options(**kept).options(**sink).start(f"{folder}/table")


def rows(folder: Path) -> list[dict[str, Any]]:
    found = DeltaTable(folder / "table").to_pyarrow_table().to_pylist()
    return sorted(([each.get("value") or each for each in found]), key=lambda row: row["id"])


@pytest.mark.parametrize("sql", [None, "SELECT value.* FROM records"])
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
