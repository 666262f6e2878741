"""Write one batch: look, decide, commit, and after any failure look again.

`Delivery.begin` runs on the driver before the batch's tasks, `Delivery.finish` after them, in another process; the
`Plan` travels between the two with the tasks' messages. Each commit is decided from one snapshot and made through
that snapshot, so whatever moved in between makes it conflict. After *any* exception of a commit the store is looked
at again, since a commit can land and its answer get lost, or a step after the commit fail: the attempt id in the
record tells our own commit from that of a twin.

The second of two commits counts on the first: so no hand (`sparkonce offsets`, RESTORE) may have undone that one in
between. What it finds in the log since then, up to the very snapshot that it commits through, tells.

Once a batch was planned as fresh, finding it written by somebody else means that two drivers run with one ``appId``:
the loser stops, and names the commit that won.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from exactly_once.batch import Batch
from exactly_once.crash_points import CrashPoint, reach
from exactly_once.decision import (
    AlreadyThere,
    Decision,
    Fresh,
    Mismatch,
    NeverStored,
    OtherBatch,
    OthersUnknown,
    Refused,
    Replay,
    ReusedBatchId,
    StatefulRestart,
    Stored,
    decide,
)
from exactly_once.errors import (
    DeliveryError,
    FencedError,
    OffsetMismatchError,
    StatefulRestartError,
    UnknownOutcomeError,
)
from exactly_once.guarantee import Order
from exactly_once.restored import restore_that_took_out
from offset_store.administration import CommitEntry
from offset_store.errors import CommitConflictError, OffsetStoreError
from offset_store.fingerprint import RING
from offset_store.record import BatchRecord, CommittedBatch, Writes
from offset_store.store import Commit, Snapshot

MAX_CONFLICTS = 10
"""How often a commit that lost against commits of *other* partitions or applications is decided anew."""
HISTORY_FOR_ERRORS = 200
"""How many commits back an error looks for the one it should name."""


class SnapshotSource(Protocol):
    """Whatever gives snapshots: an offset store, or a table that checks itself before it gives one."""

    def snapshot(self) -> Snapshot:
        """Take a picture of the store as it is now."""

    def __str__(self) -> str:
        """Name it as the option ``offsetStore`` would, for messages."""


@runtime_checkable
class CheckingSource(Protocol):
    """A `SnapshotSource` that may refuse to give a snapshot: one to look at only, it gives all the same."""

    def snapshot_unchecked(self) -> Snapshot:
        """Take a picture whatever has become of the store, to see what is in it."""


@runtime_checkable
class LoggedSnapshot(Protocol):
    """A snapshot of a store whose log also tells what others did, by hand or with other programs."""

    def entries_since(self, version: int) -> Iterator[CommitEntry]:
        """Give the commits after a version, up to the snapshot's, newest first."""


@runtime_checkable
class AccountedSnapshot(Protocol):
    """A snapshot that can tell "nothing is stored yet" from "what is stored was left behind"."""

    def check_rows_have_offsets(self) -> None:
        """Look where the rows are from, if no offsets are stored.

        Raises:
            RowsWithoutOffsetsError: if they are ours, and their offsets are elsewhere.
        """


@runtime_checkable
class CompletingResult(Protocol):
    """A result whose commit is a decision: what was decided is carried out afterwards."""

    def complete(self) -> None:
        """Carry out the last commit.

        Raises:
            DeliveryError: if that is no longer possible.
        """


@runtime_checkable
class ReplacingResult(Protocol):
    """A result in which a batch may take the place of all rows: then one without rows says something, too."""

    @property
    def replaces(self) -> bool:
        """Whether each batch does."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided about a batch before its tasks ran."""

    attempt_id: str
    batch_id: int
    decision: Fresh | Replay | AlreadyThere
    version: int
    """The version of the store of offsets that this was decided from."""
    rows_version: int
    """The version of the result at that time; the same number where both are one table."""

    @property
    def writes_rows(self) -> bool:
        """Whether the tasks have anything to do."""
        return isinstance(self.decision, Fresh)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the offsets live, for messages: in a sentence, and as the source's option ``offsetStore``."""

    name: str
    spec: str | None
    """None if the source cannot read them there."""
    holds_rows: bool = False
    """Whether that is a Delta table with the rows in the same commits: then both can be taken back together."""


