"""Offsets in the transaction identifiers of a Delta table.

A Delta commit is one file that exists or does not, so rows and ``txn`` actions in it are there together or not at
all. A commit conflicts with every other that wrote one of its txn ids after the state that it was decided from, so a
`DeltaSnapshot` has that state, and commits against it (`offset_store.log`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkonce.offset_store.accounted_rows import check_no_numbered_writes, check_rows_have_offsets
from sparkonce.offset_store.administration import CommitEntry, read_entry
from sparkonce.offset_store.errors import OffsetStoreError, StoreMissingError, plain
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import AddFile
from sparkonce.offset_store.log.creation import NewTable
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.notebook import store_table
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import (
    COMMIT_INFO_KEY,
    Commit,
    CommittedBatch,
    FileT,
    PartitionKey,
    Writes,
    read_history,
)
from sparkonce.offset_store.store import OffsetStore, Snapshot, read_offsets
from sparkonce.offset_store.store_hints import store_hint
from sparkonce.offset_store.tables import check_keeps_transaction_ids
from sparkonce.offset_store.txn_ids import (
    FIRST_TXN_ID,
    batch_due,
    manual_txn_id,
    query_txn_id,
    stored_epochs,
    stored_fingerprint,
    stored_offset,
    transactions_onto,
)

EMPTY_COLUMN = "none"
_OFFSETS_SCHEMA = (
    f'{{"type":"struct","fields":[{{"name":"{EMPTY_COLUMN}","type":"string","nullable":true,"metadata":{{}}}}]}}'
)
DESCRIPTION = "Offsets of sparkonce: the transaction identifiers and commit infos are the content; it never has rows."

COMMITS_LOOKED_AT = 100
"""How many of the newest commits are searched for the last range of a partition."""

_accounted: set[tuple[Location, str, str]] = set()
"""Tables, by location and id, and applications, whose rows this process has checked to have their offsets."""


@dataclass(slots=True)
class DeltaOffsetStore(OffsetStore):
    """The offsets of one application in one Delta table, which may also be the table of its rows."""

    location: Location
    app_id: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    create_missing: bool = False
    """Whether to create a missing table, with a single column that stays empty."""
    _log: TableLog | None = None

    def read(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.read`."""
        try:
            snapshot = self.snapshot()
        except StoreMissingError:
            return {}
        check_no_numbered_writes(snapshot.state, self.location, self.app_id)
        found = read_offsets(snapshot, source, partitions)
        if not found:
            check_rows_have_offsets(snapshot.state, snapshot.log.reader, self.location, self.app_id)
        return found

    def epochs(self, source: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `OffsetStore.epochs`."""
        try:
            snapshot = self.snapshot()
        except StoreMissingError:
            return {}
        return {tp: epoch for (_, tp), epoch in snapshot.epochs((source, tp) for tp in partitions).items()}

    def snapshot(self) -> DeltaSnapshot:
        """See `OffsetStore.snapshot`."""
        snapshot = self.snapshot_unchecked()
        check_keeps_transaction_ids(self.location, snapshot.state.metadata.configuration)
        return snapshot

    def snapshot_unchecked(self) -> DeltaSnapshot:
        """As `snapshot`, without checking the table's properties: for reads only."""
        log = self.log()
        try:
            state = log.state()
        except StoreMissingError:
            if not self.create_missing:
                raise
            self._create()
            state = log.state()
        return DeltaSnapshot(state, self.app_id, log)

    def log(self) -> TableLog:
        """Return the table's log, which keeps its state from one snapshot to the next."""
        if self._log is None:
            self._log = TableLog(self.location, self.storage_options)
        return self._log

    def _create(self) -> None:
        table = NewTable(_OFFSETS_SCHEMA, name="offsets", description=DESCRIPTION)
        try:
            self.log().create(table)
        except OSError as error:
            try:
                self.log().state()  # another driver created it at the same moment, or its answer was lost
            except OffsetStoreError:
                why = plain(error)
                hint = store_hint(self.location, why)
                raise OffsetStoreError(f"cannot create the table of offsets at {self.location}: {why}{hint}") from error

    def __str__(self) -> str:
        return f"delta:{self.location}"

    def _repr_html_(self) -> str:
        return store_table(self)


@dataclass(frozen=True, slots=True)
class DeltaSnapshot(Snapshot):
    """A Delta table at one version, and the log to commit to."""

    state: TableState = field(repr=False)
    app_id: str
    log: TableLog = field(repr=False)

    keeps_every_batch = True

    @property
    def version(self) -> int:
        """See `Snapshot.version`."""
        return self.state.version

    @property
    def store_id(self) -> str:
        """See `Snapshot.store_id`."""
        return self.state.metadata.id

    def last_batch(self, query_id: str) -> int | None:
        """See `Snapshot.last_batch`."""
        return self.look_up(query_txn_id(self.app_id, query_id))

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `Snapshot.fingerprint`."""
        return stored_fingerprint(self.look_up, self.app_id, query_id, batch_id)

    def due(self, query_id: str) -> int | None:
        """See `Snapshot.due`."""
        return batch_due(self.look_up, self.app_id, query_id)

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.next_offsets`."""
        looked_up = {key: stored_offset(self.look_up, self.app_id, key) for key in keys}
        return {key: offset for key, offset in looked_up.items() if offset is not None}

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.epochs`.

        A version of sparkonce without epochs moves an offset and leaves the epoch, which is then outdated:
        the newest commit that moved the partition shows it.
        """
        found = stored_epochs(self.look_up, self.app_id, keys)
        moved = self.last_moved(found.keys())
        return {key: at for key, at in found.items() if key not in moved or moved[key].epoch == at}

    def check_rows_have_offsets(self) -> None:
        """See `Snapshot.check_rows_have_offsets`."""
        location = self.log.location
        place = location, self.state.metadata.id, self.app_id
        if place not in _accounted:
            check_rows_have_offsets(self.state, self.log.reader, location, self.app_id)
            _accounted.add(place)

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`. The snapshot keeps its version: take a new one to see the result."""
        adds = [file for file in commit.files if isinstance(file, AddFile)]
        assert len(adds) == len(commit.files), "rows go into a Delta table as add actions"
        assert not adds or Writes.ROWS in commit.writes
        info = {COMMIT_INFO_KEY: commit.to_info()}
        against_manual_changes = {manual_txn_id(commit.record.app_id): self.version} if commit.is_second else {}
        against_first_commits = {FIRST_TXN_ID: self.version} if commit.is_first else {}
        moved = self.transactions(commit) | against_manual_changes | against_first_commits
        by_delta = frozenset({commit.record.query_id})  # as Delta's own sink names what it writes for the query
        self.write(Proposal(moved, info, adds, read=by_delta if adds else frozenset()))

    def write(self, proposal: Proposal) -> None:
        """Make the commit itself: an append, unless a subclass replaces the table's rows."""
        self.log.commit(proposal, self.state)

    def transactions(self, commit: Commit[FileT]) -> dict[str, int]:
        """Return the transaction ids that a commit moves here, with their new versions."""
        return transactions_onto(self.look_up, commit)

    def look_up(self, txn_id: str) -> int | None:
        """Return the stored version of a transaction id."""
        return self.state.transactions.get(txn_id)

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`."""
        return read_history(self.commit_infos(limit))

    def newest_of(self, app_id: str) -> CommittedBatch | None:
        """Return the newest batch of an application, if it is among the newest `COMMITS_LOOKED_AT` commits."""
        for info in self.commit_infos(COMMITS_LOOKED_AT):
            for entry in read_history([info]):
                if entry.record.app_id == app_id:
                    return entry
        return None

    def last_moved(self, keys: Collection[PartitionKey]) -> dict[PartitionKey, OffsetRange]:
        """Return the last range of each partition, as far as the newest `COMMITS_LOOKED_AT` commits show it."""
        found: dict[PartitionKey, OffsetRange] = {}
        infos = self.commit_infos(COMMITS_LOOKED_AT)
        while len(found) < len(keys) and (info := next(infos, None)) is not None:
            for entry in read_history([info]):
                if entry.record.app_id == self.app_id and Writes.OFFSETS in entry.writes:
                    found = {key: at for key, at in entry.record.moved.items() if key in keys} | found
        return found

    def entries_since(self, version: int) -> Iterator[CommitEntry]:
        """Return the commits after a version, newest first, of all writers, manual changes included."""
        infos = self.commit_infos(self.version - version)
        return (read_entry(int(info["version"]), info) for info in infos)

    def commit_infos(self, limit: int | None = None, version: int | None = None) -> Iterator[dict[str, Any]]:
        """Return the commit infos of the newest kept commits up to a version, or this one: `DeltaLog.commit_infos`.

        They are read lazily, one after the other.

        Raises:
            OffsetStoreError: if the log cannot be read.
        """
        return self.log.reader.commit_infos(self.version if version is None else version, limit)
