"""What Spark's checkpoint directory says about a query and its batches.

Spark writes ``offsets/<batch id>`` before a batch runs: a version line, a line of metadata, then one line for each
source. Version 1 has the sources' offsets by position; version 2 (``spark.sql.streaming.offsetLog.formatVersion``)
puts ``<source id>:`` before each. A lone dash is a source without an offset yet. ``metadata`` holds the query's id,
which lives as long as the directory. ``state`` exists for stateful queries, from before the end of batch 0.
(`OffsetSeqLog`, `OffsetMap`, `StreamMetadata` and `IncrementalExecution` in Spark 4.2.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyarrow import fs

from exactly_once.errors import CheckpointError
from offset_store.errors import plain
from offset_store.locations import Location
from offset_store.secrets import without_secrets

NO_OFFSET = "-"
HEADER_LINES = 2


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
            CheckpointError: if its scheme cannot be read, or its store cannot be reached.
        """
        options = storage_options or {}
        try:
            place = Location.parse(location)
        except ValueError as error:
            raise CheckpointError(f"checkpointLocation: {error}") from error
        with _errors_of_store(place, options):
            filesystem, root = place.filesystem(options)
        return cls(place, filesystem, root, options)

    def query_id(self) -> str:
        """Give Spark's id of the query.

        Raises:
            CheckpointError: if there is none, or it cannot be read.
        """
        text = self._read("metadata")
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.location}/metadata holds no query id: {text[:200]!r}") from error

    def latest_batch_id(self) -> int:
        """Give the number of the newest batch that Spark has logged.

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

    def offset_lines(self, batch_id: int) -> dict[str, str]:
        """Give the offset of each source at the end of a batch; sources without one are left out.

        The keys are positions in version 1 and Spark's source ids in version 2, and name the same source in every
        batch of the query.

        Raises:
            CheckpointError: if the batch is not there, or in a version that is not known.
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
        return {key: line for key, line in keyed.items() if line.strip() and line.strip() != NO_OFFSET}

    def is_stateful(self) -> bool:
        """Whether the query keeps state (aggregation, deduplication, stream join) in this checkpoint."""
        return bool(self.entries("state"))

    def entries(self, folder: str) -> list[fs.FileInfo]:
        """Return what is in a folder of the checkpoint; nothing if it does not exist.

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
                raise CheckpointError(
                    f"{self.location}/{name} does not exist: is the option checkpointLocation the directory that the "
                    "query really uses, and has nobody deleted it under the running query?"
                ) from error


@contextmanager
def _errors_of_store(location: Location, storage_options: Mapping[str, str]) -> Iterator[None]:
    """Turn what a file system says into a `CheckpointError` that shows no secret and names the settings that help."""
    try:
        yield
    except (OSError, ValueError) as error:
        text = f"checkpointLocation={location}: {plain(error)}"
        if location.in_object_store:
            text += (
                ". The options storage.* set endpoint, region and credentials of the store, for table and checkpoint "
                "alike (S3: storage.AWS_ENDPOINT_URL, storage.AWS_REGION, storage.AWS_ACCESS_KEY_ID, "
                "storage.AWS_SECRET_ACCESS_KEY); Spark's own settings, fs.s3a.*, are not read here"
            )
        raise CheckpointError(without_secrets(text, storage_options)) from None
