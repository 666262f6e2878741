"""Reads Spark's checkpoint directory: the query and its batches.

Spark writes ``offsets/<batch id>`` before a batch runs: a version line, a line of metadata, then one line for each
source. Version 1 has the sources' offsets by position; version 2 (``spark.sql.streaming.offsetLog.formatVersion``)
puts ``<source id>:`` before each. A lone dash is a source without an offset yet. ``metadata`` holds the query's id,
which lives as long as the directory. ``state`` exists for stateful queries, from before the end of batch 0.
The file source's offset is only a number of its own log, ``sources/<source id>``, which has the files: one
log file for each number, of which every tenth, ``<number>.compact``, repeats all before it.
(`OffsetSeqLog`, `OffsetMap`, `StreamMetadata`, `IncrementalExecution` and `FileStreamSourceLog` in Spark 4.2.)
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from sparkonce.exactly_once.errors import CheckpointError, MissingEntryError
from sparkonce.offset_store.errors import plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.first_contact import check_store_answers
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.offset_store.store_hints import store_hint_or_options

NO_OFFSET = "-"
HEADER_LINES = 2
CONF = "conf"
"""The field of an entry's metadata that holds session settings; the others are the watermark and the batch's time."""
LOG_OFFSET = "logOffset"
"""The only field of the file source's offset."""
COMPACT = ".compact"


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """Spark's entry of one batch, ``offsets/<batch id>``."""

    clock: Mapping[str, Any]
    """Its metadata without session settings: the watermark and the time of the batch."""
    lines: Mapping[str, str]
    """The offset of each source at the end of the batch; sources without one are left out.

    The keys are positions in version 1 and Spark's source ids in version 2, and name the same source in every batch of
    the query.
    """
    sources: int
    """How many sources there are, with an offset or without."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint directory, for reading."""

    location: Location
    filesystem: fs.FileSystem
    root: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, location: str, storage_options: Mapping[str, str] | None = None) -> Checkpoint:
        """Open the directory that the option ``checkpointLocation`` names; ``storage_options`` are those of its store.

        Raises:
            CheckpointError: if its scheme is not supported, or its store cannot be reached.
        """
        options = storage_options or {}
        try:
            place = Location.parse(location)
        except ValueError as error:
            raise CheckpointError(f"checkpointLocation: {error}") from error
        with _errors_of_store(place, options):
            if options:  # else pyarrow reads it, not delta-rs
                check_store_answers(place, options)
            filesystem, root = place.filesystem(options)
        return cls(place, filesystem, root, options)

    def query_id(self) -> str:
        """Return Spark's id of the query.

        Raises:
            CheckpointError: if there is none, or it cannot be read.
        """
        text = self._read("metadata")
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{self.location}/metadata holds no query id: {text[:200]!r}") from error

    def latest_batch_id(self) -> int:
        """Return the number of the newest batch that Spark has logged.

        Raises:
            CheckpointError: if no batch is logged.
        """
        names = [info.base_name for info in self.entries("offsets")]
        batch_ids = [int(name) for name in names if name.isdecimal()]
        if not batch_ids:
            raise CheckpointError(
                f"{self.location}/offsets holds no batch. delta_once reads each batch's offsets from there: "
                "is the option checkpointLocation the directory that the query really uses?"
            )
        return max(batch_ids)

    def logged(self, batch_id: int) -> LoggedBatch:
        """Read Spark's entry of a batch.

        Raises:
            CheckpointError: if the batch is missing, or in an unknown version.
        """
        lines = self._read(f"offsets/{batch_id}").split("\n")
        version, sources = lines[0].strip(), lines[HEADER_LINES:]
        if version == "v1":
            keyed = {str(position): line for position, line in enumerate(sources)}
        elif version == "v2":
            keyed = dict(line.split(":", 1) for line in sources if ":" in line)
        else:
            raise CheckpointError(
                f"{self.location}/offsets/{batch_id} has version {version!r}; this version of sparkonce reads v1 and v2"
            )
        named = {key: line for key, line in keyed.items() if line.strip()}
        known = {key: line for key, line in named.items() if line.strip() != NO_OFFSET}
        return LoggedBatch(_clock(lines[1] if len(lines) > 1 else ""), known, len(named))

    def files_between(self, key: str, start: str | None, end: str) -> list[list[Any]] | None:
        """Return path and modification time of each file that a file source reads between two offsets, in order.

        None for an offset of any other source: it is complete without a log.

        Raises:
            CheckpointError: if the source's log cannot be read.
        """
        last = _log_offset(end)
        if last is None:
            return None
        folder = f"sources/{key}"
        names = {info.base_name for info in self.entries(folder)}
        first = _log_offset(start or "")
        files: set[tuple[str, int]] = set()
        for number in range(0 if first is None else first + 1, last + 1):
            name = _log_file(names, number)
            if name is None:
                return None  # not Spark's file source
            files.update(self._files_of(f"{folder}/{name}", number))
        return [list(each) for each in sorted(files)]

    def _files_of(self, name: str, number: int) -> Iterator[tuple[str, int]]:
        for line in self._read(name).split("\n")[1:]:
            try:
                entry: dict[str, Any] = json.loads(line) if line.strip() else {"batchId": None}
                if entry["batchId"] == number:
                    yield str(entry["path"]), int(entry["timestamp"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise CheckpointError(
                    f"{self.location}/{name} is not a log of Spark's file source: {line!r}"
                ) from error

    def is_stateful(self) -> bool:
        """Whether the query keeps state (aggregation, deduplication, stream join) in this checkpoint."""
        return bool(self.entries("state"))

    def entries(self, folder: str) -> list[fs.FileInfo]:
        """Return the entries of a folder of the checkpoint; none if it does not exist.

        Raises:
            CheckpointError: if it cannot be read.
        """
        with _errors_of_store(self.location, self.storage_options):
            selector = fs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
            found: list[fs.FileInfo] = self.filesystem.get_file_info(selector)
            return found

    def _read(self, name: str) -> str:
        with _errors_of_store(self.location, self.storage_options):
            try:
                with self.filesystem.open_input_stream(f"{self.root}/{name}") as stream:
                    return bytes(stream.readall()).decode()
            except FileNotFoundError as error:
                raise MissingEntryError(
                    f"{self.location}/{name} does not exist: is the option checkpointLocation the directory that the "
                    "query really uses, and was it deleted while the query ran?"
                ) from error


@contextmanager
def _errors_of_store(location: Location, storage_options: Mapping[str, str]) -> Iterator[None]:
    """Convert errors of a file system to a `CheckpointError` that shows no secret and names the settings that help."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = plain(error)
        text = f"checkpointLocation={location}: {why}{store_hint_or_options(location, why)}"
        raise CheckpointError(without_secrets(text, storage_options)) from None


def _clock(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
        return {name: value for name, value in document.items() if name != CONF}
    except (ValueError, AttributeError, RecursionError):
        return {"line": line}


def _log_offset(line: str) -> int | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_file_source = isinstance(document, dict) and document.keys() == {LOG_OFFSET}
    return int(document[LOG_OFFSET]) if is_file_source else None


def _log_file(names: Collection[str], number: int) -> str | None:
    """Return the file of a source's log with the entries of one number: its own, or the first that repeats it."""
    if str(number) in names:
        return str(number)
    compacted = (name.removesuffix(COMPACT) for name in names if name.endswith(COMPACT))
    later = [int(each) for each in compacted if each.isdecimal() and int(each) >= number]
    return f"{min(later)}{COMPACT}" if later else None
