"""A query without Spark: a checkpoint made by hand, tasks that run where the test runs, and a real Delta table."""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.direct.source import DirectSource
from sparkonce.connectors.formats.table_query import stream_sink
from sparkonce.connectors.sinks.stream_sink import StreamSink, TaskMessage
from sparkonce.connectors.sinks.target import Task
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition

SCHEMA = t.StructType([t.StructField("v", t.LongType())])
TP = TopicPartition("topic", "id", 0)

Rows = Sequence[Mapping[str, Any]]


class Query:
    """One query into one table; each `log` is what Spark does before a batch."""

    def __init__(
        self,
        root: Path,
        query_id: str = "q",
        guarantee: str = "exactly-once",
        *,
        schema: t.StructType = SCHEMA,
        replace: bool = False,
        source: DirectSource | None = None,
        **options: str,
    ) -> None:
        self.table = root / "table"
        self.checkpoint = root / f"checkpoint-{query_id}"
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(f'{{"id":"{query_id}"}}')
        self.schema = schema
        self.replace = replace
        self.source = source
        self.options = {
            "path": str(self.table),
            "appId": "app",
            "checkpointLocation": str(self.checkpoint),
            "deliveryGuarantee": guarantee,
            **options,
        }

    def log(self, batch_id: int, end: int, partitions: int = 1) -> None:
        positions = {TP._replace(partition=number): Position(0, end) for number in range(partitions)}
        line = SourceOffset("kafka", positions).to_json()
        (self.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{line}")

    def writer(self) -> StreamSink:
        return stream_sink(SinkOptions.read(self.options), self.schema, replace=self.replace, source=self.source)

    def batches(self, rows: Rows) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(self.schema, timezone="UTC"))]

    def tasks(self, count: int = 2, rows: Rows | None = None) -> list[TaskMessage]:
        """Begin the newest batch, and run its tasks, which write one row each, or one task that writes ``rows``."""
        given = [[{"v": number}] for number in range(count)] if rows is None else [rows]
        return self.tasks_with(self.batches(each) for each in given)

    def tasks_with(
        self, handed_over: Iterable[Iterable[pa.RecordBatch]], between: Callable[[], None] = lambda: None
    ) -> list[TaskMessage]:
        """Begin the newest batch, call ``between``, and run a task for each of ``handed_over``."""
        writer = self.writer()
        writer.begin()
        sent: StreamSink = cloudpickle.loads(cloudpickle.dumps(writer))
        between()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sent, "_task", lambda planned_batch_id: Task(planned_batch_id, 0, 0, 0))
            messages = [sent.write(iter(each)) for each in handed_over]
        found: list[TaskMessage] = cloudpickle.loads(cloudpickle.dumps(messages))
        return found

    def commit(self, batch_id: int, messages: Sequence[TaskMessage]) -> None:
        self.writer().commit([*messages, None], batch_id)

    def abort(self, batch_id: int, messages: Sequence[TaskMessage]) -> None:
        self.writer().abort([*messages, None], batch_id)

    def write(self, batch_id: int, rows: Rows) -> None:
        """Do a whole batch of ten records, which give these rows."""
        self.log(batch_id, 10 * (batch_id + 1))
        self.commit(batch_id, self.tasks(rows=rows))

    def rows(self) -> int:
        return int(DeltaTable(self.table).to_pyarrow_table().num_rows)

    def read(self, *order: str) -> list[dict[str, Any]]:
        found = DeltaTable(self.table).to_pyarrow_table()
        rows: list[dict[str, Any]] = found.sort_by([(name, "ascending") for name in order]).to_pylist()
        return rows

    def files(self) -> int:
        return len(list(self.table.rglob("*.parquet")))


def make_table(path: Path, *actions: Mapping[str, Any]) -> None:
    """Write version 0 of a table's log, as another writer would."""
    folder = path / "_delta_log"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.json").write_text("\n".join(json.dumps(action) for action in actions) + "\n")


def table_actions(
    schema: t.StructType,
    *,
    features: Sequence[str] = (),
    reader_features: Sequence[str] = (),
    versions: tuple[int, int] = (1, 2),
    configuration: Mapping[str, str] | None = None,
    partition_columns: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return protocol and metadata as delta-spark writes them; with features, of versions 3 and 7."""
    if features:
        versions = (3 if reader_features else 1, 7)
    protocol: dict[str, Any] = {"minReaderVersion": versions[0], "minWriterVersion": versions[1]}
    if versions[1] == 7:
        protocol["writerFeatures"] = list(features)
    if versions[0] == 3:
        protocol["readerFeatures"] = list(reader_features)
    metadata = {
        "id": "0f9a9a3c-0d9a-4a4e-9d3c-2b6a3b6f8f10",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.json(),
        "partitionColumns": list(partition_columns),
        "configuration": dict(configuration or {}),
        "createdTime": 1_700_000_000_000,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def delete_row(path: Path, row: int, *, in_file: bool = False) -> None:
    """Delete one row of the file that the newest commit added, by a deletion vector, as delta-spark's DELETE would.

    PROTOCOL.md of delta-io/delta, "Deletion Vector Format": a roaring bitmap of one value, inline in Z85 or in a file.
    """
    folder = path / "_delta_log"
    version = max(int(each.stem) for each in folder.glob("*.json"))
    lines = (folder / f"{version:020d}.json").read_text().splitlines()
    (add,) = (action["add"] for line in lines if "add" in (action := json.loads(line)))
    bitmap = struct.pack("<II", 12346, 1) + struct.pack("<HHIH", 0, 0, 16, row)
    data = struct.pack("<IqI", 1681511377, 1, 0) + bitmap
    vector = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": 1}
    if in_file:
        name = uuid.UUID(int=version)
        framed = b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        (path / f"deletion_vector_{name}.bin").write_bytes(framed)
        vector |= {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1}
    remove = {"path": add["path"], "deletionTimestamp": 1_700_000_000_000, "dataChange": True}
    stats = json.dumps({**json.loads(add["stats"]), "tightBounds": False})
    added = {key: value for key, value in add.items() if value is not None}
    actions = [{"remove": remove}, {"add": {**added, "stats": stats, "deletionVector": vector}}]
    text = "\n".join(json.dumps(action) for action in actions)
    (folder / f"{version + 1:020d}.json").write_text(text + "\n")


def z85(data: bytes) -> str:
    """Encode as ZeroMQ's RFC 32 does; Python's own base 85 has the same digits in another alphabet."""
    padded = data + bytes(-len(data) % 4)
    python = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    zeromq = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return base64.b85encode(padded).translate(bytes.maketrans(python, zeromq)).decode()
