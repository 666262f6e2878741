"""Logs of Delta tables written by hand, without data files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.checkpoint_files import StoredCheckpoint
from sparkonce.offset_store.log.checkpoints import Checkpoint, write_checkpoint
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.state import NEWS_KINDS, TableState, first_state
from sparkonce.offset_store.log.storage import LOG_FOLDER

Json = dict[str, Any]
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
PROTOCOL: Json = {"minReaderVersion": 1, "minWriterVersion": 2}


def with_features(*writers: str, readers: tuple[str, ...] = ()) -> Json:
    both = {"readerFeatures": list(readers)} if readers else {}
    return {
        "minReaderVersion": 3 if readers else 1,
        "minWriterVersion": 7,
        "writerFeatures": [*writers, *readers],
        **both,
    }


def metadata(properties: Mapping[str, str] | None = None, table_id: str = "t") -> Json:
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": dict(properties or {}),
        "createdTime": 1,
    }


def add(path: str, **fields: Any) -> Json:
    stats = json.dumps({"numRecords": 1})
    given = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True, "stats": stats, **fields}
    return {"add": {"path": path, **given}}


def remove(path: str, at_ms: int = 0, **fields: Any) -> Json:
    return {"remove": {"path": path, "deletionTimestamp": at_ms, "dataChange": True, **fields}}


def txn(app_id: str, version: int, **fields: Any) -> Json:
    return {"txn": {"appId": app_id, "version": version, **fields}}


def domain(name: str, configuration: str = "{}", *, removed: bool = False) -> Json:
    return {"domainMetadata": {"domain": name, "configuration": configuration, "removed": removed}}


@dataclass(frozen=True)
class HandLog:
    """A table's log."""

    path: Path

    @property
    def folder(self) -> Path:
        return self.path / LOG_FOLDER

    @property
    def log(self) -> DeltaLog:
        return DeltaLog.open(Location.parse(str(self.folder.parent)), {})

    def create(self, properties: Mapping[str, str] | None = None, protocol: Json | None = None) -> None:
        self.folder.mkdir(parents=True)
        self.commit({"protocol": protocol or PROTOCOL}, {"metaData": metadata(properties)})

    def commit(self, *actions: Json, at_ms: int | None = None) -> int:
        version = (self.log.listing().newest if self.names() else None) or 0
        version = version + 1 if self.names() else 0
        name = self.folder / f"{version:020d}.json"
        name.write_text("".join(f"{json.dumps(each)}\n" for each in ({"commitInfo": {}}, *actions)))
        if at_ms is not None:
            os.utime(name, (at_ms / 1000, at_ms / 1000))
        return version

    def commits(self, count: int, *, at_ms: int | None = None) -> int:
        """Add one file in each of some commits."""
        for _ in range(count):
            version = (self.log.listing().newest or 0) + 1
            self.commit(add(f"f{version}"), txn("q", version), at_ms=at_ms)
        return version

    def state(self, version: int | None = None) -> TableState:
        """Return a state, folded from all commits."""
        listing = self.log.listing()
        version = listing.commits[-1] if version is None else version
        oldest = listing.commits[0]
        first, *others = self.log.actions_of(range(oldest, version + 1), NEWS_KINDS)
        if oldest:
            state = StoredCheckpoint(self.log, oldest, listing.checkpoints[oldest]).state()
        else:
            state = first_state(0, first)
        for actions in others:
            state = state.after(actions)
        return state

    def checkpoint(self, version: int | None = None, *, removed_before_ms: int = -1) -> Checkpoint | None:
        state = self.state(version)
        return write_checkpoint(self.log, state, self.log.listing(), removed_before_ms=removed_before_ms)

    def read(self, version: int) -> StoredCheckpoint:
        return StoredCheckpoint(self.log, version, self.log.listing().checkpoints[version])

    def rows(self, version: int, kind: str) -> list[Json]:
        """Return the files of a checkpoint, without what is null."""
        found = [row for rows in self.read(version).files(kind) for row in rows.to_pylist(maps_as_pydicts="strict")]
        return sorted(({k: v for k, v in row.items() if v is not None} for row in found), key=str)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder)) if self.folder.exists() else []

    def files(self) -> list[str]:
        """Return the table's files, as delta-rs reads them."""
        return sorted(pa.table(DeltaTable(self.path).get_add_actions())["path"].to_pylist())

    def delete_before(self, version: int) -> None:
        for name in self.names():
            if name[:20].isdecimal() and int(name[:20]) < version:
                (self.folder / name).unlink()

    def copy(self, path: Path) -> HandLog:
        shutil.copytree(self.path, path)
        return HandLog(path)
