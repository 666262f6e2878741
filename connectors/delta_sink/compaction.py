"""Small files merged into larger ones, one partition after the other, beside whatever writes to the table.

delta-rs's optimize rewrites files and swaps them in a commit that changes no row and no offset, so a query that
appends meanwhile neither conflicts with it nor notices. A commit that removes the very same files makes it conflict;
then the partition is checked afresh and tried again. One commit for each partition keeps what a conflict costs
small, and an interrupted run goes on where it stopped.

But delta-rs (1.6) lets two optimizes of the same files through, and then every row of them stands twice; nor does its
optimize take a ``txn`` action along that would make it conflict. So a run claims the table first: an empty commit of
our own, whose ``txn`` action says until when. That keeps two runs of this apart. Another program's OPTIMIZE heeds no
claim: after each commit the log is searched for one that took out the same files, and if there is, ours is undone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from sparkonce.connectors.delta_sink.features import DELTA_RS_WRITES
from sparkonce.connectors.delta_sink.rewriting import writer_properties
from sparkonce.connectors.delta_sink.target_size import DEFAULT_TARGET_BYTES
from sparkonce.connectors.values.partition_values import outside, texts
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError, plain
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.own_commits import CLAIMED_UNTIL_KEY, COMPACTION_INFO_KEY
from sparkonce.offset_store.restoring import restoration
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.offset_store.tables import load_table

MAX_ATTEMPTS = 5
"""How often one partition is tried when others change its files."""
CLAIM_MS = 15 * 60 * 1000
"""How long a claim holds if its run is killed. It is renewed before each partition once half of it has passed."""
CLAIM_TXN_ID = "sparkonce-compaction"
"""Its version is the end of the claim, in milliseconds since 1970."""
_PARTITION = "partition."
_UNREADABLE_VALUE = (
    ". While the table has that partition, delta-rs (1.6) cannot choose files by partition: merge them with "
    "delta-spark (OPTIMIZE), or delete its rows there"
)
"""What to do about a timestamp after the year 9999, which Spark writes."""

PartitionValue = Any
"""In Python's types; a `FarTime` if Python has no such date or time."""
PartitionKey = tuple[PartitionValue, ...]


@dataclass(frozen=True, slots=True)
class FarTime:
    """A date or time outside the years 1 to 9999, as Delta's protocol writes it."""

    text: str


class CompactionError(RuntimeError):
    """A table that cannot be compacted as asked."""


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The small files of one partition."""

    partition: PartitionKey
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome of one partition; ``conflict`` is the last reason why it could not be merged."""

    partition: PartitionKey
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    conflict: str | None = None


def small_files(table: DeltaTable) -> list[SmallFiles]:
    """Return each partition of a table with at least two files below `DEFAULT_TARGET_BYTES`."""
    return _small(tuple(table.metadata().partition_columns), _files(table), DEFAULT_TARGET_BYTES, lambda *_: True)


def _files(table: DeltaTable) -> pa.Table:
    return pa.table(table.get_add_actions(flatten=True))


def _small(
    columns: tuple[str, ...],
    files: pa.Table,
    target_bytes: int,
    is_chosen: Callable[[tuple[str, ...], PartitionKey], bool],
) -> list[SmallFiles]:
    small: dict[PartitionKey, list[int]] = {}
    for partition, size in zip(_partitions(columns, files), files["size_bytes"].to_pylist(), strict=True):
        if size < target_bytes and is_chosen(columns, partition):
            small.setdefault(partition, []).append(size)
    found = [SmallFiles(partition, len(sizes), sum(sizes)) for partition, sizes in small.items() if len(sizes) > 1]
    return sorted(found, key=lambda each: [as_text(value) for value in each.partition])


def _partitions(columns: tuple[str, ...], files: pa.Table) -> list[PartitionKey]:
    """Return the partition of each file."""
    values = [_values(files[_PARTITION + column]) for column in columns]
    return list(zip(*values, strict=True)) if columns else [()] * len(files)


def _values(column: pa.ChunkedArray) -> list[PartitionValue]:
    values = column.combine_chunks()
    far = outside(values).tolist()
    if not far:
        return list(values.to_pylist())
    times = {row: FarTime(text) for row, text in zip(far, texts(values.take(pa.array(far))), strict=True) if text}
    return [times.get(row) or value.as_py() for row, value in enumerate(values)]


