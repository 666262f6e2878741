"""Rows and offsets in one SQL transaction: real SQLite files, no Spark."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce.connectors.sinks.foreach import SqlResult
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.errors import FencedError, OffsetMismatchError
from sparkonce.exactly_once.foreach_batch import ForeachBatch, RowsOnly
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.memory import MemoryOffsetStore
from sparkonce.offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, Writes
from tests.cases import each_case

KEY = ("s", TopicPartition("t", "id", 0))


class Database:
    """One file; `fail_at` makes a step of the next write fail once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fail_at = ""
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE numbers (n INTEGER)")
        connection.close()

    def connect(self) -> Any:
        database = self

        class Connection(sqlite3.Connection):
            def commit(self) -> None:
                if database.took("before the commit"):
                    raise OSError("nothing was written")
                super().commit()
                if database.took("after the commit"):
                    raise OSError("the answer was lost")

        return sqlite3.connect(self.path, factory=Connection)

    def took(self, step: str) -> bool:
        taken = self.fail_at == step
        self.fail_at = "" if taken else self.fail_at
        return taken

    def write(self, connection: Any, rows: Iterable[int]) -> None:
        connection.executemany("INSERT INTO numbers VALUES (?)", [(row,) for row in rows])
        if self.took("after the rows"):
            raise OSError("the connection broke")

    def numbers(self) -> list[int]:
        connection = sqlite3.connect(self.path)
        try:
            return sorted(row[0] for row in connection.execute("SELECT n FROM numbers"))
        finally:
            connection.close()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "rows.db")


@pytest.fixture
def result(database: Database) -> SqlResult:
    return SqlResult(database.connect, "app", database.write)


def record(batch_id: int, start: int, end: int, attempt: str) -> BatchRecord:
    return BatchRecord("app", "q", batch_id, attempt, {KEY: OffsetRange(start, end)})


def deliver(result: SqlResult, batch_id: int, start: int, end: int, attempt: str = "a") -> bool:
    delivery = Delivery(result, ORDERS[Guarantee.EXACTLY_ONCE])
    incoming = Batch(record(batch_id, start, end, attempt), stateful=False)
    return delivery.finish(incoming, delivery.begin(incoming), [list(range(start, end))])


def test_batches_follow_each_other_and_replays_write_nothing(database: Database, result: SqlResult) -> None:
    assert deliver(result, 0, 0, 3)
    assert deliver(result, 1, 3, 5)
    assert not deliver(result, 1, 3, 5, "again")
    assert database.numbers() == [0, 1, 2, 3, 4]
    newest = result.snapshot().history(1)
    assert [(each.version, each.record.batch_id, each.writes) for each in newest] == [
        (2, 1, Writes.ROWS | Writes.OFFSETS)
    ]
    assert len(result.snapshot().history()) == 2


@pytest.mark.parametrize("step", ["after the rows", "before the commit", "after the commit"])
def test_a_failure_at_every_step(database: Database, result: SqlResult, step: str) -> None:
    deliver(result, 0, 0, 3)
    snapshot = result.snapshot()
    database.fail_at = step
    if step == "after the commit":
        # Snapshots commit too, to make their tables: so this one is taken before.
        with pytest.raises(CommitConflictError, match="another commit has number 2"):
            snapshot.commit(Commit(record(1, 3, 5, "b"), Writes.ROWS | Writes.OFFSETS, [[3, 4]]))
        assert result.snapshot().history(1)[0].record.attempt_id == "b"
    else:
        with pytest.raises(OSError, match=r"nothing was written|broke"):
            snapshot.commit(Commit(record(1, 3, 5, "b"), Writes.ROWS | Writes.OFFSETS, [[3, 4]]))
        assert database.numbers() == [0, 1, 2]
    deliver(result, 1, 3, 5, "c")
    assert database.numbers() == [0, 1, 2, 3, 4]


def test_a_lost_answer_is_found_out(database: Database, result: SqlResult) -> None:
    deliver(result, 0, 0, 3)
    delivery = Delivery(result, ORDERS[Guarantee.EXACTLY_ONCE])
    incoming = Batch(record(1, 3, 5, "b"), stateful=False)
    plan = delivery.begin(incoming)

    def write(connection: Any, rows: Iterable[int]) -> None:
        database.write(connection, rows)
        database.fail_at = "after the commit"

    late = Delivery(SqlResult(database.connect, "app", write), ORDERS[Guarantee.EXACTLY_ONCE])
    assert late.finish(incoming, plan, [[3, 4]])
    assert database.numbers() == [0, 1, 2, 3, 4]