_PARTLY_REFUSED = "; or Kafka refused some partitions of that batch's commit, whose error came first"
_OTHERS_BEGIN = "The other sources begin where their own options say: their rows come twice as far as these reach back"
THE_TABLE = Place("the table", "delta:<path of this table>", holds_rows=True)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Writes batches into ``result`` in the order of one guarantee.

    ``offsets`` is where the offsets live, if not in the result's own commits. Only one commit can hold both writes, so
    exactly-once has them in one place.
    """

    result: SnapshotSource
    order: Order
    offsets: SnapshotSource | None = None
    place: Place = THE_TABLE
    """What messages call the result, where the offsets live in it."""

    def __post_init__(self) -> None:
        together = any(writes == Writes.ROWS | Writes.OFFSETS for writes in self.order.after_tasks)
        if together and self.offsets is not None:
            raise ValueError("exactly-once writes rows and offsets in one commit: they cannot live in two places")

    def begin(self, batch: Batch) -> Plan:
        """Decide what to do with a batch, and make the commits that come before its tasks.

        Raises:
            DeliveryError: if the batch must not be written.
        """
        plan = self._plan(batch)
        if plan.writes_rows:
            reach(CrashPoint.SINK_BEGUN, plan.batch_id, batch.record.app_id)
        if plan.writes_rows and self.order.before_tasks:
            for writes in self.order.before_tasks:
                self._commit(batch, plan, Commit(batch.record, writes), compare=True)
            reach(CrashPoint.SINK_BETWEEN_WRITES, plan.batch_id, batch.record.app_id)
        return plan

    def finish(self, batch: Batch, plan: Plan, files: Sequence[Any]) -> bool:
        """Make the commits that come after the tasks; False if the batch is there already and nothing was written.

        Raises:
            DeliveryError: if the batch must not be written, or its outcome is unknown.
        """
        if not plan.writes_rows:
            self._confirm_passed_over(batch)
            return False
        app_id = batch.record.app_id
        reach(CrashPoint.SINK_BEFORE_COMMIT, plan.batch_id, app_id)
        has_half = recorded = any(Writes.OFFSETS in writes for writes in self.order.before_tasks)
        replaces = isinstance(self.result, ReplacingResult) and self.result.replaces
        if files or batch.record.moved or replaces:
            for position, writes in enumerate(self.order.after_tasks):
                if position > 0:
                    reach(CrashPoint.SINK_BETWEEN_WRITES, plan.batch_id, app_id)
                if Writes.OFFSETS not in writes and not files:
                    continue
                commit = Commit(batch.record, writes, files if Writes.ROWS in writes else (), has_half)
                self._commit(batch, plan, commit, compare=not recorded)
                has_half = True
        if isinstance(self.result, CompletingResult):
            self.result.complete()
        reach(CrashPoint.SINK_AFTER_COMMIT, plan.batch_id, app_id)
        return True

    def has_landed(self, record: BatchRecord, since_version: int) -> bool:
        """Whether any rows of this attempt stand in a commit after ``since_version``."""
        return _find_landed(_to_see(self.result), record, Writes.ROWS, since_version) is not None

    def _plan(self, batch: Batch) -> Plan:
        snapshot = self._offsets.snapshot()
        rows = snapshot if self.offsets is None else self.result.snapshot()
        decision = decide(look(snapshot, batch), batch)
        if isinstance(decision, Refused):
            raise _refusal(decision, batch, snapshot, self._place)
        if isinstance(decision, Replay) and isinstance(rows, LoggedSnapshot):
            restore = restore_that_took_out(batch.record, rows.entries_since(-1))
            if restore is not None:
                raise _restored(restore, batch, self._place)
        return Plan(batch.record.attempt_id, batch.record.batch_id, decision, snapshot.version, rows.version)

    @property
    def _offsets(self) -> SnapshotSource:
        return self.result if self.offsets is None else self.offsets

    @property
    def _place(self) -> Place:
        if self.offsets is None:
            return self.place
        return Place(f"the offset store {self.offsets}", str(self.offsets))

    def _confirm_passed_over(self, batch: Batch) -> None:
        """Look again at a batch whose tasks wrote nothing: what was seen before them must still be so."""
        snapshot = self._offsets.snapshot()
        decision = decide(look(snapshot, batch), batch)
        if isinstance(decision, Fresh):
            raise DeliveryError(f"{batch}: its offsets were moved back while it ran. Start the query again")
        if isinstance(decision, Refused):
            # Spark makes the state folder while it plans batch 0: it may have appeared since.
            raise _refusal(decision, batch, snapshot, self._place)

    def _commit(self, batch: Batch, plan: Plan, commit: Commit[Any], compare: bool) -> None:
        """Make one commit; ``compare`` is off when this attempt has recorded the offsets before."""
        conflict: CommitConflictError | None = None
        for _ in range(MAX_CONFLICTS):
            snapshot = self._offsets.snapshot()
            if compare:
                decision = decide(look(snapshot, batch), batch)
                if not isinstance(decision, Fresh):
                    raise _fenced(decision, batch, snapshot, plan, self._place)
            rows = snapshot
            if self.offsets is not None and commit.writes == Writes.ROWS:
                rows = self.result.snapshot()
            elif self.offsets is not None and commit.is_second:
                rows = _to_see(self.result)
            if commit.is_second:
                _check_first_half(batch, plan, commit, snapshot, rows)
            if commit.writes == Writes.ROWS:
                snapshot = rows
            try:
                snapshot.commit(commit)
                landed = CrashPoint.SINK_ROWS_LANDED if Writes.ROWS in commit.writes else CrashPoint.SINK_OFFSETS_LANDED
                reach(landed, plan.batch_id, batch.record.app_id)
                return
            except Exception as error:
                if self._landed_after(error, commit, plan):
                    return
                if not isinstance(error, CommitConflictError):
                    raise
                conflict = error
        raise DeliveryError(
            f"{batch}: gave up after {MAX_CONFLICTS} commits that lost against other writers; the last: {conflict}"
        ) from conflict

    def _landed_after(self, error: Exception, commit: Commit[Any], plan: Plan) -> bool:
        in_result = Writes.ROWS in commit.writes
        store, place = (self.result, "the table") if in_result else (self._offsets, self._place.name)
        try:
            snapshot = _to_see(store)
            since_version = plan.rows_version if in_result else plan.version
            return _find_landed(snapshot, commit.record, commit.writes, since_version) is not None
        except Exception as second:
            raise UnknownOutcomeError(
                f"batch {plan.batch_id}: the commit failed ({error}), and {place} cannot be read to see whether it "
                f"landed ({second}). Start the query again when it can be read: it will find out"
            ) from error


def _to_see(source: SnapshotSource) -> Snapshot:
    """Take a picture that nothing is committed through: a schema that has changed must not hide what has landed."""
    return source.snapshot_unchecked() if isinstance(source, CheckingSource) else source.snapshot()


def look(snapshot: Snapshot, batch: Batch) -> Stored:
    """Read from a snapshot what the comparison with a batch needs.

    Raises:
        RowsWithoutOffsetsError: if nothing is stored in a table whose rows were written by batches.
    """
    record = batch.record
    last_batch_id = snapshot.last_batch(record.query_id)
    keys = record.ranges if batch.stateful or last_batch_id is None else record.moved
    next_offsets = snapshot.next_offsets(keys)
    if last_batch_id is None and not next_offsets and isinstance(snapshot, AccountedSnapshot):
        snapshot.check_rows_have_offsets()
    fingerprint = None
    if last_batch_id is not None and last_batch_id >= record.batch_id:
        fingerprint = snapshot.fingerprint(record.query_id, record.batch_id)
    return Stored(snapshot.version, last_batch_id, next_offsets, fingerprint)


def _check_first_half(batch: Batch, plan: Plan, commit: Commit[Any], offsets: Snapshot, rows: Snapshot) -> None:
    """See that the first of a batch's two commits still stands.

    Raises:
        FencedError: if a hand undid it, or may have.
    """
    record = batch.record
    if Writes.OFFSETS in commit.writes:
        first, second = "rows", "offsets"
        by_hand = _hand_after(rows, plan.rows_version, record, lambda entry: entry.operation == "RESTORE")
    else:
        first, second, by_hand = "offsets", "rows", None
    by_hand = by_hand or _hand_after(offsets, plan.version, record, lambda entry: _moves(entry, record.app_id))
    if by_hand is not None:
        name = f"version {by_hand.version} ({by_hand.name or 'RESTORE'})"
    elif Writes.OFFSETS not in commit.writes and not _stand(record, offsets):
        name = "a change of the stored offsets"
    else:
        return
    raise FencedError(
        f"{batch}: {name} came after its {first} were committed and may have undone that, so its {second} were not. "
        "Start the query again: it then goes by what the change left. (Stop a query before you change its offsets or "
        "restore its table)"
    )


def _hand_after(
    snapshot: Snapshot, version: int, record: BatchRecord, is_hand: Callable[[CommitEntry], bool]
) -> CommitEntry | None:
    """Give the newest such commit after a version and, if it is there, after this attempt's own."""
    if not isinstance(snapshot, LoggedSnapshot):
        return None
    for entry in snapshot.entries_since(version):
        if entry.batch is not None and entry.batch.record.attempt_id == record.attempt_id:
            return None
        if is_hand(entry):
            return entry
    return None


