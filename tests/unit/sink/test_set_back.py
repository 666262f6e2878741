"""Checkpoints and tables set back, without Spark: what a batch of an old number is taken for, in a real table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkonce.exactly_once.errors import CheckpointError, OffsetMismatchError
from sparkonce.jobs.cli.main import main
from tests.delta_commits import append
from tests.unit.sink.query_by_hand import Query


class SetBack(Query):
    """A query whose checkpoint, and table, can be put back to a copy."""

    def run(self, *batch_ids: int) -> None:
        for batch_id in batch_ids:
            self.write(batch_id, [{"v": batch_id}])

    def copy(self) -> None:
        shutil.copytree(self.checkpoint, self.checkpoint.with_name("copy"))

    def set_back(self) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.checkpoint.with_name("copy"), self.checkpoint)

    def values(self) -> list[int]:
        return [row["v"] for row in self.read("v")]

    def restore(self, version: int) -> None:
        DeltaTable(self.table).restore(version)


@pytest.fixture
def query(tmp_path: Path) -> SetBack:
    return SetBack(tmp_path)


def test_the_same_batches_are_passed_over_and_the_query_goes_on(query: SetBack) -> None:
    query.run(0)
    query.copy()
    query.run(1, 2)
    query.set_back()
    query.run(1, 2, 3)
    assert query.values() == [0, 1, 2, 3]


def test_another_batch_of_an_old_number_is_refused(query: SetBack) -> None:
    query.run(0)
    query.copy()
    query.run(1, 2)
    query.set_back()
    query.log(1, 15)
    with pytest.raises(
        OffsetMismatchError,
        match=r"last batch of this query in the table, 2, and another batch was written under this number.* Start "
        r"with a new checkpointLocation and offsetStore=delta:<path of this table>",
    ):
        query.tasks()
    assert query.values() == [0, 1, 2]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_table_restored_together_with_the_checkpoint(query: SetBack, ahead: bool) -> None:
    """Delta's RESTORE leaves the numbers of batches whose rows it takes out; what came later is there."""
    query.run(0)
    query.copy()
    query.run(1, 2)
    query.restore(1)
    if ahead:
        query.run(3)
    query.set_back()
    query.log(1, 20)
    with pytest.raises(
        OffsetMismatchError,
        match=r"batch 1 .* was written before, and version 4 \(RESTORE\) removed its rows and left the offsets.* "
        r"sparkonce offsets rewind <path of this table> --to-version 1 --restore; then start from the checkpoint",
    ):
        query.tasks()
    assert main(["offsets", "rewind", str(query.table), "--to-version", "1", "--restore", "--apply"]) == 0
    query.run(1, 2, 3)
    assert query.values() == [0, 1, 2, 3]


def test_a_table_restored_to_where_the_batch_is(query: SetBack) -> None:
    query.run(0, 1)
    query.copy()
    DeltaTable(query.table).delete("v = 0")
    query.restore(2)
    query.set_back()
    query.run(1)
    assert query.values() == [0, 1]
    query.restore(1)
    query.restore(4)  # and back to before that
    query.set_back()
    query.run(1)
    assert query.values() == [0, 1]


class WithoutOffsets(SetBack):
    """A query of a source that is not ours; a checkpoint that is ahead of the table leaves no gap in any offsets."""

    def log(self, batch_id: int, end: int, partitions: int = 1) -> None:
        (self.checkpoint / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"other": {end * partitions}}}')


class WithState(SetBack):
    """A query whose watermark writes rows, and moves no offset, from batch 1 on."""

    def log(self, batch_id: int, end: int, partitions: int = 1) -> None:
        (self.checkpoint / "state" / "0").mkdir(parents=True, exist_ok=True)
        super().log(batch_id, min(end, 10), partitions)


def take_back(query: SetBack, version: int) -> None:
    assert main(["offsets", "rewind", str(query.table), "--to-version", str(version), "--restore", "--apply"]) == 0


REFUSED = (
    r"batch 3 .* follows batches that are no longer in the table: .* batch 1 was not written again.* "
    r"Start from the checkpoint"
)


@pytest.mark.parametrize("kind", [WithoutOffsets, WithState])
def test_a_checkpoint_ahead_of_a_table_that_was_taken_back_is_refused(kind: type[SetBack], tmp_path: Path) -> None:
    query = kind(tmp_path)
    query.run(0)
    query.copy()
    query.run(1, 2)
    take_back(query, 1)
    query.log(3, 40)
    with pytest.raises(OffsetMismatchError, match=REFUSED):
        query.tasks()
    query.set_back()
    query.run(1, 2, 3)
    assert query.values() == [0, 1, 2, 3]


def test_a_table_taken_back_while_a_batch_runs(tmp_path: Path) -> None:
    query = WithoutOffsets(tmp_path)
    query.run(0, 1, 2)
    query.log(3, 40)
    messages = query.tasks(rows=[{"v": 3}])
    take_back(query, 1)
    with pytest.raises(OffsetMismatchError, match=REFUSED):
        query.commit(3, messages)
    assert query.values() == [0]


