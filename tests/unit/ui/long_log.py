"""A Delta table with very many versions: a query's commits, written as files of the log in seconds."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

from tests.unit.audit.logs import APP, QUERY, TOPIC, TOPIC_ID, Table

SINCE_CHECKPOINT = 50
"""Versions after the newest checkpoint: half of what delta-rs lets pass between two."""
RECORDS = 10
"""In a partition of a batch."""
COMMIT = (
    '{{"commitInfo":{{"timestamp":{at},"operation":"WRITE","operationParameters":{{"mode":"Append"}},"sparkonce":'
    '{{"appId":"{app}","queryId":"{query}","batchId":{batch},"attemptId":"{batch}","writes":["rows","offsets"],'
    '"ranges":{{"default":{{"{topic}":{{"id":"{topic_id}","partitions":{ranges}}}}}}},"counts":{{"rows":10}}}}}}}}\n'
    '{{"add":{{"path":"part-{batch}.parquet","partitionValues":{{}},"size":700,"modificationTime":{at},'
    '"dataChange":true,"stats":"{{\\"numRecords\\":10}}"}}}}\n'
)


def make(path: Path, versions: int, partitions: int = 4, began_ms: int = 1_790_000_000_000) -> None:
    """Make a table with this many versions; the data files that they name are not there."""
    Table.create(path)
    log = path / "_delta_log"
    for version in range(1, versions):
        batch = version - 1
        ranges = {str(each): [batch * RECORDS, version * RECORDS] for each in range(partitions)}
        text = COMMIT.format(
            at=began_ms + 1000 * version, app=APP, query=QUERY, batch=batch, topic=TOPIC, topic_id=TOPIC_ID,
            ranges=json.dumps(ranges),
        )  # fmt: skip
        offsets = [
            {"txn": {"appId": f"sparkonce/{APP}/offset/default/{TOPIC_ID}/{each}", "version": version * RECORDS}}
            for each in range(partitions)
        ]
        actions = [*offsets, {"txn": {"appId": f"sparkonce/{APP}/query/{QUERY}", "version": batch}}]
        (log / f"{version:020d}.json").write_text(text + "\n".join(map(json.dumps, actions)) + "\n")
        if version == versions - SINCE_CHECKPOINT:
            DeltaTable(path).create_checkpoint()
