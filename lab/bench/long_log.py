"""A Delta table with very many versions: a query's commits, written as files of the log; the files of data hold zeros.

For benchmarks that read a log. Where a query continues, use `many_versions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

APP, QUERY = "app", "4bb9d6c8-0000-0000-0000-000000000001"
TOPIC, TOPIC_ID = "orders", "AAAAAAAAAAAAAAAAAAAAAQ"
SINCE_CHECKPOINT = 50
"""Versions after the newest checkpoint: half of delta-rs's checkpoint interval."""
RECORDS = 10
"""In a partition of a batch."""
FILE_BYTES = 700
BEGAN_MS = 1_790_000_000_000
SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
_COMMIT = (
    '{{"commitInfo":{{"timestamp":{at},"operation":"WRITE","operationParameters":{{"mode":"Append"}},"sparkonce":'
    '{{"appId":"{app}","queryId":"{query}","batchId":{batch},"attemptId":"{batch}","writes":["rows","offsets"],'
    '"ranges":{{"default":{{"{topic}":{{"id":"{topic_id}","partitions":{ranges}}}}}}},"counts":{{"rows":10}}}}}}}}\n'
    '{{"add":{{"path":"part-{batch}.parquet","partitionValues":{{}},"size":{size},"modificationTime":{at},'
    '"dataChange":true,"stats":"{{\\"numRecords\\":10}}"}}}}\n'
)


def make(path: Path, versions: int, partitions: int = 4, app: str = APP, query: str = QUERY) -> None:
    """Make a table with this many versions."""
    DeltaTable.create(path, SCHEMA)
    extend(path, 1, versions, lambda version: _text(path, version, partitions, app, query))


def extend(table: Path, since: int, versions: int, text: Callable[[int], str]) -> None:
    """Write a log's versions from ``since`` on, up to this many in all, and a checkpoint near their end."""
    for version in range(since, versions):
        _put(table, version, text(version))
        if version == versions - SINCE_CHECKPOINT:
            DeltaTable(table).create_checkpoint()


def commit(path: Path, version: int, partitions: int = 4, app: str = APP, query: str = QUERY) -> None:
    """Write the next version of a table that `make` has made."""
    _put(path, version, _text(path, version, partitions, app, query))


def commit_file(table: Path, version: int) -> Path:
    """Return the path of a commit's file."""
    return table / "_delta_log" / f"{version:020d}.json"


def _put(table: Path, version: int, text: str) -> None:
    path = commit_file(table, version)
    made = path.with_name(f".{path.name}")  # a reader finds the whole file, or none
    made.write_text(text)
    made.rename(path)


def _text(path: Path, version: int, partitions: int, app: str, query: str) -> str:
    batch, at_ms = version - 1, BEGAN_MS + 1000 * version
    ranges = {str(each): [batch * RECORDS, version * RECORDS] for each in range(partitions)}
    text = _COMMIT.format(
        at=at_ms,
        app=app,
        query=query,
        batch=batch,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        ranges=json.dumps(ranges),
        size=FILE_BYTES,
    )
    with (path / f"part-{batch}.parquet").open("wb") as file:
        file.truncate(FILE_BYTES)
    offsets = [
        {"txn": {"appId": f"sparkonce/{app}/offset/default/{TOPIC_ID}/{each}", "version": version * RECORDS}}
        for each in range(partitions)
    ]
    actions = [*offsets, {"txn": {"appId": f"sparkonce/{app}/query/{query}", "version": batch}}]
    return text + "\n".join(map(json.dumps, actions)) + "\n"
