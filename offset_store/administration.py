"""Shows and changes stored offsets manually: the commands of `sparkonce offsets` on a Delta table.

A manual change is a commit like any other: its ``txn`` actions set next offsets (Delta lets them go backward), and its
``commitInfo`` records under the key of our batches what moved from where to where, so that history and audit can
distinguish a manual change from data loss. It is decided from one state of the table, as every batch is.
It also writes the batch numbers of the application's queries again, unchanged, and the numbers of its writes by
delta-spark: so any commit that a driver made in between conflicts, even one of other partitions, or one that only
records such a write. (Before its first batch or first such write an application has no such numbers: there only changes
of the same partitions conflict.)

A batch that is written in two commits (at-least-once, at-most-once) may be half written during a manual change. The
second commit looks for such a change among the commits after the first, and is not made if there is one. Both also
write one id of the application, `manual_txn_id`: so the later of the two conflicts if it did not see the other. If rows
and offsets are in two tables, nothing can conflict: there only the check right before the commit protects the batch.

A restore reverts files to an older version *and* sets offsets and batch numbers to what they were there, in one commit.
Delta's own RESTORE leaves ``txn`` actions unchanged: rows go back, offsets stay, and the records between are in
neither.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import product
from typing import Any

from sparkonce.offset_store.clones import CloneSource, clone_source
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError, plain
from sparkonce.offset_store.fingerprint import RING
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.reader import LogListing
from sparkonce.offset_store.log.state import RESTORE, TableState
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.own_commits import OwnCommit, idempotency_key, own_commit
from sparkonce.offset_store.record import COMMIT_INFO_KEY, CommittedBatch, read_history
from sparkonce.offset_store.restoring import restoration
from sparkonce.offset_store.secrets import hidden_secrets
from sparkonce.offset_store.tables import check_keeps_transaction_ids
from sparkonce.offset_store.txn_ids import (
    MOVED_TO_ID,
    NOTHING_DUE,
    UNKNOWN_EPOCH,
    UNKNOWN_FINGERPRINT,
    IntentTxn,
    LookUp,
    MergeTxn,
    OffsetTxn,
    QueryTxn,
    batch_due,
    batch_txn_id,
    due_txn_id,
    epoch_txn_id,
    intent_txn_id,
    manual_txn_id,
    merge_txn_id,
    offset_txn_id,
    parse_txn_id,
    query_txn_id,
)

LAST_TIME_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""

NOTHING_KEPT = -1
"""The batch number of a query without any batch left in the table: ids can be set, not removed."""


class ChangeKind(Enum):
    """The kind of a manual change."""

    SET = "set"
    REWIND = "rewind"
    RESTORE = "restore"
    """Rows and offsets together."""
    COPY = "copy"
    """Offsets and batch numbers copied from the table that this one is a clone of."""


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """The change of one stored offset; None before: it was not stored."""

    key: OffsetTxn
    before: int | None
    after: int


@dataclass(frozen=True, slots=True, order=True)
class BatchMove:
    """The last batch of one query, before and after."""

    key: QueryTxn
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ManualChange:
    """One manual commit."""

    kind: ChangeKind
    moves: tuple[Move, ...]
    batches: tuple[BatchMove, ...] = ()
    to_version: int | None = None
    """The version of the table that offsets (and, for a restore, rows) were taken from."""
    attempt_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    copied_from: str | None = None
    """For a copy: the other table, and its version; for offsets of Spark's own source: its checkpoint and batch."""
    relies_on: Mapping[str, int] = field(default_factory=dict)
    """Transaction ids of another writer, with their versions, that this change depends on. They are rewritten
    unchanged, so that a commit which moves them meanwhile conflicts with this one."""

    def transactions(self) -> dict[str, int]:
        """Return the transaction ids that this sets, with their new versions."""
        txns = {offset_txn_id(move.key.app_id, move.key.source, move.key.partition): move.after for move in self.moves}
        txns |= {query_txn_id(move.key.app_id, move.key.query_id): move.after for move in self.batches}
        return txns | dict(self.relies_on)

    @property
    def app_ids(self) -> set[str]:
        """The applications whose offsets or batches this moves."""
        return {move.key.app_id for move in self.moves} | {move.key.app_id for move in self.batches}

    def to_commit_info(self) -> dict[str, Any]:
        """Return the JSON object of the commit."""
        return {
            "kind": self.kind.value,
            "attemptId": self.attempt_id,
            "toVersion": self.to_version,
            **({"copiedFrom": self.copied_from} if self.copied_from is not None else {}),
            "moves": [
                {
                    "appId": move.key.app_id,
                    "source": move.key.source,
                    "topic": move.key.partition.topic,
                    "topicId": move.key.partition.topic_id,
                    "partition": move.key.partition.partition,
                    "from": move.before,
                    "to": move.after,
                }
                for move in self.moves
            ],
            "batches": [
                {"appId": move.key.app_id, "queryId": move.key.query_id, "from": move.before, "to": move.after}
                for move in self.batches
            ],
        }

    @classmethod
    def from_commit_info(cls, info: Mapping[str, Any]) -> ManualChange:
        """Parse the result of `to_commit_info`. Raises KeyError, TypeError or ValueError if it is invalid."""
        moves = tuple(
            Move(
                OffsetTxn(
                    each["appId"],
                    each["source"],
                    TopicPartition(each["topic"], each["topicId"], int(each["partition"])),
                ),
                each["from"],
                int(each["to"]),
            )
            for each in info["moves"]
        )
        batches = tuple(
            BatchMove(QueryTxn(each["appId"], each["queryId"]), int(each["from"]), int(each["to"]))
            for each in info["batches"]
        )
        return cls(
            ChangeKind(info["kind"]), moves, batches, info["toVersion"], info["attemptId"], info.get("copiedFrom")
        )


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One kept commit, as far as it concerns offsets; ``timestamp_ms`` is since 1970."""

    version: int
    timestamp_ms: int
    operation: str
    batch: CommittedBatch | None = None
    change: ManualChange | None = None
    restored_to: int | None = None
    """The version of a RESTORE by Delta itself, which reverted rows and left the offsets."""
    txn_ids: frozenset[str] = frozenset()
    own: OwnCommit | None = None
    """Its kind, if it is ours and not only a batch."""
    clone: CloneSource | None = None
    """The source of a CLONE, whose files were referenced and whose offsets were not copied."""
    write_key: str | None = None
    """The idempotency key of a batch write (``df.write``)."""

    @property
    def name(self) -> str:
        """A readable name: our own, or Delta's operation; "" if that is unknown."""
        return self.own.value if self.own is not None else self.operation


