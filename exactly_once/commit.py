"""Write one batch: read the store, decide, commit, and after any failure read the store again.

`Delivery.begin` runs on the driver before the batch's tasks, `Delivery.finish` after them, in another process; the
`DeliveryPlan` travels between the two with the tasks' messages. Each commit is decided from one snapshot and made
through that snapshot, so any change in between makes it conflict. After *any* exception of a commit the store is read
again, since a commit can land and its response get lost, or a step after the commit fail: the attempt id in the record
distinguishes our own commit from that of another driver.

The second of two commits depends on the first: that one must not have been reverted by a manual change
(`sparkonce offsets`, RESTORE). The log since then is checked, up to the snapshot of the second commit; it must be that
of the same store.

If a batch was planned as fresh and then another driver wrote it, two drivers run with the same ``appId``: the loser
stops, and names the commit that won.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from sparkonce.crash_points import reach
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.decision import (
    AlreadyWritten,
    Fresh,
    Refused,
    Replay,
    Stored,
    WrittenByDelta,
    check_ranges,
    decide,
)
from sparkonce.exactly_once.errors import (
    DeliveryError,
    FencedError,
    UnknownOutcomeError,
)
from sparkonce.exactly_once.guarantee import Order
from sparkonce.exactly_once.refusals import THE_TABLE, StoreName, fenced, refusal, restored
from sparkonce.exactly_once.restored import restore_that_took_out
from sparkonce.offset_store.administration import CommitEntry
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.record import BatchRecord, Commit, CommittedBatch, PartitionKey, Writes
from sparkonce.offset_store.store import Snapshot, SnapshotSource

MAX_CONFLICTS = 10
"""How often a commit that conflicted with *other* partitions or applications is decided again."""


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """The decision about a batch before its tasks ran."""

    attempt_id: str
    batch_id: int
    decision: Fresh | Replay | AlreadyWritten
    version: int
    """The version of the store of offsets at the decision."""
    store_id: str
    """Of that store: `Snapshot.store_id`."""
    rows_version: int
    """The version of the result at the decision; the same number if both are one table."""

    @property
    def writes_rows(self) -> bool:
        """Whether the tasks must write."""
        return isinstance(self.decision, Fresh)

    @property
    def written_by(self) -> Set[str]:
        """Empty: a batch that is written is not written again in parts."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class Delivery:
    """Writes batches into ``result`` in the order of one guarantee.

    ``offsets`` is the store of the offsets, if not the result's own commits. Exactly-once needs both writes in
    one commit, so there they are in one place.
    """

    result: SnapshotSource
    order: Order
    offsets: SnapshotSource | None = None
    store_name: StoreName = THE_TABLE
    """The name of the result in messages, if the offsets are stored in it."""

    def __post_init__(self) -> None:
        together = any(writes == Writes.ROWS | Writes.OFFSETS for writes in self.order.after_tasks)
        if together and self.offsets is not None:
            raise ValueError("exactly-once writes rows and offsets in one commit: they cannot live in two places")

    def begin(self, batch: Batch) -> DeliveryPlan:
        """Decide what to do with a batch, and make the commits that come before its tasks.

        Raises:
            DeliveryError: if the batch must not be written.
        """
        plan = self._plan(batch)
        if plan.writes_rows:
            reach(SinkPoint.BEGUN, plan.batch_id, batch.record.app_id)
        if plan.writes_rows and self.order.before_tasks:
            for writes in self.order.before_tasks:
                commit: Commit[Any] = Commit(batch.record, writes, follows=self._follows(writes))
                self._commit(batch, plan, commit, compare=True)
            reach(SinkPoint.BETWEEN_WRITES, plan.batch_id, batch.record.app_id)
        return plan

    def finish(self, batch: Batch, plan: DeliveryPlan, files: Sequence[Any]) -> bool:
        """Make the commits that come after the tasks; False if the batch is already there and nothing was written.

        Raises:
            DeliveryError: if the batch must not be written, or its outcome is unknown.
        """
        if not plan.writes_rows:
            self._check_skipped(batch)
            return False
        app_id = batch.record.app_id
        reach(SinkPoint.BEFORE_COMMIT, plan.batch_id, app_id)
        has_half = recorded = any(Writes.OFFSETS in writes for writes in self.order.before_tasks)
        if files or batch.record.moved or self.result.replaces or not batch.is_determined_by_offsets:
            for position, writes in enumerate(self.order.after_tasks):
                if position > 0:
                    reach(SinkPoint.BETWEEN_WRITES, plan.batch_id, app_id)
                if Writes.OFFSETS not in writes and not files:
                    continue
                written = files if Writes.ROWS in writes else ()
                is_last = position + 1 == len(self.order.after_tasks)
                follows = None if is_last else self._follows(writes)
                commit = Commit(batch.record, writes, written, has_half, follows=follows)
                self._commit(batch, plan, commit, compare=not recorded)
                has_half = True
        self.result.complete()
        reach(SinkPoint.AFTER_COMMIT, plan.batch_id, app_id)
        return True

    def _follows(self, writes: Writes) -> Writes | None:
        """Return what the second commit of a batch to the same table holds, if the first one holds ``writes``."""
        return None if self.offsets is not None else (Writes.ROWS | Writes.OFFSETS) & ~writes

    def has_landed(self, record: BatchRecord, since_version: int) -> bool:
        """Whether any commit after ``since_version`` has rows of this attempt."""
        return _find_landed(self.result.snapshot_unchecked(), record, Writes.ROWS, since_version) is not None

    def _plan(self, batch: Batch) -> DeliveryPlan:
        snapshot = self._offsets.snapshot()
        rows = snapshot if self.offsets is None else self.result.snapshot()
        decision = decide(look(snapshot, batch, rows), batch)
        if isinstance(decision, Refused):
            raise refusal(decision, batch, snapshot, self._store_name)
        if isinstance(decision, Replay):
            restore = restore_that_took_out(batch.record, rows.entries_since(-1), stateful=batch.stateful)
            if restore is not None:
                raise restored(restore, batch, self._store_name)
        if isinstance(decision, Fresh):
            check_ranges(batch, {})
        if self.order.before_tasks:
            _check_room(snapshot, batch, self._store_name)
        record = batch.record
        return DeliveryPlan(
            record.attempt_id, record.batch_id, decision, snapshot.version, snapshot.store_id, rows.version
        )

    @property
    def _offsets(self) -> SnapshotSource:
        return self.result if self.offsets is None else self.offsets

    @property
    def _store_name(self) -> StoreName:
        if self.offsets is None:
            return self.store_name
        said = self.store_name.covered_twice
        return StoreName(f"the offset store {self.offsets}", str(self.offsets), covered_twice=said)

    def _check_skipped(self, batch: Batch) -> None:
        """Check again a batch whose tasks wrote nothing: the decision made before them must still hold."""
        snapshot = self._offsets.snapshot()
        decision = decide(look(snapshot, batch), batch)
        if isinstance(decision, Fresh):
            raise DeliveryError(f"{batch}: its offsets were moved back while it ran. Start the query again")
        if isinstance(decision, Refused):
            # Spark makes the state folder while it plans batch 0: it may have appeared since.
            raise refusal(decision, batch, snapshot, self._store_name)

    def _commit(self, batch: Batch, plan: DeliveryPlan, commit: Commit[Any], compare: bool) -> None:
        """Make one commit; ``compare`` is off when this attempt has recorded the offsets before."""
        conflict: CommitConflictError | None = None
        for _ in range(MAX_CONFLICTS):
            snapshot = self._offsets.snapshot()
            commit = replace(commit, in_sequence=_due(snapshot, batch) is not None)
            rows = snapshot
            if self.offsets is not None and commit.writes == Writes.ROWS:
                rows = self.result.snapshot()
            elif self.offsets is not None and commit.is_second:
                rows = self.result.snapshot_unchecked()
            if compare:
                seen = look(snapshot, batch, rows)
                decision = decide(seen, batch)
                if not isinstance(decision, Fresh):
                    raise fenced(decision, batch, snapshot, plan.version, self._store_name)
                if not commit.is_second:
                    check_ranges(batch, seen.next_offsets)
                record = replace(batch.record, begun=_begun(seen, batch))
                commit = replace(commit, record=record, is_first=seen.others is not None)
            elif (by_delta := rows.written_by_delta(batch.record)) is not None:
                raise refusal(WrittenByDelta(by_delta), batch, snapshot, self._store_name)
            if commit.is_second:
                _check_first_half(batch, plan, commit, snapshot, rows)
            if commit.writes == Writes.ROWS:
                snapshot = rows
            try:
                snapshot.commit(commit)
                landed = SinkPoint.ROWS_LANDED if Writes.ROWS in commit.writes else SinkPoint.OFFSETS_LANDED
                reach(landed, plan.batch_id, batch.record.app_id)
                return
            except Exception as error:
                if self._landed_after(error, commit, plan):
                    return
                if not isinstance(error, CommitConflictError):
                    raise
                conflict = error
        raise DeliveryError(
            f"{batch}: gave up after {MAX_CONFLICTS} commits that conflicted with other writers; the last: {conflict}"
        ) from conflict

    def _landed_after(self, error: Exception, commit: Commit[Any], plan: DeliveryPlan) -> bool:
        in_result = Writes.ROWS in commit.writes
        store, name = (self.result, "the table") if in_result else (self._offsets, self._store_name.name)
        try:
            snapshot = store.snapshot_unchecked()  # a changed schema must not hide a commit that has landed
            since_version = plan.rows_version if in_result else plan.version
            return _find_landed(snapshot, commit.record, commit.writes, since_version) is not None
        except Exception as second:
            raise UnknownOutcomeError(
                f"batch {plan.batch_id}: the commit failed ({error}), and {name} cannot be read to see whether it "
                f"landed ({second}). Start the query again once it can be read: it then checks that"
            ) from error