def _moves(entry: CommitEntry, app_id: str) -> bool:
    return entry.change is not None and app_id in entry.change.app_ids


def _stand(record: BatchRecord, offsets: Snapshot) -> bool:
    """Whether what this attempt recorded still counts: others may have gone on from it, and nobody back."""
    moved = record.moved
    if moved:  # a consumer group forgets the batch number when another query goes on
        stored = offsets.next_offsets(moved)
        return all(stored.get(key, -1) >= extent.end for key, extent in moved.items())
    last = offsets.last_batch(record.query_id)
    return last is None or last >= record.batch_id


def _find_landed(snapshot: Snapshot, record: BatchRecord, writes: Writes, since_version: int) -> CommittedBatch | None:
    newer = snapshot.version - since_version
    if newer <= 0:
        return None
    for entry in snapshot.history(newer):
        # Kafka may take a part of a commit to a consumer group: that is no commit that landed.
        whole = entry.record.moved == record.moved
        if entry.record.attempt_id == record.attempt_id and writes in entry.writes and whole:
            return entry
    return None


def _fenced(decision: Decision, batch: Batch, snapshot: Snapshot, plan: Plan, place: Place) -> DeliveryError:
    """Explain why a batch that was planned as fresh can no longer be written."""
    if isinstance(decision, StatefulRestart) or (isinstance(decision, Mismatch) and not decision.is_overlap):
        return _refusal(decision, batch, snapshot, place)
    return FencedError(
        f"{batch} was free to be written at version {plan.version}; since then "
        f"{_winner(batch.record, snapshot, place) or _NOBODY}. "
        "Another driver runs with the same appId: stop one of the two, or give each its own appId"
    )


