"""Queries by hand whose table, or table and checkpoint, are in a store with S3's interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from lab.store.s3 import S3Store
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.tables import table_filesystem
from tests.unit.sink.query_by_hand import Query


class StoredQuery(Query):
    """A query whose table is in the store, and its checkpoint on the local disk."""

    def __init__(self, root: Path, store: S3Store, query_id: str = "q", **options: Any) -> None:
        super().__init__(root, query_id, **options)
        self.uri = f"s3://bucket/{root.name}"
        self.options |= {"path": self.uri, **store.query_options}
        self.store = store

    def handle(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=dict(self.store.storage_options))

    def values(self) -> list[int]:
        found: list[int] = self.handle().to_pyarrow_table().column("v").to_pylist()
        return sorted(found)


class CheckpointInStore(StoredQuery):
    """A query whose checkpoint is in the store too."""

    def __init__(self, root: Path, store: S3Store, **options: Any) -> None:
        super().__init__(root, store, **options)
        self.options["checkpointLocation"] = f"s3a://bucket/{root.name}-checkpoint"

    def log(self, batch_id: int, end: int, partitions: int = 1) -> None:
        super().log(batch_id, end, partitions)
        upload(self.checkpoint, self.options["checkpointLocation"], self.store)


def upload(folder: Path, location: str, store: S3Store) -> None:
    filesystem, root = table_filesystem(Location.parse(location), store.storage_options)
    for path in filter(Path.is_file, folder.rglob("*")):
        with filesystem.open_output_stream(f"{root}/{path.relative_to(folder)}", buffer_size=1 << 16) as stream:
            stream.write(path.read_bytes())