def look(snapshot: Snapshot, batch: Batch, rows: Snapshot | None = None) -> Stored:
    """Return what a snapshot has stored for a batch, whose rows go to ``rows`` if that is another one.

    Raises:
        RowsWithoutOffsetsError: if nothing is stored in a table whose rows were written by batches.
    """
    record = batch.record
    last_batch_id = snapshot.last_batch(record.query_id)
    keys = record.ranges if batch.stateful or last_batch_id is None else record.moved
    next_offsets = snapshot.next_offsets(keys)
    if last_batch_id is None and not next_offsets:
        snapshot.check_rows_have_offsets()
    fingerprint = None
    if last_batch_id is not None and last_batch_id >= record.batch_id:
        fingerprint = snapshot.fingerprint(record.query_id, record.batch_id)
    is_other = last_batch_id is not None and _is_other(snapshot, batch, last_batch_id)
    due = _due(snapshot, batch)
    if last_batch_id is not None and _has_every_batch(snapshot, batch):
        due = last_batch_id + 1
    others, result = None, rows or snapshot
    # Also for a running query: a topic may be added. Usually everything that moves is stored, and nothing is read.
    new = (record.ranges if last_batch_id is None else record.moved).keys() - next_offsets.keys()
    if new or (last_batch_id is None and not next_offsets):
        others = result.others(record, new, keeps_offsets=result is snapshot)
    cut = [key for key, extent in record.moved.items() if extent.cut_from is not None]
    epochs = snapshot.epochs(cut) if cut else {}
    by_delta = result.written_by_delta(record)
    return Stored(snapshot.version, last_batch_id, next_offsets, fingerprint, due, is_other, others, epochs, by_delta)


