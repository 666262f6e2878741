"""Clones of Delta tables, with the log that delta-spark 4.4 writes for SHALLOW CLONE."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable


def shallow_clone(source: Path, target: Path, version: int | None = None) -> Path:
    """Make ``target`` a clone: its files are those of ``source``, and no transaction identifier comes along."""
    table = DeltaTable(str(source), version=version)
    folder = target / "_delta_log"
    folder.mkdir(parents=True)
    commit = {
        "timestamp": 1795352896488,
        "operation": "CLONE",
        "operationParameters": {"source": f"delta.`file:{source}`", "sourceVersion": table.version()},
        "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
    }
    schema = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    actions: list[dict[str, object]] = [
        {"commitInfo": commit},
        {"metaData": schema},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    ]
    for add in pa.table(table.get_add_actions()).to_pylist():
        path = add["path"] if add["path"].startswith("file:") else f"file:{source}/{add['path']}"
        stats = json.dumps({"numRecords": add["num_records"]})
        values = {"partitionValues": {}, "size": add["size_bytes"], "modificationTime": 0, "dataChange": True}
        actions.append({"add": {"path": path, **values, "stats": stats}})
    (folder / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return target


def cut_log(path: Path) -> None:
    """Make a checkpoint, and remove every commit that it makes unnecessary."""
    table = DeltaTable(str(path))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    table.cleanup_metadata()
    assert not (path / "_delta_log" / f"{0:020d}.json").exists()