def read_entry(version: int, info: Mapping[str, Any], txn_ids: Iterable[str] = ()) -> CommitEntry:
    """Parse the ``commitInfo`` of one commit; of a commit that is not ours, little more than its version.

    Other writers may put anything there: fields of another type than in Delta's protocol are ignored.
    """
    timestamp_ms = _timestamp_ms(info.get("inCommitTimestamp")) or _timestamp_ms(info.get("timestamp"))
    batches = read_history([{**info, "version": version, "timestamp": timestamp_ms}])
    change: ManualChange | None = None
    try:
        change = ManualChange.from_commit_info(info[COMMIT_INFO_KEY])
    except (KeyError, TypeError, ValueError, AttributeError):
        change = None
    operation, ids = str(info.get("operation", "")), frozenset(txn_ids)
    restored_to: int | None = None
    if operation == RESTORE and change is None:
        parameters = info.get("operationParameters")
        target = str(parameters.get("version")) if isinstance(parameters, Mapping) else ""
        restored_to = int(target) if target.isdecimal() else None
    batch = batches[0] if batches else None
    own, clone, key = own_commit(info, ids), clone_source(info), idempotency_key(info)
    return CommitEntry(version, timestamp_ms, operation, batch, change, restored_to, ids, own, clone, key)


def _timestamp_ms(value: object) -> int:
    """Return a commit's timestamp in ms since 1970; 0, which means unknown, for anything that cannot be one."""
    return value if type(value) is int and 0 < value <= LAST_TIME_MS else 0