def _begun(seen: Stored, batch: Batch) -> frozenset[PartitionKey]:
    """Return the idle partitions whose positions the first commit of a query stores: it has read nothing of them yet.

    A later query then begins there, and is not refused for the records before (`PartitionNotStored`).
    """
    if seen.last_batch_id is not None:
        return frozenset()
    ranges = batch.record.ranges.items()
    still = {key for key, extent in ranges if extent.end == extent.start > 0 and extent.cut_from is None}
    return frozenset(still - seen.next_offsets.keys() - batch.read_before.keys())


def _has_every_batch(snapshot: Snapshot, batch: Batch) -> bool:
    """Whether every batch of the query is in the store: its log also has those without rows and offsets."""
    return batch.is_one_of_all and not batch.is_determined_by_offsets and snapshot.keeps_every_batch


def _is_other(snapshot: Snapshot, batch: Batch, last_batch_id: int) -> bool:
    """Whether the checkpoint has another batch under the number of the last stored one."""
    if batch.is_determined_by_offsets or not 0 <= last_batch_id < batch.record.batch_id:
        return False
    known = snapshot.fingerprint(batch.record.query_id, last_batch_id)
    return known is not None and not batch.is_logged(last_batch_id, known)


def _due(snapshot: Snapshot, batch: Batch) -> int | None:
    """Return the batch that must come next, if a restore requires one and the offsets do not show it."""
    return None if batch.is_determined_by_offsets else snapshot.due(batch.record.query_id)


