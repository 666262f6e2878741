"""The writers, which are the product's own code: drivers of queries, manual changes, claims, upkeep of the log.

A driver has a checkpoint as Spark has it, which outlives its crashes: what each batch covers is written before the
batch runs, and that it is complete after. All else that a driver knows is lost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from lab.log.store import Crashed, World
from sparkonce.connectors.delta_sink.compaction import Compaction, CompactionError
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.errors import DeliveryError, FencedError
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.exactly_once.recovery import RecoveryError, plan_rewind
from sparkonce.offset_store.administration import ChangeKind, ManualChange, Move, OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore, DeltaSnapshot
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import AddFile
from sparkonce.offset_store.log.checkpoints import write_checkpoint
from sparkonce.offset_store.log.cleanup import clean_up
from sparkonce.offset_store.log.files import active_files
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.other_apps import OtherApps, other_apps
from sparkonce.offset_store.record import BatchRecord, Commit, FileT, PartitionKey
from sparkonce.offset_store.txn_ids import OffsetTxn

TABLE = Location("memory://bucket/table", is_local=False)
SOURCE = "s"
PARTITIONS = 2
LOG_END = 6
"""Of each partition of a topic."""
LIVES = 4
"""How often a driver starts again after an error or a crash."""
Extents = Mapping[int, tuple[int, int]]


class TableChangedError(DeliveryError):
    """The table is not as the rows need it."""


@dataclass(frozen=True, slots=True)
class ResultSnapshot(DeltaSnapshot):
    """As that of the sink: it accepts files of the table's schema only, and may replace the rows that are there."""

    replaces: bool

    def others(self, batch: BatchRecord, new: Collection[PartitionKey], *, keeps_offsets: bool) -> OtherApps | None:
        """See `Snapshot.others`."""
        return other_apps(self.state.transactions, batch, new, keeps_offsets=keeps_offsets)

    def commit(self, commit: Commit[FileT]) -> None:
        """See `Snapshot.commit`."""
        for file in commit.files:
            if isinstance(file, AddFile) and json.loads(file.statistics)["generation"] != generation(self.state):
                raise TableChangedError("the schema changed")
        DeltaSnapshot.commit(self, commit)

    def write(self, proposal: Proposal) -> None:
        """See `DeltaSnapshot.write`."""
        removed = list(active_files(self.log.reader, self.version).values()) if self.replaces else None
        DeltaSnapshot.write(self, replace(proposal, removed=removed))


@dataclass(slots=True)
class ResultStore(DeltaOffsetStore):
    """A table of rows, checked at each snapshot."""

    replaces: bool = False
    generation: int = 0
    """Of the schema, at the last snapshot."""
    seen_id: str | None = None
    table_id: str | None = None
    """The table that a batch was begun in, as the sink checks it."""

    def snapshot(self) -> ResultSnapshot:
        """See `SnapshotSource.snapshot`."""
        found = self.snapshot_unchecked()
        self.generation, self.seen_id = generation(found.state), found.state.metadata.id
        if "future" in found.state.protocol.writer_features:
            raise TableChangedError("the table has a feature that is not known")
        return ResultSnapshot(found.state, found.app_id, found.log, self.replaces)

    def snapshot_unchecked(self) -> DeltaSnapshot:
        """See `DeltaOffsetStore.snapshot_unchecked`."""
        found = DeltaOffsetStore.snapshot_unchecked(self)
        if self.table_id not in (None, found.state.metadata.id):
            raise TableChangedError("another table is there")
        return found


def generation(state: TableState) -> int:
    """Return how often the schema was changed."""
    return _generation(state.metadata.schema_json)


@cache
def _generation(schema_json: str) -> int:
    return int(json.loads(schema_json)["generation"])


@dataclass(slots=True)
class SparkCheckpoint:
    """A query's folder."""

    query_id: str
    batches: dict[int, Extents] = field(default_factory=dict)
    """What each batch covers."""
    completed: int = -1

    @property
    def ends(self) -> dict[int, int]:
        """Where the newest batch ends."""
        return {partition: end for partition, (_, end) in self.batches[max(self.batches)].items()}


