"""One query for many topics, each of which is read as the registry's schemas of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable

from sparkonce import EmbeddedBroker, EmbeddedRegistry, OptionError
from sparkonce.connectors.formats import topic_tables
from sparkonce.connectors.formats.table_query import TableQuery
from sparkonce.connectors.formats.topic_tables import TopicTables
from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.sinks.shared_batch import SharedBatchSink, SharedMessage
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.connectors.sinks.target import Task
from tests.parity.support import DEADLINE_S, Cluster, Stream

ADDED = {"name": "city", "type": "string", "default": "?"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with EmbeddedBroker() as broker:
        yield Cluster(broker.bootstrap_servers)


class Query:
    """A query of all topics with a prefix into a table for each, without Spark."""

    def __init__(self, cluster: Cluster, root: Path, registry: EmbeddedRegistry, prefix: str, **more: str) -> None:
        source = {
            "subscribePattern": f"^{prefix}",
            "startingOffsets": "earliest",
            "handOver": "ranges",
            "columns": "value,offset",
            "valueFormat": "avro",
            "schemaRegistry.url": registry.url,
            "schemaRegistry.max.retries": "0",
            "isolateTables": "true",
            "offsetStore": f"delta:{root}/{{topic}}",
            "appId": "app",
            **more,
        }
        self.root, self.checkpoint = root, root / "checkpoint"
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id":"q"}')
        self.stream = Stream(cluster.source_options(**source))
        self.schema = HandOver.of(self.stream.options).schema()

    def sink(self, **more: str) -> SharedBatchSink:
        given = {"path": f"{self.root}/{{topic}}", "appId": "app", "checkpointLocation": str(self.checkpoint)}
        return TopicTables.sink_of({**given, "mergeSchema": "true", **more}, self.schema)

    def begun(self) -> SharedBatchSink:
        """Plan the next batch, and begin it."""
        if self.stream.committed == len(self.stream.offset_log):
            assert self.stream.plan()
        line = self.stream.offset_log[-1]
        (self.checkpoint / "offsets" / str(self.stream.committed)).write_text(f"v1\n{{}}\n{line}")
        sink = self.sink()
        sink.begin()
        return sink

    def run(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """Run a batch, and return why tables were left out."""
        sink, number = self.begun(), self.stream.committed
        monkeypatch.setattr(StreamSink, "_task", lambda _self, batch_id: Task(batch_id, 0, 0, 0))
        messages = [sink.write(iter(batches)) for batches in self.stream.handed_over()]
        self.sink().commit([*messages], number)
        self.stream.committed += 1
        return {
            name: out.why for each in messages if isinstance(each, SharedMessage) for name, out in each.left_out.items()
        }

    def found(self, topic: str) -> list[Any]:
        rows = DeltaTable(self.root / topic).to_pyarrow_table().to_pylist()
        return [row["value"] for row in sorted(rows, key=lambda row: int(row["offset"]))]


def send(cluster: Cluster, client: SchemaRegistryClient, topic: str, row: dict[str, Any], *more: Any) -> None:
    """Write a row by Confluent's serializer, which registers its schema."""
    kind = {str: "string", int: "long"}
    fields = [{"name": name, "type": kind[type(value)]} for name, value in row.items() if name != "city"]
    schema = json.dumps({"type": "record", "name": topic.replace("-", "_"), "fields": [*fields, *more]})
    value = AvroSerializer(client, schema)(row, SerializationContext(topic, MessageField.VALUE))
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.parametrize("evolution", ["none", "add-columns", "restart"])
def test_each_table_has_the_columns_of_its_topic(
    cluster: Cluster,
    registry: EmbeddedRegistry,
    client: SchemaRegistryClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    evolution: str,
) -> None:
    a, b, late = (cluster.create(1, f"by-topic-{evolution}-{each}") for each in ("a", "b", "late"))
    send(cluster, client, a, {"id": 1})
    send(cluster, client, b, {"name": "Ada"})
    query = Query(cluster, tmp_path, registry, f"by-topic-{evolution}", schemaEvolution=evolution)
    with query.stream:
        assert query.run(monkeypatch) == {}
        cluster.send(late, ["no schema has it"])
        send(cluster, client, a, {"id": 2, "city": "Rome"}, ADDED)
        (why,) = query.run(monkeypatch).items()
    assert why[0] == late
    assert why[1].startswith("NoSchemaYetError: ")
    city = {} if evolution == "none" else {"city": "Rome"}
    assert query.found(a) == [{"id": 1, **dict.fromkeys(city)}, {"id": 2, **city}]
    assert query.found(b) == [{"name": "Ada"}]


def test_a_registry_that_does_not_answer_stops_the_query_and_leaves_no_table_out(
    cluster: Cluster, registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    topic_tables._kept_queries.clear()
    cluster.send(cluster.create(1, "away-a"), [1])
    query = Query(cluster, tmp_path, registry, "away-", **{"schemaRegistry.url": "http://127.0.0.1:1"})
    with query.stream, pytest.raises(OptionError, match="does not answer"):
        query.begun()


def test_rows_of_such_a_query_go_into_no_single_table(
    cluster: Cluster, registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    query = Query(cluster, tmp_path, registry, "single-")
    query.stream.stop()
    with pytest.raises(OptionError, match="isolateTables cannot be combined with deliveryGuarantee=at-most-once"):
        query.sink(deliveryGuarantee="at-most-once")
    with pytest.raises(OptionError, match="write a table for each topic"):
        TableQuery.of({"path": "/t", "appId": "app", "checkpointLocation": "/c"}, query.schema)
