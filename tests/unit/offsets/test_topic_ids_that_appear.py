"""Brokers that are upgraded past Kafka 2.8 give ids to topics whose offsets are stored under their names."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from sparkonce.connectors.kafka_source.checkpoint import Line, ranges_between, read_line
from sparkonce.connectors.sinks.foreach import SqlResult
from sparkonce.exactly_once.audit import Auditor, Report
from sparkonce.exactly_once.audit_findings import Problem
from sparkonce.exactly_once.batch import read_batch
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.recovery import plan_rewind
from sparkonce.kafka.client.metadata import TopicMetadata
from sparkonce.offset_store import CommitConflictError, DeltaOffsetStore, MemoryOffsetStore, OffsetStoreError
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, PartitionKey, Writes
from sparkonce.offset_store.store import Snapshot
from sparkonce.offset_store.txn_ids import MOVED_TO_ID, offset_txn_id

BOTH = Writes.ROWS | Writes.OFFSETS
ID, NEXT_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
NAMED: PartitionKey = ("kafka", TopicPartition("t", "", 0))
WITH_ID: PartitionKey = ("kafka", TopicPartition("t", ID, 0))
MADE_ANEW: PartitionKey = ("kafka", TopicPartition("t", NEXT_ID, 0))
TOPICS = {"t": TopicMetadata("t", ID, {0: None})}


def commit(key: PartitionKey, start: int, end: int, batch_id: int = 0, query: str = "q") -> Commit[Any]:
    return Commit(BatchRecord("app", query, batch_id, f"{query}-{batch_id}", {key: OffsetRange(start, end)}), BOTH)


def delta(folder: Path) -> DeltaOffsetStore:
    return DeltaOffsetStore(Location.parse(str(folder / "t")), "app")


@pytest.fixture(params=["delta", "memory", "sql"])
def look(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Snapshot]:
    """Looks at one place; each look through a handle of its own."""
    if request.param == "memory":
        return MemoryOffsetStore("app").snapshot
    if request.param == "sql":
        return SqlResult(lambda: sqlite3.connect(tmp_path / "t.db"), "app", lambda *_: None).snapshot
    DeltaTable.create(tmp_path / "t", Schema([Field("a", PrimitiveType("long"))]))
    return lambda: delta(tmp_path).snapshot()


def test_offsets_move_from_the_name_to_the_id(look: Callable[[], Snapshot]) -> None:
    look().commit(commit(NAMED, 0, 100))
    assert look().next_offsets([WITH_ID]) == {WITH_ID: 100}
    look().commit(commit(WITH_ID, 100, 150, 1))
    assert look().next_offsets([WITH_ID]) == {WITH_ID: 150}


def test_a_topic_made_anew_does_not_take_over_what_has_moved(look: Callable[[], Snapshot]) -> None:
    look().commit(commit(NAMED, 0, 100))
    look().commit(commit(WITH_ID, 100, 150, 1))
    assert look().next_offsets([MADE_ANEW]) == {}


def test_a_driver_without_ids_is_fenced(look: Callable[[], Snapshot]) -> None:
    look().commit(commit(NAMED, 0, 100))
    old = look()
    assert old.next_offsets([NAMED]) == {NAMED: 100}
    look().commit(commit(WITH_ID, 100, 150, 0, "new"))
    with pytest.raises(CommitConflictError):
        old.commit(commit(NAMED, 100, 200, 1))
    with pytest.raises(OffsetStoreError, match=r"t-0 .* is stored under the topic's id, which these brokers do not"):
        look().next_offsets([NAMED])


def test_positions_in_the_checkpoint_get_the_id() -> None:
    first, second = (SourceOffset("kafka", {NAMED[1]: Position(0, at)}) for at in (40, 100))
    assert line(first).offset.positions == {WITH_ID[1]: Position(0, 40)}
    later = SourceOffset("kafka", {WITH_ID[1]: Position(0, 150)})
    for start, end, extent in ((first, second, OffsetRange(40, 100)), (second, later, OffsetRange(100, 150))):
        assert ranges_between(line(start), line(end)) == {WITH_ID[1]: extent}


def line(offset: SourceOffset) -> Line:
    return read_line(offset.to_document(), "kafka").with_topic_ids(TOPICS)


def checkpoint(folder: Path, *batches: list[SourceOffset]) -> Checkpoint:
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "q"}))
    for number, lines in enumerate(batches):
        text = "\n".join(["v1", "{}", *(line.to_json() for line in lines)])
        (folder / "offsets" / str(number)).write_text(text)
    return Checkpoint.open(str(folder))


def test_a_batch_in_which_the_id_appears_begins_where_the_one_before_ended(tmp_path: Path) -> None:
    found = checkpoint(
        tmp_path,
        [SourceOffset("kafka", {NAMED[1]: Position(0, 100)})],
        [SourceOffset("kafka", {WITH_ID[1]: Position(0, 150)})],
    )
    assert read_batch(found, 1, "app", "a").record.ranges == {WITH_ID: OffsetRange(100, 150)}


def test_two_sources_of_one_topic_of_which_one_has_learned_the_id(tmp_path: Path) -> None:
    other: PartitionKey = ("kafka", TopicPartition("t", ID, 1))
    still = SourceOffset("kafka", {other[1].by_name: Position(0, 7)})
    found = checkpoint(
        tmp_path,
        [SourceOffset("kafka", {NAMED[1]: Position(0, 100)}), still],
        [SourceOffset("kafka", {WITH_ID[1]: Position(0, 150)}), still],
    )
    assert read_batch(found, 1, "app", "a").record.ranges == {WITH_ID: OffsetRange(100, 150), other: OffsetRange(7, 7)}


@pytest.fixture
def upgraded(tmp_path: Path) -> Path:
    DeltaTable.create(tmp_path / "t", Schema([Field("a", PrimitiveType("long"))]))
    for each in (commit(NAMED, 0, 60), commit(NAMED, 60, 100, 1), commit(WITH_ID, 100, 150, 2)):
        delta(tmp_path).snapshot().commit(each)
    return tmp_path


def audited(folder: Path) -> Report:
    log = CommitLog.open(Location.parse(str(folder / "t")))
    auditor = Auditor(kept=log.oldest_state())
    for each in log.commits():
        auditor.add(each)
    return auditor.finish(log.stored)


def test_an_audit_follows_the_chain_from_the_name_to_the_id(upgraded: Path) -> None:
    report = audited(upgraded)
    assert [(chain.topic, chain.topic_id, chain.ranges) for chain in report.chains] == [
        ("t", ID, [OffsetRange(0, 150)])
    ]
    assert (report.findings, report.proven) == ((), True)


def test_an_audit_finds_what_was_written_again_under_the_id(upgraded: Path) -> None:
    delta(upgraded).snapshot().commit(commit(WITH_ID, 60, 150, 3))
    assert [each.problem for each in audited(upgraded).findings] == [Problem.OVERLAP]


@pytest.mark.parametrize("kept_from", [2, 3])
def test_an_audit_of_a_log_that_was_cleaned_up(upgraded: Path, kept_from: int) -> None:
    DeltaTable(upgraded / "t", version=kept_from).create_checkpoint()
    for version in range(kept_from):
        (upgraded / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    delta(upgraded).snapshot().commit(commit(WITH_ID, 150, 160, 3))
    report = audited(upgraded)
    assert [(chain.topic_id, chain.end) for chain in report.chains] == [(ID, 160)]
    assert (report.findings, report.proven) == ((), True)


def test_offsets_seen_and_taken_back_by_hand(upgraded: Path) -> None:
    opened = OffsetsTable.open(Location.parse(str(upgraded / "t")))
    assert opened.state.transactions.get(offset_txn_id("app", *NAMED)) == MOVED_TO_ID
    now = opened.stored()
    assert {(key.partition, at) for key, at in now.offsets.items()} == {(WITH_ID[1], 150)}
    change = plan_rewind(now, opened.stored(1), opened.entries(), app_id="app", restore=False)
    assert [(move.key.partition, move.after) for move in change.moves] == [(WITH_ID[1], 60)]