@pytest.mark.parametrize("others", [0, 120])
def test_batches_that_come_again_may_have_no_rows(tmp_path: Path, others: int) -> None:
    """A query that was mended may leave out what it wrote before; and others may write to the table meanwhile."""
    query = WithoutOffsets(tmp_path)
    query.run(0)
    query.copy()
    query.run(1, 2)
    take_back(query, 1)
    query.restore(1)  # Delta's own, to the same version
    for number in range(others):
        append(DeltaTable(query.table), {"other": number}, {})
    query.log(3, 40)
    with pytest.raises(OffsetMismatchError, match=REFUSED):
        query.tasks()
    query.set_back()
    query.log(1, 20)
    query.commit(1, query.tasks(rows=[]))
    query.run(2, 3)
    assert query.values() == [0, 2, 3]


def test_a_table_taken_back_and_forward_again(tmp_path: Path) -> None:
    query = WithoutOffsets(tmp_path)
    query.run(0)
    query.copy()
    query.run(1, 2)
    newest = shutil.copytree(query.checkpoint, tmp_path / "newest")
    take_back(query, 1)
    query.set_back()
    query.run(1)
    take_back(query, 3)
    shutil.rmtree(query.checkpoint)
    shutil.copytree(newest, query.checkpoint)
    query.run(3)
    assert query.values() == [0, 1, 2, 3]


def test_a_table_taken_back_twice(tmp_path: Path) -> None:
    query = WithoutOffsets(tmp_path)
    query.run(0)
    oldest = shutil.copytree(query.checkpoint, tmp_path / "oldest")
    query.run(1)
    query.copy()
    query.run(2)
    take_back(query, 2)
    take_back(query, 1)
    query.set_back()
    query.log(2, 30)
    with pytest.raises(OffsetMismatchError, match="batch 1 was not written again"):
        query.tasks()
    shutil.rmtree(query.checkpoint)
    shutil.copytree(oldest, query.checkpoint)
    query.run(1, 2)
    assert query.values() == [0, 1, 2]


class OfFiles(WithoutOffsets):
    """Such a query, whose batches are what each test says, and whose checkpoints have names."""

    def ingest(self, batch_id: int, end: int, *values: int) -> None:
        self.log(batch_id, end)
        self.commit(batch_id, self.tasks(rows=[{"v": value} for value in values]))

    def save(self, name: str) -> None:
        shutil.copytree(self.checkpoint, self.checkpoint.with_name(name))

    def load(self, name: str) -> None:
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.checkpoint.with_name(name), self.checkpoint)


@pytest.fixture
def twice(tmp_path: Path) -> OfFiles:
    """Return a query with two batches 1, the second of which has more, after the table was taken back to batch 0."""
    query = OfFiles(tmp_path)
    query.ingest(0, 10, 0)
    query.save("before")
    query.ingest(1, 20, 1)
    query.save("first")
    take_back(query, 1)
    query.load("before")
    query.ingest(1, 30, 1, 2)
    return query


def test_a_checkpoint_of_other_batches_of_the_same_numbers_does_not_go_on(twice: OfFiles) -> None:
    take_back(twice, 2)  # to the rows of the first batch 1
    twice.save("second")
    with pytest.raises(OffsetMismatchError, match="batch 1, the last one there, is not the one in the checkpoint"):
        twice.ingest(2, 40, 3)
    twice.load("second")
    with pytest.raises(OffsetMismatchError, match="another batch was written under this number"):
        twice.ingest(1, 30, 1, 2)
    assert twice.values() == [0, 1]
    twice.load("first")
    twice.ingest(2, 40, 2, 3)
    assert twice.values() == [0, 1, 2, 3]


def test_another_batch_of_the_number_does_not_vouch_for_one_that_a_restore_took_out(twice: OfFiles) -> None:
    twice.restore(2)
    with pytest.raises(OffsetMismatchError, match="removed its rows"):
        twice.ingest(1, 30, 1, 2)


def test_a_checkpoint_of_a_line_that_was_left_does_not_go_on_where_the_numbers_match(tmp_path: Path) -> None:
    query = OfFiles(tmp_path)
    query.ingest(0, 10, 0)
    query.save("before")
    query.ingest(1, 20, 1)
    query.ingest(2, 30, 2)
    take_back(query, 1)
    query.load("before")
    query.ingest(1, 25, 1)
    query.ingest(2, 45, 2, 3)
    take_back(query, 3)  # batches 1 and 2 as they were at first
    with pytest.raises(OffsetMismatchError, match="batch 2, the last one there, is not the one"):
        query.ingest(3, 55, 4)
    assert query.values() == [0, 1, 2]


def test_each_batch_after_a_restore_follows_the_one_before(tmp_path: Path) -> None:
    query = OfFiles(tmp_path)
    query.ingest(0, 10, 0)
    query.save("before")
    query.ingest(1, 20, 1)
    query.ingest(2, 30, 2)
    query.save("ahead")
    take_back(query, 1)
    query.load("before")
    query.ingest(1, 20, 1)
    query.save("behind")
    query.load("ahead")
    with pytest.raises(OffsetMismatchError, match="batch 2 was not written again"):
        query.ingest(3, 40, 3)
    query.load("behind")
    query.ingest(2, 30)  # without rows
    query.ingest(3, 40, 3)
    assert query.values() == [0, 1, 3]


