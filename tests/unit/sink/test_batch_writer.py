"""`df.write.format("delta_once")` by hand: jobs that fail, lose an answer, race, and come again with their key."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StringType, StructType

from sparkonce.connectors.delta_sink.batch_writer import DeltaBatchWriter
from sparkonce.connectors.delta_sink.options import BatchOptions, SinkOptions
from sparkonce.connectors.delta_sink.table import ResultSnapshot, TableError
from sparkonce.exactly_once.errors import DeliveryError, FilesGoneError
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.options import OptionError
from tests.cases import each_case
from tests.unit.recovery.recovery_support import Pipeline

SCHEMA = StructType().add("n", LongType()).add("day", StringType())


class Job:
    """One `df.write`, step by step."""

    def __init__(self, table: Path, schema: StructType = SCHEMA, *, overwrite: bool = False, **options: str) -> None:
        read = BatchOptions.read({"path": str(table), **options})
        self.writer = DeltaBatchWriter(read, schema, replace=overwrite)
        self.messages: list[WriterCommitMessage | None] = []

    def task(self, *numbers: int, counts: bool = True) -> Job:
        """Write the rows of one task; one that does not count is an attempt that Spark throws away."""
        rows = pa.RecordBatch.from_pydict(
            {"n": pa.array(numbers, pa.int64()), "day": pa.array(["d"] * len(numbers))},
        )
        message = self.writer.write(iter([rows]))
        if counts:
            self.messages.append(message)
        return self

    def commit(self) -> None:
        self.writer.commit(self.messages)

    def abort(self) -> None:
        self.writer.abort(self.messages)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def rows(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["n"].to_pylist())


def data_files(table: Path) -> set[str]:
    return {path.name for path in table.rglob("*.parquet") if "_delta_log" not in path.parts}


def named(table: Path) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(table).file_uris()}


def test_rows_of_all_tasks_are_in_one_commit(table: Path) -> None:
    job = Job(table, partitionBy="day").task(1, 2).task(3).task()
    assert rows(table) == []
    job.commit()
    assert rows(table) == [1, 2, 3]
    assert DeltaTable(table).version() == 1
    assert DeltaTable(table).metadata().partition_columns == ["day"]
    Job(table).task(4).commit()
    assert rows(table) == [1, 2, 3, 4]


def test_overwrite_replaces_all_rows(table: Path) -> None:
    Job(table).task(1, 2).commit()
    Job(table, overwrite=True).task(3).commit()
    assert rows(table) == [3]
    Job(table, overwrite=True).task().commit()
    assert rows(table) == []


def test_an_attempt_that_spark_throws_away_adds_no_row(table: Path) -> None:
    Job(table).task(1, counts=False).task(1).commit()
    assert rows(table) == [1]


def test_a_job_that_fails_leaves_nothing(table: Path) -> None:
    job = Job(table).task(1).task(2)
    assert len(data_files(table)) == 2
    job.messages.append(None)
    job.abort()
    assert (rows(table), data_files(table)) == ([], set())


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_key_is_written_once(table: Path, overwrite: bool, caplog: pytest.LogCaptureFixture) -> None:
    def job(key: str) -> Job:
        return Job(table, overwrite=overwrite, idempotencyKey=key)

    job("monday/1").task(1, 2).commit()
    version = DeltaTable(table).version()
    job("monday/1").task(1).task(2).commit()
    assert DeltaTable(table).version() == version
    assert "has a write of 2 rows under idempotencyKey=monday/1: nothing is written again" in caplog.text
    with pytest.raises(DeliveryError, match="a write of 2 rows under idempotencyKey=monday/1, and this one has 3 rows"):
        job("monday/1").task(1, 2, 3).commit()
    job("tuesday").task(4).commit()
    assert rows(table) == ([4] if overwrite else [1, 2, 4])
    assert data_files(table) >= named(table)


def test_a_key_without_rows_counts(table: Path) -> None:
    Job(table, idempotencyKey="k").task().commit()
    with pytest.raises(DeliveryError, match="a write of 0 rows"):
        Job(table, idempotencyKey="k").task(1).commit()


def test_without_a_key_and_without_rows_nothing_is_committed(table: Path) -> None:
    Job(table).task().commit()
    assert DeltaTable(table).version() == 0


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("between", ["begin", "commit"])
def test_of_two_jobs_with_one_key_one_lands(
    table: Path, overwrite: bool, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(table).task(0).commit()
    first, second = (Job(table, overwrite=overwrite, idempotencyKey="k").task(n, n) for n in (1, 2))
    if between == "begin":
        second.commit()
    else:
        before_a_write(monkeypatch, second.commit)
    first.commit()
    assert rows(table) == ([2, 2] if overwrite else [0, 2, 2])
    assert overwrite or data_files(table) == named(table)


def before_a_write(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen between the look at the table and the commit."""
    write, acted = ResultSnapshot.write, False

    def late(snapshot: ResultSnapshot, proposal: Proposal) -> None:
        nonlocal acted
        if not acted:
            acted = True
            act()
        write(snapshot, proposal)

    monkeypatch.setattr(ResultSnapshot, "write", late)


