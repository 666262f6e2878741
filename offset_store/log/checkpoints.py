"""Checkpoints of a table, written in one file (PROTOCOL.md, "Checkpoints", "Action Reconciliation").

1. The newest commits win: they are read from the newest to the oldest, and what names a logical file, a transaction
   identifier or a domain is taken once. They have few actions, which pass through Python.
2. The rows of the checkpoint before them follow, in Arrow, unless a commit names their file.
3. The file is made in memory, read and compared with the state that the writer of commits has, put if absent, and read
   back. What another writer has put at that version is left alone.
4. Only then does ``_last_checkpoint`` name it.

It is a classic checkpoint of the first kind, also in tables that have V2 checkpoints: the protocol allows it in every
table, and every reader takes it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.checkpoint_files import BATCH_ROWS, StoredCheckpoint
from sparkonce.offset_store.log.checkpoint_rows import (
    FILE_KINDS,
    KNOWN,
    FileKey,
    conform,
    file_key,
    row_type,
    to_rows,
    without,
)
from sparkonce.offset_store.log.reader import DAMAGE, DeltaLog, LogListing, commit_file
from sparkonce.offset_store.log.state import ROW_TRACKING_DOMAIN, STATE_KINDS, LogError, TableState, first_state
from sparkonce.offset_store.secrets import hidden_secrets

LAST_CHECKPOINT = "_last_checkpoint"
CHUNK_ACTIONS = 4_096
"""How many actions of commits wait as Python objects before they become Arrow."""
MOST_BASES = 5
"""Checkpoints that are tried before the whole log is: more that are damaged are not an accident."""
_REPEATED = ["add.partitionValues.key_value.key", "add.partitionValues.key_value.value"]
"""Columns that dictionaries make smaller; paths and statistics are all different."""


class CheckpointError(OffsetStoreError):
    """A checkpoint that was made does not say what the table's state says; it is not in the log."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was written."""

    version: int
    files: int
    """How many files the table has."""
    actions: int
    size_bytes: int


def write_checkpoint(
    log: DeltaLog, state: TableState, listing: LogListing, *, removed_before_ms: int | None
) -> Checkpoint | None:
    """Write a checkpoint of the table at ``state``; None if another writer has put one there.

    ``listing`` may begin at the newest checkpoint that is known. Removes of files older than ``removed_before_ms`` are
    left out.

    Raises:
        CheckpointError: if what was made, or what is read back, does not agree with ``state``.
        OffsetStoreError: if the log cannot be read or written, or has a hole.
    """
    if state.version in listing.checkpoints:
        return None
    name = f"{state.version:020d}.checkpoint.parquet"
    where = f"{log.folder}/{name}"
    with hidden_secrets(log.storage_options):
        try:
            tag = log.storage.tag(commit_file(state.version))
            data, found = _made(log, state, listing, removed_before_ms)
            _forget_checksum(log, name)
            is_ours = log.storage.put_if_absent(name, data)
            if log.storage.read(name) != data:
                if not is_ours or _is_anothers(log, name, state, where):
                    return None
                log.storage.delete(name)
                raise CheckpointError(f"{where} was not read as it was written, and is deleted")
            written = Checkpoint(state.version, found.files, found.actions, len(data))
            _name_last(log, written)
            if log.storage.tag(commit_file(state.version)) != tag:
                _take_back(log, name, data, state.version)
                raise CheckpointError(f"{where} is of a table that was replaced by another meanwhile, and is deleted")
        except OSError as error:
            raise OffsetStoreError(f"cannot write {where}: {error}") from error
    return written


def _take_back(log: DeltaLog, name: str, data: bytes, version: int) -> None:
    """Delete a checkpoint that is in the log of another table by now."""
    with suppress(FileNotFoundError):
        if log.storage.read(name) == data:
            log.storage.delete(name)
    if last_checkpoint(log) == version:
        log.storage.delete(LAST_CHECKPOINT)


def _is_anothers(log: DeltaLog, name: str, state: TableState, where: str) -> bool:
    """Whether another writer has put a checkpoint of the same state in place of ours."""
    try:
        _compare(io.BytesIO(log.storage.read(name)), state, where)
    except (OffsetStoreError, pa.ArrowException, ValueError, KeyError, TypeError):
        return False
    return True


