"""The record of one batch, in the commit that carries its offsets.

Transaction ids only have the current offset of a partition. The record has its history: which query and batch
moved which partition from where to where. It is the field ``sparkonce`` of a Delta commit's ``commitInfo``, for error
messages and audits. Logs are cleaned up after a while (30 days by default), so nothing that must be known forever is
read from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag
from typing import Any, Generic, TypeVar

from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition

COMMIT_INFO_KEY = "sparkonce"

FileT = TypeVar("FileT")

PartitionKey = tuple[str, TopicPartition]
"""A partition as one source of one query sees it: the source's name, and the partition."""


class Writes(Flag):
    """The content of one commit."""

    ROWS = 1
    OFFSETS = 2


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The amount read for a batch, and written by one commit (one task, or the batch)."""

    records: int | None = None
    """Records read by the sink's tasks, without gaps, transaction markers and aborted records; None
    if Spark passes them the records."""
    read_bytes: int | None = None
    """Bytes that the brokers returned for them: whole record batches, compressed; None as above."""
    rows: int = 0
    """Rows written, without dead letters."""
    dead_letters: int = 0
    files: int = 0
    """Data files; 0 for topics."""
    written_bytes: int = 0
    """Bytes of the files, or of the record batches."""

    def of_tasks(self, other: BatchCounts) -> BatchCounts:
        """Return the sum of two tasks."""
        return BatchCounts(
            _sum(self.records, other.records),
            _sum(self.read_bytes, other.read_bytes),
            self.rows + other.rows,
            self.dead_letters + other.dead_letters,
            self.files + other.files,
            self.written_bytes + other.written_bytes,
        )

    def of_commits(self, other: BatchCounts) -> BatchCounts:
        """Return the sum of two commits of one batch, which have read the same records."""
        return replace(self.of_tasks(other), records=self.records, read_bytes=self.read_bytes)

    def __sub__(self, before: BatchCounts) -> BatchCounts:
        """Return the increase of a sum since ``before``; unknown numbers count as 0."""
        return BatchCounts(
            None if self.records is None else self.records - (before.records or 0),
            None if self.read_bytes is None else self.read_bytes - (before.read_bytes or 0),
            self.rows - before.rows,
            self.dead_letters - before.dead_letters,
            self.files - before.files,
            self.written_bytes - before.written_bytes,
        )

    def to_document(self) -> dict[str, int]:
        """Return the JSON object; unknown numbers are omitted."""
        return {key: number for name, key in _COUNTS.items() if (number := getattr(self, name)) is not None}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> BatchCounts:
        """Parse the result of `to_document`.

        Raises:
            TypeError, ValueError: if it is invalid.
        """
        return cls(**{name: int(document[key]) for name, key in _COUNTS.items() if key in document})


_COUNTS = {
    "records": "records",
    "read_bytes": "readBytes",
    "rows": "rows",
    "dead_letters": "deadLetters",
    "files": "files",
    "written_bytes": "writtenBytes",
}
"""The names of counts in JSON."""


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The offsets moved by one attempt to write one batch."""

    app_id: str
    query_id: str
    batch_id: int
    attempt_id: str
    """Unique to one attempt of one batch: distinguishes our commit from another driver's of the same batch."""
    ranges: Mapping[PartitionKey, OffsetRange]
    fingerprint: Fingerprint | None = None
    """The fingerprint of the batch; None in records of earlier versions of sparkonce."""
    counts: BatchCounts | None = field(default=None, compare=False)
    """The amount written, for people to read; None if nothing was counted."""
    rules: str | None = field(default=None, compare=False)
    """A digest of the options that turn records into rows and dead letters; None if unknown."""
    begun: frozenset[PartitionKey] = field(default=frozenset(), compare=False)
    """Partitions without new records whose positions are stored all the same, by the first commit of a query."""

    @property
    def moved(self) -> dict[PartitionKey, OffsetRange]:
        """The partitions with new records in this batch."""
        return {key: extent for key, extent in self.ranges.items() if extent.end > extent.start}

    @property
    def stored(self) -> dict[PartitionKey, OffsetRange]:
        """The partitions whose ends a commit of the batch's offsets stores: those that moved, and those `begun`."""
        return self.moved | {key: self.ranges[key] for key in self.begun & self.ranges.keys()}

    def to_commit_info(self, writes: Writes) -> dict[str, Any]:
        """Return the JSON object of a commit that holds ``writes``, with the partitions that are `stored`."""
        sources: dict[str, dict[str, Any]] = {}
        for (source, tp), extent in sorted(self.stored.items()):
            topic = sources.setdefault(source, {}).setdefault(tp.topic, {"id": tp.topic_id, "partitions": {}})
            number = str(tp.partition)
            topic["partitions"][number] = [extent.start, extent.end]
            if extent.epoch is not None:
                topic.setdefault("epochs", {})[number] = extent.epoch
            if extent.cut_from is not None:
                topic.setdefault("cutFrom", {})[number] = extent.cut_from
            if extent.cut_epoch is not None:
                topic.setdefault("cutEpochs", {})[number] = extent.cut_epoch
        known: dict[str, Any] = {} if self.fingerprint is None else {"fingerprint": self.fingerprint.to_int()}
        if self.counts is not None and Writes.ROWS in writes:
            known["counts"] = self.counts.to_document()
        if self.rules is not None:
            known["rules"] = self.rules
        return {
            "appId": self.app_id,
            "queryId": self.query_id,
            "batchId": self.batch_id,
            "attemptId": self.attempt_id,
            "writes": _names(writes),
            "ranges": sources,
            **known,
        }

    @classmethod
    def from_commit_info(cls, info: Mapping[str, Any]) -> BatchRecord:
        """Parse the result of ``to_commit_info``. Raises KeyError, TypeError or ValueError if it is invalid."""
        ranges = {
            (source, TopicPartition(name, topic["id"], int(partition))): OffsetRange(
                int(start),
                int(end),
                topic.get("epochs", {}).get(partition),
                topic.get("cutFrom", {}).get(partition),
                cut_epoch=topic.get("cutEpochs", {}).get(partition),
            )
            for source, topics in info["ranges"].items()
            for name, topic in topics.items()
            for partition, (start, end) in topic["partitions"].items()
        }
        number = info.get("fingerprint")
        fingerprint = None if number is None else Fingerprint.from_int(int(number))
        return cls(
            info["appId"],
            info["queryId"],
            int(info["batchId"]),
            info["attemptId"],
            ranges,
            fingerprint,
            _counts_of(info.get("counts")),
            info.get("rules"),
            frozenset(key for key, extent in ranges.items() if extent.end == extent.start),
        )


