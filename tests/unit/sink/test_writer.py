"""The sink's driver side without Spark: a checkpoint made by hand, a real Delta table, and commits that fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from lab.crash_plans import arm, fired
from sparkonce import crash_points
from sparkonce.connectors.delta_sink.schema import SchemaError
from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.connectors.delta_sink.target import DeltaPlan, may_land_later
from sparkonce.connectors.formats.delta_once import DeltaOnceDataSource
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.crash_points import CrashPlans, InjectedCrashError
from sparkonce.exactly_once.decision import AlreadyWritten
from sparkonce.exactly_once.errors import CheckpointError, FencedError, UnknownOutcomeError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.txn_ids import query_txn_id
from sparkonce.options import OptionError
from tests.unit.sink.query_by_hand import SCHEMA, Query


@pytest.fixture
def query(tmp_path: Path) -> Query:
    made = Query(tmp_path)
    made.log(0, 10)
    return made


def fail_commits(monkeypatch: pytest.MonkeyPatch, before: Exception | None, after: Exception | None) -> None:
    original = TableLog.commit

    def failing(self: TableLog, *args: Any) -> int:
        if before is not None:
            raise before
        version = original(self, *args)
        if after is not None:
            raise after
        return version

    monkeypatch.setattr(TableLog, "commit", failing)


def test_abort_after_the_commit_landed_deletes_nothing(query: Query) -> None:
    messages = query.tasks()
    query.commit(0, messages)
    query.abort(0, messages)
    assert (query.rows(), query.files()) == (2, 2)


def test_abort_deletes_what_was_not_committed(query: Query) -> None:
    messages = query.tasks()
    assert query.files() == 2
    query.abort(0, messages)
    assert query.files() == 0


def test_abort_deletes_its_own_files_only(query: Query) -> None:
    first = query.tasks()
    query.commit(0, query.tasks())
    query.abort(0, first)
    assert (query.rows(), query.files()) == (2, 2)


@pytest.mark.parametrize("error", [OSError("a hook failed"), CommitFailedError("lost answer")])
def test_a_commit_that_landed_and_raised_is_a_commit(
    query: Query, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    messages = query.tasks()
    fail_commits(monkeypatch, before=None, after=error)
    query.commit(0, messages)
    query.abort(0, messages)
    assert (query.rows(), DeltaTable(query.table).version()) == (2, 1)


def test_a_commit_that_did_not_land_raises_and_its_files_go(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = query.tasks()
    fail_commits(monkeypatch, before=OSError("No space left on device"), after=None)
    with pytest.raises(OSError, match="No space left"):
        query.commit(0, messages)
    query.abort(0, messages)
    assert (query.rows(), query.files()) == (0, 0)


def test_a_commit_of_unknown_outcome_is_done_again(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = query.tasks()
    original = DeltaOffsetStore.snapshot_unchecked
    calls = []

    def breaking(self: DeltaOffsetStore) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise OffsetStoreError("planted: cannot be read")
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaOffsetStore, "snapshot_unchecked", breaking)
        fail_commits(patch, before=OSError("no answer"), after=None)
        with pytest.raises(UnknownOutcomeError):
            query.commit(0, messages)
        query.abort(0, messages)
    assert (query.rows(), query.files()) == (0, 2)
    query.abort(0, messages)
    assert (query.rows(), query.files()) == (0, 0)
    query.commit(0, query.tasks())
    assert query.rows() == 2


def test_files_stay_where_a_failed_commit_may_land_later() -> None:
    store, disk = Location.parse("s3://bucket/table"), Location.parse("/data/table")
    assert may_land_later(store, every_task_answered=True)
    assert not may_land_later(store, every_task_answered=False)
    assert not may_land_later(disk, every_task_answered=True)


def test_a_replayed_batch_runs_no_task(query: Query) -> None:
    query.commit(0, query.tasks())
    messages = query.tasks()
    assert not messages[0].plans[0].writes_rows
    query.commit(0, messages)
    assert (query.rows(), query.files()) == (2, 2)


def test_a_batch_that_is_passed_over_is_told_once(
    query: Query, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query.commit(0, query.tasks())
    assert not caplog.messages
    fresh = Query(tmp_path, "fresh")
    fresh.log(0, 10)
    fresh.commit(0, fresh.tasks())
    (told,) = caplog.messages
    where = f"in the table {query.table} (offsets in delta:{query.table}) already, nothing is written again"
    assert told.startswith(f"delta_once: batch 0 of query fresh (appId app): its rows are {where}. ")
    assert "It covers kafka topic-0 [0, 10). " in told
    assert f"checkpointLocation={fresh.checkpoint}, which" in told


def test_a_batch_of_many_partitions_that_is_passed_over_names_some(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.log(0, 10, partitions=5)
    query.commit(0, query.tasks())
    caplog.clear()
    query.tasks()
    (told,) = caplog.messages
    assert "kafka topic-0 [0, 10), kafka topic-1 [0, 10), kafka topic-2 [0, 10), 2 more partitions. Either" in told


def test_the_loser_of_two_drivers_stops_and_cleans_up(query: Query, tmp_path: Path) -> None:
    rival = Query(tmp_path, "rival")
    rival.log(0, 10)
    mine, theirs = query.tasks(), rival.tasks()
    rival.commit(0, theirs)
    with pytest.raises(FencedError, match="version 1 of the table holds batch 0 of query rival"):
        query.commit(0, mine)
    query.abort(0, mine)
    assert (query.rows(), query.files()) == (2, 2)


def test_a_schema_that_changes_under_a_batch_stops_it(query: Query) -> None:
    messages = query.tasks()
    (plan,) = messages[0].plans
    assert isinstance(plan, DeltaPlan)
    other = replace(plan.settings.schema, arrow=pa.schema([("v", pa.int32())]))
    changed = replace(plan, settings=replace(plan.settings, schema=other))
    with pytest.raises(TableError, match="changed while batch 0"):
        query.commit(0, [replace(messages[0], plans=(changed,))])
    query.abort(0, messages)
    assert (query.rows(), query.files()) == (0, 0)


def overtake(monkeypatch: pytest.MonkeyPatch, query: Query, *changes: Callable[[DeltaTable], object]) -> None:
    """Let others commit just before our own commits: one change before each, so our handle is one version behind."""
    original = TableLog.commit
    waiting = list(changes)

    def overtaken(self: TableLog, *args: Any) -> int:
        if waiting:
            waiting.pop(0)(DeltaTable(query.table))
        return original(self, *args)

    monkeypatch.setattr(TableLog, "commit", overtaken)


def with_schema(*fields: Field) -> Callable[[DeltaTable], object]:
    return lambda table: table.create_write_transaction([], "overwrite", Schema(list(fields)))


def add_column(table: DeltaTable) -> None:
    table.alter.add_columns([Field("w", PrimitiveType("string"))])


def append_rows(table: DeltaTable) -> None:
    write_deltalake(table, pa.table({"v": pa.array([7], pa.int64())}), mode="append")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_schema(Field("v", PrimitiveType("integer"))), "column v is int in the table and bigint in the query"),
        (with_schema(Field("v", PrimitiveType("long"), nullable=False)), "changed while batch 0"),
        (
            with_schema(Field("v", PrimitiveType("long")), Field("w", PrimitiveType("long"), nullable=False)),
            "column w .*NOT NULL",
        ),
        (lambda table: table.alter.add_constraint({"c": "v < 9"}), "changed while batch 0"),
    ],
    ids=["type", "not null", "required column", "constraint"],
)
@pytest.mark.parametrize("look_first", [True, False], ids=["after the look", "before it"])
def test_a_change_that_makes_files_wrong_stops_the_batch(
    query: Query, monkeypatch: pytest.MonkeyPatch, change: Callable[[DeltaTable], object], reason: str, look_first: bool
) -> None:
    """The handle that is compared is the one committed through: the change makes it conflict, and is seen then."""
    messages = query.tasks()
    if look_first:
        overtake(monkeypatch, query, change)
    else:
        change(DeltaTable(query.table))
    with pytest.raises((TableError, SchemaError), match=reason):
        query.commit(0, messages)
    query.abort(0, messages)
    assert (query.rows(), query.files()) == (0, 0)


UNRELATED: dict[str, Callable[[DeltaTable], object]] = {
    "append": append_rows,
    "optimize": lambda table: table.optimize.compact(),
    "vacuum": lambda table: table.vacuum(0, enforce_retention_duration=False, dry_run=False),
    "delete": lambda table: table.delete("v < 0"),
    "property": lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
    "new column": add_column,
    "description": lambda table: table.alter.set_table_description("other"),
}


@pytest.mark.parametrize("kind", UNRELATED)
def test_unrelated_commits_are_retried_over(query: Query, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """What others commit meanwhile, and does not make our files wrong: the batch goes behind it."""
    query.writer().begin()
    for _ in range(2):
        append_rows(DeltaTable(query.table))
    messages = query.tasks()
    overtake(monkeypatch, query, UNRELATED[kind])
    query.commit(0, messages)
    table = DeltaTable(query.table)
    assert table.transaction_version(query_txn_id("app", "q")) == 0
    values = table.to_pyarrow_table().column("v").to_pylist()
    assert sorted(values) == [0, 1, 7, 7] + [7] * (kind == "append")


def test_a_new_column_of_others_reads_back_as_null(query: Query) -> None:
    """Delta's own rule: a column that the rows lack is null."""
    messages = query.tasks()
    add_column(DeltaTable(query.table))
    query.commit(0, messages)
    query.log(1, 20)
    query.commit(1, query.tasks())
    assert DeltaTable(query.table).to_pyarrow_table().to_pylist() == [{"v": n, "w": None} for n in (0, 1, 0, 1)]