@dataclass(slots=True)
class Driver:
    """One process after the other that runs one query."""

    world: World
    name: str
    app_id: str
    guarantee: Guarantee
    checkpoint: SparkCheckpoint
    replaces: bool = False
    is_last: bool = False
    """Whether it must write all that is left."""
    attempts: int = 0

    def run(self) -> None:
        """Start it until it is done, or has failed too often."""
        for _ in range(LIVES):
            try:
                return self._live()
            except Crashed:
                continue
            except OffsetStoreError as error:
                self.world.judge.note("store-error", type(error).__name__)
                if self.is_last:
                    self.world.judge.fail("liveness", f"{self.name}: {error}")
            except DeliveryError as error:
                self.world.judge.note("refused", type(error).__name__)
                if isinstance(error, TableChangedError) and self.is_last:
                    return None
                if self.is_last:
                    self.world.judge.fail("liveness", f"{self.name}: {error}")
                if self.world.rng.random() < 0.7:  # the user deletes the checkpoint
                    self.checkpoint = SparkCheckpoint(self.world.new_name())
            finally:
                self._busy(False)
        return None

    def _live(self) -> None:
        store = ResultStore(TABLE, self.app_id, replaces=self.replaces)
        delivery = Delivery(store, ORDERS[self.guarantee])
        while (batch_id := self._planned(store)) is not None:
            self.world.turn()
            self._deliver(delivery, store, batch_id)
            store.table_id = None
            self.world.turn()
            self.checkpoint.completed = max(self.checkpoint.completed, batch_id)

    def _planned(self, store: ResultStore) -> int | None:
        """Return the next batch, which is in the checkpoint; None if there is nothing left to read."""
        checkpoint, rng = self.checkpoint, self.world.rng
        batch_id = checkpoint.completed + 1
        if batch_id in checkpoint.batches:
            return batch_id
        if batch_id > 0:
            starts = checkpoint.ends
        else:
            found = store.read(SOURCE, [self._partition(each) for each in range(PARTITIONS)])
            starts = {each: found.get(self._partition(each), 0) for each in range(PARTITIONS)}
        most = LOG_END if self.is_last else 3
        ends = {each: min(at + rng.randrange(most + 1), LOG_END) for each, at in starts.items()}
        if self.is_last or ends == starts:
            ends = {each: min(at + most, LOG_END) for each, at in starts.items()}
        if ends == starts:
            return None
        checkpoint.batches.setdefault(batch_id, {each: (start, ends[each]) for each, start in starts.items()})
        return batch_id

    def _deliver(self, delivery: Delivery, store: ResultStore, batch_id: int) -> None:
        batch, judge = self._batch(batch_id), self.world.judge
        attempt_id = batch.record.attempt_id
        self._busy(True)
        store.table_id = None
        plan = delivery.begin(batch)
        store.table_id = store.seen_id
        files = [self._file(batch.record, each, store.generation) for each in batch.record.moved]
        self._busy(False)
        self.world.turn()  # the tasks run
        self._busy(True)
        try:
            if delivery.finish(batch, plan, files):
                judge.tell(attempt_id, landed=True)
        except FencedError:
            if self.guarantee is Guarantee.EXACTLY_ONCE:
                judge.tell(attempt_id, landed=False)
            raise
        self._busy(False)

    def _batch(self, batch_id: int) -> Batch:
        self.attempts += 1
        covers = self.checkpoint.batches[batch_id]
        extents = {(SOURCE, self._partition(at)): OffsetRange(*each) for at, each in covers.items()}
        record = BatchRecord(
            self.app_id,
            self.checkpoint.query_id,
            batch_id,
            f"{self.name}-{self.attempts}",
            extents,
            Fingerprint.of([batch_id, sorted(covers.items())], 0),
        )
        first = self.checkpoint.batches.get(0, {})
        begun = {(SOURCE, self._partition(at)): start for at, (start, _) in first.items()}
        before = {key: begun[key] for key, extent in extents.items() if extent.start > begun.get(key, extent.start)}
        return Batch(record, stateful=False, read_before=before)

    def _file(self, record: BatchRecord, key: PartitionKey, of_generation: int) -> AddFile:
        extent, partition = record.ranges[key], key[1].partition
        found = {"app": self.app_id, "partition": partition, "from": extent.start, "to": extent.end}
        stats = {"numRecords": extent.end - extent.start, "generation": of_generation, **found}
        path = f"{record.attempt_id}-{partition}.parquet"
        return AddFile(path, 1, {}, 1, json.dumps(stats), extent.end - extent.start)

    def _partition(self, number: int) -> TopicPartition:
        return TopicPartition("t", f"id-{self.app_id}", number)

    def _busy(self, is_busy: bool) -> None:
        self.world.task.is_busy = is_busy


