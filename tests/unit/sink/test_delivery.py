"""Committing under faults: the store fails before or after a commit lands, drivers race, drivers die."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.exactly_once import commit as commit_module
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import MAX_CONFLICTS, Delivery, DeliveryPlan
from sparkonce.exactly_once.decision import AlreadyWritten, Fresh, Replay
from sparkonce.exactly_once.errors import (
    DeliveryError,
    FencedError,
    InternalError,
    OffsetMismatchError,
    StatefulRestartError,
    UnknownOutcomeError,
)
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.memory import MemoryOffsetStore, MemorySnapshot
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, FileT, Writes
from sparkonce.offset_store.store import Snapshot, SnapshotSource
from tests.cases import each_case

KEY = ("s", TopicPartition("t", "id", 0))
EXACTLY, AT_LEAST, AT_MOST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
FAULTS = ("none", "lost before", "lost after", "conflict")


@dataclass
class FaultySnapshot:
    """Fails a commit before it lands, after it landed, or with a conflict that touches nothing of ours."""

    inner: MemorySnapshot
    owner: FaultyStore

    @property
    def version(self) -> int:
        return self.inner.version

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def commit(self, commit: Commit[FileT]) -> None:
        fault = self.owner.faults.pop(0) if self.owner.faults else "none"
        if fault == "conflict":
            raise CommitConflictError("planted")
        if fault == "lost before":
            raise OSError("planted: nothing was written")
        self.inner.commit(commit)
        if fault == "lost after":
            raise OSError("planted: written, and the answer was lost")


@dataclass
class FaultyStore(SnapshotSource):
    inner: MemoryOffsetStore
    faults: list[str] = field(default_factory=list)
    broken: bool = False

    def snapshot(self) -> Snapshot:
        if self.broken:
            raise OffsetStoreError("planted: cannot be read")
        return FaultySnapshot(self.inner.snapshot(), self)  # type: ignore[return-value]


def new_store() -> MemoryOffsetStore:
    return MemoryOffsetStore("app", now_ms=lambda: 0)


def batch(batch_id: int, start: int, end: int, attempt: str = "a", query: str = "q", stateful: bool = False) -> Batch:
    fingerprint = Fingerprint.of([batch_id, start, end], [])
    return Batch(BatchRecord("app", query, batch_id, attempt, {KEY: OffsetRange(start, end)}, fingerprint), stateful)


def rows(store: MemoryOffsetStore) -> list[object]:
    return [file for commit in store.commits for file in commit.files]


def deliver(store: object, incoming: Batch, files: Sequence[str], guarantee: Guarantee = EXACTLY) -> bool:
    delivery = Delivery(store, ORDERS[guarantee])  # type: ignore[arg-type]
    return delivery.finish(incoming, delivery.begin(incoming), files)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_batches_follow_each_other(guarantee: Guarantee) -> None:
    store = new_store()
    for number in range(3):
        assert deliver(store, batch(number, number, number + 1, f"a{number}"), [f"f{number}"], guarantee)
    assert rows(store) == ["f0", "f1", "f2"]
    assert store.read("s", [KEY[1]]) == {KEY[1]: 3}


def test_the_orders_of_the_two_writes() -> None:
    seen = {}
    for guarantee in Guarantee:
        store = new_store()
        deliver(store, batch(0, 0, 1), ["f"], guarantee)
        seen[guarantee] = [commit.writes for commit in store.commits]
    assert seen == {
        EXACTLY: [Writes.ROWS | Writes.OFFSETS],
        AT_LEAST: [Writes.ROWS, Writes.OFFSETS],
        AT_MOST: [Writes.OFFSETS, Writes.ROWS],
    }


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_replay_writes_nothing(guarantee: Guarantee) -> None:
    store = new_store()
    deliver(store, batch(0, 0, 1, "first"), ["f"], guarantee)
    plan = Delivery(store, ORDERS[guarantee]).begin(batch(0, 0, 1, "second"))
    assert plan.decision == Replay(0)
    assert not plan.writes_rows
    assert not deliver(store, batch(0, 0, 1, "third"), [], guarantee)
    assert rows(store) == ["f"]


@each_case("guarantee", list(Guarantee))
def test_a_wrong_decision_commits_nothing(guarantee: Guarantee) -> None:
    """Planted: every batch is fresh. A range that leaves a gap, overlaps or ends before it begins is a bug of ours."""
    for start, end in ((11, 20), (9, 20), (10, 9)):
        store = new_store()
        deliver(store, batch(0, 0, 10), ["f"], guarantee)
        before = len(store.commits)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit_module, "decide", lambda *_: Fresh())
            with pytest.raises(InternalError, match=rf"nothing was committed: the range \[{start}, {end}\) of t-0"):
                deliver(store, batch(1, start, end), ["g"], guarantee)
        assert len(store.commits) == before
    assert not deliver(store, batch(0, 0, 10, "again"), [], guarantee)


def test_a_lost_checkpoint_writes_nothing_twice() -> None:
    store = new_store()
    deliver(store, batch(0, 0, 10), ["f"])
    plan = Delivery(store, ORDERS[EXACTLY]).begin(batch(0, 0, 10, "b", "new query"))
    assert plan.decision == AlreadyWritten()
    assert not deliver(store, batch(0, 0, 10, "b", "new query"), [])
    assert deliver(store, batch(1, 10, 12, "c", "new query"), ["g"])
    assert rows(store) == ["f", "g"]


def test_a_batch_without_rows_still_moves_the_offsets() -> None:
    store = new_store()
    assert deliver(store, batch(0, 0, 10), [])
    assert store.read("s", [KEY[1]]) == {KEY[1]: 10}


def test_a_batch_without_rows_or_records_makes_no_commit() -> None:
    store = new_store()
    assert deliver(store, batch(0, 5, 5), [])
    assert store.commits == []


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_commit_whose_answer_was_lost_has_landed(guarantee: Guarantee) -> None:
    store = FaultyStore(new_store(), ["lost after", "lost after"])
    assert deliver(store, batch(0, 0, 1), ["f"], guarantee)
    assert rows(store.inner) == ["f"]


def test_a_commit_that_never_landed_fails_and_can_be_tried_again() -> None:
    store = FaultyStore(new_store(), ["lost before"])
    with pytest.raises(OSError, match="planted"):
        deliver(store, batch(0, 0, 1), ["f"])
    assert rows(store.inner) == []
    assert deliver(store, batch(0, 0, 1, "again"), ["f"])


def test_conflicts_with_others_are_tried_again_but_not_for_ever() -> None:
    store = FaultyStore(new_store(), ["conflict"] * (MAX_CONFLICTS - 1))
    assert deliver(store, batch(0, 0, 1), ["f"])
    store.faults = ["conflict"] * MAX_CONFLICTS
    with pytest.raises(DeliveryError, match="gave up"):
        deliver(store, batch(1, 1, 2), ["g"])
    assert rows(store.inner) == ["f"]


def test_an_outcome_that_cannot_be_found_out_is_said_to_be_unknown() -> None:
    store = FaultyStore(new_store(), ["lost after"])
    delivery = Delivery(store, ORDERS[EXACTLY])
    incoming = batch(0, 0, 1)
    plan = delivery.begin(incoming)
    original = FaultySnapshot.commit

    def commit_and_break(self: FaultySnapshot, commit: Commit[FileT]) -> None:
        store.broken = True
        original(self, commit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultySnapshot, "commit", commit_and_break)
        with pytest.raises(UnknownOutcomeError, match="Start the query again"):
            delivery.finish(incoming, plan, ["f"])


@pytest.mark.parametrize("query", ["q", "another query"])
@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_the_loser_of_a_race_stops_and_names_the_winner(query: str, guarantee: Guarantee) -> None:
    store = new_store()
    delivery = Delivery(store, ORDERS[guarantee])
    mine, theirs = batch(0, 0, 10, "mine"), batch(0, 0, 10, "theirs", query)
    my_plan, their_plan = delivery.begin(mine), delivery.begin(theirs)
    assert delivery.finish(theirs, their_plan, ["theirs"])
    with pytest.raises(FencedError, match=rf"version \d of the table holds batch 0 of query {query}\. Another driver"):
        delivery.finish(mine, my_plan, ["mine"])
    assert rows(store) == ["theirs"]


def test_a_race_inside_the_commit_is_seen() -> None:
    """The twin commits between our look and our commit: only the store's conflict tells."""
    store = new_store()
    delivery = Delivery(store, ORDERS[EXACTLY])
    mine, theirs = batch(0, 0, 10, "mine"), batch(0, 0, 12, "theirs", "q2")
    plan = delivery.begin(mine)
    original, once = MemorySnapshot.commit, [theirs]

    def overtaken(self: MemorySnapshot, commit: Commit[FileT]) -> None:
        if once:
            twin = once.pop()
            original(store.snapshot(), Commit(twin.record, Writes.ROWS | Writes.OFFSETS, ["theirs"]))
        original(self, commit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemorySnapshot, "commit", overtaken)
        with pytest.raises(FencedError, match="q2"):
            delivery.finish(mine, plan, ["mine"])
    assert rows(store) == ["theirs"]