def test_the_second_of_two_drivers_stops(database: Database, result: SqlResult) -> None:
    delivery = Delivery(result, ORDERS[Guarantee.EXACTLY_ONCE])
    slow = Batch(record(0, 0, 7, "slow"), stateful=False)
    plan = delivery.begin(slow)
    deliver(result, 0, 0, 3, "quick")
    with pytest.raises(FencedError, match="Another driver runs with the same appId"):
        delivery.finish(slow, plan, [list(range(7))])
    assert database.numbers() == [0, 1, 2]


def test_two_commits_from_one_snapshot_conflict(database: Database, result: SqlResult) -> None:
    first, second = result.snapshot(), result.snapshot()
    first.commit(Commit(record(0, 0, 1, "a"), Writes.ROWS | Writes.OFFSETS, [[0]]))
    with pytest.raises(CommitConflictError):
        second.commit(Commit(record(0, 0, 1, "b"), Writes.ROWS | Writes.OFFSETS, [[0]]))
    assert database.numbers() == [0]


def test_applications_do_not_meet(database: Database, result: SqlResult) -> None:
    deliver(result, 0, 0, 3)
    other = SqlResult(database.connect, "other", database.write)
    assert other.snapshot().version == 0
    assert other.snapshot().next_offsets([KEY]) == {}
    assert result.snapshot().next_offsets([KEY]) == {KEY: 3}


def test_a_connection_without_transactions_is_refused(database: Database) -> None:
    def connect() -> Any:
        return sqlite3.connect(database.path, isolation_level=None)

    with pytest.raises(ValueError, match="commits after each statement"):
        deliver(SqlResult(connect, "app", database.write), 0, 0, 3)
    assert database.numbers() == []


@each_case(
    ("told_by", "refused"),
    [
        ({"autocommit": True}, True),
        ({"autocommit": False}, False),
        ({"autocommit": lambda on: on}, False),
        ({"autocommit": lambda on: on, "get_autocommit": lambda: 1}, True),
        ({"autocommit": lambda on: on, "get_autocommit": lambda: 0}, False),
        ({"isolation_level": None, "autocommit": False}, False),  # psycopg: the server's level
    ],
)
def test_drivers_tell_autocommit_in_their_own_ways(told_by: dict[str, Any], refused: bool) -> None:
    connection = SimpleNamespace(close=lambda: None, **told_by)
    result = SqlResult(lambda: connection, "app", lambda *_: None)
    if refused:
        with pytest.raises(ValueError, match="commits after each statement"):
            result.open()
    else:
        assert result.open() is connection


def test_a_statement_that_commits_by_itself_does_not_make_a_failed_batch_pass_for_landed(database: Database) -> None:
    def write(connection: Any, rows: Iterable[int]) -> None:
        connection.executescript("CREATE TABLE IF NOT EXISTS other (n INTEGER)")
        if database.took("after the script"):
            raise OSError("the rows cannot be written")
        database.write(connection, rows)

    result = SqlResult(database.connect, "app", write)
    database.fail_at = "after the script"
    with pytest.raises(OSError, match="the rows cannot be written"):
        deliver(result, 0, 0, 3)
    assert result.snapshot().stored == {}
    assert deliver(result, 0, 0, 3)
    assert database.numbers() == [0, 1, 2]


def test_another_placeholder() -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    assert SqlResult(refuse, "app", refuse, placeholder="%s").sql("a = ? AND b = ?") == "a = %s AND b = %s"