@dataclass(frozen=True, slots=True)
class Compaction:
    """Merges the files of one table that are smaller than ``target_bytes``."""

    location: Location
    storage_options: Mapping[str, str] = field(repr=False)
    target_bytes: int
    chosen: Mapping[str, str]
    """Only partitions with these values, as text; "" stands for null."""
    now_ms: Callable[[], int] = now_ms

    def plan(self) -> tuple[int, tuple[str, ...], list[SmallFiles]]:
        """Return the table's version, its partition columns, and each partition with at least two small files.

        Raises:
            OffsetStoreError: if the table cannot be read.
            CompactionError: if ``chosen`` names a column that it is not partitioned by, a file cannot be as the log
                has it, or the table has a feature that delta-rs does not know.
        """
        self._check_features()
        table = self._load()
        columns = tuple(table.metadata().partition_columns)
        unknown = sorted(set(self.chosen) - set(columns))
        if unknown:
            by = ", ".join(columns) or "no column"
            raise CompactionError(f"{self.location} is not partitioned by {unknown[0]}, but by {by}")
        files = _files(table)
        self._check_sizes(files)
        return table.version(), columns, _small(columns, files, self.target_bytes, self._is_chosen)

    def _check_features(self) -> None:
        """Reject tables whose files delta-rs would rewrite wrongly: without row ids, for example."""
        features = TableLog(self.location, self.storage_options).state().protocol.writer_features
        unknown = ", ".join(sorted(features - DELTA_RS_WRITES))
        if unknown:
            raise CompactionError(
                f"{self.location} has features that delta-rs (1.6), which merges the files, cannot write: {unknown}. "
                "Merge them with delta-spark (OPTIMIZE)"
            )

    def _check_sizes(self, files: pa.Table) -> None:
        """Reject sizes that cannot be: delta-rs (1.6) takes them for huge, leaves these files, and its DELETE hangs."""
        for path, size in zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True):
            if size < 0:
                raise CompactionError(
                    f"the log of {self.location} says that the file {path} has {size} bytes: whatever wrote that is no "
                    "Delta writer. Take the table back to a version before that, or write its rows to a new one"
                )

    def merge(self, columns: tuple[str, ...], plan: list[SmallFiles]) -> Iterator[Merged]:
        """Merge one partition after the other; return each outcome. Raises OffsetStoreError or CompactionError."""
        run = str(uuid.uuid4())
        until_ms = self._claim(run, None)
        try:
            for each in plan:
                if until_ms - self.now_ms() < CLAIM_MS // 2:
                    until_ms = self._claim(run, until_ms)
                yield self._merge_one(run, columns, each.partition)
        finally:
            self._claim(run, until_ms, release=True)

    def _claim(self, run: str, mine_ms: int | None, *, release: bool = False) -> int:
        """Claim the table, or renew or end our claim, which ends at ``mine_ms``; return the new end.

        Raises:
            CompactionError: if another run has it, or delta-rs cannot commit the claim.
        """
        log, now_ms = TableLog(self.location, self.storage_options), self.now_ms()
        state = log.state()
        held_ms = state.transactions.get(CLAIM_TXN_ID)
        until_ms = now_ms if release else now_ms + CLAIM_MS
        if held_ms == mine_ms or held_ms is None or held_ms <= now_ms:
            try:
                info = {COMPACTION_INFO_KEY: {"run": run, CLAIMED_UNTIL_KEY: until_ms}}
                log.commit(Proposal({CLAIM_TXN_ID: until_ms}, info), state)
                return until_ms
            except CommitConflictError as error:
                found_ms, held_ms = held_ms, log.state().transactions.get(CLAIM_TXN_ID)
                if held_ms == found_ms:  # it is not claimed: the commit failed for another reason
                    raise CompactionError(
                        f"cannot claim {self.location} for compaction: {self._told(error)}"
                    ) from error
            except OffsetStoreError as error:
                raise self._unclaimed(error) from error
        raise CompactionError(
            f"another compaction (`sparkonce compact` or `sparkonce ingest`) is at work on {self.location}: two at "
            f"once would double rows. Wait until it has finished; if it was killed, its claim ends at "
            f"{_time(held_ms or now_ms)}"
        )

    def _merge_one(self, run: str, columns: tuple[str, ...], partition: PartitionKey) -> Merged:
        filters = [
            (column, "=", _filter_value(value)) for column, value in zip(columns, partition, strict=True)
        ] or None
        conflict = ""
        for _ in range(MAX_ATTEMPTS):
            table, attempt = self._load(), str(uuid.uuid4())
            read_version = table.version()
            properties = CommitProperties(custom_metadata={COMPACTION_INFO_KEY: {"run": run, "attempt": attempt}})
            try:
                metrics = table.optimize.compact(
                    filters,
                    target_size=self.target_bytes,
                    writer_properties=self._writer_properties(table, columns, partition),
                    commit_properties=properties,
                )
            except CommitFailedError as error:
                conflict = self._told(error)
                continue
            except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
                told = self._told(error)
                instead = _UNREADABLE_VALUE if "Failed to parse value" in told else ""
                raise CompactionError(f"delta-rs cannot compact {self.location}: {told}{instead}") from error
            rival = self._rival(attempt, read_version)
            if rival is not None:
                conflict = f"version {rival} replaced the same files, so this compaction was undone"
                continue
            before, after = json.loads(metrics["filesRemoved"]), json.loads(metrics["filesAdded"])
            return Merged(
                partition, metrics["numFilesRemoved"], metrics["numFilesAdded"], before["totalSize"], after["totalSize"]
            )
        return Merged(partition, conflict=conflict)

    def _writer_properties(
        self, table: DeltaTable, columns: tuple[str, ...], partition: PartitionKey
    ) -> WriterProperties | None:
        files = _files(table)
        pairs = zip(files["path"].to_pylist(), _partitions(columns, files), strict=True)
        paths = [unquote(path) for path, of in pairs if of == partition]
        return writer_properties(table, paths, self.location, self.storage_options)

    def _rival(self, attempt: str, read_version: int) -> int | None:
        """Revert this attempt if another commit has removed the same files after it; return the version of that commit.

        Raises:
            CompactionError: if it cannot be undone, because others have committed since.
        """
        log = DeltaLog.open(self.location, self.storage_options)
        removed_by: dict[str, int] = {}
        for version in log.listing().commits:
            if version <= read_version:
                continue
            actions = log.actions(version, ("commitInfo", "remove"))
            removed = [action["path"] for action in actions["remove"]]
            if any((info.get(COMPACTION_INFO_KEY) or {}).get("attempt") == attempt for info in actions["commitInfo"]):
                twice = [path for path in removed if path in removed_by]
                if twice:
                    self._undo(version, removed_by[twice[0]])
                    return removed_by[twice[0]]
                return None
            removed_by |= dict.fromkeys(removed, version)
        return None

    def _undo(self, version: int, rival: int) -> None:
        try:
            log = TableLog(self.location, self.storage_options)
            now = log.state()
            if now.version == version:
                log.commit(restoration(log, now, log.state_at(version - 1)), now)
                return
            reason = f"the table is at version {now.version} already"
        except (OffsetStoreError, OSError, ValueError) as error:
            reason = self._told(error)
        raise CompactionError(
            f"{self.location}: another program replaced the same files in version {rival}, and delta-rs let version "
            f"{version} through all the same, so their rows stand twice; it could not be undone ({reason}). Stop what "
            f"writes to the table and run `sparkonce offsets rewind {self.location} --to-version {version - 1} "
            "--restore --apply`: batches since then are read again. Never run two programs' compactions at once"
        )

    def _is_chosen(self, columns: tuple[str, ...], partition: PartitionKey) -> bool:
        values = dict(zip(columns, partition, strict=True))
        return all(as_text(values[column]) == wanted for column, wanted in self.chosen.items())

    def _unclaimed(self, error: Exception) -> CompactionError:
        return CompactionError(f"cannot claim {self.location} for compaction: {self._told(error)}")

    def _told(self, error: Exception) -> str:
        return without_secrets(plain(error), self.storage_options)

    def _load(self) -> DeltaTable:
        return load_table(self.location, self.storage_options)


def as_text(value: PartitionValue) -> str:
    """Write a partition's value as Delta's protocol does; null and the empty string are the same there."""
    if value is None:
        return ""
    if isinstance(value, FarTime):
        return value.text
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else str(value)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _filter_value(value: PartitionValue) -> PartitionValue:
    """Return a value that delta-rs's filters take: it encodes times and dates itself."""
    return value if isinstance(value, (bool, int, str, date)) else as_text(value)
