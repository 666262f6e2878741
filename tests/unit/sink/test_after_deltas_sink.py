"""A query moves here from Delta's own sink, with its checkpoint: no batch that is in the table is written again.

Delta's sink names its batches by the query's id: ``txn`` with that as ``appId`` and the batch as ``version``. It makes
its commit before Spark notes in the checkpoint that the batch is done, so a query that was killed has a batch to do
again that is in the table.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import table as arrow

from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.delta import DeltaSnapshot
from sparkonce.offset_store.log.proposal import Proposal
from tests.unit.sink.query_by_hand import Query

GUARANTEES = ["exactly-once", "at-least-once", "at-most-once"]


def write_as_delta(query: Query, batch_id: int, query_id: str = "q") -> None:
    """What Delta's own sink does for a batch of one row."""
    properties = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
    write_deltalake(query.table, arrow({"v": [batch_id]}), mode="append", commit_properties=properties)


def log_foreign(query: Query, batch_id: int) -> None:
    """The entry of a batch that Spark's own connector planned."""
    (query.checkpoint / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"topic":{{"0":{10 * (batch_id + 1)}}}}}')


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("is_foreign", [True, False])
def test_the_first_batch_that_is_there_is_refused(tmp_path: Path, guarantee: str, is_foreign: bool) -> None:
    query = Query(tmp_path, guarantee=guarantee)
    write_as_delta(query, 0)
    log_foreign(query, 0) if is_foreign else query.log(0, 10)
    with pytest.raises(
        OffsetMismatchError, match=r"batch 0 of query q .*Delta's own sink has written batch 0"
    ) as error:
        query.tasks(rows=[{"v": 0}])
    assert "sparkonce offsets set TABLE --from-checkpoint" in str(error.value)
    assert query.rows() == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_later_one_is_refused_and_the_next_is_written(tmp_path: Path, guarantee: str) -> None:
    query = Query(tmp_path, guarantee=guarantee, beginsLate="true")
    for batch_id in (0, 1):
        write_as_delta(query, batch_id)
        query.log(batch_id, 10 * (batch_id + 1))
    with pytest.raises(OffsetMismatchError, match="has written batch 1 of this query"):
        query.tasks(rows=[{"v": 1}])
    query.log(2, 30)  # batch 1 is done
    query.commit(2, query.tasks(rows=[{"v": 2}]))
    assert query.rows() == 3


def test_there_and_back_again(tmp_path: Path) -> None:
    """Ours, Delta's, ours: the batch that Delta's sink wrote last is not written again either."""
    query = Query(tmp_path)
    query.write(0, [{"v": 0}])
    write_as_delta(query, 1)
    query.log(1, 20)
    with pytest.raises(OffsetMismatchError, match="has written batch 1 of this query"):
        query.tasks(rows=[{"v": 1}])
    assert query.rows() == 2


def test_other_queries_of_deltas_sink_do_not_matter(tmp_path: Path) -> None:
    query = Query(tmp_path)
    write_as_delta(query, 7, "another query")
    query.write(0, [{"v": 1}])
    assert query.rows() == 2


def test_all_rows_in_place_of_those_there(tmp_path: Path) -> None:
    query = Query(tmp_path, replace=True)
    write_as_delta(query, 0)
    query.write(0, [{"v": 5}])
    assert query.read("v") == [{"v": 5}]


class Course:
    """A query whose batches are written by Delta's sink or by ours, with one checkpoint; either may be killed."""

    def __init__(self, query: Query, seed: int) -> None:
        self.query, self.chance = query, random.Random(seed)
        self.by_delta, self.begun = -1, False

    def run(self, batches: int) -> tuple[list[int], bool]:
        """Return the batches that are done, and whether the last one was refused instead."""
        for batch in range(batches):
            self.query.log(batch, 10 * (batch + 1))
            kills = self.chance.choice([0, 0, 1, 2])
            for attempt in range(kills + 1):
                after_commit = self.chance.random() < 0.5
                try:
                    done = self.attempt(batch, is_killed=attempt < kills, after_commit=after_commit)
                except OffsetMismatchError:
                    return list(range(batch + (self.by_delta == batch))), True
                if done and self.is_ours:
                    break  # Delta's sink would not know of it
        return list(range(batches)), False

    def attempt(self, batch: int, *, is_killed: bool, after_commit: bool) -> bool:
        """Write a batch by one of the two; returns whether its commit was made."""
        self.is_ours = self.chance.random() < 0.5
        if is_killed and not after_commit:
            return False
        if self.is_ours:
            self.query.commit(batch, self.query.tasks(rows=[{"v": batch}]))
        elif self.by_delta < batch:
            write_as_delta(self.query, batch)
            self.by_delta = batch
        return True


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_row_is_there_once_whoever_writes_and_is_killed(tmp_path: Path, guarantee: str) -> None:
    refusals = 0
    for seed in range(24):
        query = Query(tmp_path / str(seed), guarantee=guarantee, beginsLate="true")
        done, refused = Course(query, seed).run(6)
        found = [row["v"] for row in query.read("v")] if query.table.exists() else []
        assert found == done, f"seed {seed}"
        refusals += refused
    assert 0 < refusals < 24


