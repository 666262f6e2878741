"""The protocol of an exactly-once write by delta-spark: one sequence number for each batch that changes the result.

A commit of delta-spark, be it a MERGE, an append or an overwrite, cannot carry a batch's offsets: it has room for one
transaction id, and Delta skips a write whose version is not above the stored one silently. So rows and offsets are in
two tables, and one number links them. The *result* stores the sequence number of the last write, in the write's own
commit: that is authoritative. The *table of offsets* stores what was intended, and what of it is confirmed:

1. the next number, ranges and attempt id are recorded in the table of offsets (an `Intent`);
2. delta-spark writes the rows with that number as the transaction version, and the record in the commit info;
3. the result's log must show that the commit with that number is of our attempt: else another driver was first;
4. the offsets are moved in the table of offsets, with the number as *confirmed*.

A crash before the write's commit leaves an intent whose number the result does not have: the next attempt uses the
number again. A crash after it leaves a number that is in the result and not confirmed: the next snapshot confirms it
before anything is compared (`NumberedTable.snapshot`), so every comparison is exact. Two drivers may record the same
number; only one write with it lands.

The number of the result is always read after the table of offsets, and numbers only grow, so a result that is behind
what is confirmed was deleted or replaced. Nothing of Spark is imported here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol

from sparkonce.connectors.delta_spark.crash_points import IntentPoint
from sparkonce.crash_points import reach
from sparkonce.exactly_once.errors import DeliveryError, FencedError, OffsetMismatchError, UnknownOutcomeError
from sparkonce.offset_store.administration import CommitEntry
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.other_apps import OtherApps
from sparkonce.offset_store.record import BatchRecord, Commit, CommittedBatch, FileT, PartitionKey, Writes
from sparkonce.offset_store.store import Snapshot, SnapshotSource

MAX_CONFLICTS = 10
"""How often a confirmation that conflicted with another driver's is retried."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch, and the sequence number that its write is to have."""

    sequence: int
    record: BatchRecord
    is_first: bool = field(default=False, compare=False)
    """See `Commit.is_first`; only of an intent that is to be recorded."""


@dataclass(frozen=True, slots=True)
class Landed:
    """An intent whose write is in the result."""

    intent: Intent
    version: int | None
    """The result's version that it made, or None where the result's log no longer reaches back to it."""


@dataclass(frozen=True, slots=True)
class ResultState:
    """The result at one moment."""

    version: int
    sequence: int
    """The number of the last write that landed; 0 before the first."""


class ResultLog(Protocol):
    """The result, for writes with numbers."""

    def look(self) -> ResultState:
        """Read the current state of the result."""

    def write(self, rows: Any, intent: Intent) -> None:
        """Write the rows of ``intent``; do nothing if its number, or a higher one, is in the result.

        Raises:
            CommitConflictError: if others changed the result meanwhile, and it can be tried again.
        """

    def find(self, sequence: int, since_version: int | None = None) -> Landed | None:
        """Return the write with this number, if the log still has it; None otherwise."""

    def entries(self) -> Iterator[CommitEntry]:
        """Return the commits that the log still has, newest first, of all writers; a numbered write with its record."""


class RowsOfOthers(Protocol):
    """What other applications have written into the result."""

    def look(self, batch: BatchRecord, new: Collection[PartitionKey]) -> OtherApps:
        """Return what they have of partitions of which the batch's application has stored nothing."""

    def written_by_delta(self, record: BatchRecord) -> int | None:
        """See `Snapshot.written_by_delta`."""


