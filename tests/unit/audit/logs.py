"""Logs to audit: as lists of commits, and as real Delta tables made by the store's own commits."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sparkonce.exactly_once.audit import Auditor, Report, Scope
from sparkonce.offset_store.administration import CommitEntry
from sparkonce.offset_store.commit_log import LogCommit, StoredState
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import COMMIT_INFO_KEY, BatchRecord, Commit, CommittedBatch, PartitionKey, Writes
from sparkonce.offset_store.txn_ids import offset_txn_id, query_txn_id, transactions_of

BOTH = Writes.ROWS | Writes.OFFSETS
APP = "app"
QUERY = "4bb9d6c8-0000-0000-0000-000000000001"
TOPIC = "orders"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])


def partition(number: int, topic_id: str = TOPIC_ID, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, topic_id, number)


def key(number: int, source: str = "default") -> PartitionKey:
    return source, partition(number)


def record(batch_id: int, ranges: Mapping[PartitionKey, tuple[int, int]], **changes: str) -> BatchRecord:
    names: dict[str, Any] = {"app_id": APP, "query_id": QUERY, "attempt_id": str(uuid.uuid4()), **changes}
    return BatchRecord(batch_id=batch_id, ranges={each: OffsetRange(*ends) for each, ends in ranges.items()}, **names)


def committed(version: int, batch: BatchRecord, writes: Writes = BOTH) -> LogCommit:
    entry = CommitEntry(version, version, "WRITE", CommittedBatch(version, version, writes, batch))
    files = 0 if batch.counts is None else batch.counts.files
    added = tuple((f"part-{version}-{number}", "") for number in range(files))
    return LogCommit(entry, transactions_of(Commit(batch, writes)), added=added)


def foreign(version: int, operation: str, transactions: Mapping[str, int] | None = None) -> LogCommit:
    return LogCommit(CommitEntry(version, version, operation), transactions or {})


def state_of(commits: Iterable[LogCommit]) -> dict[str, int]:
    """What is stored after commits."""
    state: dict[str, int] = {}
    for commit in commits:
        state.update(commit.transactions)
    return state


def audit(commits: Sequence[LogCommit], kept: StoredState | None = None, scope: Scope | None = None) -> Report:
    auditor = Auditor(scope, kept)
    for commit in commits:
        auditor.add(commit)
    state = dict(kept.transactions) if kept else {}
    state |= state_of(commit for commit in commits if kept is None or commit.version > kept.version)
    return auditor.finish(lambda txn_ids: {each: state[each] for each in txn_ids if each in state})


@dataclass
class Table:
    """A Delta table that is written to as the sink does, and as it never would."""

    path: Path
    next_batch: int = 0
    ends: dict[PartitionKey, int] = field(default_factory=dict)

    @classmethod
    def create(cls, path: Path) -> Table:
        DeltaTable.create(str(path), SCHEMA)
        return cls(path)

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def commit(self, batch: BatchRecord, writes: Writes = BOTH) -> int:
        """Commit without comparing, as no sink does."""
        DeltaOffsetStore(Location.parse(str(self.path)), APP).snapshot().commit(Commit(batch, writes))
        return self.version

    def batch(self, partitions: Iterable[int] = (0, 1), size: int = 10, skip: int = 0, **changes: Any) -> int:
        """Commit the next batch; one that ``skip``s leaves a gap, or with a negative number an overlap."""
        ranges = {}
        for number in partitions:
            end = self.ends.get(key(number), 0)
            ranges[key(number)] = (end + skip, end + skip + size)
            self.ends[key(number)] = end + skip + size
        writes = changes.pop("writes", BOTH)
        batch_id = changes.pop("batch_id", self.next_batch)
        self.next_batch = batch_id + 1
        return self.commit(record(batch_id, ranges, **changes), writes)

    def batches(self, count: int) -> None:
        """Commit many, through one handle as the sink does."""
        store = DeltaOffsetStore(Location.parse(str(self.path)), APP)
        for _ in range(count):
            ranges = {each: (self.ends.get(each, 0), self.ends.get(each, 0) + 10) for each in (key(0), key(1))}
            self.ends = {each: end for each, (_, end) in ranges.items()}
            store.snapshot().commit(Commit(record(self.next_batch, ranges), BOTH))
            self.next_batch += 1

    def raw_commit(self, transactions: Mapping[str, int], info: Mapping[str, Any] | None = None) -> int:
        """Commit ``txn`` actions as somebody else's program might."""
        table = DeltaTable(self.path)
        properties = CommitProperties(
            custom_metadata={COMMIT_INFO_KEY: info} if info is not None else None,
            app_transactions=[Transaction(txn_id, version) for txn_id, version in transactions.items()],
        )
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
        return self.version

    def rows(self, coordinates: Sequence[tuple[int, int]]) -> int:
        """Append rows with these partitions and offsets."""
        columns = [[each[0] for each in coordinates], [each[1] for each in coordinates]]
        write_deltalake(self.path, pa.table(columns, schema=SCHEMA), mode="append")
        return self.version

    def clean_up_log(self) -> None:
        """Make a checkpoint, and have delta-rs remove all log files that it makes unnecessary."""
        table = DeltaTable(self.path)
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
        table.create_checkpoint()
        table.cleanup_metadata()


def offset_id(number: int, app_id: str = APP) -> str:
    return offset_txn_id(app_id, "default", partition(number))


def query_id(query: str = QUERY, app_id: str = APP) -> str:
    return query_txn_id(app_id, query)