def test_errors_name_partition_offsets_and_the_way_out() -> None:
    store = new_store()
    deliver(store, batch(0, 0, 10), ["f"])
    with pytest.raises(OffsetMismatchError) as overlap:
        deliver(store, batch(0, 5, 15, "b", "new"), ["g"])
    for part in ("overlap", "t-0", "stored 10", "batch start 5", "batch end 15", "version 0", "offsetStore=delta:"):
        assert part in str(overlap.value)
    with pytest.raises(OffsetMismatchError, match=r"gap .* records \[10, 12\) are in neither"):
        deliver(store, batch(0, 12, 15, "c", "new"), ["g"])
    with pytest.raises(StatefulRestartError, match="old checkpoint"):
        deliver(store, batch(0, 0, 10, "d", "new", stateful=True), ["g"])
    with pytest.raises(OffsetMismatchError, match="wrote these records itself"):
        deliver(store, batch(1, 5, 15, "e"), ["g"])
    assert rows(store) == ["f"]


def test_errors_give_the_starting_offsets_of_every_partition_of_each_source() -> None:
    """The source takes offsets only if they name all its partitions, so those that match or are not stored go along."""
    store = new_store()
    other, third, orders = ("s", TopicPartition("t", "id", 1)), ("s", TopicPartition("t", "id", 10)), "orders/eu"
    elsewhere = (orders, TopicPartition("u", "id 2", 0))
    first = {KEY: OffsetRange(0, 10), other: OffsetRange(3, 7), elsewhere: OffsetRange(0, 4)}
    deliver(store, Batch(BatchRecord("app", "q", 0, "a", first), stateful=False), ["f"])
    ranges = {KEY: OffsetRange(5, 15), other: OffsetRange(7, 7), third: OffsetRange(2, 2), elsewhere: OffsetRange(4, 6)}
    for query, not_stored in (("q", 2), ("new", -2)):
        with pytest.raises(OffsetMismatchError) as error:
            deliver(store, Batch(BatchRecord("app", query, 1, query, ranges), stateful=False), ["g"])
        assert str(error.value).endswith(
            """. Without offsetStore, startingOffsets={"u":{"0":4}} on source 'orders/eu' and """
            f"""startingOffsets={{"t":{{"0":10,"1":7,"10":{not_stored}}}}} on source 's' does the same"""
        )
    assert rows(store) == ["f"]


