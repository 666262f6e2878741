"""The offset stores: what is read is what was committed, and a commit against an old picture conflicts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.offset_store import (
    CommitConflictError,
    DeltaOffsetStore,
    MemoryOffsetStore,
    OffsetStore,
    OffsetStoreError,
    StoreMissingError,
    open_store,
)
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.fingerprint import RING, Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Action, AddFile
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.storage import LocalStorage
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import (
    BatchCounts,
    BatchRecord,
    Commit,
    CommittedBatch,
    PartitionKey,
    Writes,
    read_history,
)
from sparkonce.offset_store.txn_ids import offset_txn_id, query_txn_id

BOTH = Writes.ROWS | Writes.OFFSETS
KEY: PartitionKey = ("default", TopicPartition("topic", "id", 0))
OTHER: PartitionKey = ("default", TopicPartition("topic", "id", 1))
SCHEMA = Schema([Field("a", PrimitiveType("long"))])


def record(batch_id: int, start: int, end: int, key: PartitionKey = KEY, query: str = "q") -> BatchRecord:
    return BatchRecord("app", query, batch_id, f"attempt-{query}-{batch_id}", {key: OffsetRange(start, end)})


@pytest.fixture(params=["delta", "memory"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], OffsetStore]]:
    """Gives stores for one place, each by an application id."""
    if request.param == "memory":
        shared = MemoryOffsetStore("app")
        yield lambda app: MemoryOffsetStore(app, commits=shared.commits, times_ms=shared.times_ms)
    else:
        DeltaTable.create(tmp_path / "t", SCHEMA)
        yield lambda app: open_store(f"delta:{tmp_path / 't'}", app)


def test_what_was_committed_is_read_by_its_application_only(new_store: Callable[[str], OffsetStore]) -> None:
    store = new_store("app")
    assert store.read("default", [KEY[1], OTHER[1]]) == {}
    store.snapshot().commit(Commit(record(0, 5, 10), BOTH))
    assert store.read("default", [KEY[1], OTHER[1]]) == {KEY[1]: 10}
    assert store.read("another source", [KEY[1]]) == {}
    assert new_store("app").snapshot().last_batch("q") == 0
    assert new_store("other app").read("default", [KEY[1]]) == {}
    assert new_store("other app").snapshot().last_batch("q") is None


def test_the_last_batches_of_a_query_are_known_by_their_fingerprints(new_store: Callable[[str], OffsetStore]) -> None:
    store = new_store("app")
    for batch_id in range(RING + 2):
        store.snapshot().commit(Commit(whole(batch_id, batch_id, batch_id + 1), BOTH))
    snapshot = store.snapshot()
    for batch_id in range(2, RING + 2):
        assert snapshot.fingerprint("q", batch_id) == whole(batch_id, batch_id, batch_id + 1).fingerprint
    assert snapshot.fingerprint("q2", RING) is None
    assert new_store("other app").snapshot().fingerprint("q", RING) is None
    assert snapshot.history(1)[0].record == whole(RING + 1, RING + 1, RING + 2)


def whole(batch_id: int, start: int, end: int) -> BatchRecord:
    return replace(record(batch_id, start, end), fingerprint=Fingerprint.of([batch_id, start, end], batch_id))


def test_a_commit_of_rows_alone_moves_no_offset(new_store: Callable[[str], OffsetStore]) -> None:
    store = new_store("app")
    store.snapshot().commit(Commit(record(0, 5, 10), Writes.ROWS))
    assert store.read("default", [KEY[1]]) == {}
    assert [entry.writes for entry in store.snapshot().history(1)] == [Writes.ROWS]


def test_an_old_picture_conflicts_on_the_same_partition_only(new_store: Callable[[str], OffsetStore]) -> None:
    store, rival = new_store("app"), new_store("app")
    mine, same, elsewhere = store.snapshot(), rival.snapshot(), new_store("app").snapshot()
    mine.commit(Commit(record(0, 0, 10), BOTH))
    elsewhere.commit(Commit(record(0, 0, 10, OTHER, "q2"), BOTH))
    with pytest.raises(CommitConflictError):
        same.commit(Commit(record(0, 0, 20, query="q3"), BOTH))
    assert rival.read("default", [KEY[1], OTHER[1]]) == {KEY[1]: 10, OTHER[1]: 10}


def test_an_old_picture_conflicts_on_the_same_query(new_store: Callable[[str], OffsetStore]) -> None:
    store, twin = new_store("app"), new_store("app")
    mine, theirs = store.snapshot(), twin.snapshot()
    mine.commit(Commit(record(0, 0, 10), BOTH))
    with pytest.raises(CommitConflictError):
        theirs.commit(Commit(record(0, 0, 10, OTHER), BOTH))


def test_history_gives_the_newest_first(new_store: Callable[[str], OffsetStore]) -> None:
    store = new_store("app")
    for batch_id in range(3):
        store.snapshot().commit(Commit(record(batch_id, batch_id, batch_id + 1), BOTH))
    history = store.snapshot().history(2)
    assert [(entry.record, entry.writes) for entry in history] == [(record(2, 2, 3), BOTH), (record(1, 1, 2), BOTH)]
    assert history[0].version == history[1].version + 1


def test_a_picture_numbers_its_history_right_when_others_have_committed_since(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", SCHEMA)
    store, rival = (open_store(f"delta:{tmp_path / 't'}", "app") for _ in range(2))
    for batch_id in range(3):
        store.snapshot().commit(Commit(record(batch_id, batch_id, batch_id + 1), BOTH))
    snapshot = store.snapshot()
    for batch_id in range(3, 5):
        rival.snapshot().commit(Commit(record(batch_id, batch_id, batch_id + 1), BOTH))
    assert numbers_of(snapshot.history()) == {3: 2, 2: 1, 1: 0}
    assert numbers_of(snapshot.history(1)) == {3: 2}
    assert numbers_of(snapshot.history(4)) == {3: 2, 2: 1, 1: 0}
    assert numbers_of(snapshot.history(0)) == numbers_of(snapshot.history(-1)) == {}
    assert numbers_of(store.snapshot().history(2)) == {5: 4, 4: 3}


def numbers_of(history: list[CommittedBatch]) -> dict[int, int]:
    """The batch id of each version, in the order of the history."""
    return {entry.version: entry.record.batch_id for entry in history}


@pytest.mark.parametrize("local", [True, False])
def test_history_ends_where_the_log_was_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    """In a store that is not local, files are fetched ahead: past the oldest, too."""
    monkeypatch.setattr(LocalStorage, "is_local", local)
    location = Location.parse(str(tmp_path / "t"))
    DeltaTable.create(tmp_path / "t", SCHEMA)
    store = DeltaOffsetStore(location, "app")
    for batch_id in range(8):
        store.snapshot().commit(Commit(record(batch_id, batch_id, batch_id + 1), BOTH))
    snapshot = store.snapshot()
    log = tmp_path / "t" / "_delta_log"
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    assert numbers_of(snapshot.history()) == {version: version - 1 for version in range(8, 2, -1)}
    shutil.rmtree(log)
    with pytest.raises(OffsetStoreError, match=r"0{19}8.json is missing"):
        snapshot.history()


@pytest.mark.parametrize("local", [True, False])
def test_history_is_read_as_far_as_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.setattr(LocalStorage, "is_local", local)
    location = Location.parse(str(tmp_path / "t"))
    DeltaTable.create(tmp_path / "t", SCHEMA)
    store = DeltaOffsetStore(location, "app")
    for batch_id in range(6):
        store.snapshot().commit(Commit(record(batch_id, batch_id, batch_id + 1), BOTH))
    read: list[int] = []
    whole = DeltaLog.actions

    def noted(log: DeltaLog, version: int, kinds: Iterable[str]) -> dict[str, list[Action]]:
        read.append(version)
        return whole(log, version, kinds)

    snapshot = store.snapshot()
    monkeypatch.setattr(DeltaLog, "actions", noted)
    infos = snapshot.commit_infos()
    assert next(infos)["version"] == 6
    assert read == [6]
    read.clear()
    assert len(snapshot.history(3)) == 3
    assert sorted(read) == [4, 5, 6]


def test_no_table_means_no_offsets(tmp_path: Path) -> None:
    store = open_store(f"delta:{tmp_path / 'nothing'}", "app")
    assert store.read("default", [KEY[1]]) == {}
    with pytest.raises(StoreMissingError, match="nothing"):
        store.snapshot()


def test_a_table_made_anew_at_the_same_path_is_seen(tmp_path: Path) -> None:
    store = DeltaOffsetStore(Location.parse(str(tmp_path / "t")), "app")
    DeltaTable.create(tmp_path / "t", SCHEMA)
    for batch_id in range(3):
        store.snapshot().commit(Commit(record(batch_id, batch_id, batch_id + 1), BOTH))
    shutil.rmtree(tmp_path / "t")
    DeltaTable.create(tmp_path / "t", SCHEMA)
    assert store.snapshot().version == 0
    assert store.read("default", [KEY[1]]) == {}


def test_offsets_outlive_the_log_that_held_them(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", SCHEMA, configuration={"delta.checkpointInterval": "5"})
    store = DeltaOffsetStore(Location.parse(str(tmp_path / "t")), "app")
    for batch_id in range(12):
        add = AddFile(f"f{batch_id}.parquet", 1, {}, 0, '{"numRecords":1}', 1)
        store.snapshot().commit(Commit(record(batch_id, batch_id, batch_id + 1), BOTH, [add]))
    for version in range(9):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    fresh = DeltaOffsetStore(Location.parse(str(tmp_path / "t")), "app")
    assert fresh.read("default", [KEY[1]]) == {KEY[1]: 12}


@pytest.mark.parametrize("spec", ["", "delta:", "group:", "/a/path", "memory"])
def test_open_store_refuses_what_is_no_store(spec: str) -> None:
    with pytest.raises(ValueError, match=rf"^offsetStore='{spec}': this is not a store"):
        open_store(spec, "app")


def test_open_store_needs_an_application() -> None:
    with pytest.raises(ValueError, match="appId"):
        open_store("delta:/x", "")


@given(st.tuples(st.text(), st.text(), st.text()), st.tuples(st.text(), st.text(), st.text()))
def test_ids_do_not_collide(one: tuple[str, str, str], two: tuple[str, str, str]) -> None:
    ids = {offset_txn_id(app, source, TopicPartition("t", "id", 0)) for app, source, _ in (one, two)}
    ids |= {query_txn_id(app, "query") for app, _, _ in (one, two)}
    assert len(ids) == len({one[:2], two[:2]}) + len({one[0], two[0]})


def test_topics_without_ids_do_not_share_offsets() -> None:
    """As read from a broker before Kafka 2.8."""
    one, two = TopicPartition("one", "", 0), TopicPartition("two", "", 0)
    store = MemoryOffsetStore("app")
    ranges = {("s", one): OffsetRange(0, 5), ("s", two): OffsetRange(0, 9)}
    store.snapshot().commit(Commit(BatchRecord("app", "q", 0, "a", ranges), BOTH))
    assert store.read("s", [one, two]) == {one: 5, two: 9}


names = st.text(min_size=1, max_size=5)
keys = st.tuples(names, st.builds(TopicPartition, names, st.just("id"), st.integers(0, 3)))
extents = st.tuples(st.integers(0, 100), st.integers(1, 100)).map(lambda pair: OffsetRange(pair[0], sum(pair)))


def test_counts_are_in_the_commit_of_the_rows_and_cannot_make_it_unreadable() -> None:
    counts = BatchCounts(rows=8, dead_letters=1, files=2, written_bytes=400)
    assert "records" not in counts.to_document(), "Spark passed the records"
    counted = BatchRecord("app", "q", 7, "attempt", {}, counts=counts)
    assert "counts" not in counted.to_commit_info(Writes.OFFSETS)
    info = counted.to_commit_info(BOTH)
    damaged = [{**info, "counts": each} for each in ({"rows": "many"}, {"rows": None}, [7], None)]
    found = read_history({"version": 3, "sparkonce": each} for each in (info, *damaged))
    assert [each.record.counts for each in found] == [counts, None, None, None, None]


def test_counts_of_tasks_add_up_and_those_of_commits_have_read_the_same() -> None:
    one = BatchCounts(records=10, read_bytes=900, rows=8, files=2, written_bytes=400)
    two = BatchCounts(records=4, read_bytes=100, rows=4, dead_letters=1, files=1, written_bytes=50)
    both = one.of_tasks(two)
    assert both == BatchCounts(14, 1000, 12, 1, 3, 450)
    assert both - one == two
    assert BatchCounts(rows=1).of_tasks(BatchCounts(rows=2)) == BatchCounts(rows=3)
    assert one.of_commits(replace(one, rows=0, dead_letters=2)) == BatchCounts(10, 900, 8, 2, 4, 800)


@given(st.dictionaries(keys, extents, max_size=4), st.sampled_from([Writes.ROWS, Writes.OFFSETS, BOTH]))
def test_a_record_comes_back_from_its_commit_info(ranges: dict[PartitionKey, OffsetRange], writes: Writes) -> None:
    given_record = BatchRecord("app", "q", 7, "attempt", ranges)
    entry = {"version": 3, "timestamp": 5, "sparkonce": given_record.to_commit_info(writes)}
    (found,) = read_history([{"version": 4}, {"version": 2, "sparkonce": {"appId": 1}}, entry])
    assert (found.record, found.writes, found.version, found.timestamp_ms) == (given_record, writes, 3, 5)


@pytest.mark.parametrize(
    ("text", "expected", "local"),
    [
        ("/a/b/", "/a/b", True),
        ("file:/a/b", "/a/b", True),
        ("file:///a/b%20c", "/a/b c", True),
        ("s3a://bucket/a/", "s3://bucket/a", False),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x", False),
    ],
)
def test_locations_are_brought_to_one_form(text: str, expected: str, local: bool) -> None:
    assert Location.parse(text) == Location(expected, local)


def test_a_relative_location_counts_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("x/y").text == str(tmp_path / "x" / "y")


def test_an_unreadable_scheme_says_which_can_be_read() -> None:
    with pytest.raises(ValueError, match="Readable are"):
        Location.parse("dbfs://x/y").filesystem()


def test_a_table_that_forgets_transaction_ids_is_refused_whenever_it_is_looked_at(tmp_path: Path) -> None:
    """delta-spark's checkpoints drop ids without a date where this property is set, however young they are."""
    table = tmp_path / "t"
    DeltaTable.create(table, SCHEMA)
    store = DeltaOffsetStore(Location.parse(str(table)), "app")
    store.snapshot().commit(Commit(record(0, 0, 10), BOTH))
    DeltaTable(table).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 30 days"})
    way_out = rf"ALTER TABLE delta\.`{table}` UNSET TBLPROPERTIES \('delta.setTransactionRetentionDuration'\)"
    with pytest.raises(OffsetStoreError, match=way_out):
        store.snapshot()
    with pytest.raises(OffsetStoreError, match=way_out):
        open_store(f"delta:{table}", "app").read("default", [KEY[1]])
    with pytest.raises(OffsetStoreError, match=way_out):
        OffsetsTable.open(Location.parse(str(table)))
    assert store.snapshot_unchecked().next_offsets([KEY]) == {KEY: 10}
