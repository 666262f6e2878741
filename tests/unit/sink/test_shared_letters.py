"""Several tables whose dead letters go to a topic are begun and finished at once: their threads share a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from sparkonce import EmbeddedBroker
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.formats.table_query import stream_sink
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.connectors.values.letters import COLUMN, LETTER
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.pipeline import committed_rows, create_topics, settings_of
from tests.unit.sink.test_shared_batch import SCHEMA, ByHand, Pipeline

WITH_LETTERS = t.StructType([*SCHEMA, t.StructField(COLUMN, LETTER)])
TOPICS, DEAD, BATCHES, RECORDS = "abcdefgh", "dead", 3, 4


class WithLetters(ByHand):
    """Tables of which every other record is a dead letter."""

    def __init__(self, root: Path, guarantee: Guarantee, servers: str) -> None:
        super().__init__(root, guarantee)
        self.servers, self.at_once = servers, len(TOPICS)

    def _read(self, topic: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = batch["n"].to_pylist()
        rows = [{"topic": topic, "n": n, COLUMN: letter(topic, n) if n % 2 else None} for n in numbers]
        yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(WITH_LETTERS, timezone="UTC"))

    def sink(self, name: str) -> StreamSink:
        topic = name.removeprefix("table of ")
        given = {"path": str(self.root / topic), "appId": f"app.{topic}", "checkpointLocation": "elsewhere"}
        letters = {"deadLetters": f"topic:{DEAD}", "kafka.bootstrap.servers": self.servers}
        options = SinkOptions.read({**given, **letters, "deliveryGuarantee": self.guarantee.value})
        return stream_sink(options, WITH_LETTERS)


def letter(topic: str, offset: int) -> dict[str, object]:
    record = {"value": f"{topic}:{offset}".encode(), "topic": topic, "partition": 0, "offset": offset}
    return {**dict.fromkeys(LETTER.names), **record, "reason": "odd"}


@pytest.mark.parametrize("guarantee", Guarantee)
def test_each_letter_and_each_row_is_there_once(tmp_path: Path, guarantee: Guarantee) -> None:
    with EmbeddedBroker() as broker:
        pipeline = Pipeline(tmp_path, guarantee)
        pipeline.tables = WithLetters(tmp_path, guarantee, broker.bootstrap_servers)
        client = Client(settings_of(broker))
        create_topics(client, DEAD, *TOPICS, partitions=1)
        for batch_id in range(BATCHES):
            pipeline.run(batch_id, dict.fromkeys(TOPICS, RECORDS * (batch_id + 1)))
        numbers = range(RECORDS * BATCHES)
        dead = committed_rows(client, DEAD)
        client.close()
    assert dead == sorted(f"{topic}:{number}" for topic in TOPICS for number in numbers if number % 2)
    for topic in TOPICS:
        rows = DeltaTable(tmp_path / topic).to_pyarrow_table()["n"].to_pylist()
        assert sorted(rows) == [number for number in numbers if number % 2 == 0]