def test_a_stateful_query_is_not_sent_to_a_new_checkpoint() -> None:
    store = new_store()
    deliver(store, batch(0, 0, 10, stateful=True), ["f"])
    for late in (batch(1, 5, 15, "b", stateful=True), batch(0, 0, 15, "b", stateful=True)):
        with pytest.raises(OffsetMismatchError, match="start from the checkpoint that matches the stored") as error:
            deliver(store, late, ["g"])
        assert "startingOffsets" not in str(error.value)
        assert "offsetStore" not in str(error.value)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_checkpoint_brought_back_from_a_copy_skips_nothing_in_silence(guarantee: Guarantee) -> None:
    """Batches 0 and 1 are in the table; the copy knows batch 0 only, and plans a batch 1 that reaches further."""
    store = new_store()
    deliver(store, batch(0, 0, 10, "a"), ["f"], guarantee)
    deliver(store, batch(1, 10, 20, "b"), ["g"], guarantee)
    with pytest.raises(
        OffsetMismatchError, match=r"last batch of this query in the table, 1, .* stored 20, .* end 25"
    ) as error:
        deliver(store, batch(1, 10, 25, "c"), ["h"], guarantee)
    assert str(error.value).endswith('. Without offsetStore, startingOffsets={"t":{"0":20}} does the same')
    assert rows(store) == ["f", "g"]


def test_offsets_moved_back_under_a_dropped_batch_are_noticed() -> None:
    store = new_store()
    deliver(store, batch(0, 0, 10), ["f"])
    delivery = Delivery(store, ORDERS[EXACTLY])
    incoming = batch(0, 0, 10, "b", "new")
    plan = delivery.begin(incoming)
    store.commits.clear()
    with pytest.raises(DeliveryError, match="moved back"):
        delivery.finish(incoming, plan, [])


def test_a_query_that_turns_out_to_be_stateful_is_refused_at_its_commit() -> None:
    store = new_store()
    deliver(store, batch(0, 0, 10), ["f"])
    delivery = Delivery(store, ORDERS[EXACTLY])
    plan = delivery.begin(batch(0, 0, 10, "b", "new"))
    with pytest.raises(StatefulRestartError):
        delivery.finish(batch(0, 0, 10, "b", "new", stateful=True), plan, [])


def test_has_landed_tells_attempts_apart() -> None:
    store = new_store()
    deliver(store, batch(0, 0, 1, "mine"), ["f"])
    delivery = Delivery(store, ORDERS[EXACTLY])
    assert delivery.has_landed(batch(0, 0, 1, "mine").record, 0)
    assert not delivery.has_landed(batch(0, 0, 1, "other").record, 0)
    assert not delivery.has_landed(batch(0, 0, 1, "mine").record, 1)