def test_deltas_sink_that_lands_between_look_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver of the former query that was thought dead."""
    write, query = DeltaSnapshot.write, Query(tmp_path)
    query.write(0, [{"v": 0}])
    query.log(1, 20)
    written = query.tasks(rows=[{"v": 1}])

    def overtaken(snapshot: DeltaSnapshot, proposal: Proposal) -> None:
        monkeypatch.setattr(DeltaSnapshot, "write", write)
        write_as_delta(query, 1)
        write(snapshot, proposal)

    monkeypatch.setattr(DeltaSnapshot, "write", overtaken)
    with pytest.raises(OffsetMismatchError, match="Delta's own sink has written batch 1"):
        query.commit(1, written)
    assert query.read("v") == [{"v": 0}, {"v": 1}]


def test_at_most_once_too_when_it_lands_before_the_rows(tmp_path: Path) -> None:
    query = Query(tmp_path, guarantee="at-most-once")
    query.write(0, [{"v": 0}])
    query.log(1, 20)
    written = query.tasks(rows=[{"v": 1}])
    write_as_delta(query, 1)
    with pytest.raises(OffsetMismatchError, match="Delta's own sink has written batch 1"):
        query.commit(1, written)
    assert query.read("v") == [{"v": 0}, {"v": 1}]


def test_what_a_restore_has_taken_out_is_written_again(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 0}])
    write_as_delta(query, 1)
    DeltaTable(query.table).restore(1)
    query.log(1, 20)
    query.commit(1, query.tasks(rows=[{"v": 1}]))
    assert query.read("v") == [{"v": 0}, {"v": 1}]


def test_it_is_refused_also_when_the_log_was_cleaned_up(tmp_path: Path) -> None:
    query = Query(tmp_path, beginsLate="true")
    for batch_id in (0, 1):
        write_as_delta(query, batch_id)
        query.log(batch_id, 10 * (batch_id + 1))
    write_as_delta(query, 7, "another query")
    DeltaTable(query.table).create_checkpoint()
    for version in (0, 1):
        (query.table / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(OffsetMismatchError, match="Delta's own sink has written batch 1"):
        query.tasks(rows=[{"v": 1}])


def test_a_rewind_does_not_leave_out_what_deltas_sink_had_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(tmp_path, beginsLate="true")
    for batch_id in (0, 1):
        write_as_delta(query, batch_id)
        query.log(batch_id, 10 * (batch_id + 1))
    query.log(2, 30)
    query.commit(2, query.tasks(rows=[{"v": 2}]))
    words = ["offsets", "rewind", str(query.table), "--restore", "--apply"]
    assert main([*words, "--to-version", "0"]) == 1
    assert "version 1 has rows of another sink" in capsys.readouterr().err
    assert main([*words, "--to-version", "1"]) == 0
    assert query.read("v") == [{"v": 0}, {"v": 1}]


def test_a_rewind_to_where_offsets_were_stored_minds_no_other_stream(tmp_path: Path) -> None:
    """Although the log does not show any more that the application had begun before it."""
    query = Query(tmp_path)
    query.write(0, [{"v": 0}])
    DeltaTable(query.table).create_checkpoint()
    write_as_delta(query, 0, "another query")
    query.write(1, [{"v": 1}])
    for version in (0, 1):
        (query.table / "_delta_log" / f"{version:020d}.json").unlink()
    assert main(["offsets", "rewind", str(query.table), "--restore", "--apply", "--to-version", "1"]) == 0
    assert query.rows() == 1


def audited(query: Query, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(["audit", str(query.table)])
    return capsys.readouterr().out


def test_the_audit_finds_what_an_earlier_version_wrote_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 0}])
    assert "verdict=proven" in audited(query, capsys)
    log = query.table / "_delta_log"
    ours = (log / f"{1:020d}.json").read_text()
    moved = Query(tmp_path / "moved")
    write_as_delta(moved, 0)  # version 0, as a query into a new table
    (moved.table / "_delta_log" / f"{1:020d}.json").write_text(ours)
    for file in query.table.glob("*.parquet"):
        shutil.copy(file, moved.table)
    found = audited(moved, capsys)
    assert "[batch-twice] batch 0 was written after Delta's own sink had written it" in found
    assert found.splitlines()[-1].endswith("others=1 verdict=broken")
    DeltaTable(moved.table).restore(0)
    assert "[batch-twice]" in audited(moved, capsys), "what was written stays written"


def test_the_audit_finds_a_batch_that_deltas_sink_wrote_after_us(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Back to Delta's sink with the checkpoint of a query that was killed: it does not know what we have written."""
    query = Query(tmp_path)
    query.write(0, [{"v": 0}])
    query.write(1, [{"v": 1}])
    write_as_delta(query, 1)
    assert "[batch-twice] Delta's own sink wrote batch 1 of query q, and version 2" in audited(query, capsys)
    write_as_delta(query, 2)
    assert audited(query, capsys).splitlines()[-1].endswith("others=1 verdict=broken")


def test_rows_in_place_of_all_others_are_not_there_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = Query(tmp_path, replace=True)
    write_as_delta(query, 0)
    DeltaTable(query.table).delete()
    query.write(0, [{"v": 5}])
    assert "[batch-twice]" not in audited(query, capsys)


def test_after_a_restore_deltas_batch_is_not_there_any_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 0}])
    write_as_delta(query, 1)
    DeltaTable(query.table).restore(1)
    (query.checkpoint / "offsets" / "1").unlink(missing_ok=True)
    query.log(1, 20)
    commit = json.loads((query.table / "_delta_log" / f"{1:020d}.json").read_text().splitlines()[0])
    assert commit["commitInfo"]["sparkonce"]["queryId"] == "q"
    assert "[batch-twice]" not in audited(query, capsys)