def test_a_copy_goes_on_over_a_batch_without_rows(tmp_path: Path) -> None:
    query = OfFiles(tmp_path)
    query.ingest(0, 10, 0)
    query.save("before")
    query.ingest(1, 20)
    query.ingest(2, 30, 2)
    query.load("before")
    query.ingest(1, 20)
    query.ingest(2, 30, 2)
    query.ingest(3, 40, 3)
    assert query.values() == [0, 2, 3]


def test_a_table_put_back_from_a_copy_is_older_than_the_checkpoint(tmp_path: Path) -> None:
    """The offsets of a query without ours do not show it, the numbers of its batches do."""
    query = OfFiles(tmp_path)
    query.ingest(0, 10, 0)
    copy = shutil.copytree(query.table, tmp_path / "copy of the table")
    query.save("fits")
    query.ingest(1, 20, 1)
    shutil.rmtree(query.table)
    shutil.copytree(copy, query.table)
    with pytest.raises(OffsetMismatchError, match=r"restored from a copy, batch 1 was not written again"):
        query.ingest(2, 30, 2)
    query.load("fits")
    query.ingest(1, 20, 1)
    query.ingest(2, 30, 2)
    assert query.values() == [0, 1, 2]


def test_after_a_gap_the_table_is_not_taken_back_further(query: SetBack) -> None:
    (query.checkpoint / "state/0").mkdir(parents=True)
    query.run(0)
    copy = shutil.copytree(query.table, query.table.with_name("copy of the table"))
    query.run(1)
    shutil.rmtree(query.table)
    shutil.copytree(copy, query.table)
    with pytest.raises(OffsetMismatchError, match=r"a gap .* start from the checkpoint that matches") as refused:
        query.run(2)
    assert "offsets rewind" not in str(refused.value)


@pytest.fixture
def diverged(tmp_path: Path) -> OfFiles:
    """Return a query whose checkpoint has another batch 1 than the table, both without a later one."""
    query = OfFiles(tmp_path)
    query.ingest(0, 10, 0)
    query.save("before")
    query.log(1, 20)  # without rows: a function of foreachBatch returned early
    query.save("copy")
    query.load("before")
    query.ingest(1, 30, 1, 2)
    query.load("copy")
    return query


def test_a_copy_does_not_go_on_after_another_batch(diverged: OfFiles) -> None:
    with pytest.raises(
        OffsetMismatchError, match="batch 1, the last one there, is not the one in the checkpoint"
    ) as refused:
        diverged.ingest(2, 40, 2, 3)
    assert "start from the checkpoint that matches the stored offsets" in str(refused.value)
    assert "offsets rewind" not in str(refused.value)  # no version of the table goes with this checkpoint


def test_nor_if_the_entry_before_cannot_be_read(diverged: OfFiles) -> None:
    diverged.log(2, 40)
    entry = diverged.checkpoint / "offsets/1"
    entry.write_text(entry.read_text().replace("v1", "v9", 1))
    with pytest.raises(CheckpointError, match="'v9'"):
        diverged.commit(2, diverged.tasks(rows=[{"v": 2}, {"v": 3}]))
    assert diverged.values() == [0, 1, 2]


def test_a_batch_that_was_planned_before_the_restore_counts_as_come_again(tmp_path: Path) -> None:
    query = OfFiles(tmp_path)
    for number in range(3):
        query.ingest(number, 10 * number + 10, number)
    query.log(3, 40)
    planned = query.tasks(rows=[{"v": 3}])
    query.commit(3, query.tasks(rows=[{"v": 3}]))
    take_back(query, 3)
    query.commit(3, planned)
    query.ingest(4, 50, 4)
    assert query.values() == [0, 1, 2, 3, 4]


def test_a_restore_that_undoes_a_restore_is_no_proof(query: SetBack) -> None:
    query.run(0)
    query.copy()
    query.run(1, 2)
    take_back(query, 1)
    query.restore(3)
    query.set_back()
    query.run(1)
    assert query.values() == [0, 1, 1, 2]
    assert main(["audit", str(query.table)]) == 1


def test_a_restore_to_before_all_commits_that_are_kept(query: SetBack, capsys: pytest.CaptureFixture[str]) -> None:
    query.run(0)
    query.copy()
    query.run(1, 2)
    query.restore(1)
    DeltaTable(query.table).create_checkpoint()
    for version in range(4):
        (query.table / "_delta_log" / f"{version:020}.json").unlink()
    query.set_back()
    query.log(1, 20)
    with pytest.raises(OffsetMismatchError, match=r"version 4 \(RESTORE\) removed its rows"):
        query.tasks()
    assert main(["audit", str(query.table)]) == 1  # nothing is left to prove it by
    assert "rows-restored" in capsys.readouterr().out