def test_a_column_added_after_a_commit_does_not_hide_that_it_landed(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = query.tasks()
    original = TableLog.commit

    def losing(self: TableLog, *args: Any) -> int:
        original(self, *args)
        DeltaTable(query.table).alter.add_columns([Field("w", PrimitiveType("string"))])
        raise OSError("the answer was lost")

    monkeypatch.setattr(TableLog, "commit", losing)
    query.commit(0, messages)
    query.abort(0, messages)
    assert (query.rows(), query.files()) == (2, 2)


def test_a_batch_without_tasks_is_nothing(query: Query) -> None:
    query.commit(0, [])
    query.abort(0, [])
    assert not query.table.exists()


def test_the_source_checks_before_it_gives_a_writer(query: Query, tmp_path: Path) -> None:
    writer = DeltaOnceDataSource(query.options).streamWriter(SCHEMA, overwrite=False)
    assert isinstance(writer, StreamSink)
    assert writer._plans
    assert DeltaOnceDataSource.name() == "delta_once"
    empty = {**query.options, "checkpointLocation": str(tmp_path / "empty")}
    with pytest.raises(CheckpointError, match="holds no batch"):
        DeltaOnceDataSource(empty).streamWriter(SCHEMA, overwrite=False)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_the_other_orders_write_two_commits(tmp_path: Path, guarantee: str) -> None:
    query = Query(tmp_path, guarantee=guarantee)
    query.log(0, 10)
    query.commit(0, query.tasks())
    assert query.rows() == 2
    assert DeltaTable(query.table).version() == 2
    query.commit(0, query.tasks())
    assert query.rows() == 2


def test_at_most_once_does_not_say_that_rows_are_there_which_a_crash_has_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(tmp_path, guarantee="at-most-once")
    query.log(0, 10)
    query.tasks()  # the offsets are stored, and the driver is killed before the rows are
    caplog.clear()
    query.tasks()
    (told,) = caplog.messages
    assert "its offsets are stored already, and at-most-once writes nothing again to the table" in told
    assert "rows that were not yet written at a crash are lost. It covers kafka topic-0 [0, 10). " in told
    assert query.rows() == 0


@pytest.mark.parametrize("guarantee", Guarantee)
def test_exactly_once_never_stands_between_two_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee
) -> None:
    """With the other guarantees the same batches reach the point that is armed here."""
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    plan = arm(tmp_path, "between", "app:sink.between_writes=raise")
    query = Query(tmp_path, guarantee=guarantee.value)
    query.log(0, 10)
    if guarantee is not Guarantee.EXACTLY_ONCE:
        with pytest.raises(InjectedCrashError, match=r"sink\.between_writes, batch 0"):
            query.commit(0, query.tasks())
        assert fired(plan)
        return
    query.commit(0, query.tasks())
    query.log(1, 20)
    query.commit(1, [replace(each, parts=(None,)) for each in query.tasks()])
    assert fired(plan) is None
    made = [entry["sparkonce"] for entry in DeltaTable(query.table).history()[:-1]]
    both = ["rows", "offsets"]
    assert [(each["batchId"], each["writes"]) for each in made] == [(1, both), (0, both)]


