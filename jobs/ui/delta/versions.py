"""Versions of a table, a page at a time: only its commits are read, and cached, as a commit never changes."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkonce.offset_store.administration import read_entry
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.reader import DAMAGE, DeltaLog
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import CommittedBatch, PartitionKey, Writes

KEPT = 2_000
"""The number of cached commits."""
_KINDS = ("commitInfo", "txn", "add", "remove", DAMAGE)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file that a commit names."""

    path: str
    size: int
    modified_ms: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class VersionState:
    """One commit."""

    version: int
    at_ms: int
    """0 if unknown."""
    name: str
    """Its kind: one of ours, or Delta's operation."""
    batch: CommittedBatch | None
    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    changes_rows: bool
    """Whether removed files were removed with their rows; a compaction's are not."""
    damage: str | None

    @property
    def moved(self) -> Mapping[PartitionKey, OffsetRange]:
        """The ranges that it records."""
        return {} if self.batch is None else self.batch.record.moved

    @property
    def writes(self) -> str:
        """Which of the two writes it has, in words."""
        return "" if self.batch is None else in_words(self.batch.writes)

    @property
    def records(self) -> int:
        """The number of offsets that it covers."""
        return sum(extent.end - extent.start for extent in self.moved.values())

    @property
    def rows(self) -> int | None:
        """The rows of its files; None if some file does not record them."""
        counts = [each.rows for each in self.added]
        return sum(each or 0 for each in counts) if None not in counts else None

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(each.size for each in self.added)


def in_words(writes: Writes) -> str:
    """Describe which writes a commit has."""
    return " and ".join(part.name.lower() for part in Writes if part in writes and part.name)


class Versions:
    """The commits of one log, for several threads."""

    def __init__(self, log: DeltaLog, most: int = KEPT) -> None:
        self._log = log
        self._most = most
        self._kept: OrderedDict[int, VersionState] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, versions: Iterable[int]) -> list[VersionState]:
        """Read these commits. Raises LogFileMissingError if one is not kept, or OffsetStoreError if not readable."""
        wanted = list(versions)
        with self._lock:
            found = {version: self._kept[version] for version in wanted if version in self._kept}
        missing = [version for version in wanted if version not in found]
        for version, actions in zip(missing, self._log.actions_of(missing, _KINDS), strict=True):
            found[version] = _state(version, actions)
        with self._lock:
            for version in missing:
                self._kept[version] = found[version]
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return [found[version] for version in wanted]


def _state(version: int, actions: Mapping[str, Sequence[Action]]) -> VersionState:
    info = actions["commitInfo"][0] if actions["commitInfo"] else {}
    entry = read_entry(version, info, [str(txn["appId"]) for txn in actions["txn"]])
    damage = actions[DAMAGE][0]["what"] if actions[DAMAGE] else None
    return VersionState(
        version,
        entry.timestamp_ms,
        entry.name or "unnamed",
        entry.batch,
        tuple(map(_data_file, actions["add"])),
        tuple(str(each["path"]) for each in actions["remove"]),
        any(each.get("dataChange", True) for each in actions["remove"]),
        damage,
    )


def _data_file(add: Action) -> DataFile:
    return DataFile(str(add["path"]), int(add.get("size") or 0), int(add.get("modificationTime") or 0), _rows(add))


def _rows(add: Action) -> int | None:
    try:
        rows = json.loads(add.get("stats") or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return None
    return rows if type(rows) is int else None
