"""Tables whose files are not those of their log: each is named, and no log of a writer that is right is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkonce import audit
from sparkonce.exactly_once import audit_active
from sparkonce.exactly_once.audit_active import ActiveFiles
from sparkonce.exactly_once.audit_findings import CommitName, Problem
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.jobs.cli.main import main
from sparkonce.jobs.ui.delta.followed import FollowedTable
from sparkonce.offset_store.administration import ChangeKind, CommitEntry, ManualChange, Move
from sparkonce.offset_store.commit_log import CommitLog, LogCommit
from sparkonce.offset_store.data_files import names_of
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from sparkonce.offset_store.record import Writes
from sparkonce.offset_store.txn_ids import OffsetTxn
from tests.unit.audit.logs import APP, committed, foreign, key, record
from tests.unit.audit.logs import audit as audit_of
from tests.unit.recovery.recovery_support import Pipeline
from tests.unit.sink.query_by_hand import SCHEMA, Query, delete_row, make_table, table_actions
from tests.unit.sink.test_features import VECTORS

OF_FILES = {Problem.FILES_MISMATCH, Problem.REMOVED_TWICE, Problem.SNAPSHOT_MISMATCH}


def log_files(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def errors(table: Path) -> set[Problem]:
    """Return the errors of the command and of a page, which agree."""
    found = audit(str(table)).report
    page = FollowedTable(Location.parse(str(table))).look(budget_s=60)
    wrong = {problem for problem, count in found.counts.items() if count and problem.is_error}
    assert page.problems >= wrong
    return wrong


def one_chain_table(path: Path) -> Pipeline:
    table = Pipeline.create(path)
    for batch in range(3):
        table.commit(batch, {0: (10 * batch, 10 * batch + 10)})
    return table


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_commit_cut_at_the_end_of_any_line_is_named(tmp_path: Path, version: int) -> None:
    query = Query(tmp_path)
    for batch in range(3):
        query.log(batch, 10 * (batch + 1))
        query.commit(batch, query.tasks(count=3))
    assert errors(query.table) == set()
    path = next(each for each in log_files(query.table) if int(each.stem) == version)
    lines = path.read_text().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        path.write_text("".join(lines[:kept]))
        assert Problem.FILES_MISMATCH in errors(query.table), lines[kept]
    path.write_text("".join(lines))
    assert errors(query.table) == set()


def test_a_batch_whose_record_counts_nothing_is_not_compared(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    path = log_files(query.table)[-1]
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            del action["commitInfo"]["sparkonce"]["counts"]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in actions))
    assert errors(query.table) == set()


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("cleaned", [False, True])
def test_a_checkpoint_that_lacks_a_file_is_named(tmp_path: Path, number: int, cleaned: bool) -> None:
    table = one_chain_table(tmp_path / "table")
    DeltaTable(table.path).create_checkpoint()
    if cleaned:
        log_files(table.path)[0].unlink()
    assert errors(table.path) == set()
    whole = pq.read_table(checkpoint(table.path))
    files = [row for row, add in enumerate(whole["add"].to_pylist()) if add]
    pq.write_table(whole.take([row for row in range(len(whole)) if row != files[number]]), checkpoint(table.path))
    assert len(table.rows()) == 20
    assert errors(table.path) == {Problem.SNAPSHOT_MISMATCH}


def checkpoint(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_checkpoint_that_has_a_file_too_many_is_named(tmp_path: Path) -> None:
    table = one_chain_table(tmp_path / "table")
    DeltaTable(table.path).create_checkpoint()
    before = pq.read_table(checkpoint(table.path))["add"].combine_chunks().drop_null()
    assert main(["compact", str(table.path)]) == 0
    DeltaTable(table.path).create_checkpoint()
    whole = pq.read_table(checkpoint(table.path))
    rows = [*whole.to_pylist(maps_as_pydicts="strict"), {"add": before[0].as_py(maps_as_pydicts="strict")}]
    pq.write_table(pa.Table.from_pylist(rows, whole.schema), checkpoint(table.path))
    assert len(table.rows()) == 40
    assert errors(table.path) == {Problem.SNAPSHOT_MISMATCH}


def _z_order(table: DeltaTable) -> None:
    table.optimize.z_order(["x"])


RIVALS: list[Callable[[DeltaTable], object]] = [lambda table: table.optimize.compact(), _z_order]


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_merge_that_landed_late_is_named(
    tmp_path: Path, rival: Callable[[DeltaTable], object], checkpointed: bool
) -> None:
    table = one_chain_table(tmp_path / "table")
    stale = DeltaTable(table.path)
    assert main(["compact", str(table.path)]) == 0
    merged = table.version
    rival(stale)
    if checkpointed:
        DeltaTable(table.path).create_checkpoint()
    assert len(table.rows()) == 60, "each row is there twice"
    assert errors(table.path) == {Problem.REMOVED_TWICE}
    found = audit(str(table.path)).first_bad
    assert found is not None
    assert found.commit is not None
    assert found.commit.version == table.version
    late = table.version
    DeltaTable(table.path).restore(merged)  # as `sparkonce compact` undoes its own late merge
    assert len(table.rows()) == 30
    assert errors(table.path) == set()
    undone = table.version
    DeltaTable(table.path).restore(late)
    assert len(table.rows()) == 60
    assert errors(table.path) == {Problem.REMOVED_TWICE}
    DeltaTable(table.path).restore(undone)
    assert errors(table.path) == set()


def in_complete_mode(root: Path) -> tuple[Query, Query]:
    """Return an application that appends, and one in complete mode of another topic, in one table."""
    appends = Query(root, "b", appId="b")
    replaces = Query(root, "a", replace=True, appId="a")

    def log(batch_id: int, end: int, partitions: int = 1) -> None:
        line = SourceOffset("kafka", {TopicPartition("other", "id2", 0): Position(0, end)}).to_json()
        (replaces.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{line}")

    replaces.log = log  # type: ignore[method-assign]
    return appends, replaces


def test_rows_that_another_application_replaced_are_a_warning_once(tmp_path: Path) -> None:
    appends, replaces = in_complete_mode(tmp_path)
    appends.write(0, [{"v": 1}])
    versions = []
    for batch in range(2):
        replaces.write(batch, [{"v": 100}])
        versions.append(DeltaTable(appends.table).version())
    appends.write(1, [{"v": 2}])
    replaces.write(2, [{"v": 100}])
    versions.append(DeltaTable(appends.table).version())
    assert [row["v"] for row in appends.read("v")] == [100]
    for app_id in (None, "b"):
        found = [each for each in audit(str(appends.table), app_id=app_id).report.findings if each.commit]
        assert [each.problem for each in found] == [Problem.ROWS_REMOVED] * 2
        assert [each.commit.version for each in found if each.commit] == [versions[0], versions[2]]
        assert all("may have held rows that appId b wrote; the stored" in each.message for each in found)
    assert not audit(str(appends.table), app_id="a").report.findings


def restore(version: int, to: int) -> LogCommit:
    return LogCommit(CommitEntry(version, version, "RESTORE", change=ManualChange(ChangeKind.RESTORE, (), (), to)), {})


def test_two_restores_to_one_version_name_what_each_took() -> None:
    ours = [committed(0, record(0, {key(0): (0, 5)})), committed(1, record(0, {key(1): (0, 5)}, app_id="other"))]
    again = committed(2, record(1, {key(0): (5, 9)}))

    def moved(version: int, app_id: str, number: int) -> LogCommit:
        move = Move(OffsetTxn(app_id, "default", key(number)[1]), 9, 5)
        change = ManualChange(ChangeKind.RESTORE, (move,), (), 1)
        return LogCommit(CommitEntry(version, version, "RESTORE", change=change), change.transactions())

    other = committed(4, record(1, {key(1): (5, 9)}, app_id="other"))
    report = audit_of([*ours, again, moved(3, APP, 0), other, moved(5, "other", 1)])
    assert Problem.ROWS_RESTORED not in report.counts


def test_a_restore_names_applications_whose_offsets_are_elsewhere() -> None:
    """Exactly-once offsets here were not moved since; the rows of the other have theirs in another table."""
    here = [committed(0, record(0, {key(0): (0, 5)}))]
    elsewhere = [committed(n, record(n, {key(1): (n, n + 1)}, app_id="other"), Writes.ROWS) for n in (1, 2)]
    (finding,) = audit_of([*here, *elsewhere, restore(3, to=1)]).findings
    assert finding.problem is Problem.ROWS_RESTORED
    assert "the rows that appId other wrote after it (the last in version 2)" in finding.message
    assert not audit_of([*here, *elsewhere, restore(3, to=2)]).findings
    halves = [committed(n, record(n, {key(0): (5, 9)}), Writes.ROWS) for n in (1, 2)]
    assert Problem.ROWS_RESTORED not in audit_of([*here, *halves, restore(3, to=0)]).counts, "they are read again"
    moved = committed(1, record(1, {key(0): (5, 9)}))
    (finding,) = audit_of([*here, moved, restore(2, to=0)]).findings
    assert f"appId {APP} wrote after it" in finding.message


# Logs that are right


ODD_NAMES = ["a b", "50%", "ä", "x=y", "1:2", "%41", "a+b", "q'", "#", "p"]


def do_something(path: Path, table: DeltaTable, chance: random.Random) -> None:
    """Have delta-rs do one of what it can do, from a handle of the newest version."""
    name, number = chance.choice(ODD_NAMES).replace("'", "''"), chance.randrange(40)
    rows = pa.table({"p": chance.choices(ODD_NAMES, k=4), "x": pa.array(chance.choices(range(40), k=4), pa.int64())})
    what: list[Callable[[], Any]] = [
        lambda: write_deltalake(path, rows, mode="append"),
        lambda: write_deltalake(path, rows, mode="append"),
        lambda: write_deltalake(path, rows, mode="overwrite"),
        lambda: write_deltalake(path, rows.slice(0, 0), mode="overwrite", predicate=f"x < {number}"),
        lambda: table.delete(f"x > {number}"),
        lambda: table.delete(f"p = '{name}'"),
        lambda: table.update(updates={"x": "x + 1"}, predicate=f"x > {number}"),
        lambda: table.optimize.compact(),
        lambda: table.optimize.z_order(["x"]),
        lambda: table.version() and table.restore(chance.randrange(table.version())),
        lambda: table.merge(rows.slice(0, 1), "t.x = s.x", "s", "t").when_matched_update_all().execute(),
        lambda: table.create_checkpoint(),
        lambda: main(["compact", str(path)]),
    ]
    chance.choice(what)()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [3, audit_active.MAX_FILES])
def test_what_delta_rs_does_is_no_error(tmp_path: Path, seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the log begins later, and where the table has more files than are followed."""
    monkeypatch.setattr(audit_active, "MAX_FILES", most)
    path, chance = tmp_path / "odd names é", random.Random(seed)
    write_deltalake(path, pa.table({"p": ODD_NAMES, "x": pa.array(range(10), pa.int64())}), partition_by=["p"])
    for _ in range(14):
        do_something(path, DeltaTable(path), chance)
    location = Location.parse(str(path))
    log = CommitLog.open(location)
    commits = list(log.commits())
    read = pa.table(log.table.get_add_actions())["path"].to_pylist()
    names = {each: names_of(each, location) for each in read}
    for first in range(0, len(commits), 4):
        active = ActiveFiles()
        found = [each for commit in commits[first:] for each in active.follow(commit, CommitName.of(commit))]
        assert [*found, *active.removed_twice, *active.differences(names)] == []


