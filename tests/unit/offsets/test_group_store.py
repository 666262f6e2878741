"""Offsets in a consumer group: what can be told from one number and one text for each partition, and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.errors import DeliveryError, FencedError, OffsetMismatchError
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.offset_store import (
    CommitConflictError,
    GroupOffsetStore,
    MemoryOffsetStore,
    OffsetStoreError,
    open_store,
)
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.group import REFRESH_MS, Committed, CommittedOffset, Note, Slot
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, PartitionKey, Writes
from tests.cases import each_case

KEY: PartitionKey = ("kafka", TopicPartition("topic", "id", 0))
OTHER: PartitionKey = ("kafka", TopicPartition("topic", "id", 1))


@dataclass
class FakeGroup:
    """A group in memory; ``between`` runs once between a fetch and the commit that follows."""

    committed: dict[Slot, CommittedOffset] = field(default_factory=dict)
    members: bool = False
    between: list[Callable[[], None]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    refused: set[Slot] = field(default_factory=set)
    """Partitions that Kafka does not take an offset for, while it takes others of the same commit."""

    def fetch(self) -> Committed:
        return dict(self.committed)

    def update(self, build: Callable[[Committed], Committed]) -> None:
        if self.between:
            self.between.pop()()
        wanted = build(self.fetch())
        self.committed |= {slot: offset for slot, offset in wanted.items() if slot not in self.refused}
        if self.failures:
            raise self.failures.pop()

    def check_vacant(self) -> None:
        if self.members:
            raise OffsetStoreError("live members")

    def __str__(self) -> str:
        return "group:g"


def new_store(group: FakeGroup, app: str = "app") -> GroupOffsetStore:
    return GroupOffsetStore(group, app, now_ms=lambda: 7)


def record(
    batch_id: int, start: int, end: int, key: PartitionKey = KEY, query: str = "q", app: str = "app"
) -> BatchRecord:
    return BatchRecord(app, query, batch_id, f"attempt-{query}-{batch_id}", {key: OffsetRange(start, end)})


def commit(store: GroupOffsetStore, moved: BatchRecord) -> None:
    store.snapshot().commit(Commit(moved, Writes.OFFSETS))


def test_history_has_what_no_later_batch_has_moved() -> None:
    store = new_store(FakeGroup())
    both = BatchRecord("app", "q", 0, "first", {KEY: OffsetRange(0, 5), OTHER: OffsetRange(0, 6)})
    commit(store, both)
    commit(store, record(1, 5, 9))
    newest, oldest = store.snapshot().history()
    assert (newest.record, newest.writes, newest.timestamp_ms) == (record(1, 5, 9), Writes.OFFSETS, 7)
    assert oldest.record.ranges == {OTHER: OffsetRange(0, 6)}
    assert (newest.version, oldest.version, store.snapshot().version) == (2, 1, 2)
    assert [entry.version for entry in store.snapshot().history(1)] == [2]


def test_the_last_batch_is_known_by_its_fingerprint() -> None:
    store = new_store(FakeGroup())
    first, second = (Fingerprint.of([batch_id], []) for batch_id in range(2))
    commit(store, replace(record(0, 0, 5), fingerprint=first))
    commit(store, replace(record(1, 5, 9), fingerprint=second))
    snapshot = store.snapshot()
    assert (snapshot.fingerprint("q", 1), snapshot.fingerprint("q", 0)) == (second, None)
    assert snapshot.fingerprint("another", 1) is None


def test_the_offsets_of_other_tools_count_as_stored() -> None:
    group = FakeGroup({("topic", 0): CommittedOffset(40, "of a consumer"), ("topic", 1): CommittedOffset(41)})
    store = new_store(group)
    assert store.read("kafka", [KEY[1], OTHER[1]]) == {KEY[1]: 40, OTHER[1]: 41}
    assert store.snapshot().last_batch("q") is None
    commit(store, record(0, 40, 50))
    assert store.read("kafka", [KEY[1]]) == {KEY[1]: 50}


def test_an_offset_from_before_the_topic_had_an_id_is_its_offset() -> None:
    """A group keeps offsets by name, and the note tells the id: none before Kafka 2.8."""
    store = new_store(FakeGroup())
    named, another = ("kafka", KEY[1].by_name), TopicPartition("topic", "made anew", 0)
    commit(store, record(0, 0, 10, named))
    assert store.read("kafka", [KEY[1]]) == {KEY[1]: 10}
    commit(store, record(1, 10, 20))
    assert store.read("kafka", [KEY[1]]) == {KEY[1]: 20}
    assert store.read("kafka", [another]) == {}


@pytest.mark.parametrize(("app", "source"), [("another", "kafka"), ("app", "another")])
def test_one_group_keeps_one_position(app: str, source: str) -> None:
    group = FakeGroup()
    commit(new_store(group), record(0, 0, 10))
    theirs = (source, KEY[1])
    with pytest.raises(OffsetStoreError, match=r"for appId 'app', source 'kafka'.*choose another group id"):
        new_store(group, app).read(source, [KEY[1]])
    with pytest.raises(OffsetStoreError, match="choose another group id"):
        commit(new_store(group, app), record(0, 0, 10, theirs, app=app))
    assert group.committed["topic", 0].offset == 10


@pytest.mark.parametrize("topic_id", ["id", "of another cluster"])
def test_two_sources_of_one_partition_are_refused_before_any_row_is_written(topic_id: str) -> None:
    table, group = MemoryOffsetStore("app"), FakeGroup()
    other = ("other", TopicPartition("topic", topic_id, 0))
    both = BatchRecord("app", "q", 0, "a", {KEY: OffsetRange(0, 1), other: OffsetRange(0, 2)})
    delivery = Delivery(table, ORDERS[Guarantee.AT_LEAST_ONCE], new_store(group))
    with pytest.raises(OffsetStoreError, match=r"for both sources, 'kafka' and 'other'.*offsetStore=delta:"):
        delivery.begin(Batch(both, stateful=False))
    with pytest.raises(OffsetStoreError, match="for both sources"):
        commit(new_store(group), both)
    assert (table.commits, group.committed) == ([], {})


def test_a_recreated_topic_is_not_stored_and_may_be_overwritten() -> None:
    group = FakeGroup()
    commit(new_store(group), record(0, 0, 10))
    again: PartitionKey = ("kafka", TopicPartition("topic", "new id", 0))
    assert new_store(group).read("kafka", [again[1]]) == {}
    commit(new_store(group), record(1, 0, 3, again))
    assert new_store(group).read("kafka", [again[1]]) == {again[1]: 3}


def test_a_group_with_members_can_be_read_and_not_written() -> None:
    group = FakeGroup()
    commit(new_store(group), record(0, 0, 10))
    group.members = True
    assert new_store(group).read("kafka", [KEY[1]]) == {KEY[1]: 10}
    with pytest.raises(OffsetStoreError, match="live members"):
        new_store(group).snapshot()


def test_a_rival_between_the_two_requests_conflicts() -> None:
    """The fetch before the commit sees it; between that fetch and the commit nobody looks, and nobody can."""
    group = FakeGroup()
    mine = new_store(group).snapshot()
    group.between.append(lambda: commit(new_store(group), record(0, 0, 20, query="rival")))
    with pytest.raises(CommitConflictError, match="topic-0"):
        mine.commit(Commit(record(0, 0, 10), Writes.OFFSETS))
    assert group.committed["topic", 0].offset == 20


def test_an_answer_that_was_lost_is_found_and_not_committed_again() -> None:
    group = FakeGroup()
    delivery = Delivery(MemoryOffsetStore("app"), ORDERS[Guarantee.AT_LEAST_ONCE], new_store(group))
    incoming = Batch(record(0, 0, 10), stateful=False)
    plan = delivery.begin(incoming)
    group.failures = [OSError("planted: the answer was lost")]
    assert delivery.finish(incoming, plan, ["f"])
    before = group.committed
    new_store(group).snapshot().commit(Commit(incoming.record, Writes.OFFSETS))
    assert group.committed == before


def test_a_batch_that_moves_nothing_is_noted_where_it_stands() -> None:
    """Without it, a replay of a batch without new records would write its rows again."""
    group = FakeGroup()
    commit(new_store(group), BatchRecord("app", "q", 0, "a", {KEY: OffsetRange(0, 5), OTHER: OffsetRange(0, 6)}))
    group.committed["topic", 1] = CommittedOffset(99)
    commit(new_store(group), BatchRecord("app", "q", 1, "b", {KEY: OffsetRange(5, 5), OTHER: OffsetRange(6, 6)}))
    assert new_store(group).snapshot().last_batch("q") == 1
    assert {slot: entry.offset for slot, entry in group.committed.items()} == {("topic", 0): 5, ("topic", 1): 99}
    behind = FakeGroup()
    behind.committed["topic", 0] = CommittedOffset(4)
    commit(new_store(behind), record(0, 5, 5))
    assert behind.committed == {("topic", 0): CommittedOffset(4)}


names = st.text(max_size=20)
numbers = st.integers(0, 2**63 - 1)


@given(st.builds(Note, names, names, names, numbers, names, numbers, names, numbers, numbers))
def test_a_note_comes_back_and_is_ascii(note: Note) -> None:
    assert note.to_text().isascii()
    assert Note.from_text(note.to_text()) == note


@given(st.text())
def test_the_texts_of_others_are_not_ours(text: str) -> None:
    assert Note.from_text(text) is None


NO_NUMBER = Note("a", "s", "q", 1234, "t", 0, "", 0, 0).to_text().replace("1234", "1e999")


@each_case("text", ["", "{}", '{"sparkonce":1}', '{"sparkonce":{"app_id":"a"}}', "[1]", "null", "[" * 4000, NO_NUMBER])
def test_texts_that_come_near_are_not_ours(text: str) -> None:
    assert Note.from_text(text) is None


def test_the_store_is_opened_by_its_id() -> None:
    group = FakeGroup()
    asked = []
    store = open_store("group:my:group", "app", groups=lambda group_id: asked.append(group_id) or group)  # type: ignore[func-returns-value]
    assert (asked, str(store)) == (["my:group"], "group:g")
    with pytest.raises(ValueError, match="settings of its Kafka cluster"):
        open_store("group:x", "app")


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_messages_name_the_store(guarantee: Guarantee) -> None:
    table, store = MemoryOffsetStore("app"), new_store(FakeGroup())
    delivery = Delivery(table, ORDERS[guarantee], store)
    mine = Batch(record(0, 0, 10, query="mine"), stateful=False)
    theirs = Batch(record(0, 0, 10, query="theirs"), stateful=False)
    if guarantee is Guarantee.AT_LEAST_ONCE:
        plan = delivery.begin(mine)
        delivery.finish(theirs, delivery.begin(theirs), ["theirs"])
        expected = r"version 1 of the offset store group:g holds batch 0 of query theirs\. Another driver"
        with pytest.raises(FencedError, match=expected):
            delivery.finish(mine, plan, ["mine"])
    else:
        delivery.finish(theirs, delivery.begin(theirs), ["theirs"])
    overlap = Batch(record(0, 5, 15, query="late"), stateful=False)
    with pytest.raises(OffsetMismatchError, match=r"an overlap with the offset store group:g's offsets") as error:
        delivery.begin(overlap)
    assert "Set offsetStore=group:g and this appId on the source" in str(error.value)
    assert "table" not in str(error.value)
    assert [commit.files for commit in table.commits] == [["theirs"]]


def test_a_batch_over_a_partition_that_never_moved_is_recorded_there() -> None:
    store = new_store(FakeGroup())
    beside_files = record(0, 0, 0)
    store.snapshot().commit(Commit(beside_files, Writes.OFFSETS))
    assert store.snapshot().last_batch(beside_files.query_id) == 0


def test_at_most_once_is_refused_where_a_batch_cannot_be_recorded() -> None:
    """A query over files alone: a group has an offset for each partition, and no place for anything else."""
    files = Batch(BatchRecord("app", "q", 0, "a", {}), stateful=False, foreign=True)
    at_most_once = Delivery(MemoryOffsetStore("app"), ORDERS[Guarantee.AT_MOST_ONCE], new_store(FakeGroup()))
    with pytest.raises(DeliveryError, match=r"could record it.*Set offsetStore=delta:<path>"):
        at_most_once.begin(files)
    table = MemoryOffsetStore("app")
    at_least_once = Delivery(table, ORDERS[Guarantee.AT_LEAST_ONCE], new_store(FakeGroup()))
    at_least_once.finish(files, at_least_once.begin(files), ["rows"])
    assert [commit.files for commit in table.commits] == [["rows"]]


BOTH = BatchRecord("app", "q", 0, "a", {KEY: OffsetRange(0, 5), OTHER: OffsetRange(0, 6)})


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_a_commit_that_kafka_took_a_part_of_has_not_landed(guarantee: Guarantee) -> None:
    group = FakeGroup(refused={("topic", 1)}, failures=[OffsetStoreError("refused: topic-1")])
    delivery = Delivery(MemoryOffsetStore("app"), ORDERS[guarantee], new_store(group))
    incoming = Batch(BOTH, stateful=False)
    with pytest.raises(OffsetStoreError, match="refused: topic-1"):
        delivery.finish(incoming, delivery.begin(incoming), ["rows"])
    assert group.committed.keys() == {("topic", 0)}
    group.refused.clear()
    with pytest.raises(OffsetMismatchError, match="Kafka refused some partitions of that batch"):
        delivery.begin(incoming)


def test_the_rest_of_a_commit_is_sent_again() -> None:
    group = FakeGroup(refused={("topic", 1)})
    snapshot = new_store(group).snapshot()
    snapshot.commit(Commit(BOTH, Writes.OFFSETS))
    group.refused.clear()
    snapshot.commit(Commit(BOTH, Writes.OFFSETS))
    (entry,) = new_store(group).snapshot().history()
    assert entry.record == BOTH


def test_an_offset_that_stands_still_is_committed_again_after_a_day() -> None:
    """A group without members forgets what nobody commits for a week."""
    group, times = FakeGroup(), [0]
    store = GroupOffsetStore(group, "app", now_ms=lambda: times[0])
    both = BatchRecord("app", "q", 0, "first", {KEY: OffsetRange(0, 5), OTHER: OffsetRange(0, 6)})
    commit(store, both)
    one_moves = BatchRecord("app", "q", 1, "second", {KEY: OffsetRange(5, 9), OTHER: OffsetRange(6, 6)})
    times[0] = REFRESH_MS
    assert set(store.snapshot().entries(one_moves)) == {("topic", 0)}
    times[0] = REFRESH_MS + 1
    entries = store.snapshot().entries(one_moves)
    assert {slot: entry.offset for slot, entry in entries.items()} == {("topic", 0): 9, ("topic", 1): 6}
    note = Note.from_text(entries["topic", 1].metadata)
    assert note is not None
    assert (note.at_ms, note.batch_id, note.attempt_id) == (REFRESH_MS + 1, 0, "first")