def _made(log: DeltaLog, state: TableState, listing: LogListing, removed_before_ms: int | None) -> tuple[bytes, _Found]:
    """Return the checkpoint's bytes, and what is in them, based on the newest older checkpoint that does for it."""
    first_error: OffsetStoreError | None = None
    for base in _bases(log, listing, state.version):
        made = _Made(log, state, base, removed_before_ms)
        with _understood(log, f"a commit up to version {state.version}"):
            made.read_commits()  # what is wrong with them is wrong for every older base too
        try:
            with _understood(log, f"the checkpoint of version {None if base is None else base.version}"):
                data = made.bytes()
            return data, _compare(io.BytesIO(data), state, log.folder)
        except OffsetStoreError as error:
            first_error = first_error or error
    raise first_error or OffsetStoreError(f"{log.folder} has neither a checkpoint nor its first commit")


@contextmanager
def _understood(log: DeltaLog, what: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
        raise OffsetStoreError(f"{log.folder}: {what} has an action that is not understood: {error!r}") from error


def _bases(log: DeltaLog, listing: LogListing, version: int) -> Iterator[StoredCheckpoint | None]:
    """Yield the newest checkpoints up to a version, the newest first, then None if the first commit is there."""
    tried: set[int] = set()
    for each in (listing, None):
        known = each or log.listing()  # a checkpoint that cannot be read is no reason to have no other
        for base in sorted(known.checkpoints, reverse=True):
            if base <= version and base not in tried and len(tried) < MOST_BASES:
                tried.add(base)
                yield StoredCheckpoint(log, base, known.checkpoints[base])
    if 0 in known.commits:
        yield None


@dataclass(slots=True)
class _Made:
    log: DeltaLog
    state: TableState
    base: StoredCheckpoint | None
    removed_before_ms: int | None
    small: dict[str, dict[str, Action]] = field(default_factory=lambda: {kind: {} for kind in STATE_KINDS})
    """The newest actions of each kind other than files, by what names them."""
    seen: set[FileKey] = field(default_factory=set)
    chunks: dict[str, list[pa.StructArray]] = field(default_factory=lambda: {kind: [] for kind in FILE_KINDS})

    def bytes(self) -> bytes:
        if self.base is not None:
            for kind, actions in self.base.actions().items():
                self._take(kind, actions)
        types = {kind: [rows.type for rows in chunks] for kind, chunks in self.chunks.items()}
        if self.base is not None:
            types = {kind: [*found, *types[kind]] for kind, found in self.base.types().items()}
        schema = pa.schema([(kind, row_type(kind, types.get(kind, ()))) for kind in KNOWN])
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, schema, compression="snappy", use_dictionary=_REPEATED) as writer:
            writer.write_table(self._small_rows(schema))
            for kind in FILE_KINDS:
                for rows in _in_groups(self._files(kind, schema.field(kind).type)):
                    writer.write_table(_table(schema, {kind: rows}))
        return sink.getvalue()

    def read_commits(self) -> None:
        base = -1 if self.base is None else self.base.version
        waiting: dict[str, list[Action]] = {kind: [] for kind in FILE_KINDS}
        versions = range(self.state.version, base, -1)
        for version, actions in zip(versions, self.log.actions_of(versions, (*KNOWN, DAMAGE)), strict=True):
            if actions[DAMAGE]:  # an empty file would be a commit without files
                what = actions[DAMAGE][0]["what"]
                raise OffsetStoreError(f"{self.log.folder}: the commit of version {version} is damaged: {what}")
            for kind in STATE_KINDS:
                self._take(kind, actions[kind])
            for kind, files in waiting.items():
                for action in actions[kind]:
                    key = file_key(action)
                    if key not in self.seen:
                        self.seen.add(key)
                        files.append({**action, "dataChange": False})  # a checkpoint changes no rows
                if len(files) >= CHUNK_ACTIONS:
                    self.chunks[kind].append(to_rows(kind, files))
                    files.clear()
        for kind, files in waiting.items():
            self.chunks[kind].append(to_rows(kind, files))

    def _take(self, kind: str, actions: list[Action]) -> None:
        """Take actions that are older than those taken before."""
        names = {"txn": "appId", "domainMetadata": "domain"}
        for action in actions:
            self.small[kind].setdefault(str(action[names[kind]]) if kind in names else "", action)

    def _small_rows(self, schema: pa.Schema) -> pa.Table:
        tables = []
        for kind in STATE_KINDS:
            actions = [each for each in self.small[kind].values() if not each.get("removed")]
            tables.append(_table(schema, {kind: conform(to_rows(kind, actions), schema.field(kind).type)}))
        return pa.concat_tables(tables)

    def _files(self, kind: str, wanted: pa.StructType) -> Iterator[pa.StructArray]:
        if self.base is not None:
            paths = pa.array({path for path, _ in self.seen}, pa.string())
            for rows in self.base.files(kind):
                yield self._kept(kind, conform(without(rows, self.seen, paths), wanted))
        for rows in self.chunks[kind]:
            yield self._kept(kind, conform(rows, wanted))

    def _kept(self, kind: str, rows: pa.StructArray) -> pa.StructArray:
        if kind == "add" or self.removed_before_ms is None:
            return rows
        times = pc.fill_null(rows.field("deletionTimestamp"), 0)
        return rows.filter(pc.greater(times, self.removed_before_ms))