def checkpoint(folder: Path, ends: Mapping[int, int], origin: int = 0) -> str:
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    for batch_id, end in ends.items():
        line = SourceOffset("s", {KEY[1]: Position(origin, end)}).to_json()
        (folder / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{line}")
    return str(folder)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_foreach_batch_reads_the_range_from_the_checkpoint(
    database: Database, result: SqlResult, tmp_path: Path, guarantee: Guarantee
) -> None:
    offsets = None if guarantee is Guarantee.EXACTLY_ONCE else MemoryOffsetStore("app", now_ms=lambda: 0)
    checkpoints = [
        checkpoint(tmp_path / f"c{number}", {at: 2 * at + 2 for at in range(number + 1)}) for number in range(2)
    ]
    for number, folder in enumerate(checkpoints):
        for _ in range(2):
            ForeachBatch(result, folder, "app", guarantee, offsets)([2 * number, 2 * number + 1], number)
    assert database.numbers() == [0, 1, 2, 3]
    stored = (offsets or result).snapshot().next_offsets([KEY])
    assert stored == {KEY: 4}


def test_a_batch_that_is_written_in_parts_is_not_passed_over_in_silence(
    database: Database, result: SqlResult, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write = ForeachBatch(result, checkpoint(tmp_path / "c", {0: 4}), "app")
    write([0, 1], 0)
    assert not caplog.records
    write([2, 3], 0)
    assert database.numbers() == [0, 1]
    assert "batch 0 of query q (appId app): its rows are in the result already, nothing is written again" in caplog.text


def test_foreach_batch_refuses_another_query_s_checkpoint(result: SqlResult, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", {0: 2, 1: 4})
    with pytest.raises(RuntimeError, match="Spark runs batch 0, and 1 is the newest"):
        ForeachBatch(result, folder, "app")([], 0)


def test_foreach_batch_refuses_what_cannot_work(result: SqlResult) -> None:
    with pytest.raises(ValueError, match="app_id is empty"):
        ForeachBatch(result, "c", " ")
    with pytest.raises(ValueError, match="cannot live in two places"):
        ForeachBatch(result, "c", "app", Guarantee.EXACTLY_ONCE, MemoryOffsetStore("app"))


def test_a_result_without_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, written = checkpoint(tmp_path / "c", {0: 2}), []

    def write(rows: list[int], record: BatchRecord) -> None:
        written.append((record.batch_id, rows))
        if len(written) == 1:
            raise OSError("the service did not answer")

    for guarantee, batches in ((Guarantee.AT_LEAST_ONCE, 2), (Guarantee.AT_MOST_ONCE, 1)):
        written.clear()
        once = ForeachBatch(RowsOnly(write), folder, "app", guarantee, MemoryOffsetStore("app", now_ms=lambda: 0))
        with pytest.raises(OSError, match="did not answer"):
            once([1, 2], 0)
        once([1, 2], 0)
        assert written == [(0, [1, 2])] * batches
    assert "rows that were not yet written at a crash are lost" in caplog.text
    assert "its rows are in" not in caplog.text
    with pytest.raises(ValueError, match="RowsOnly holds no offsets"):
        ForeachBatch(RowsOnly(write), folder, "app")


@pytest.mark.parametrize("query", ["q", "new"])
def test_a_database_is_begun_at_by_starting_offsets(result: SqlResult, tmp_path: Path, query: str) -> None:
    """No `offsetStore` reads a database: the error gives the option that begins where it ends."""
    deliver(result, 0, 0, 3)
    folder = checkpoint(tmp_path / "c", {0: 1, 1: 9})
    (tmp_path / "c" / "metadata").write_text(f'{{"id":"{query}"}}')
    with pytest.raises(OffsetMismatchError) as error:
        ForeachBatch(result, folder, "app")([], 1)
    said = str(error.value)
    assert 'Start with a new checkpointLocation and startingOffsets={"t":{"0":3}}: the source then begins' in said
    assert "offsetStore" not in said
    offsets = json.loads(said.partition("startingOffsets=")[2].partition(": the source")[0])
    again = checkpoint(tmp_path / "again", {0: 9}, origin=offsets["t"]["0"])
    (tmp_path / "again" / "metadata").write_text('{"id":"again"}')
    ForeachBatch(result, again, "app")(list(range(3, 9)), 0)
    assert result.snapshot().next_offsets([KEY]) == {KEY: 9}


def test_an_overlap_names_what_is_stored(result: SqlResult) -> None:
    deliver(result, 0, 0, 3)
    with pytest.raises(OffsetMismatchError, match="stored 3, batch start 1, batch end 9"):
        deliver(result, 1, 1, 9)