def _refusal(decision: Refused, batch: Batch, snapshot: Snapshot, place: Place) -> DeliveryError:
    if isinstance(decision, OtherBatch):
        return _other_batch(decision, batch, snapshot, place)
    source, tp = decision.key
    where = f"source {source!r}, {tp} (topic id {tp.topic_id})"
    if isinstance(decision, ReusedBatchId):
        stored = "none" if decision.stored is None else str(decision.stored)
        return OffsetMismatchError(
            f"{batch} is older than the last batch of this query in {place.name}, {decision.stored_batch_id}, but it "
            f"reaches past {place.name}'s offsets: {where}: stored {stored}, batch start {decision.extent.start}, "
            f"batch end {decision.extent.end}. So another batch was written under this number, and the checkpoint is "
            f"older than {place.name}: brought back from a copy, or part of it deleted"
            f"{_PARTLY_REFUSED if (place.spec or '').startswith('group:') else ''}. "
            f"{_begin_at_stored(batch, snapshot, place)}"
        )
    if isinstance(decision, StatefulRestart):
        return StatefulRestartError(
            f"{batch} is the first of a stateful query with a new checkpoint, but {place.name} already holds offsets "
            f"of this appId: {where} is stored at {decision.stored}. The state that belongs to those rows was in the "
            "old checkpoint. Start from the old checkpoint; or write to a new table; or, if results from an empty "
            "state are what you want beside the old rows, use a new appId"
        )
    if isinstance(decision, NeverStored):
        return _skipping(decision, where, batch, snapshot, place)
    if isinstance(decision, OthersUnknown):
        return OffsetMismatchError(
            f"{batch} is the first of this query in {place.name}, and the records of kafka_once in it are there: "
            f"{where}: stored {decision.stored}, batch start {decision.extent.start}, batch end {decision.extent.end}. "
            "The query also reads sources that are not kafka_once, and whether their rows of this batch are there "
            f"cannot be told, so it is neither written nor passed over. {_begin_at_stored(batch, snapshot, place)}. "
            f"{_OTHERS_BEGIN}"
        )
    extent = decision.extent
    what = "an overlap" if decision.is_overlap else "a gap"
    winner = _winner(batch.record, snapshot, place)
    if not decision.is_overlap:
        missing = f"records [{decision.stored}, {extent.start}) are in neither {place.name} nor this batch"
    else:
        overlap = f"records [{extent.start}, {min(decision.stored, extent.end)}) of it"
        missing = f"{overlap} are in {place.name} already" if winner else f"{overlap} lie before the stored offset"
    return OffsetMismatchError(
        f"{batch} has {what} with {place.name}'s offsets: {where}: stored {decision.stored}, batch start "
        f"{extent.start}, batch end {extent.end}; {missing}; {winner or _NOBODY}. "
        + _way_out(decision, batch, snapshot, place)
    )