def _in_groups(arrays: Iterator[pa.StructArray]) -> Iterator[pa.Array]:
    """Join small batches, so that a row group has about `BATCH_ROWS` rows."""
    waiting: list[pa.StructArray] = []
    for rows in arrays:
        waiting.append(rows)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            yield pa.concat_arrays(waiting)
            waiting = []
    if sum(map(len, waiting)):
        yield pa.concat_arrays(waiting)


def _table(schema: pa.Schema, columns: Mapping[str, pa.Array]) -> pa.Table:
    rows = len(next(iter(columns.values())))
    return pa.Table.from_arrays(
        [columns[each.name] if each.name in columns else pa.nulls(rows, each.type) for each in schema], schema=schema
    )


@dataclass(frozen=True, slots=True)
class _Found:
    files: int
    actions: int


def _compare(source: Any, state: TableState, where: str) -> _Found:
    """Read a checkpoint, and count what is in it. Raises CheckpointError if it does not say what ``state`` says."""
    try:
        file = pq.ParquetFile(source)
        small: dict[str, list[Action]] = {kind: [] for kind in STATE_KINDS}
        for kind in STATE_KINDS:
            rows = file.read(columns=[kind], use_threads=False)[kind].drop_null()
            small[kind] = rows.to_pylist(maps_as_pydicts="strict")
        files = file.read(columns=["add.path", "add.baseRowId", "add.deletionVector"], use_threads=False)["add"]
        found = first_state(state.version, small)
    except (OSError, pa.ArrowException, LogError) as error:
        raise CheckpointError(
            f"{where}: a checkpoint of version {state.version} {error}; it was not written"
        ) from error
    adds = files.drop_null().combine_chunks()
    paths = adds.field("path")
    differences = [
        what
        for what, differs in {
            "protocol": found.protocol != state.protocol,
            "metadata": found.metadata != state.metadata,
            "transaction identifiers": dict(found.transactions) != dict(state.transactions),
            "domains": dict(found.domains) != dict(state.domains),
            "files, one of which is there twice": pc.count_distinct(paths, "all").as_py() != len(paths),
            "row ids": ROW_TRACKING_DOMAIN in state.domains
            and pc.any(pc.greater_equal(adds.field("baseRowId"), state.next_row_id)).as_py(),
        }.items()
        if differs
    ]
    if differences:
        raise CheckpointError(
            f"{where}: a checkpoint of version {state.version} would differ from the table's state in "
            f"{', '.join(differences)}; it was not written. Look for damage in the log: sparkonce audit"
        )
    return _Found(len(adds), file.metadata.num_rows)


def read_hint(log: DeltaLog) -> Mapping[str, Any]:
    """Return what ``_last_checkpoint`` says; {} if it is missing or damaged: it is a hint."""
    try:
        found = json.loads(log.storage.read(LAST_CHECKPOINT))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def last_checkpoint(log: DeltaLog) -> int | None:
    """Return the version that ``_last_checkpoint`` names, or None."""
    version = read_hint(log).get("version")
    return version if isinstance(version, int) and version >= 0 else None


def _name_last(log: DeltaLog, written: Checkpoint) -> None:
    """Write ``_last_checkpoint``, unless it names a newer one."""
    try:
        stored = json.loads(log.storage.read(LAST_CHECKPOINT))["version"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        stored = None
    if isinstance(stored, int) and stored > written.version:
        return
    hint = {
        "version": written.version,
        "size": written.actions,
        "sizeInBytes": written.size_bytes,
        "numOfAddFiles": written.files,
    }
    _forget_checksum(log, LAST_CHECKPOINT)
    log.storage.put(LAST_CHECKPOINT, json.dumps(hint, separators=(",", ":")).encode())


def _forget_checksum(log: DeltaLog, name: str) -> None:
    """Delete Hadoop's checksum of a local file that is to be replaced: it would call the new file damaged."""
    if log.storage.is_local:
        log.storage.delete(f".{name}.crc")