def _check_room(snapshot: Snapshot, batch: Batch, store: StoreName) -> None:
    """Check that a replay of a batch will be recognized: at-most-once must not write it twice.

    Raises:
        DeliveryError: if the store cannot record it.
    """
    if not (batch.is_determined_by_offsets or snapshot.can_record(batch.record)):
        raise DeliveryError(
            f"{batch} reads no partition of kafka_once with whose offset {store.name} could record it: at-most-once "
            "would not know after a crash that it had begun, and would write it twice. Set offsetStore=delta:<path>, "
            "or another deliveryGuarantee"
        )


def _check_first_half(batch: Batch, plan: DeliveryPlan, commit: Commit[Any], offsets: Snapshot, rows: Snapshot) -> None:
    """Check that the first of a batch's two commits is still in force.

    Raises:
        FencedError: if a manual change reverted it, or may have.
    """
    record = batch.record
    if Writes.OFFSETS in commit.writes:
        first, second = "rows", "offsets"
        manual = _manual_after(rows, plan.rows_version, record, lambda entry: entry.operation == "RESTORE")
    else:
        first, second, manual = "offsets", "rows", None
    manual = manual or _manual_after(offsets, plan.version, record, lambda entry: _moves(entry, record.app_id))
    if offsets.store_id != plan.store_id:
        name = "another table of offsets, made in place of the first,"
    elif manual is not None:
        name = f"version {manual.version} ({manual.name or 'RESTORE'})"
    elif Writes.OFFSETS not in commit.writes and not _is_in_force(record, offsets):
        name = "a change of the stored offsets"
    else:
        return
    raise FencedError(
        f"{batch}: {name} came after its {first} were committed and may have undone that, so its {second} were not. "
        "Start the query again: its batch is then compared with what the change left. (Stop a query before you change "
        "its offsets or restore its table)"
    )


def _manual_after(
    snapshot: Snapshot, version: int, record: BatchRecord, is_manual: Callable[[CommitEntry], bool]
) -> CommitEntry | None:
    """Return the newest manual change after a version and, if it is there, after this attempt's own commit."""
    for entry in snapshot.entries_since(version):
        if entry.batch is not None and entry.batch.record.attempt_id == record.attempt_id:
            return None
        if is_manual(entry):
            return entry
    return None


def _moves(entry: CommitEntry, app_id: str) -> bool:
    return entry.change is not None and app_id in entry.change.app_ids


def _is_in_force(record: BatchRecord, offsets: Snapshot) -> bool:
    """Whether the commit of this attempt is in force: later batches may follow it, but none reverted it."""
    moved = record.moved
    if moved:  # a consumer group forgets the batch number when another query continues
        stored = offsets.next_offsets(moved)
        return all(stored.get(key, -1) >= extent.end for key, extent in moved.items())
    last = offsets.last_batch(record.query_id)
    return last is None or last >= record.batch_id


def _find_landed(snapshot: Snapshot, record: BatchRecord, writes: Writes, since_version: int) -> CommittedBatch | None:
    newer = snapshot.version - since_version
    if newer <= 0:
        return None
    for entry in snapshot.history(newer):
        # Kafka may accept a part of a commit to a consumer group: such a commit has not landed.
        whole = entry.record.moved == record.moved
        if entry.record.attempt_id == record.attempt_id and writes in entry.writes and whole:
            return entry
    return None
