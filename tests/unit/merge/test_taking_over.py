"""A table of `delta_once` that delta-spark writes from now on: its offsets move once, and only the moved ones count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructType

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.table import ResultTable
from sparkonce.connectors.delta_spark.taking_over import take_over, take_over_for_good
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import CommitConflictError, RowsWithoutOffsetsError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import BatchRecord, Commit, Writes
from tests.unit.merge.test_merge_tables import KEY, Tables, deliver

PRINT = Fingerprint.from_int(12345)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def store(tables: Tables, name: str, app_id: str = "app") -> DeltaOffsetStore:
    return DeltaOffsetStore(Location.parse(str(tables.folder / name)), app_id, create_missing=name == "offsets")


def record(batch_id: int, start: int, end: int, app_id: str = "app", attempt: str = "a") -> BatchRecord:
    return BatchRecord(app_id, "q", batch_id, attempt, {KEY: OffsetRange(start, end, 3)}, PRINT)


def by_delta_once(tables: Tables, of: BatchRecord) -> None:
    store(tables, "result", of.app_id).snapshot().commit(Commit(of, Writes.ROWS | Writes.OFFSETS))


def test_everything_of_the_application_is_copied_once(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    by_delta_once(tables, record(0, 0, 5))
    by_delta_once(tables, record(1, 5, 7))
    by_delta_once(tables, record(0, 0, 90, "other"))
    for _ in range(2):
        take_over(store(tables, "result"), store(tables, "offsets"))
    snapshot = tables.open().snapshot()
    assert DeltaTable(tables.folder / "offsets").version() == 1
    assert snapshot.next_offsets([KEY]) == {KEY: 7}
    assert (snapshot.last_batch("q"), snapshot.fingerprint("q", 1)) == (1, PRINT)
    assert store(tables, "offsets").epochs(KEY[0], [KEY[1]]) == {KEY[1]: 3}
    assert store(tables, "offsets", "other").read(KEY[0], [KEY[1]]) == {}
    assert not deliver(tables.open(), Batch(record(1, 5, 7, attempt="again"), stateful=False))
    assert deliver(tables.open(), Batch(record(2, 7, 9, attempt="b"), stateful=False))
    assert main(["audit", str(tables.folder / "offsets")]) == 0, capsys.readouterr()


def test_offsets_that_moved_are_not_read_where_they_were(tables: Tables) -> None:
    by_delta_once(tables, record(0, 0, 5))
    take_over(store(tables, "result"), store(tables, "offsets"))
    assert store(tables, "result").read(KEY[0], [KEY[1]]) == {KEY[1]: 5}
    deliver(tables.open(), Batch(record(1, 5, 7, attempt="b"), stateful=False))
    with pytest.raises(
        RowsWithoutOffsetsError, match=r"AppendWriter or MergeWriter writes to the table .* \(write 1\)"
    ):
        store(tables, "result").read(KEY[0], [KEY[1]])
    assert store(tables, "offsets").read(KEY[0], [KEY[1]]) == {KEY[1]: 7}


def test_a_new_table_has_nothing_to_copy(tables: Tables) -> None:
    take_over(store(tables, "result"), store(tables, "offsets"))
    assert tables.open().snapshot().next_offsets([KEY]) == {}


def test_the_table_of_offsets_is_lost_after_the_move(tables: Tables) -> None:
    """It is made again from the table's own commits: the offsets that it had, and the numbered writes after them."""
    by_delta_once(tables, record(0, 0, 5))
    take_over(store(tables, "result"), store(tables, "offsets"))
    for number in (1, 2):
        deliver(tables.open(), Batch(record(number, number + 4, number + 5, attempt=f"b{number}"), stateful=False))
    (tables.folder / "offsets").rename(tables.folder / "gone")
    take_over(store(tables, "result"), store(tables, "offsets"))
    assert tables.open().snapshot().next_offsets([KEY]) == {KEY: 7}