@dataclass(frozen=True)
class Run:
    """One life of a driver: how its store behaves, and where it dies (between begin and finish, or not)."""

    faults: tuple[str, ...]
    dies: bool
    checkpoint_lost: bool


runs = st.lists(
    st.builds(Run, st.lists(st.sampled_from(FAULTS), max_size=3).map(tuple), st.booleans(), st.booleans()), max_size=6
)


@settings(deadline=None)
@given(runs, st.sampled_from(Guarantee))
def test_the_promises_hold_whatever_fails(lives: list[Run], guarantee: Guarantee) -> None:
    """Records 0 to 9, two a batch; a driver is started again until it gets through, with or without its checkpoint."""
    store = FaultyStore(new_store())
    checkpoint, attempts = 0, 0
    query = "q0"
    for number, life in enumerate([*lives, Run((), False, False)]):
        if life.checkpoint_lost and guarantee is EXACTLY:
            checkpoint, query = 0, f"q{number}"
        store.faults = list(life.faults)
        try:
            while checkpoint < 5:
                attempts += 1
                start = checkpoint * 2
                incoming = batch(checkpoint, start, start + 2, f"a{attempts}", query)
                delivery = Delivery(store, ORDERS[guarantee])
                plan: DeliveryPlan = delivery.begin(incoming)
                if life.dies and attempts % 2:
                    break
                delivery.finish(incoming, plan, [f"{start}", f"{start + 1}"] if plan.writes_rows else [])
                checkpoint += 1
        except (OSError, DeliveryError):
            continue
    assert checkpoint == 5
    written, expected = rows(store.inner), [str(number) for number in range(10)]
    if guarantee is EXACTLY:
        assert sorted(written, key=str) == expected
    elif guarantee is AT_LEAST:
        assert set(written) == set(expected)
    else:
        assert len(written) == len(set(written))


def test_offsets_that_no_batch_moved_are_not_said_to_be_in_the_table() -> None:
    store = new_store()
    deliver(store, batch(0, 0, 5), ["f"])
    elsewhere = BatchRecord("app", "by hand", 0, "by hand", {KEY: OffsetRange(20, 22)})
    store.snapshot().commit(Commit(elsewhere, Writes.OFFSETS))
    with pytest.raises(OffsetMismatchError) as error:
        deliver(store, batch(1, 5, 12), ["g"])
    assert "records [5, 12) of it lie before the stored offset; none of the newest commits" in str(error.value)
    assert "in the table already" not in str(error.value)


def test_a_new_query_that_begins_behind_records_of_a_partition_never_stored_is_refused() -> None:
    """A checkpoint is lost, and startingOffsets=latest: partition 1 had no record before, and has 50 by now."""
    store, other = new_store(), ("s", TopicPartition("t", "id", 1))
    deliver(
        store, Batch(BatchRecord("app", "q", 0, "a", {KEY: OffsetRange(0, 9), other: OffsetRange(0, 0)}), False), ["f"]
    )
    late = Batch(BatchRecord("app", "q2", 0, "b", {KEY: OffsetRange(9, 9), other: OffsetRange(50, 60)}), False)
    with pytest.raises(OffsetMismatchError) as error:
        deliver(store, late, ["g"])
    for part in (
        r"t-1 (topic id id): stored none, batch start 50, batch end 60; records [0, 50) may be in neither",
        """offsetStore=delta:<path of this table> with this appId on the source""",
        """startingOffsets={"t":{"0":9,"1":-2}}""",
        "sparkonce offsets set <path of this table> --app-id app --source s --topic t --topic-id id --partition 1 "
        "--offset 50 --apply",
    ):
        assert part in str(error.value)
    from_the_start = {KEY: OffsetRange(9, 9), other: OffsetRange(0, 60)}
    assert deliver(store, Batch(BatchRecord("app", "q3", 0, "c", from_the_start), False), ["g"])


def test_rows_of_other_sources_are_not_dropped_after_a_lost_checkpoint() -> None:
    store = new_store()
    deliver(store, replace(batch(0, 0, 10), foreign=True), ["f"])
    assert not deliver(store, replace(batch(0, 0, 10, "again"), foreign=True), [])
    with pytest.raises(OffsetMismatchError, match=r"sources that are not kafka_once.* offsetStore=delta:<path of this"):
        deliver(store, replace(batch(0, 0, 10, "b", "q2"), foreign=True), ["g"])
    assert deliver(store, replace(batch(0, 10, 10, "c", "q3"), foreign=True), ["g"])
