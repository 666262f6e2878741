"""Leader epochs and cuts where offsets are kept: in Spark's line, in records, in a group, in decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.clipping import clip, clipped
from sparkonce.exactly_once.decision import Fresh, Mismatch, Stored, decide
from sparkonce.exactly_once.transactions import following
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from sparkonce.offset_store.group import CommittedOffset, GroupOffsetStore
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.memory import MemoryOffsetStore
from sparkonce.offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition, batch_ranges
from sparkonce.offset_store.record import BatchRecord, Commit, PartitionKey, Writes
from sparkonce.offset_store.txn_ids import transactions_onto
from tests.cases import each_case
from tests.parity.support import Cluster

TP = TopicPartition("t", "id", 0)
KEY: PartitionKey = ("s", TP)
CUT = OffsetRange(20, 25, 7, cut_from=30)


def record(extent: OffsetRange, attempt: str = "a", number: int = 4) -> BatchRecord:
    return BatchRecord("app", "q", number, attempt, {KEY: extent})


def batch(extent: OffsetRange) -> Batch:
    return Batch(record(extent), stateful=False)


def line(**position: int) -> str:
    topics = {"t": {"id": "id", "partitions": {"0": position}}}
    return json.dumps({"source": "s", "sparkonce": 1, "topics": topics}, separators=(",", ":"), sort_keys=True)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (line(next=5, origin=2), Position(2, 5)),  # of versions without epochs
        (line(epoch=3, next=5, origin=2), Position(2, 5, 3)),
        (line(cutFrom=9, epoch=3, next=5, origin=2), Position(2, 5, 3, 9)),
        (line(cutEpoch=1, cutFrom=9, epoch=3, next=5, origin=2), Position(2, 5, 3, 9, 1)),
    ],
)
def test_lines_are_read_as_they_were_written(text: str, position: Position) -> None:
    read = SourceOffset.from_json(text)
    assert read.positions == {TP: position}
    assert read.to_json() == text


def test_an_epoch_makes_no_difference_between_positions() -> None:
    """An offset that differs in nothing else would give Spark one empty batch after the other."""
    assert Position(0, 5, 1) == Position(0, 5, 2) == Position(0, 5)


@each_case(
    ("before", "after", "extent"),
    [
        ((0, 30, None), (20, 20, 30), OffsetRange(20, 20, cut_from=30)),
        ((20, 20, 30), (20, 25, 30), OffsetRange(20, 25, cut_from=30)),
        ((20, 25, 30), (20, 33, 30), OffsetRange(25, 33)),
        ((0, 30, None), (0, 0, 30), OffsetRange(0, 0, cut_from=30)),  # cut back to where the checkpoint began
        ((0, 0, 30), (0, 33, 30), OffsetRange(0, 33, cut_from=30)),
        ((20, 30, 30), (20, 20, 30), OffsetRange(20, 20, cut_from=30)),  # the same cut a second time
    ],
)
def test_the_first_batch_behind_a_cut_says_so(
    before: tuple[int, int, int | None], after: tuple[int, int, int | None], extent: OffsetRange
) -> None:
    first, last = (Position(origin, at, None, cut) for origin, at, cut in (before, after))
    found = batch_ranges(SourceOffset("s", {TP: first}), SourceOffset("s", {TP: last}))[TP]
    assert (found, found.cut_from) == (extent, extent.cut_from)


@pytest.mark.parametrize("last_batch", [3, None])
def test_a_batch_behind_a_cut_follows_what_had_been_read_before(last_batch: int | None) -> None:
    """Exactly that: an offset that is merely higher than the batch's start is no proof of a cut."""
    for stored in range(15, 40):
        decision = decide(Stored(9, last_batch, {KEY: stored}), batch(CUT))
        assert isinstance(decision, Fresh if stored == 30 else Mismatch), stored
    assert isinstance(decide(Stored(9, 3, {KEY: 30}), batch(OffsetRange(20, 25))), Mismatch)


@pytest.mark.parametrize("known", [{}, {KEY: 3}, {KEY: 7}], ids=["unknown", "of the old log", "of the new log"])
@pytest.mark.parametrize("cut_epoch", [None, 3])
def test_as_many_records_of_the_new_log_are_told_from_those_before(
    known: Mapping[PartitionKey, int], cut_epoch: int | None
) -> None:
    decision = decide(Stored(9, 3, {KEY: 30}, epochs=known), batch(replace(CUT, cut_epoch=cut_epoch)))
    if cut_epoch is not None and known == {KEY: 7}:
        assert isinstance(decision, Mismatch)
        assert decision.is_overlap
    else:
        assert decision == Fresh()


def test_the_epoch_before_a_cut_is_handed_on_to_the_first_batch_behind_it() -> None:
    before = Position(0, 30, 3)
    after = before.back_to(20)
    ends = [before, after, replace(after, next=25, epoch=7), replace(after, next=33, epoch=7)]
    lines = [SourceOffset.from_json(SourceOffset("s", {TP: at}).to_json()) for at in ends]
    found = [batch_ranges(*pair)[TP] for pair in pairwise(lines)]
    assert [(each.start, each.cut_from, each.cut_epoch) for each in found] == [
        (20, 30, 3),
        (20, 30, 3),
        (25, None, None),
    ]