def test_an_overwrite_replaces_what_came_meanwhile(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Job(table).task(0).commit()
    job = Job(table, overwrite=True).task(5)
    before_a_write(monkeypatch, lambda: write_deltalake(table, pa.table({"n": [9], "day": ["d"]}), mode="append"))
    job.commit()
    assert rows(table) == [5]


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("error", [DeltaError, OSError, CommitConflictError, OffsetStoreError])
def test_an_answer_that_is_lost(
    table: Path, landed: bool, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = ResultSnapshot.write, 0

    def losing(snapshot: ResultSnapshot, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if landed or calls > 1:
            write(snapshot, *arguments)
        if calls == 1:
            raise error("the answer was lost")

    monkeypatch.setattr(ResultSnapshot, "write", losing)
    job = Job(table).task(1)
    if landed or error is CommitConflictError:
        job.commit()
        job.abort()  # whatever Spark does, rows that landed stay
        assert rows(table) == [1]
        return
    with pytest.raises(error, match="the answer was lost"):
        job.commit()
    job.abort()
    assert (rows(table), data_files(table)) == ([], set())


def test_a_commit_that_lands_after_its_conflict_was_reported(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that is found then is its own, and so are the files that the table names."""
    job = Job(table, idempotencyKey="k").task(1)
    write, has_landed, late = ResultSnapshot.write, DeltaBatchWriter._has_landed, list[Callable[[], None]]()

    def conflicting(snapshot: ResultSnapshot, *arguments: Any) -> None:
        late.append(lambda: write(snapshot, *arguments))
        raise CommitConflictError("a conditional request conflicts")

    def look_too_early(writer: DeltaBatchWriter) -> bool:
        found = has_landed(writer)
        if late:
            late.pop()()
        return found

    monkeypatch.setattr(ResultSnapshot, "write", conflicting)
    monkeypatch.setattr(DeltaBatchWriter, "_has_landed", look_too_early)
    job.commit()
    assert rows(table) == [1]


def test_what_happens_to_the_table_meanwhile_is_noticed(table: Path) -> None:
    job = Job(table).task(1)
    for path in table.glob("batch-*"):
        path.unlink()
    with pytest.raises(FilesGoneError, match=r"this write: 1 of its 1 data files are gone"):
        job.commit()
    job = Job(table).task(1)
    shutil.rmtree(table)
    write_deltalake(table, pa.table({"n": [9], "day": ["d"]}))
    with pytest.raises(TableError, match="was deleted, or replaced by another, while a batch was written to it"):
        job.commit()
    assert rows(table) == [9]


def test_a_key_that_goes_while_rows_are_counted(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Job(table, idempotencyKey="k").task(1).commit()
    job = Job(table, idempotencyKey="k").task(1)
    monkeypatch.setattr(ResultSnapshot, "look_up", lambda *_: None)
    with pytest.raises(DeliveryError, match="is not there now: the table was replaced"):
        job.commit()


def test_columns_are_added_only_for_a_write_that_is_made(table: Path) -> None:
    write_deltalake(table, pa.table({"n": [0]}))
    Job(table, mergeSchema="true", idempotencyKey="k").task(1).commit()
    wider = StructType([*SCHEMA.fields, *StructType().add("more", LongType()).fields])
    Job(table, wider, mergeSchema="true", idempotencyKey="k").task(2).commit()
    assert DeltaTable(table).schema().to_arrow().names == ["n", "day"]
    assert rows(table) == [0, 1]


def test_the_log_names_the_write(table: Path) -> None:
    Job(table, idempotencyKey="k").task(1).commit()
    written = DeltaTable(table).history(1)[0]["sparkonceWrite"]
    assert (written["rows"], written["idempotencyKey"]) == (1, "k")
    assert OffsetsTable.open(Location.parse(str(table))).entries()[0].name == "batch write"


@each_case(
    ("given", "complaint"),
    [
        ({}, "option path is required"),
        ({"path": "t", "appId": "a"}, "appId is for writeStream"),
        ({"path": "t", "checkpointLocation": "c"}, "checkpointLocation is for writeStream"),
        ({"path": "t", "deliveryGuarantee": "at-least-once"}, "deliveryGuarantee is for writeStream"),
        ({"path": "t", "deadLetters": "topic:d"}, "deadLetters is for writeStream"),
        ({"path": "t", "kafka.bootstrap.servers": "k"}, "kafka.bootstrap.servers is for writeStream"),
        ({"path": "t", "txnAppId": "a"}, "here idempotencyKey names a write that is made once"),
        ({"path": "t", "idempotencyKey": " "}, "it is empty; choose a name for this one write"),
        ({"path": "t", "idempotenceKey": "k"}, "did you mean 'idempotencyKey'"),
    ],
)
def test_options_that_make_no_sense_are_rejected(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        BatchOptions.read(given)


def test_a_stream_has_no_key() -> None:
    given = {"path": "t", "appId": "a", "checkpointLocation": "c", "idempotencyKey": "k"}
    with pytest.raises(OptionError, match=r"idempotencyKey is for batches \(df\.write\)"):
        SinkOptions.read(given)


def test_dead_letters_are_no_rows(table: Path) -> None:
    read = BatchOptions.read({"path": str(table)})
    with pytest.raises(OptionError, match=r"a batch .* writes no dead letters"):
        DeltaBatchWriter(read, StructType().add("_dead_letter", StringType()), replace=False)


def test_a_key_whose_rows_a_restore_removed_is_not_taken_for_written(table: Path) -> None:
    Job(table).task(0).commit()
    Job(table, idempotencyKey="k").task(1, 2).commit()
    DeltaTable(table).restore(1)
    with pytest.raises(DeliveryError, match=r"version 3 \(RESTORE\) removed that write of 2 rows.*another"):
        Job(table, idempotencyKey="k")
    Job(table, idempotencyKey="k again").task(1, 2).commit()
    assert rows(table) == [0, 1, 2]
    DeltaTable(table).restore(2)
    Job(table, idempotencyKey="k").task(1, 2).commit()
    assert rows(table) == [0, 1, 2]


def test_a_key_from_before_the_kept_log_counts_unless_a_restore_may_have_removed_it(table: Path) -> None:
    Job(table).task(0).commit()
    Job(table, idempotencyKey="k").task(1, 2).commit()
    Job(table).task(3).commit()
    DeltaTable(table).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    Job(table, idempotencyKey="k").task(1, 2).commit()
    assert rows(table) == [0, 1, 2, 3]


def test_the_audit_shows_an_overwrite_of_rows_of_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline.create(tmp_path / "table")
    pipeline.commit(0, {0: (0, 5)})
    job = Job(pipeline.path, StructType().add("x", LongType()), overwrite=True)
    job.commit()
    assert pipeline.rows() == []
    assert main(["audit", str(pipeline.path)]) == 0
    assert "batch write: [rows-removed] it removed or replaced 1 data file" in capsys.readouterr().out