def test_offsets_that_delta_once_moved_after_the_copy_are_copied_again(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    """A writer was created, and wrote nothing: `delta_once` went on, and nothing of that may be read again."""
    by_delta_once(tables, record(0, 0, 5))
    take_over(store(tables, "result"), store(tables, "offsets"))
    by_delta_once(tables, record(1, 5, 7))
    for _ in range(2):
        take_over(store(tables, "result"), store(tables, "offsets"))
        assert store(tables, "offsets").read(KEY[0], [KEY[1]]) == {KEY[1]: 7}
    assert DeltaTable(tables.folder / "offsets").version() == 2
    assert not deliver(tables.open(), Batch(record(1, 5, 7, attempt="again"), stateful=False))
    assert deliver(tables.open(), Batch(record(2, 7, 9, attempt="b"), stateful=False))
    assert main(["audit", str(tables.folder / "offsets")]) == 0, capsys.readouterr()


def test_offsets_that_were_set_after_the_copy_stay(tables: Tables) -> None:
    by_delta_once(tables, record(0, 0, 5))
    take_over(store(tables, "result"), store(tables, "offsets"))
    rewound = ["--app-id", "app", "--source", KEY[0], "--topic", "t", "--partition", "0", "--offset", "3"]
    assert main(["offsets", "set", str(tables.folder / "offsets"), *rewound, "--apply"]) == 0
    by_delta_once(tables, record(1, 5, 7))
    take_over(store(tables, "result"), store(tables, "offsets"))
    assert store(tables, "offsets").read(KEY[0], [KEY[1]]) == {KEY[1]: 3}


def test_a_sink_that_still_runs_is_stopped_by_the_first_numbered_write(tables: Tables) -> None:
    options = SinkOptions(table=Location.parse(str(tables.folder / "result")), app_id="app", checkpoint="unused")
    running = ResultTable(options, StructType().add("n", LongType()))
    running.snapshot()
    by_delta_once(tables, record(0, 0, 5))
    take_over(store(tables, "result"), store(tables, "offsets"))
    by_delta_once(tables, record(0, 0, 5, "other"))
    running.snapshot()
    deliver(tables.open(), Batch(record(1, 5, 7, attempt="b"), stateful=False))
    for table in (running, ResultTable(options, StructType().add("n", LongType()))):
        with pytest.raises(RowsWithoutOffsetsError, match=r"\(write 1\), so offsets in the table itself are old"):
            table.snapshot()


def take_over_all(tables: Tables, *, numbered: bool = True) -> None:
    take_over_for_good(store(tables, "result"), store(tables, "offsets"), numbered=numbered)


def test_a_batch_that_delta_once_commits_at_the_same_time_is_copied_too(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_delta_once(tables, record(0, 0, 5))
    late = [record(1, 5, 7), record(2, 7, 9)]

    real_commit = TableLog.commit

    def commit(log: TableLog, *args: Any) -> int:
        if late and log.location.text.endswith("result"):
            with monkeypatch.context() as unpatched:
                unpatched.setattr(TableLog, "commit", real_commit)
                by_delta_once(tables, late.pop(0))
        return real_commit(log, *args)

    monkeypatch.setattr(TableLog, "commit", commit)
    take_over_all(tables)
    assert not late
    assert store(tables, "offsets").read(KEY[0], [KEY[1]]) == {KEY[1]: 9}
    assert not deliver(tables.open(), Batch(record(2, 7, 9, attempt="again"), stateful=False))
    assert deliver(tables.open(), Batch(record(3, 9, 10, attempt="b"), stateful=False))
    assert main(["audit", str(tables.folder / "offsets")]) == 0, capsys.readouterr()


def test_commits_that_always_conflict_end_in_an_error(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    by_delta_once(tables, record(0, 0, 5))

    real_commit = TableLog.commit

    def commit(log: TableLog, *args: Any) -> int:
        if log.location.text.endswith("result"):
            raise CommitConflictError("planted")
        return real_commit(log, *args)

    monkeypatch.setattr(TableLog, "commit", commit)
    with pytest.raises(DeliveryError, match=r"gave up taking over the offsets of appId app .*; the last: planted"):
        take_over_all(tables)


def test_a_batch_of_delta_once_that_began_before_does_not_land_after(tables: Tables) -> None:
    by_delta_once(tables, record(0, 0, 5))
    begun = store(tables, "result").snapshot()
    take_over_all(tables)
    with pytest.raises(CommitConflictError):
        begun.commit(Commit(record(1, 5, 7), Writes.ROWS | Writes.OFFSETS))
    take_over_all(tables)
    assert DeltaTable(tables.folder / "result").version() == 2


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_no_way_back_to_delta_once_with_old_offsets(
    tables: Tables, guarantee: Guarantee, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writes of the weaker guarantees have no number that would show it."""
    separate = None if guarantee is Guarantee.EXACTLY_ONCE else f"delta:{tables.folder / 'separate'}"
    for with_offsets in (False, True):
        if with_offsets:
            tables = Tables(tables.folder / "with offsets")
            by_delta_once(tables, record(0, 0, 5))
        take_over_all(tables, numbered=guarantee is Guarantee.EXACTLY_ONCE)
        place = Location.parse(str(tables.folder / "result"))
        options = SinkOptions(
            table=place, app_id="app", checkpoint="unused", guarantee=guarantee, offset_store=separate
        )
        table = ResultTable(options, StructType().add("n", LongType()))
        if with_offsets or guarantee is not Guarantee.EXACTLY_ONCE:
            with pytest.raises(RowsWithoutOffsetsError, match=r"offsets in the table itself are old"):
                table.snapshot()
        else:
            table.snapshot()  # the first write's number is to say it
    assert main(["audit", str(place)]) == 1
    said = capsys.readouterr().out
    assert "by hand" not in said
    assert "offsets moved to another table 1" in said


@pytest.mark.parametrize(
    "words",
    [
        "show --app-id app --starting-offsets --bootstrap-servers localhost:1",
        "set --app-id app --source s --topic t --topic-id AAAAAAAAAAAAAAAAAAAAAQ --partition 0 --offset 3",
        "rewind --app-id app --to-version 1",
        "rewind --restore --to-version 1",
    ],
)
def test_no_command_works_with_the_old_offsets(tables: Tables, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --restore the rows would go back, and the offsets, which are elsewhere, would stay: rows would be lost."""
    by_delta_once(tables, record(0, 0, 5))
    by_delta_once(tables, record(1, 5, 7))
    take_over(store(tables, "result"), store(tables, "offsets"))
    deliver(tables.open(), Batch(record(2, 7, 9, attempt="b"), stateful=False))
    action, *rest = words.split()
    assert main(["offsets", action, str(tables.folder / "result"), *rest]) == 1
    wanted = "AppendWriter or MergeWriter writes the rows of appId app (write 1), so these offsets are old"
    assert wanted in capsys.readouterr().err
    assert main(["offsets", "show", str(tables.folder / "result")]) == 0
    assert f"WARNING {wanted}" in capsys.readouterr().out


def test_a_clone_of_such_a_table_gets_no_old_offsets(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    by_delta_once(tables, record(0, 0, 5))
    take_over(store(tables, "result"), store(tables, "offsets"))
    deliver(tables.open(), Batch(record(1, 5, 7, attempt="b"), stateful=False))
    clone = tables.folder / "clone"
    DeltaTable.create(clone, DeltaTable(tables.folder / "result").schema())
    words = ["--from", str(tables.folder / "result"), "--from-version", "2"]
    assert main(["offsets", "copy", str(clone), *words]) == 1
    assert "so these offsets are old" in capsys.readouterr().err


def test_the_audit_of_the_result_does_not_call_it_proven(tables: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    by_delta_once(tables, record(0, 0, 5))
    take_over(store(tables, "result"), store(tables, "offsets"))
    assert main(["audit", str(tables.folder / "result")]) == 0
    deliver(tables.open(), Batch(record(1, 5, 7, attempt="b"), stateful=False))
    capsys.readouterr()
    assert main(["audit", str(tables.folder / "result")]) == 1
    said = capsys.readouterr().out
    assert "writes the rows of appId app (write 1), so these offsets are old" in said
    assert "verdict=unproven" in said
    assert main(["audit", str(tables.folder / "offsets")]) == 0
