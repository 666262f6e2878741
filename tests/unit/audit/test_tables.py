"""Audits of real Delta tables, written by the store's own commits, with whatever else may stand in a log."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from sparkonce.exactly_once.audit import Auditor, Report
from sparkonce.exactly_once.audit_counting import Coordinates, RowsError, count_rows
from sparkonce.exactly_once.audit_findings import Problem
from sparkonce.offset_store.administration import ChangeKind, ManualChange, Move, OffsetsTable
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.errors import OffsetStoreError, StoreMissingError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.storage import LocalStorage
from sparkonce.offset_store.record import Writes
from sparkonce.offset_store.txn_ids import OffsetTxn
from tests.unit.audit.logs import APP, SCHEMA, Table, key, offset_id, partition, query_id, record

COMMITS = 110


@pytest.fixture(scope="module")
def long_table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with more batches than lie between two checkpoints of delta-rs, one of those, and another one later."""
    table = Table.create(tmp_path_factory.mktemp("audit") / "table")
    table.batches(COMMITS - 5)
    DeltaTable(table.path).create_checkpoint()
    table.batches(5)
    assert len(list((table.path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
    return table


@pytest.fixture
def table(long_table: Table, tmp_path: Path) -> Table:
    """A copy of it, to be spoiled."""
    shutil.copytree(long_table.path, tmp_path / "table")
    return Table(tmp_path / "table", long_table.next_batch, dict(long_table.ends))


def open_log(table: Table) -> CommitLog:
    return CommitLog.open(Location.parse(str(table.path)))


def audit(log: CommitLog) -> Report:
    auditor = Auditor(kept=log.oldest_state())
    for commit in log.commits():
        auditor.add(commit)
    return auditor.finish(log.stored)


def spoil(table: Table, number: int, change: Callable[[list[dict]], list[dict]]) -> None:
    """Rewrite the log file of one version."""
    path = table.path / "_delta_log" / f"{number:020d}.json"
    actions = change([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("\n".join(json.dumps(action) for action in actions))


def assert_first_bad(report: Report, version: int, problem: Problem) -> str:
    assert not report.proven
    assert report.first_bad is not None
    assert report.first_bad.commit is not None
    assert (report.first_bad.commit.version, report.first_bad.problem) == (version, problem)
    return report.first_bad.message


def test_a_table_of_batches_is_proven_from_its_beginning(long_table: Table) -> None:
    report = audit(open_log(long_table))
    assert report.proven
    assert report.tally.commits == COMMITS + 1
    assert [(chain.start, chain.end, chain.stored) for chain in report.chains] == [(0, COMMITS * 10, COMMITS * 10)] * 2


@pytest.mark.parametrize(("skip", "problem"), [(1, Problem.GAP), (-3, Problem.OVERLAP)])
def test_a_batch_that_does_not_join_is_named(table: Table, skip: int, problem: Problem) -> None:
    version = table.batch(skip=skip)
    table.batches(3)
    report = audit(open_log(table))
    message = assert_first_bad(report, version, problem)
    assert f"{problem.value} [{min(COMMITS * 10, COMMITS * 10 + skip)}" in message
    assert report.counts[problem] == 2  # in both partitions
    assert report.first_bad is not None
    assert report.first_bad.commit is not None
    assert report.first_bad.commit.batch_id == COMMITS


def test_a_missing_txn_action_is_named(table: Table) -> None:
    spoil(table, 57, lambda actions: [each for each in actions if each.get("txn", {}).get("appId") != offset_id(1)])
    message = assert_first_bad(audit(open_log(table)), 57, Problem.TXN_MISMATCH)
    assert message == "orders-1 (appId app, source default): the commit stores nothing, and its range ends at 570"


def test_a_record_without_any_txn_is_named_and_what_is_stored_disagrees(table: Table) -> None:
    batch = record(table.next_batch, {key(0): (COMMITS * 10, COMMITS * 10 + 7)})
    version = table.raw_commit({}, batch.to_commit_info(Writes.ROWS | Writes.OFFSETS))
    report = audit(open_log(table))
    assert_first_bad(report, version, Problem.TXN_MISMATCH)
    assert report.counts[Problem.STORED_MISMATCH] == 2  # the partition, and the query's batch


def test_a_batch_id_used_again_is_named(table: Table) -> None:
    version = table.batch(batch_id=COMMITS - 1)
    assert "was used before" in assert_first_bad(audit(open_log(table)), version, Problem.BATCH_ID)
    version_back = table.batch(batch_id=3)
    report = audit(open_log(table))
    assert_first_bad(report, version, Problem.BATCH_ID)
    assert "comes after batch" in next(
        each.message for each in report.findings if each.commit and each.commit.version == version_back
    )


def test_offsets_rewound_by_a_program_that_leaves_no_record_are_named(table: Table) -> None:
    version = table.raw_commit({offset_id(0): 100})
    table.ends[key(0)] = 100
    table.batches(2)
    report = audit(open_log(table))
    message = assert_first_bad(report, version, Problem.MOVED_BY_HAND)
    assert message.endswith(f"was moved by hand from {COMMITS * 10} to 100")
    assert report.counts[Problem.OVERLAP] == 0  # only the commit that did it is blamed


def test_offsets_rewound_by_our_command_are_told_and_not_an_error(table: Table) -> None:
    offsets = OffsetsTable.open(Location.parse(str(table.path)))
    move = Move(OffsetTxn(APP, "default", partition(0)), COMMITS * 10, 100)
    version = offsets.apply(ManualChange(ChangeKind.REWIND, (move,), to_version=10))
    table.ends[key(0)] = 100
    table.batches(2)
    report = audit(open_log(table))
    assert report.proven, report.first_bad
    (finding,) = report.findings
    assert finding.problem is Problem.MOVED_ON_PURPOSE
    assert finding.commit is not None
    assert finding.commit.version == version


def test_after_log_clean_up_the_chain_is_proven_back_to_the_oldest_kept_commit(table: Table) -> None:
    table.clean_up_log()
    oldest = table.version
    table.batches(5)
    log = open_log(table)
    assert log.oldest_version == oldest
    report = audit(log)
    assert report.proven, report.first_bad
    assert report.tally.ours == 5
    assert report.chains[0].start == COMMITS * 10
    version = table.batch(skip=1)
    assert_first_bad(audit(open_log(table)), version, Problem.GAP)


def test_a_gap_right_after_log_clean_up_is_named(table: Table) -> None:
    table.clean_up_log()
    version = table.batch(partitions=[1], skip=4)
    message = assert_first_bad(audit(open_log(table)), version, Problem.GAP)
    assert f"the checkpoint of version {version - 1} ended at {COMMITS * 10}" in message


@pytest.mark.parametrize("after", [-30, 1])
def test_log_files_deleted_by_hand_before_a_checkpoint_are_as_good_as_cleaned_up(table: Table, after: int) -> None:
    checkpoints = sorted((table.path / "_delta_log").glob("*.checkpoint.parquet"))
    first = int(checkpoints[0].name[:20])
    for version in range(first + after):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    log = open_log(table)
    assert log.oldest_version == first + after
    state = log.oldest_state()
    assert state is not None
    assert state.version == first
    assert state.transactions[offset_id(0)] == first * 10
    assert state.transactions[query_id()] == first - 1
    assert audit(log).proven


def test_restore_compaction_and_other_writers_are_passed_over_and_counted(table: Table) -> None:
    table.rows([(0, 1)])
    table.rows([(0, 2)])
    table.batches(2)
    DeltaTable(table.path).optimize.compact()
    DeltaTable(table.path).vacuum(0, enforce_retention_duration=False, dry_run=False)
    before = table.version
    table.batches(2)
    DeltaTable(table.path).restore(before)
    table.batches(2)
    report = audit(open_log(table))
    assert report.proven, report.first_bad
    assert report.tally.foreign["RESTORE"] == 1
    assert report.tally.foreign["OPTIMIZE"] == 1
    assert report.tally.foreign["WRITE"] == 2
    assert [finding.problem for finding in report.findings] == [Problem.ROWS_RESTORED]
    assert report.chains[0].stored == (COMMITS + 6) * 10


def _delete(path: Path) -> None:
    DeltaTable(path).delete("offset = 1")


def _truncate(path: Path) -> None:
    DeltaTable(path).delete()


def _update(path: Path) -> None:
    DeltaTable(path).update(updates={"offset": "7"})


def _overwrite(path: Path) -> None:
    write_deltalake(path, pa.table([[0], [9]], schema=SCHEMA), mode="overwrite")


def _replace(path: Path) -> None:
    DeltaTable.create(str(path), SCHEMA, mode="overwrite")


@pytest.mark.parametrize("remove", [_delete, _truncate, _update, _overwrite, _replace])
def test_rows_that_another_writer_removed_are_a_warning(tmp_path: Path, remove: Callable[[Path], None]) -> None:
    table = Table.create(tmp_path / "table")
    table.batches(2)
    table.rows([(0, 1)])  # stands for a file of a batch
    table.rows([(0, 2)])
    remove(table.path)
    version = table.version
    table.batches(2)
    report = audit(open_log(table))
    assert report.proven, report.first_bad
    (finding,) = report.findings
    assert finding.problem is Problem.ROWS_REMOVED
    assert finding.commit is not None
    assert finding.commit.version == version
    removed = r"it removed or replaced (1 data file|\d+ data files), which may have held rows that appId app wrote"
    assert re.match(removed, finding.message)


def test_what_changes_no_rows_removes_none(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.rows([(0, 1)])
    table.rows([(0, 2)])
    DeltaTable(table.path).delete("offset = 1")  # before any batch
    table.batches(2)
    table.rows([(0, 3)])
    DeltaTable(table.path).optimize.compact()
    assert not audit(open_log(table)).findings


def test_a_table_of_offsets_only_is_proven_too(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "offsets")
    for _ in range(4):
        table.batch(writes=Writes.OFFSETS)
    report = audit(open_log(table))
    assert report.proven
    assert not report.findings


def test_commits_are_read_ahead_alike_where_the_store_is_not_local(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = list(open_log(table).commits())
    monkeypatch.setattr(LocalStorage, "is_local", False)
    assert list(open_log(table).commits()) == here


def test_versions_that_come_while_the_log_is_read_wait_for_the_next_audit(table: Table) -> None:
    log = open_log(table)
    table.batches(1)
    assert log.newest_version == COMMITS
    assert audit(log).tally.ours == COMMITS


def test_a_log_that_lost_its_checkpoint_cannot_be_judged(table: Table) -> None:
    log = open_log(table)
    with pytest.raises(OffsetStoreError, match="versions before 12 are gone from the log, and no checkpoint"):
        replace(log, oldest_version=12, listing=replace(log.listing, checkpoints={5: ("x",)})).oldest_state()


def test_a_damaged_commit_is_an_error_that_names_it(table: Table) -> None:
    log = open_log(table)
    spoil(table, 7, lambda actions: [{"txn": {"appId": 5}}, *actions])
    with pytest.raises(OffsetStoreError, match="version 7 of the log cannot be read"):
        list(log.commits())


@pytest.mark.parametrize("version", [57, COMMITS])
@pytest.mark.parametrize(
    ("left", "says"),
    [
        (lambda whole: b"", "its file is empty"),
        (lambda whole: b"\n", "its file is empty"),
        (lambda whole: whole[: len(whole) // 2], "is no whole JSON object"),
        (lambda whole: whole[:-2], "is no whole JSON object"),
        (lambda whole: whole[:-1] + b"\0", "zero bytes"),
    ],
)
def test_what_a_broken_disk_left_of_a_commit_is_named(
    table: Table, version: int, left: Callable[[bytes], bytes], says: str
) -> None:
    path = table.path / "_delta_log" / f"{version:020d}.json"
    whole = path.read_bytes()
    table.batches(3)
    DeltaTable(table.path).create_checkpoint()  # so that delta-rs can load it, whatever is in that file
    path.write_bytes(left(whole))
    assert says in assert_first_bad(audit(open_log(table)), version, Problem.DAMAGED)


def test_an_emptied_commit_of_others_is_named_too(table: Table) -> None:
    version = table.rows([(7, 7)])
    table.batches(2)
    (table.path / "_delta_log" / f"{version:020d}.json").write_bytes(b"")
    assert DeltaTable(table.path).to_pyarrow_table().num_rows == 0  # and nobody is told
    assert_first_bad(audit(open_log(table)), version, Problem.DAMAGED)


@pytest.mark.parametrize("kept", [0, 400])
def test_a_commit_that_keeps_everybody_from_loading_is_named(table: Table, kept: int) -> None:
    path = table.path / "_delta_log" / f"{COMMITS - 1:020d}.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    if not kept:
        path.unlink()
    last = COMMITS - 1
    says = f"{last} in .* is no whole JSON" if kept else f"version {last} is missing from .*, and later ones are there"
    with pytest.raises(OffsetStoreError, match=says):
        open_log(table)


def test_no_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match="there is no Delta table"):
        CommitLog.open(Location.parse(str(tmp_path)))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_thousands_of_commits(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.batches(3_000)
    assert audit(open_log(table)).proven
    version = table.batch(skip=1)
    assert_first_bad(audit(open_log(table)), version, Problem.GAP)


def test_rows_that_cannot_be_read_are_told_without_the_key_to_their_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quotes(builder: QueryBuilder, text: str) -> None:
        raise OSError("GET https://a.blob.core.windows.net/t?sv=2024&sig=s3cret%3D&comp=list")

    DeltaTable.create(str(tmp_path), pa.schema([("p", pa.int64()), ("o", pa.int64())]))
    table = DeltaTable(str(tmp_path), storage_options={"azure_storage_sas_token": "sv=2024&sig=s3cret%3D"})
    monkeypatch.setattr(QueryBuilder, "execute", quotes)
    with pytest.raises(RowsError, match=r"GET .*\?\*\*\*&comp=list") as error:
        count_rows(table, [], Coordinates("p", "o"))
    assert error.value.__suppress_context__