@pytest.mark.parametrize("end", [10, 20])
def test_a_fresh_checkpoint_over_batches_that_are_there_writes_nothing(tmp_path: Path, end: int) -> None:
    """The new query's first batch ends before the stored offset, or at it: neither a commit nor a file is made."""
    first, fresh = Query(tmp_path), Query(tmp_path, "fresh")
    for batch_id, reached in enumerate((10, 20)):
        first.log(batch_id, reached)
        first.commit(batch_id, first.tasks())
    version = DeltaTable(first.table).version()
    fresh.log(0, end)
    messages = fresh.tasks()
    (plan,) = messages[0].plans
    assert isinstance(plan, DeltaPlan)
    assert plan.plan.decision == AlreadyWritten()
    fresh.commit(0, messages)
    assert (fresh.rows(), fresh.files()) == (4, 4)
    table = DeltaTable(first.table)
    assert table.version() == version
    assert table.transaction_version(query_txn_id("app", "fresh")) is None


@pytest.mark.parametrize("made_anew", [False, True])
def test_files_of_a_table_that_was_deleted_are_not_committed_to_the_next(query: Query, made_anew: bool) -> None:
    messages = query.tasks()
    shutil.rmtree(query.table)
    if made_anew:
        query.writer().begin()
    with pytest.raises(TableError, match="was deleted, or replaced by another, while a batch was written"):
        query.commit(0, messages)
    assert query.table.exists() == made_anew
    query.commit(0, query.tasks())
    assert query.rows() == 2


def test_nothing_is_read() -> None:
    source = DeltaOnceDataSource({})
    with pytest.raises(OptionError, match="only writes: read the table with"):
        source.schema()