def _other_batch(decision: OtherBatch, batch: Batch, snapshot: Snapshot, place: Place) -> OffsetMismatchError:
    record, last = batch.record, decision.stored_batch_id
    what = "the offsets of its sources (of a file source: the files)"
    if batch.stateful:
        what += ", its watermark or its time"
    why = f"another batch was written under this number: {what} differ"
    if not decision.is_known:
        why = f"nothing there tells whether this is the batch of that number (the last {RING} are remembered at most)"
    so = f"So the checkpoint is older than {place.name}: brought back from a copy, or part of it deleted"
    if not decision.is_known and last == record.batch_id:
        so += (
            ". Or sparkonce was upgraded when this batch was written and Spark had not noted it: then run the query "
            "with the version before until it has written one batch more, and upgrade then"
        )
    ways = _begin_at_stored(batch, snapshot, place)
    if batch.foreign and record.ranges and not batch.stateful:
        ways += f". {_OTHERS_BEGIN}"
        ways += f". Or {back}" if (back := _take_back(batch, snapshot, place)) else ""
    return OffsetMismatchError(
        f"{batch} is not past the last batch of this query in {place.name}, {last}, and {why}. {so}. {ways}"
    )


def _restored(restore: CommitEntry, batch: Batch, place: Place) -> OffsetMismatchError:
    _, _, path = (place.spec or "").partition(":")
    back = f"take the offsets of {place.name} to where its rows are"
    if place.holds_rows:
        target = "<the version that it went to>" if restore.restored_to is None else restore.restored_to
        back += f": sparkonce offsets rewind {path} --to-version {target} --restore"
    return OffsetMismatchError(
        f"{batch} was written before, and version {restore.version} (RESTORE) took its rows out and left the offsets, "
        f"so passing over it would lose them. Stop every driver and {back}; then start from the checkpoint of that time"
        f"{'' if batch.stateful or batch.foreign else ', or with a new one and offsetStore'}"
    )


def _skipping(decision: NeverStored, where: str, batch: Batch, snapshot: Snapshot, place: Place) -> OffsetMismatchError:
    start, (source, tp) = decision.extent.start, decision.key
    kind, _, at = (place.spec or "").partition(":")
    if kind == "delta":
        words = f"{at} --app-id {batch.record.app_id} --source {source} --topic {tp.topic} --topic-id {tp.topic_id}"
        leave_out = f": sparkonce offsets set {words} --partition {tp.partition} --offset {start} --apply"
    else:
        leave_out = " there by hand" if kind else "; or use another appId"
    return OffsetMismatchError(
        f"{batch} is the first of this query in {place.name}, which has offsets of other partitions of this source and "
        f"none of one: {where}: stored none, batch start {start}, batch end {decision.extent.end}; records "
        f"[0, {start}) may be in neither {place.name} nor this batch. "
        f"{_begin_at_stored(batch, snapshot, place)}. Such a partition is then read from the beginning of its log. "
        f"To leave these out, or if the log begins at {start} since older ones have expired, store that{leave_out}"
    )


def _way_out(decision: Mismatch, batch: Batch, snapshot: Snapshot, place: Place) -> str:
    if decision.query_is_known:
        return f"{_why_known(decision, batch, snapshot, place)} {_begin_at_stored(batch, snapshot, place)}"
    beside = "To write these records beside the old rows on purpose, use another appId"
    if place.spec is None:
        return f"{_begin_at_stored(batch, snapshot, place)}. {beside}"
    return (
        f"Set offsetStore={place.spec} and this appId on the source, and start with a new checkpointLocation: it then "
        f"begins at the stored offsets. {beside}. {_without_store(batch, snapshot)}"
    )


def _why_known(decision: Mismatch, batch: Batch, snapshot: Snapshot, place: Place) -> str:
    if not decision.is_overlap:
        return (
            f"This query wrote to {place.name} before, and no driver takes stored offsets back: {place.name} was set "
            "back to an older state (a RESTORE, or a copy of it), or its offsets were moved by hand."
        )
    winner = _winning(batch.record, snapshot)
    if winner and winner.record.query_id == batch.record.query_id:
        return (
            "This query wrote these records itself, and its checkpoint begins before them again: a topic was left out "
            "of subscribe for a time, so that Spark forgot where it stood, or the checkpoint was changed."
        )
    why = "another driver with the same appId wrote since, or the offsets there were moved by hand"
    return f"This query wrote to {place.name} before, so {why}. Stop the other driver if there is one."