class IntentSnapshot(Protocol):
    """The table of offsets at one version; writes are rejected if another driver wrote or confirmed an intent since."""

    @property
    def version(self) -> int:
        """The version that everything here is read from."""

    @property
    def confirmed(self) -> int:
        """The last number that is confirmed; 0 before the first."""

    def last_batch(self, query_id: str) -> int | None:
        """See `Snapshot.last_batch`."""

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `Snapshot.fingerprint`."""

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.next_offsets`."""

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.epochs`."""

    def intents(self, sequence: int) -> list[Intent]:
        """Return all intents of one number that the log still has, newest first."""

    def record(self, intent: Intent) -> None:
        """Write an intent.

        Raises:
            CommitConflictError: if another driver wrote or confirmed one.
        """

    def confirm(self, landed: Landed, move_offsets: bool) -> None:
        """Record that an intent landed, and move its offsets, in one commit.

        Raises:
            CommitConflictError: if another driver wrote or confirmed an intent.
        """

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`; only what is confirmed, and with the versions of the result."""


class IntentLog(Protocol):
    """The table of offsets."""

    def snapshot(self) -> IntentSnapshot:
        """Return a snapshot of it; creates it first if it is missing."""


@dataclass(frozen=True, slots=True)
class NumberedTable(SnapshotSource):
    """A result and its table of offsets, as one target for rows and offsets together."""

    result: ResultLog
    intents: IntentLog
    other_rows: RowsOfOthers | None = None
    """None if what other applications have written there does not matter."""

    def snapshot(self) -> NumberedSnapshot:
        """Confirm what landed, then return a snapshot.

        Raises:
            DeliveryError: if the two tables cannot be made consistent.
            OffsetStoreError: if one of them cannot be read.
        """
        conflicts = 0
        while True:
            offsets = self.intents.snapshot()
            state = self.result.look()
            if state.sequence == offsets.confirmed:
                return NumberedSnapshot(self, offsets, state)
            if state.sequence < offsets.confirmed:
                raise OffsetMismatchError(
                    f"{self.intents} has confirmed write {offsets.confirmed}, and {self.result} holds "
                    f"{state.sequence or 'none'}: the result was deleted, replaced, or dropped transaction ids (table "
                    "property delta.setTransactionRetentionDuration). To fill it again from the start, use a new "
                    "appId and a new checkpointLocation; otherwise restore the result"
                )
            landed = self._landed(offsets, offsets.confirmed + 1)
            try:
                _confirm(offsets, landed)
            except CommitConflictError as error:
                conflicts += 1
                if conflicts == MAX_CONFLICTS:
                    raise DeliveryError(
                        f"gave up confirming write {landed.intent.sequence} in {self.intents} after {MAX_CONFLICTS} "
                        f"commits of others: {error}"
                    ) from error

    def _landed(self, offsets: IntentSnapshot, sequence: int) -> Landed:
        """Return which batch landed with a number."""
        found = self.result.find(sequence)
        if found is not None:
            return found
        intents = offsets.intents(sequence)
        batches = {(each.record.query_id, each.record.batch_id, _ranges(each.record)) for each in intents}
        if len(batches) == 1:
            return Landed(intents[0], None)
        known = "no batch" if not batches else f"{len(batches)} different batches"
        raise DeliveryError(
            f"{self.result} holds write {sequence}, which {self.intents} has not confirmed. Which batch that was "
            f"is unknown: the result's log no longer has its commit, and the table of offsets names {known} for "
            "it. Check which records the result holds; then continue with a new appId, a new checkpointLocation and "
            "startingOffsets after those records"
        )

    def __str__(self) -> str:
        return str(self.intents)


@dataclass(frozen=True, slots=True)
class NumberedSnapshot(Snapshot):
    """Both tables with nothing left to confirm. Its version is that of the table of offsets."""

    table: NumberedTable
    offsets: IntentSnapshot
    state: ResultState

    @property
    def version(self) -> int:
        """See `Snapshot.version`."""
        return self.offsets.version

    def last_batch(self, query_id: str) -> int | None:
        """See `Snapshot.last_batch`."""
        return self.offsets.last_batch(query_id)

    def fingerprint(self, query_id: str, batch_id: int) -> Fingerprint | None:
        """See `Snapshot.fingerprint`."""
        return self.offsets.fingerprint(query_id, batch_id)

    def next_offsets(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.next_offsets`."""
        return self.offsets.next_offsets(keys)

    def epochs(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """See `Snapshot.epochs`."""
        return self.offsets.epochs(keys)

    def others(self, batch: BatchRecord, new: Collection[PartitionKey], *, keeps_offsets: bool) -> OtherApps | None:  # noqa: ARG002
        """See `Snapshot.others`."""
        return None if self.table.other_rows is None else self.table.other_rows.look(batch, new)

    def written_by_delta(self, record: BatchRecord) -> int | None:
        """See `Snapshot.written_by_delta`."""
        return None if self.table.other_rows is None else self.table.other_rows.written_by_delta(record)

    def commit(self, commit: Commit[FileT]) -> None:
        """Write a batch's rows and move its offsets; the one file is the batch's DataFrame.

        Raises:
            FencedError: if another driver's write has taken the number.
            UnknownOutcomeError: if the result's log no longer shows whose write has it.
            CommitConflictError: if another writer was first: read again, and decide again.
        """
        assert commit.writes == Writes.ROWS | Writes.OFFSETS, "other orders do not need sequence numbers"
        (rows,) = commit.files
        record = commit.record
        intent = Intent(self.state.sequence + 1, record, commit.is_first)
        self.offsets.record(intent)
        reach(IntentPoint.RECORDED, record.batch_id, record.app_id)
        result = self.table.result
        result.write(rows, intent)
        landed = result.find(intent.sequence, self.state.version)
        if landed is None:
            raise UnknownOutcomeError(
                f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id}): the log of {result} does "
                f"not show which attempt made write {intent.sequence}. Start the query again: it checks that. If "
                "this error recurs, check that spark.databricks.delta.commitInfo.enabled is not false"
            )
        winner = landed.intent.record
        if winner.attempt_id != record.attempt_id:
            raise FencedError(
                f"batch {record.batch_id} of query {record.query_id} (appId {record.app_id}) was to be write "
                f"{intent.sequence} of {result}; version {landed.version} of it holds that number, made by batch "
                f"{winner.batch_id} of query {winner.query_id} (attempt {winner.attempt_id}). Another driver runs with "
                "the same appId: stop one of the two, or give each its own appId"
            )
        reach(IntentPoint.UNCONFIRMED, record.batch_id, record.app_id)
        self.table.snapshot()

    def history(self, limit: int | None = None) -> list[CommittedBatch]:
        """See `Snapshot.history`."""
        return self.offsets.history(limit)

    def entries_since(self, version: int) -> Iterator[CommitEntry]:
        """Return the commits of the result after one of its versions, newest first: it may have been restored."""
        return takewhile(lambda entry: entry.version > version, self.table.result.entries())


def _confirm(offsets: IntentSnapshot, landed: Landed) -> None:
    """Confirm a write, and move the offsets that are where the batch began.

    The others were moved manually since and stay; their partitions are not recorded.
    """
    intent, moved = landed.intent, landed.intent.record.moved
    stored = offsets.next_offsets(moved)
    kept = {key: extent for key, extent in moved.items() if stored.get(key, extent.follows) == extent.follows}
    confirmed = replace(landed, intent=replace(intent, record=replace(intent.record, ranges=kept)))
    offsets.confirm(confirmed, move_offsets=bool(kept) or not moved)


def _ranges(record: BatchRecord) -> frozenset[tuple[PartitionKey, int, int]]:
    return frozenset((key, extent.start, extent.end) for key, extent in record.moved.items())