def test_a_record_comes_back_from_its_commit_with_epochs_and_cuts() -> None:
    written = replace(CUT, cut_epoch=3)
    info = json.loads(json.dumps(record(written).to_commit_info(Writes.OFFSETS)))
    (extent,) = BatchRecord.from_commit_info(info).ranges.values()
    assert (extent, extent.epoch, extent.cut_from, extent.cut_epoch) == (CUT, 7, 30, 3)
    for name in ("epochs", "cutFrom", "cutEpochs"):  # as versions before wrote it
        del info["ranges"]["s"]["t"][name]
    (extent,) = BatchRecord.from_commit_info(info).ranges.values()
    assert (extent, extent.epoch, extent.cut_from) == (CUT, None, None)


def test_an_epoch_is_stored_when_it_changes_and_forgotten_where_it_is_not_known() -> None:
    store, moved = MemoryOffsetStore("app"), []
    for number, epoch in enumerate([None, 0, 0, 4, None]):
        before = store.snapshot()._txns()
        extent = OffsetRange(number, number + 1, epoch)
        store.snapshot().commit(Commit(record(extent, str(number), number), Writes.OFFSETS))
        after = store.snapshot()._txns()
        moved.append(any("/epoch/" in name and before.get(name) != at for name, at in after.items()))
        assert store.epochs("s", [TP]) == ({} if epoch is None else {TP: epoch})
    assert moved == [False, True, False, True, True]


def test_dead_letters_behind_a_cut_are_clipped_if_they_are_of_the_new_log() -> None:
    """Otherwise, or if that is unknown, letters of the new log may be missing: the batch is refused."""
    cut = batch(replace(CUT, cut_epoch=3))
    assert clip(cut, Stored(1, 3, {KEY: 30}, epochs={KEY: 3})) == {}
    for at, start in ((23, 23), (30, 25)):
        of_new_log = Stored(1, 3, {KEY: at}, epochs={KEY: 7})
        starts = clip(cut, of_new_log)
        assert starts == {KEY: start}
        assert isinstance(starts, Mapping)
        if at == start:
            assert decide(of_new_log, clipped(cut, starts)) == Fresh()
        for epochs in ({}, {KEY: 3}, {KEY: 5}) if at == start else ():
            of_old_log = Stored(1, 3, {KEY: at}, epochs=epochs)
            assert clip(cut, of_old_log) == {}
            assert isinstance(decide(of_old_log, cut), Mismatch)


def test_a_decision_that_is_taken_back_stands_where_it_stood_before_the_cut() -> None:
    decision = following(None, record(CUT), [], "g", 1)
    assert decision.offsets == {KEY: 25}
    assert decision.undoing(2).offsets == {KEY: 30}


class Asked(dict[str, int]):
    """What is stored, and which epochs were looked up."""

    def __init__(self) -> None:
        self.epochs: list[str] = []

    def look_up(self, txn_id: str) -> int | None:
        if "/epoch/" in txn_id:
            self.epochs.append(txn_id)
        return self.get(txn_id)


def test_no_epoch_is_looked_up_where_the_batch_before_noted_one() -> None:
    """It stands in an old commit, and to find that takes many times as long as the look at an offset."""
    stored, written = Asked(), []
    before: SourceOffset | None = None
    for number, epoch in enumerate([3, 3, 3, 5, 5]):
        end = SourceOffset("s", {TP: Position(0, number + 1, epoch)})
        (extent,) = batch_ranges(before, end).values()
        moved = transactions_onto(stored.look_up, Commit(record(extent, number=number), Writes.OFFSETS))
        written.append([at for txn_id, at in moved.items() if "/epoch/" in txn_id])
        stored |= moved
        before = end
    assert written == [[3], [], [], [5], []]
    assert stored.epochs == []


def test_a_new_table_under_an_old_checkpoint_gets_the_epochs_too() -> None:
    commit = Commit(record(OffsetRange(20, 25, 7, epoch_before=7)), Writes.OFFSETS)
    store = MemoryOffsetStore("app")
    store.snapshot().commit(commit)
    assert store.epochs("s", [TP]) == {TP: 7}


def test_a_group_keeps_epochs_and_cuts() -> None:
    with EmbeddedBroker() as broker:
        topic = Cluster(broker.bootstrap_servers).create()
        client = Client(read_settings({"kafka.bootstrap.servers": broker.bootstrap_servers}))
        try:
            tp = TopicPartition(topic, "", 0)
            store = GroupOffsetStore(KafkaGroupOffsets(client, "g"), "app")
            written = BatchRecord("app", "q", 1, "a", {("s", tp): CUT})
            store.snapshot().commit(Commit(written, Writes.OFFSETS))
            assert store.read("s", [tp]) == {tp: 25}
            assert store.epochs("s", [tp]) == {tp: 7}
            (entry,) = store.snapshot().history()
            assert entry.record.ranges["s", tp].cut_from == 30
            store.group.update(lambda _: {(topic, 0): CommittedOffset(4)})
            assert store.epochs("s", [tp]) == {}
        finally:
            client.close()