@dataclass(frozen=True, slots=True)
class Commit(Generic[FileT]):
    """One atomic write: its batch, its kind, and the files of its rows."""

    record: BatchRecord
    writes: Writes
    files: Sequence[FileT] = ()
    is_second: bool = False
    """Whether the other half of the batch is already committed: it must not have been reverted by a manual change."""
    in_sequence: bool = False
    """Whether the number of the next batch is stored too, since a restore removed batches of the query."""
    is_first: bool = False
    """Whether the application writes a partition for the first time into this table of rows: it must conflict with
    such a commit of another."""
    follows: Writes | None = None
    """What a second commit to the same table holds, of rows only if there are any; None if the batch has no second one
    there."""

    def to_info(self) -> dict[str, Any]:
        """Return the JSON object that a Delta commit's ``commitInfo`` has of it."""
        follows = {"follows": _names(self.follows)} if self.follows else {}
        return {**self.record.to_commit_info(self.writes), **follows}


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A record with the version and time (ms since 1970) of its commit."""

    version: int
    timestamp_ms: int
    writes: Writes
    record: BatchRecord
    follows: Writes | None = None
    """See `Commit.follows`."""


def read_history(entries: Iterable[Mapping[str, Any]]) -> list[CommittedBatch]:
    """Return our records of a Delta history, in its order; commits of others are skipped."""
    found = []
    for entry in entries:
        info = entry.get(COMMIT_INFO_KEY)
        if not isinstance(info, Mapping):
            continue
        try:
            record, writes = BatchRecord.from_commit_info(info), _writes_of(info["writes"])
            follows = _writes_of(info.get("follows", ())) or None
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        version, timestamp_ms = int(entry["version"]), int(entry.get("timestamp", 0))
        found.append(CommittedBatch(version, timestamp_ms, writes, record, follows))
    return found


def _counts_of(document: Any) -> BatchCounts | None:
    """Parse counts; None if missing or invalid, since no decision depends on them."""
    try:
        return BatchCounts.from_document(document) if isinstance(document, Mapping) else None
    except (TypeError, ValueError):
        return None


def _names(writes: Writes) -> list[str]:
    return [part.name.lower() for part in Writes if part in writes and part.name]


def _writes_of(names: Iterable[str]) -> Writes:
    writes = Writes(0)
    for name in names:
        writes |= Writes[name.upper()]
    return writes