def change_by_hand(world: World, app_id: str) -> None:
    """Set the offset of one partition, as `sparkonce offsets` does, or restore rows and offsets of an older version."""
    attempt_id = world.new_name()
    try:
        world.task.is_busy = True
        table = OffsetsTable.open(TABLE)
        change = _restoring(world, table) if world.rng.random() < 0.4 else _setting(world, table, app_id)
        if change is not None:
            table.apply(replace(change, attempt_id=attempt_id))
            world.judge.tell(attempt_id, landed=True)
    except (Crashed, RecoveryError):
        return
    except OffsetStoreError as error:
        if "nothing was changed" in str(error):
            world.judge.tell(attempt_id, landed=False)
    finally:
        world.task.is_busy = False


def _setting(world: World, table: OffsetsTable, app_id: str) -> ManualChange | None:
    stored = table.stored().offsets
    keys = sorted(key for key in stored if key.app_id == app_id)
    if not keys:
        return None
    key = world.rng.choice(keys)
    partition = TopicPartition("t", key.partition.topic_id, key.partition.partition)
    move = Move(OffsetTxn(app_id, SOURCE, partition), stored[key], world.rng.randrange(LOG_END + 1))
    return ManualChange(ChangeKind.SET, (move,))


def _restoring(world: World, table: OffsetsTable) -> ManualChange:
    then = table.stored(world.rng.randrange(table.version + 1))
    return plan_rewind(table.stored(), then, table.entries(), app_id=None, restore=True)


def claim(world: World) -> None:
    """Claim the table for a compaction, and give it back."""
    compaction = Compaction(TABLE, {}, 1, {}, now_ms=world.clock)
    run = world.new_name()
    try:
        for _ in range(2):
            world.task.is_busy = True
            until_ms = compaction._claim(run, None)
            world.task.is_busy = False
            world.turn()
            world.task.is_busy = True
            compaction._claim(run, until_ms, release=True)
            world.task.is_busy = False
            world.turn()
    except (Crashed, CompactionError, OffsetStoreError):
        return
    finally:
        world.task.is_busy = False


def keep_up(world: World) -> None:
    """Write checkpoints, and clean the log up, while others write; days pass."""
    for _ in range(world.rng.randrange(2, 6)):
        try:
            world.sleep(world.rng.randrange(60))
            world.pass_days(world.rng.choice((0, 3)))
            world.task.is_busy = True
            log = TableLog(TABLE)
            state = log.state()
            if world.rng.random() < 0.7:
                write_checkpoint(log.reader, state, log.reader.listing(), removed_before_ms=None)
            clean_up(log.reader, state, now_ms=world.clock())
        except (Crashed, OffsetStoreError, OSError):
            continue
        finally:
            world.task.is_busy = False


def compare_state(world: World) -> None:
    """Read the table afresh, and compare it with the judge's fold."""
    state, table = TableLog(TABLE).state(), world.judge.table
    if (state.version, state.transactions, state.domains) != (table.version, table.txns, table.domains):
        world.judge.fail("state", f"version {state.version} was read, and {table.version} is there, or its content")
