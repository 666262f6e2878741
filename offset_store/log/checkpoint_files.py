"""A checkpoint that is in the log, of any kind, read into Arrow (PROTOCOL.md, "Checkpoints").

Its files are read in batches of rows, so that memory does not grow with the table.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.checkpoint_rows import DROPPED, FILE_KINDS, to_rows, with_json_statistics
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.state import STATE_KINDS, LogError, TableState, first_state
from sparkonce.offset_store.secrets import hidden_secrets

BATCH_ROWS = 16_384
BUFFER_BYTES, REQUEST_BYTES = 1 << 20, 8 << 20
"""Read at once of a column, so that a row group of a large table is not in memory as a whole; the second in stores."""
SIDECARS = "_sidecars"
Columns = dict[str, pa.StructType]


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One complete checkpoint. Every method raises OffsetStoreError if a file of it cannot be read."""

    log: DeltaLog
    version: int
    names: tuple[str, ...]
    """Its files in the log's folder: one, or its parts."""

    def state(self) -> TableState:
        """Return what it says of the table besides files. Raises OffsetStoreError also if that cannot be."""
        actions = self.actions()
        try:
            return first_state(self.version, actions)
        except LogError as error:
            raise OffsetStoreError(f"{self.log.folder}/{self.names[0]} {error}") from error

    def actions(self, kinds: Sequence[str] = STATE_KINDS) -> dict[str, list[Action]]:
        """Return its actions of these kinds, which are not files."""
        found: dict[str, list[Action]] = {kind: [] for kind in kinds}
        for name in self.names:
            for kind, actions in self._actions_in(name, kinds).items():
                found[kind] += actions
        return found

    def sidecars(self) -> list[str]:
        """Return the names of its sidecars in the folder `SIDECARS`."""
        found = []
        for name in self.names:
            for sidecar in self._actions_in(name, ("sidecar",))["sidecar"]:
                path = unquote(str(sidecar.get("path") or ""))
                if not path or path.rpartition("/")[0] not in ("", SIDECARS):
                    where = f"{self.log.folder}/{name}"
                    raise OffsetStoreError(f"{where} has a sidecar elsewhere, {path!r}, which is not read")
                found.append(path.rpartition("/")[2])
        return found

    def types(self) -> dict[str, list[pa.StructType]]:
        """Return the types of the columns ``add`` and ``remove`` in its files."""
        found: dict[str, list[pa.StructType]] = {kind: [] for kind in FILE_KINDS}
        for name in self._file_names():
            if name.endswith(".json"):
                for kind, rows in self._json_rows(name).items():
                    found[kind].append(rows.type)
                continue
            with self._opened(name) as file:
                for kind in _columns(file, FILE_KINDS):
                    found[kind].append(file.schema_arrow.field(kind).type)
        return found

    def files(self, kind: str, needed: Container[str] | None = None) -> Iterator[pa.StructArray]:
        """Yield its rows of ``add`` or of ``remove``, in batches; statistics are JSON in all of them.

        Only the fields ``needed`` are read from Parquet; None: all.
        """
        for name in self._file_names():
            if name.endswith(".json"):
                yield _with_json(kind, self._json_rows(name)[kind])
            else:
                yield from (_with_json(kind, rows) for rows in self._parquet_rows(name, kind, needed))

    def paths(self, kind: str) -> Iterator[str]:
        """Yield the paths of its rows of ``add`` or of ``remove``, as the log has them."""
        for rows in self.files(kind, {"path"}):
            yield from rows.field("path").drop_null().to_pylist()

    def _file_names(self) -> Iterator[str]:
        yield from self.names
        yield from (f"{SIDECARS}/{name}" for name in self.sidecars())

    def _json_rows(self, name: str) -> dict[str, pa.StructArray]:
        return {kind: to_rows(kind, actions) for kind, actions in self.log.actions_in(name, FILE_KINDS).items()}

    def _parquet_rows(self, name: str, kind: str, needed: Container[str] | None) -> Iterator[pa.StructArray]:
        with self._opened(name) as file:
            if kind not in file.schema_arrow.names:
                return
            fields = [field.name for field in file.schema_arrow.field(kind).type]
            # Statistics as a struct are read only where there are none as text: they are most of the bytes.
            dropped = DROPPED[kind] if kind == "remove" or _all_have_text(file) else {"partitionValues_parsed"}
            kept = [field for field in fields if (field not in dropped if needed is None else field in needed)]
            columns = [f"{kind}.{field}" for field in kept]
            for batch in file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                rows = batch.column(0)
                yield rows.filter(rows.is_valid())

    def _actions_in(self, name: str, kinds: Sequence[str]) -> dict[str, list[Action]]:
        if name.endswith(".json"):
            return self.log.actions_in(name, kinds)
        found: dict[str, list[Action]] = {kind: [] for kind in kinds}
        with self._opened(name) as file:
            kept = _columns(file, kinds)
            for batch in file.iter_batches(BATCH_ROWS, columns=kept, use_threads=False) if kept else ():
                for kind, rows in zip(batch.schema.names, batch.columns, strict=True):
                    found[kind] += rows.filter(rows.is_valid()).to_pylist(maps_as_pydicts="strict")
        return found

    @contextmanager
    def _opened(self, name: str) -> Iterator[pq.ParquetFile]:
        with hidden_secrets(self.log.storage_options):
            try:
                with self.log.storage.open(name) as source:
                    yield pq.ParquetFile(
                        source, buffer_size=BUFFER_BYTES if self.log.storage.is_local else REQUEST_BYTES
                    )
            except (OSError, pa.ArrowException) as error:
                raise self.log.failure(f"cannot read {self.log.folder}/{name}", error) from error


def _columns(file: pq.ParquetFile, kinds: Sequence[str]) -> list[str]:
    return [kind for kind in kinds if kind in file.schema_arrow.names]


def _all_have_text(file: pq.ParquetFile) -> bool:
    """Whether the file says of itself that every ``add`` has its statistics as text."""
    columns = {file.schema.column(index).path: index for index in range(len(file.schema))}
    if "add.stats" not in columns:
        return False
    for group in range(file.metadata.num_row_groups):
        found = [file.metadata.row_group(group).column(columns[path]).statistics for path in ("add.path", "add.stats")]
        nulls = {each.null_count if each is not None and each.has_null_count else None for each in found}
        if len(nulls) > 1 or None in nulls:
            return False
    return True


def _with_json(kind: str, rows: pa.StructArray) -> pa.StructArray:
    return with_json_statistics(rows) if kind == "add" else rows