def _begin_at_stored(batch: Batch, snapshot: Snapshot, place: Place) -> str:
    if batch.stateful or not batch.record.ranges:
        what = "has state" if batch.stateful else "reads no kafka_once, so only its checkpoint has its offsets"
        back = _take_back(batch, snapshot, place)
        return (
            f"This query {what}, which a new checkpoint would begin without: start from the checkpoint that goes with "
            f"the stored offsets; {f'or {back}; ' if back else ''}or write to a new table; or use a new appId"
        )
    if place.spec is None:
        return (
            f"Start with a new checkpointLocation and {_starting_offsets(batch, snapshot)}: the source then begins at "
            "the stored offsets"
        )
    return (
        f"Start with a new checkpointLocation and offsetStore={place.spec} with this appId on the source, which begins "
        f"at the stored offsets. {_without_store(batch, snapshot)}"
    )


def _take_back(batch: Batch, snapshot: Snapshot, place: Place) -> str:
    """Say how to make the table fit an older checkpoint; "" if its rows cannot be taken back with its offsets."""
    kind, _, path = (place.spec or "").partition(":")
    if kind != "delta" or not place.holds_rows:
        return ""
    record = batch.record
    for entry in snapshot.history(HISTORY_FOR_ERRORS):
        is_earlier = entry.record.query_id == record.query_id and entry.record.batch_id < record.batch_id
        if is_earlier and Writes.OFFSETS in entry.writes:
            return (
                f"take the table back to where this checkpoint is, batch {entry.record.batch_id}, rows and offsets in "
                f"one commit: sparkonce offsets rewind {path} --to-version {entry.version} --restore"
            )
    return ""


def _without_store(batch: Batch, snapshot: Snapshot) -> str:
    return f"Without offsetStore, {_starting_offsets(batch, snapshot)} does the same"


_EARLIEST = -2
"""How the source's option startingOffsets says earliest, as in Spark's own connector."""


def _starting_offsets(batch: Batch, snapshot: Snapshot) -> str:
    """Give the stored offsets as the option of each source; it must name every partition that the source reads.

    One that is not stored has no record in the result. A query that is known there read it up to this batch; the
    checkpoint of one that is not may have begun behind records that nobody has read, so it is read from its beginning.
    """
    record = batch.record
    try:
        stored = snapshot.next_offsets(record.ranges)
    except OffsetStoreError:  # a partition that was not compared is another application's: no reason to hide ours
        return "startingOffsets set to the stored offsets"
    is_known = snapshot.last_batch(record.query_id) is not None
    sources: dict[str, dict[str, dict[str, int]]] = {}
    for key, extent in sorted(record.ranges.items()):
        source, tp = key
        topic = sources.setdefault(source, {}).setdefault(tp.topic, {})
        topic[str(tp.partition)] = stored.get(key, extent.start if is_known else _EARLIEST)
    options = {source: f"startingOffsets={json.dumps(each, separators=(',', ':'))}" for source, each in sources.items()}
    if len(options) == 1:
        return next(iter(options.values()))
    return " and ".join(f"{option} on source {source!r}" for source, option in options.items())


_NOBODY = "none of the newest commits is of a batch with them: it is an old one, or the offsets were moved by hand"


def _winner(record: BatchRecord, snapshot: Snapshot, place: Place) -> str | None:
    if (found := _winning(record, snapshot)) is None:
        return None
    batch = f"batch {found.record.batch_id} of query {found.record.query_id}"
    return f"version {found.version} of {place.name} holds {batch}"


def _winning(record: BatchRecord, snapshot: Snapshot) -> CommittedBatch | None:
    """Return the newest kept commit that wrote this batch or part of its range, if there is one among the newest."""
    for entry in snapshot.history(HISTORY_FOR_ERRORS):
        other = entry.record
        if other.app_id != record.app_id or other.attempt_id == record.attempt_id:
            continue
        same_batch = (other.query_id, other.batch_id) == (record.query_id, record.batch_id)
        if same_batch or _touches(other, record):
            return entry
    return None


def _touches(other: BatchRecord, record: BatchRecord) -> bool:
    return any(
        key in record.moved and extent.start < record.moved[key].end and record.moved[key].start < extent.end
        for key, extent in other.moved.items()
    )
