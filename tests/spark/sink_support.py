"""A small stream with offsets like those of `kafka_once`, so that the sink can be tested without a broker.

Topic ``numbers`` has partitions 0 to n-1; record ``k`` of partition ``p`` is always the row (p, k, "p-k"). How far the
topic reaches and how large a batch may be come as options, so that a test moves the end between two runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from sparkonce.offset_store import open_store
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition

TOPIC = "numbers"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
PROJECT = Path(__file__).resolve().parents[2]

# Workers cannot import this module by name: it travels with the objects.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def partition(index: int, topic_id: str = TOPIC_ID) -> TopicPartition:
    return TopicPartition(TOPIC, topic_id, index)


@dataclass
class Slice(InputPartition):
    index: int
    start: int
    end: int


class NumbersReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.source = options.get("source", "default")
        self.count = int(options.get("partitions", "2"))
        self.end = int(options["end"])
        self.begin = int(options.get("begin", "0"))
        self.per_batch = int(options.get("perbatch", "1000000"))
        self.topic_id = options.get("topicid", TOPIC_ID)
        self.store = options.get("offsetstore")
        self.app_id = options.get("appid", "")

    def initialOffset(self) -> dict:  # noqa: N802
        partitions = [partition(index, self.topic_id) for index in range(self.count)]
        stored = open_store(self.store, self.app_id).read(self.source, partitions) if self.store else {}
        return self._offset({tp: Position(at, at) for tp in partitions for at in [stored.get(tp, self.begin)]})

    def _offset(self, positions: Mapping[TopicPartition, Position]) -> dict:
        return json.loads(SourceOffset(self.source, positions).to_json())

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:  # noqa: N802
        now = SourceOffset.from_json(json.dumps(start))
        return self._offset(
            {
                tp: Position(at.origin, max(at.next, min(self.end, at.next + self.per_batch)))
                for tp, at in now.positions.items()
            }
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        before = SourceOffset.from_json(json.dumps(start)).positions
        after = SourceOffset.from_json(json.dumps(end)).positions
        return [Slice(tp.partition, before[tp].next, position.next) for tp, position in sorted(after.items())]

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        offsets = list(range(partition.start, partition.end))
        yield pa.RecordBatch.from_pydict(
            {
                "partition": pa.array([partition.index] * len(offsets), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "value": pa.array([f"{partition.index}-{offset}" for offset in offsets], pa.string()),
            }
        )


class NumbersSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "partition int, offset bigint, value string"

    def streamReader(self, schema: Any) -> NumbersReader:  # noqa: N802
        return NumbersReader(self.options)


def numbers(spark: SparkSession, **options: object) -> DataFrame:
    reader = spark.readStream.format("numbers")
    for key, value in options.items():
        reader = reader.option(key, str(value))
    return reader.load()


def start(frame: DataFrame, table: Path | str, checkpoint: Path | str, **options: object) -> StreamingQuery:
    """Start a query that writes what is there, in as many batches as it takes."""
    mode = str(options.pop("mode", "append"))
    writer = frame.writeStream.format("delta_once").outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint))
    for key, value in {"appId": "app", **options}.items():
        writer = writer.option(key, str(value))
    return writer.start(str(table))


def run(frame: DataFrame, table: Path | str, checkpoint: Path | str, **options: object) -> None:
    """Write what is there, and wait for the end."""
    start(frame, table, checkpoint, **options).awaitTermination()
