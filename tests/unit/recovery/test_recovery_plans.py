"""The pure part: which version a rewind goes to, and what it moves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.exactly_once.recovery import (
    RecoveryError,
    consequence,
    plan_rewind,
    plan_set,
    resolve,
    version_at,
    version_before_batches,
)
from sparkonce.offset_store.administration import (
    NOTHING_KEPT,
    BatchMove,
    ChangeKind,
    CommitEntry,
    ManualChange,
    Move,
    Stored,
)
from sparkonce.offset_store.fingerprint import RING
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, CommittedBatch, Writes
from sparkonce.offset_store.txn_ids import (
    BatchTxn,
    IntentTxn,
    MergeTxn,
    OffsetTxn,
    QueryTxn,
    batch_txn_id,
    intent_txn_id,
    merge_txn_id,
    offset_txn_id,
    parse_txn_id,
    query_txn_id,
)
from tests.cases import each_case

QUERY = QueryTxn("app", "q")
BOTH = Writes.ROWS | Writes.OFFSETS


def key(number: int = 0, app_id: str = "app", topic_id: str = "id", source: str = "kafka") -> OffsetTxn:
    return OffsetTxn(app_id, source, TopicPartition("t", topic_id, number))


def entry(version: int, start: int, end: int, batch_id: int, writes: Writes = BOTH, attempt: str = "") -> CommitEntry:
    extents = {("kafka", key().partition): OffsetRange(start, end)}
    record = BatchRecord("app", "q", batch_id, attempt or f"a{version}", extents)
    return CommitEntry(version, version * 1000, "WRITE", CommittedBatch(version, version * 1000, writes, record))


@dataclass
class World:
    """A log, and beside each of its versions the offset stored there and the number of batches in force."""

    entries: list[CommitEntry] = field(default_factory=lambda: [CommitEntry(0, 0, "CREATE TABLE")])
    offsets: list[int | None] = field(default_factory=lambda: [None])
    lines: list[list[int]] = field(default_factory=lambda: [[]])
    """For each version, the versions just before each batch in force there, oldest first."""
    batch_id: int = 0

    def batch(self, writes: Writes = BOTH, attempt: str = "") -> None:
        start = self.offsets[-1] or 0
        moved = Writes.OFFSETS in writes
        version = len(self.entries)
        self.entries.append(entry(version, start, start + 10, self.batch_id, writes, attempt))
        first = min(
            e.version for e in self.entries if e.batch and e.batch.record.attempt_id == (attempt or f"a{version}")
        )
        self.lines.append(self.lines[-1] + ([first - 1] if moved else []))
        self.offsets.append(start + 10 if moved else self.offsets[-1])
        self.batch_id += moved

    def in_two_commits(self) -> None:
        attempt = f"two-{len(self.entries)}"
        self.batch(Writes.ROWS, attempt)
        self.batch(Writes.OFFSETS, attempt)

    def other(self) -> None:
        self.entries.append(CommitEntry(len(self.entries), 0, "OPTIMIZE"))
        self.offsets.append(self.offsets[-1])
        self.lines.append(self.lines[-1])

    def rewind(self, count: int) -> None:
        if not 0 < count <= len(self.lines[-1]):
            return
        target = version_before_batches(self.entries[::-1], "app", count)
        assert target == self.lines[-1][-count]
        change = plan_rewind(
            self.stored(-1), self.stored(target), self.entries[::-1], app_id="app", restore=bool(count % 2)
        )
        self.entries.append(CommitEntry(len(self.entries), 0, "WRITE", change=change))
        self.offsets.append(change.moves[0].after if change.moves else self.offsets[-1])
        self.lines.append(self.lines[target])

    def stored(self, version: int) -> Stored:
        version %= len(self.entries)
        offset = self.offsets[version]
        return Stored(version, {} if offset is None else {key(): offset}, {QUERY: self.batch_id})


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(["batch", "in_two_commits", "other"]), st.integers(1, 4)), max_size=25))
def test_a_rewind_goes_back_as_many_batches_as_are_in_force(steps: list[str | int]) -> None:
    """Offsets follow: the n-th batch in force ends at 10 n, whatever was written and undone in between."""
    world = World()
    for step in steps:
        if isinstance(step, int):
            world.rewind(step)
        else:
            getattr(world, step)()
        assert (world.offsets[-1] or 0) == 10 * len(world.lines[-1])


def test_more_batches_than_are_kept() -> None:
    world = World()
    world.batch()
    with pytest.raises(RecoveryError, match="keeps 1 batch of appId app that are in force, not 2"):
        version_before_batches(world.entries[::-1], "app", 2)


def test_batches_before_offsets_were_set_by_hand() -> None:
    entries = [
        entry(3, 5, 10, 1),
        CommitEntry(2, 0, "WRITE", change=ManualChange(ChangeKind.SET, (Move(key(), 10, 5),))),
        entry(1, 0, 10, 0),
    ]
    assert version_before_batches(entries, "app", 1) == 2
    with pytest.raises(RecoveryError, match="set by hand in version 2"):
        version_before_batches(entries, "app", 2)


def test_a_batch_in_the_first_commit_has_nothing_before_it() -> None:
    with pytest.raises(RecoveryError, match="first commit of the table"):
        version_before_batches([entry(0, 0, 10, 0)], "app", 1)


def test_the_newest_version_at_a_time() -> None:
    entries = [entry(version, 0, 1, version) for version in (3, 2, 1)]
    assert version_at(entries, 2999) == 2
    with pytest.raises(RecoveryError, match="younger"):
        version_at(entries, 999)


def test_a_commit_without_a_time_is_of_no_known_time() -> None:
    entries = [entry(5, 0, 1, 5), CommitEntry(4, 0, "WRITE"), entry(3, 0, 1, 3)]
    assert version_at(entries, 4999) == 3
    with pytest.raises(RecoveryError, match="younger"):
        version_at(entries, 999)


def test_a_rewind_of_one_application_leaves_the_others_and_all_batch_numbers() -> None:
    now = Stored(9, {key(): 30, key(app_id="b"): 7}, {QUERY: 4})
    then = Stored(3, {key(): 10, key(app_id="b"): 1}, {QUERY: 1})
    change = plan_rewind(now, then, [], app_id="app", restore=False)
    assert change.moves == (Move(key(), 30, 10),)
    assert change.batches == ()
    assert change.to_version == 3


def test_a_restore_takes_every_application_and_batch_number_along() -> None:
    now = Stored(9, {key(): 30, key(app_id="b"): 7}, {QUERY: 4, QueryTxn("b", "r"): 2})
    then = Stored(3, {key(): 10, key(app_id="b"): 1}, {QUERY: 1})
    change = plan_rewind(now, then, [], app_id="app", restore=True)
    assert change.moves == (Move(key(), 30, 10), Move(key(app_id="b"), 7, 1))
    assert change.batches == (BatchMove(QUERY, 4, 1), BatchMove(QueryTxn("b", "r"), 2, NOTHING_KEPT))


def test_a_partition_that_was_not_there_goes_back_to_its_first_record() -> None:
    entries = [entry(5, 42, 50, 1), entry(4, 40, 42, 0)]
    change = plan_rewind(Stored(5, {key(): 50}, {}), Stored(3, {}, {}), entries, app_id="app", restore=False)
    assert change.moves == (Move(key(), 50, 40),)


def test_a_partition_whose_beginning_is_forgotten_is_left_to_the_user() -> None:
    with pytest.raises(RecoveryError, match="no longer shows where it began"):
        plan_rewind(Stored(5, {key(): 50}, {}), Stored(3, {}, {}), [], app_id="app", restore=False)


def test_setting_what_is_set_changes_nothing() -> None:
    assert plan_set(Stored(1, {key(): 5}, {}), {key(): 5, key(1): 0}).moves == (Move(key(1), None, 0),)


@pytest.mark.parametrize(
    ("move", "restored", "said"),
    [
        (Move(key(), 10, 30), False, r"\[10, 30\) of t-0 are never read: lost"),
        (Move(key(), 30, 10), False, r"\[10, 30\) of t-0 are read again: duplicates"),
        (Move(key(), 30, 10), True, r"\[10, 30\) of t-0 are read again; their rows leave the table"),
        (Move(key(), None, 10), False, "begins at offset 10"),
    ],
)
def test_what_follows_is_said(move: Move, restored: bool, said: str) -> None:
    assert re.search(said, consequence(move, restored=restored))


def test_the_offset_that_a_name_means() -> None:
    stored = Stored(1, {key(): 1, key(app_id="b", topic_id="old"): 1, key(app_id="b", topic_id="new"): 1}, {})
    assert resolve(stored, "app", None, "t", None, 3) == key(3)
    assert resolve(stored, "b", None, "t", "new", 0) == key(app_id="b", topic_id="new")
    with pytest.raises(RecoveryError, match="several topics of that name were read: new, old"):
        resolve(stored, "b", None, "t", None, 0)
    with pytest.raises(RecoveryError, match="does not know it"):
        resolve(stored, "app", None, "u", None, 0)
    with pytest.raises(RecoveryError, match="has no offsets here"):
        resolve(stored, "c", None, "t", None, 0)


texts = st.text(min_size=1, max_size=8)
offset_keys = st.builds(
    OffsetTxn,
    texts,
    texts,
    st.one_of(
        st.builds(TopicPartition, st.just(""), st.from_regex(r"[A-Za-z0-9_-]{22}", fullmatch=True), st.integers(0, 99)),
        st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True), st.just(""), st.integers(0, 99)),
    ),
)


@settings(deadline=None)
@given(offset_keys)
def test_ids_of_offsets_can_be_read_back(wanted: OffsetTxn) -> None:
    assert parse_txn_id(offset_txn_id(wanted.app_id, wanted.source, wanted.partition)) == wanted


@settings(deadline=None)
@given(st.builds(QueryTxn, texts, st.from_regex(r"[0-9a-f-]+", fullmatch=True)))
def test_ids_of_queries_can_be_read_back(wanted: QueryTxn) -> None:
    assert parse_txn_id(query_txn_id(wanted.app_id, wanted.query_id)) == wanted
    place = BatchTxn(wanted.app_id, wanted.query_id, 5)
    assert parse_txn_id(batch_txn_id(wanted.app_id, wanted.query_id, RING + 5)) == place


@settings(deadline=None)
@given(texts)
def test_ids_of_merges_can_be_read_back(app_id: str) -> None:
    assert parse_txn_id(merge_txn_id(app_id)) == MergeTxn(app_id)
    assert parse_txn_id(intent_txn_id(app_id)) == IntentTxn(app_id)


@each_case(
    "text",
    ["", "sparkonce", "sparkonce/a/offset/s/t", "other/a/query/q", "sparkonce/a/b/c", "other/a/merge", "sparkonce/a/b"],
)
def test_ids_of_others_are_not_ours(text: str) -> None:
    assert parse_txn_id(text) is None


@settings(deadline=None)
@given(
    st.builds(
        ManualChange,
        st.sampled_from(ChangeKind),
        st.lists(st.builds(Move, offset_keys, st.none() | st.integers(0), st.integers(0)), max_size=4).map(tuple),
        st.lists(st.builds(BatchMove, st.builds(QueryTxn, texts, texts), st.integers(0), st.integers(-1))).map(tuple),
        st.none() | st.integers(0),
        texts,
    )
)
def test_a_change_is_read_back_from_its_commit(change: ManualChange) -> None:
    assert ManualChange.from_commit_info(change.to_commit_info()) == change