def test_an_address_and_a_path_are_one_file(tmp_path: Path) -> None:
    """As a clone of a table's own clone has it."""
    table = one_chain_table(tmp_path / "table")
    (add,) = (
        each["add"] for line in log_files(table.path)[1].read_text().splitlines() if "add" in (each := json.loads(line))
    )
    for version, (removed, added) in enumerate([("", "file:"), ("file://", "")], 4):
        paths = [f"{scheme}{table.path}/{add['path']}" if scheme else add["path"] for scheme in (removed, added)]
        actions = [{"commitInfo": {"operation": "CLONE"}}, {"remove": {"path": paths[0], "dataChange": False}}]
        actions.append({"add": {**add, "path": paths[1], "dataChange": False}})
        (table.path / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    log = CommitLog.open(Location.parse(str(table.path)))
    active = ActiveFiles()
    assert [each for commit in log.commits() for each in active.follow(commit, CommitName.of(commit))] == []
    assert active.removed_twice == []


OUTSIDE = ["/src/a b", "file:/src/a%20b", "file:///src/a%20b", "file://localhost/src/a%20b"]
INSIDE = ["x", "{}/x", "file:{}/x", "file://{}/x", "file://localhost{}/x"]
STORED = ["s3://bucket/table/x", "s3a://bucket/table/x", "x"]


def test_all_spellings_of_an_address_are_one_name(tmp_path: Path) -> None:
    here, there = Location.parse(str(tmp_path)), Location.parse("s3a://bucket/table")
    assert {names_of(each, here)[0] for each in OUTSIDE} == {"/src/a b"}
    assert {names_of(each.format(tmp_path), here)[0] for each in INSIDE} == {"x"}
    assert {names_of(each, there)[0] for each in STORED} == {"x"}
    assert names_of("file:/src/a%2520b", here) == ["/src/a%20b"], "decoded once"


def test_a_new_deletion_vector_is_another_file_of_the_same_path(tmp_path: Path) -> None:
    query = Query(tmp_path)
    make_table(query.table, *table_actions(SCHEMA, **VECTORS))
    query.write(0, [{"v": number} for number in range(3)])
    delete_row(query.table, 1)
    assert errors(query.table) == set()
    delete_row(query.table, 2)  # as from the version before that one
    assert Problem.REMOVED_TWICE in audit(str(query.table)).report.counts


def test_nothing_is_judged_after_a_damaged_commit() -> None:
    active = ActiveFiles()
    commits = [
        LogCommit(CommitEntry(0, 0, "WRITE"), {}, added=(("a", ""), ("b", ""))),
        LogCommit(CommitEntry(1, 1, "WRITE"), {}, damage="its file is empty"),
        LogCommit(CommitEntry(2, 2, "WRITE"), {}, removed=(("a", ""), ("c", ""))),
        foreign(3, "WRITE"),
    ]
    assert [each for commit in commits for each in active.follow(commit, CommitName.of(commit))] == []
    assert active.removed_twice == []
    assert list(active.differences({"b": ["b"]})) == []
    assert [each.problem for each in active.differences({"b": ["b"], "a": ["a"]})] == [Problem.SNAPSHOT_MISMATCH]


def test_the_new_errors_break_the_proof(tmp_path: Path) -> None:
    table = one_chain_table(tmp_path / "table")
    assert audit(str(table.path)).verdict is Verdict.PROVEN
    assert all(problem.is_error for problem in OF_FILES)