@dataclass(frozen=True, slots=True)
class Stored:
    """All offsets, batch numbers and numbers of writes of ours that a table has at one version."""

    version: int
    offsets: Mapping[OffsetTxn, int]
    batches: Mapping[QueryTxn, int]
    recorded: Mapping[str, int] = field(default_factory=dict)
    """For each application whose rows delta-spark writes, the number of the last write that was begun."""
    confirmed: Mapping[str, int] = field(default_factory=dict)
    """The number of the last write whose offsets are stored here."""

    @property
    def app_ids(self) -> set[str]:
        """The applications with offsets or batch numbers here."""
        return {key.app_id for key in self.offsets} | {key.app_id for key in self.batches}

    @property
    def outdated(self) -> dict[str, int]:
        """For each application whose offsets moved to another table, as delta-spark writes its rows: its last write."""
        return {app_id: at for app_id, at in self.confirmed.items() if app_id not in self.recorded}

    @property
    def unconfirmed(self) -> dict[str, int]:
        """For each application, the number of a write that may be in the result, but not in these offsets."""
        return {app_id: at for app_id, at in self.recorded.items() if at > self.confirmed.get(app_id, 0)}

    def of(self, app_id: str) -> Stored:
        """Return the entries of one application."""
        return Stored(
            self.version,
            {key: at for key, at in self.offsets.items() if key.app_id == app_id},
            {key: at for key, at in self.batches.items() if key.app_id == app_id},
            {key: at for key, at in self.recorded.items() if key == app_id},
            {key: at for key, at in self.confirmed.items() if key == app_id},
        )

    def of_source(self, source: str) -> Stored:
        """Return these with the offsets of one source only."""
        return replace(self, offsets={key: at for key, at in self.offsets.items() if key.source == source})

    def numbers(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Return the transaction ids of these applications' batch numbers and writes, with their versions."""
        wanted = set(app_ids)
        return (
            {query_txn_id(key.app_id, key.query_id): at for key, at in self.batches.items() if key.app_id in wanted}
            | {intent_txn_id(app_id): at for app_id, at in self.recorded.items() if app_id in wanted}
            | {merge_txn_id(app_id): at for app_id, at in self.confirmed.items() if app_id in wanted}
        )


@dataclass(slots=True)
class OffsetsTable:
    """A table that holds offsets, at the version at which it was opened: the result itself, or one of offsets only."""

    location: Location
    storage_options: Mapping[str, str] = field(repr=False)
    log: TableLog
    state: TableState
    _listing: LogListing
    _entries: tuple[CommitEntry, ...] | None = None

    @classmethod
    def open(cls, location: Location, storage_options: Mapping[str, str] | None = None) -> OffsetsTable:
        """Load the newest version. Raises StoreMissingError, or OffsetStoreError if unreadable or expiring offsets."""
        options = dict(storage_options or {})
        log = TableLog(location, options)
        state = log.state()
        check_keeps_transaction_ids(location, state.metadata.configuration)
        return cls(location, options, log, state, log.reader.listing())

    @property
    def version(self) -> int:
        """The version of all results here."""
        return self.state.version

    def entries(self) -> tuple[CommitEntry, ...]:
        """Return the commits that the log still keeps, newest first. Raises OffsetStoreError if one cannot be read."""
        if self._entries is None:
            kept = [version for version in self._listing.commits if version <= self.version]
            self._entries = tuple(self._read(kept[::-1]))
        return self._entries

    def _read(self, versions: Sequence[int]) -> Iterator[CommitEntry]:
        for version, found in zip(versions, self.log.reader.actions_of(versions, ("commitInfo", "txn")), strict=True):
            infos: list[Mapping[str, Any]] = list(found["commitInfo"]) or [{}]
            yield read_entry(version, infos[0], (txn["appId"] for txn in found["txn"]))

    def stored(self, version: int | None = None) -> Stored:
        """Return the stored offsets and numbers, now or at an older version. Topics have names if the log has them.

        Raises:
            OffsetStoreError: if that version cannot be loaded any more.
        """
        at_version = self.state if version is None or version == self.version else self._load_version(version)
        names = self._topic_names()
        offsets: dict[OffsetTxn, int] = {}
        batches: dict[QueryTxn, int] = {}
        recorded: dict[str, int] = {}
        confirmed: dict[str, int] = {}
        for txn_id, at in sorted(at_version.transactions.items()):
            key = parse_txn_id(txn_id)
            if isinstance(key, QueryTxn):
                batches[key] = at
            elif isinstance(key, IntentTxn):
                recorded[key.app_id] = at
            elif isinstance(key, MergeTxn):
                confirmed[key.app_id] = at
            elif isinstance(key, OffsetTxn) and at != MOVED_TO_ID:
                tp = key.partition
                named = TopicPartition(tp.topic or names.get(tp.topic_id, ""), tp.topic_id, tp.partition)
                offsets[OffsetTxn(key.app_id, key.source, named)] = at
        return Stored(at_version.version, offsets, batches, recorded, confirmed)

    def last_moved(self) -> dict[str, CommitEntry]:
        """Return the newest kept commit that moved each transaction id.

        A manual change rewrites some ids only to conflict with a driver: it moved those in its record.
        """
        newest: dict[str, CommitEntry] = {}
        for entry in self.entries():
            moved = entry.txn_ids if entry.change is None else entry.txn_ids & entry.change.transactions().keys()
            for txn_id in moved:
                newest.setdefault(txn_id, entry)
        return newest

    def apply(self, change: ManualChange) -> int:
        """Commit a change that was decided from this same handle; returns the version of the commit.

        Raises:
            CommitConflictError: if a driver wrote since this handle was loaded: nothing was changed.
            OffsetStoreError: if the commit failed; it may yet land.
        """
        since = self.version
        stored, app_ids = self.stored(), change.app_ids | self._losing_rows(change)
        manual = dict.fromkeys(map(manual_txn_id, app_ids), since)
        transactions = stored.numbers(app_ids) | manual | self._epochs_forgotten(change) | change.transactions()
        transactions |= self._of_queries(change, stored)
        proposal = self._proposal(change, transactions)
        try:
            return self.log.commit(proposal, self.state)
        except (OffsetStoreError, OSError, ValueError) as error:
            landed = self._version_of(change, since)
            if landed is None:
                with hidden_secrets(self.storage_options):
                    raise self._failure(error, since) from error
            return landed

    def _epochs_forgotten(self, change: ManualChange) -> dict[str, int]:
        """Return the ids of stored leader epochs that no longer belong to the moved offsets."""
        ids = (epoch_txn_id(move.key.app_id, move.key.source, move.key.partition) for move in change.moves)
        return {txn_id: UNKNOWN_EPOCH for txn_id in ids if txn_id in self.state.transactions}

    def _of_queries(self, change: ManualChange, stored: Stored) -> dict[str, int]:
        """Return the transaction ids of each query that a restore writes besides its last batch number.

        Raises:
            OffsetStoreError: if the restored version cannot be loaded.
        """
        if change.kind is not ChangeKind.RESTORE or change.to_version is None:
            return {}
        then = self._load_version(change.to_version).transactions.get
        return self._fingerprints(then, stored) | self._due(then, change, change.to_version, stored)

    def _fingerprints(self, then: LookUp, stored: Stored) -> dict[str, int]:
        """Return the ids of the fingerprints of batches that a restore removes: earlier batches had their places.

        Also of queries whose last batch keeps its number: it may now belong to another batch.
        """
        now = self.state.transactions.get
        ids = [batch_txn_id(key.app_id, key.query_id, place) for key, place in product(stored.batches, range(RING))]
        moved = {txn_id: then(txn_id) for txn_id in ids if now(txn_id) != then(txn_id)}
        return {txn_id: UNKNOWN_FINGERPRINT if before is None else before for txn_id, before in moved.items()}

    def _due(self, then: LookUp, change: ManualChange, to_version: int, stored: Stored) -> dict[str, int]:
        """Return the next batch of each query of which a restore removes batches, now or in the restored version.

        That is the first removed one whose number is not kept; or, if the kept ones are other batches with these
        numbers, the one after them.
        """
        moved = {move.key: move.after for move in change.batches}
        removed = self._removed(to_version)
        found: dict[str, int] = {}
        for key, last in stored.batches.items():
            kept, txn_id = moved.get(key, last), due_txn_id(key.app_id, key.query_id)
            numbers, before = removed.get(key, set()), batch_due(then, key.app_id, key.query_id)
            due = {number for number in numbers if number > kept} | ({before} if before is not None else set())
            if due or numbers or kept < last:
                found[txn_id] = min(due, default=kept + 1)
            elif key in moved and txn_id in self.state.transactions:
                found[txn_id] = NOTHING_DUE
        return found

    def _removed(self, to_version: int) -> dict[QueryTxn, set[int]]:
        """Return the batches of each query whose kept commits came after a version."""
        removed: dict[QueryTxn, set[int]] = {}
        for entry in self.entries():
            if entry.batch is not None and entry.version > to_version:
                record = entry.batch.record
                removed.setdefault(QueryTxn(record.app_id, record.query_id), set()).add(record.batch_id)
        return removed

    def _losing_rows(self, change: ManualChange) -> set[str]:
        """Return the applications whose rows a restore removes; some may not have stored an offset yet."""
        if change.kind is not ChangeKind.RESTORE:
            return set()
        target = -1 if change.to_version is None else change.to_version
        batches = (entry.batch for entry in self.entries() if entry.version > target)
        return {batch.record.app_id for batch in batches if batch is not None}

    def _proposal(self, change: ManualChange, transactions: Mapping[str, int]) -> Proposal:
        """Return the commit of a change. Raises OffsetStoreError if a restore is impossible."""
        proposal = Proposal()
        if change.kind is ChangeKind.RESTORE:
            assert change.to_version is not None
            try:
                proposal = restoration(self.log, self.state, self._load_version(change.to_version))
            except OffsetStoreError as error:
                raise OffsetStoreError(f"nothing was changed: {error}") from error
        return replace(proposal, transactions=transactions, info={COMMIT_INFO_KEY: change.to_commit_info()})

    def _failure(self, error: Exception, since: int) -> OffsetStoreError:
        if isinstance(error, CommitConflictError):
            return CommitConflictError(
                f"another writer committed to {self.location} after version {since}, from which this change was "
                "decided, so nothing was changed. Stop every driver that writes there, then check and repeat "
                f"({plain(error)})"
            )
        if not isinstance(error, OSError) and not isinstance(error.__cause__, OSError):
            return OffsetStoreError(f"the commit to {self.location} failed, nothing was changed: {plain(error)}")
        return OffsetStoreError(
            f"the commit to {self.location} failed. Its log does not have it, but a request may still be under way: "
            f"look at the stored offsets before you repeat it. Why: {plain(error)}"
        )

    def _version_of(self, change: ManualChange, since: int) -> int | None:
        fresh = OffsetsTable.open(self.location, self.storage_options)
        for entry in fresh._read(range(fresh.version, since, -1)):
            if entry.change is not None and entry.change.attempt_id == change.attempt_id:
                return entry.version
        return None

    def _load_version(self, version: int) -> TableState:
        try:
            return self.log.state_at(version)
        except OffsetStoreError as error:
            kept = [each for each in self._listing.commits if each <= self.version]
            oldest = f"kept commits begin at version {kept[0]}" if kept else "no commit is kept"
            raise OffsetStoreError(
                f"version {version} of {self.location} cannot be loaded (now at {self.version}; {oldest}): {error}"
            ) from error

    def _topic_names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for entry in self.entries():
            ranges = entry.batch.record.ranges if entry.batch else {}
            partitions = [tp for _, tp in ranges]
            partitions += [move.key.partition for move in entry.change.moves] if entry.change else []
            for tp in partitions:
                if tp.topic:
                    names.setdefault(tp.topic_id, tp.topic)
        return names
