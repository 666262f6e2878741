"""Tables as pages follow them: a part of the log at each look, then what is new, and never a verdict too early."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.ui.delta import followed as module
from sparkonce.jobs.ui.delta.followed import FollowedTable
from sparkonce.jobs.ui.delta.ranges import RangeIndex
from sparkonce.jobs.ui.delta.strips import strips
from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import CommittedBatch, Writes
from tests.unit.audit.logs import APP, BOTH, QUERY, TOPIC, TOPIC_ID, Table, key, offset_id, record


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "table")


@pytest.fixture
def followed(table: Table) -> FollowedTable:
    return FollowedTable(Location.parse(str(table.path)))


def test_there_is_no_verdict_before_the_end_of_the_log(table: Table, followed: FollowedTable) -> None:
    table.batches(5)
    for read in range(1, 6):
        state = followed.look(budget_s=0.0)  # one commit at a time
        assert (state.verdict, state.read, state.kept) == (None, read, 6)
        assert "Nothing is proven" in state.words
        assert state.chains == ()
    state = followed.look(budget_s=0.0)
    assert state.verdict is Verdict.PROVEN
    assert [(chain.name, chain.covered, chain.stored) for chain in state.chains] == [
        (f"{TOPIC}-0", ((0, 50),), 50),
        (f"{TOPIC}-1", ((0, 50),), 50),
    ]


def test_what_is_new_is_judged_at_the_next_look(table: Table, followed: FollowedTable) -> None:
    table.batch()
    assert followed.look().verdict is Verdict.PROVEN
    table.batch()
    state = followed.look()
    assert (state.verdict, state.kept) == (Verdict.PROVEN, 3)
    table.batch(skip=5)
    state = followed.look()
    assert state.verdict is Verdict.BROKEN
    assert [kind for kind, _ in state.findings] == ["wrong", "wrong"]
    assert "gap [20, 25)" in state.findings[0][1]
    assert state.chains[0].covered == ((0, 20), (25, 35))
    assert followed.look() == state


def test_a_warning_is_not_told_again_at_each_look(table: Table, followed: FollowedTable) -> None:
    table.batch(writes=Writes.ROWS)
    table.batch(partitions=(2,))
    for _ in range(3):
        table.batch(partitions=(2,))
        state = followed.look()
        assert [kind for kind, _ in state.findings] == ["warning"]
        assert state.verdict is Verdict.PROVEN


def test_a_table_without_offsets_is_not_proven(table: Table, followed: FollowedTable) -> None:
    table.rows([(0, 1)])
    state = followed.look()
    assert state.verdict is Verdict.UNPROVEN
    assert "no range to examine" in state.words


def test_offsets_moved_by_hand_are_found(table: Table, followed: FollowedTable) -> None:
    table.batch()
    followed.look()
    table.raw_commit({offset_id(0): 3})
    assert followed.look().verdict is Verdict.BROKEN


def test_another_table_at_the_same_place_is_read_from_its_beginning(table: Table, followed: FollowedTable) -> None:
    table.batches(3)
    assert followed.look().kept == 4
    shutil.rmtree(table.path)
    with pytest.raises(OffsetStoreError):
        followed.look()
    again = Table.create(table.path)
    again.batch(partitions=(7,))
    state = followed.look()
    assert (state.verdict, state.kept) == (Verdict.PROVEN, 2)
    assert [chain.partition for chain in state.chains] == [7]
    assert [owner[1][1].partition for owner in followed.reading().ranges.owners()] == [7]


def _look_until_it_fails(followed: FollowedTable) -> None:
    while True:
        followed.look()  # the folder is listed now and then only


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_log_file_is_reported_until_it_is_back(
    table: Table, followed: FollowedTable, tmp_path: Path, missing: int
) -> None:
    table.batch()
    assert followed.look().verdict is Verdict.PROVEN
    table.batches(3)
    files = [table.path / "_delta_log" / f"{version:020d}.json" for version in range(2, 2 + missing)]
    for file in files:
        file.rename(tmp_path / file.name)
    with pytest.raises(OffsetStoreError, match="version 2 is missing"):
        _look_until_it_fails(followed)
    for file in files:
        (tmp_path / file.name).rename(file)
    state = followed.look()
    assert (state.verdict, state.kept) == (Verdict.PROVEN, 5)


def test_what_fails_slowly_is_not_tried_at_each_look(
    table: Table, followed: FollowedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.batch()
    log = table.path / "_delta_log"
    log.rename(tmp_path / "away")
    monkeypatch.setattr(module, "SLOW_S", 0.0)
    monkeypatch.setattr(module, "PAUSE", 10**6)
    with pytest.raises(OffsetStoreError) as first:
        followed.look()
    (tmp_path / "away").rename(log)
    with pytest.raises(OffsetStoreError) as second:
        followed.look()
    assert second.value is first.value
    monkeypatch.setattr(followed, "_failed", None)  # as after the pause
    assert followed.look().verdict is Verdict.PROVEN


def test_a_log_that_was_cleaned_up_is_followed_from_its_checkpoint(table: Table, followed: FollowedTable) -> None:
    table.batches(4)
    table.clean_up_log()
    table.batch()
    state = followed.look()
    assert state.verdict is Verdict.PROVEN
    assert state.chains[0].covered == ((40, 50),)
    watch = TableWatch(str(table.path), followed)
    oldest, newest = watch.bounds()
    assert oldest > 0
    assert [each.version for each in watch.versions()] == list(range(newest, oldest - 1, -1))


def test_rows_in_another_table_are_not_examined(tmp_path: Path) -> None:
    from sparkonce.connectors.delta_spark.intents import OFFSETS_FOLDER

    table = Table.create(tmp_path / OFFSETS_FOLDER)
    table.batch()
    state = FollowedTable(Location.parse(str(table.path))).look()
    assert state.verdict is Verdict.UNPROVEN
    assert "not examined here" in state.findings[0][1]


def test_the_commits_that_cover_an_offset(table: Table, followed: FollowedTable) -> None:
    table.batch()
    table.batch(app_id="other", query_id="query of other")
    table.ends[key(0)] = 10
    table.batch(partitions=(0,), size=20, query_id="another", writes=Writes.ROWS)
    followed.look()
    ranges = followed.reading().ranges
    assert [(each.version, each.app_id, each.writes) for each in ranges.covering(TOPIC, 0, 12)] == [
        (2, "other", BOTH),
        (3, APP, Writes.ROWS),
    ]
    assert [each.version for each in ranges.covering(TOPIC_ID, 1, 9)] == [1]
    assert [each.version for each in ranges.covering(None, 1, 10)] == [2]
    assert ranges.covering(TOPIC, 0, 30) == []
    assert ranges.covering("orders2", 0, 5) == []


def test_a_full_index_says_up_to_where_it_is_complete() -> None:
    ranges = RangeIndex(most=3)
    for version in range(4):
        batch = record(version, {key(0): (version, version + 1), key(1): (version, version + 1)})
        ranges.add(CommittedBatch(version, 0, BOTH, batch))
    assert ranges.complete_to == 0
    assert [each.version for each in ranges.covering(TOPIC, 0, 0)] == [0]
    assert ranges.covering(TOPIC, 0, 1) == []


def test_queries_with_their_guarantee_and_who_went_on(table: Table, followed: FollowedTable) -> None:
    table.batch(attempt_id="1", writes=Writes.ROWS)
    table.ends.clear()
    table.batch(attempt_id="1", batch_id=0, writes=Writes.OFFSETS)
    table.batch(query_id="second", batch_id=0)
    followed.look()
    queries = followed.reading().queries
    found = queries.all()
    assert found[APP, QUERY].guarantee is Guarantee.AT_LEAST_ONCE
    assert found[APP, "second"].guarantee is Guarantee.EXACTLY_ONCE
    assert [(each.before, each.after, each.version) for each in queries.switches] == [(QUERY, "second", 3)]
    minutes = found[APP, "second"].minutes
    assert [(each.batches, each.records) for each in minutes.values()] == [(1, 20)]


def test_strips_show_gaps_and_overlaps(table: Table, followed: FollowedTable) -> None:
    table.batch(partitions=(0, 1))
    table.batch(partitions=(0,), skip=5)
    table.batch(partitions=(0,), skip=-3)
    watch = TableWatch(str(table.path), followed)
    drawn, left_out = strips(watch.versions()[::-1])
    assert left_out == 0
    assert [strip.name for strip in drawn] == [f"{TOPIC}-0", f"{TOPIC}-1"]
    assert [(box.kind, box.start, box.end) for box in drawn[0].boxes] == [
        ("range", 0, 10),
        ("gap", 10, 15),
        ("range", 15, 25),
        ("range", 22, 32),
        ("overlap", 22, 25),
    ]
    assert "overlap [22, 25) at version 3" in drawn[0].words
    assert drawn[1].wrong == 0


def test_a_page_of_versions(table: Table, followed: FollowedTable) -> None:
    table.batches(3)
    table.rows([(0, 1), (0, 2)])
    watch = TableWatch(str(table.path), followed)
    newest, before = watch.versions(count=2)
    assert (newest.version, newest.name, newest.rows, newest.batch, len(newest.added)) == (4, "WRITE", 2, None, 1)
    assert (before.version, before.records, before.writes) == (3, 20, "rows and offsets")
    assert watch.versions(newest=1)[-1].version == 0
    assert watch.files().files == 1
    assert watch.unnamed() is not None
