"""`sparkonce compact`: rows, offsets and versions stay; files become few."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableOptimizer

from sparkonce.connectors.delta_sink import compaction
from sparkonce.connectors.delta_sink.compaction import Compaction, CompactionError, as_text
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.state import TableState
from sparkonce.offset_store.log.table_log import TableLog
from tests.unit.recovery.recovery_support import APP, Pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline.create(tmp_path / "table")
    for batch_id in range(5):
        pipeline.commit(batch_id, {0: (batch_id * 10, batch_id * 10 + 10)})
    return pipeline


def partitioned(path: Path, column: str, values: list[Any], times: int = 3) -> None:
    for _ in range(times):
        write_deltalake(
            str(path), pa.table({"x": range(len(values)), column: values}), partition_by=[column], mode="append"
        )


def files(path: Path) -> int:
    return len(DeltaTable(str(path)).file_uris())


def compact(path: Path, *words: object) -> int:
    return main(["compact", str(path), *map(str, words)])


def test_one_file_and_nothing_else_changes(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert compact(pipeline.path, "--dry-run") == 0
    assert "table: 5 files, " in capsys.readouterr().out
    assert files(pipeline.path) == 5
    assert compact(pipeline.path) == 0
    shown = capsys.readouterr().out
    assert "[1/1] table: 5 files -> 1" in shown
    assert "merged 5 files (" in shown
    assert files(pipeline.path) == 1
    assert pipeline.rows() == list(range(50))
    assert pipeline.offsets() == {0: 50}
    assert len(DeltaTable(str(pipeline.path), version=2).to_pyarrow_table()) == 20
    assert (
        main(["offsets", "rewind", str(pipeline.path), "--app-id", APP, "--batches", "2", "--restore", "--apply"]) == 0
    )
    assert (pipeline.rows(), pipeline.offsets()) == (list(range(30)), {0: 30})


def test_nothing_to_do(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert compact(pipeline.path) == 0
    version = pipeline.version
    capsys.readouterr()
    assert compact(pipeline.path) == 0
    assert "0 files (0 B) below 128.0 MiB to merge, in 0 partitions" in capsys.readouterr().out
    assert pipeline.version == version


def test_files_of_the_target_size_are_left(pipeline: Pipeline) -> None:
    assert compact(pipeline.path, "--target-bytes", 10) == 0
    assert files(pipeline.path) == 5


@pytest.mark.parametrize(
    "values",
    [
        ["a b/c=d", None, "ü"],
        [1, -2, None],
        [True, False, None],
        [date(2024, 1, 2), date(1969, 12, 31), None],
        [datetime(2024, 1, 2, 3, 4, 5, 678900, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC), None],
    ],
)
def test_each_partition_is_merged_apart(tmp_path: Path, values: list[Any]) -> None:
    partitioned(tmp_path, "p", values)
    assert compact(tmp_path) == 0
    assert files(tmp_path) == 3
    assert len(DeltaTable(str(tmp_path)).to_pyarrow_table()) == 9
    operations = [each["operation"] for each in DeltaTable(str(tmp_path)).history()]
    assert operations.count("OPTIMIZE") == 3, "one commit for each partition"


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["a", "b", None], "p=b"),
        (["a", "b", None], "p="),
        ([1, 20, 200], "p=20"),
        ([date(2024, 1, 2), date(2024, 1, 20)], "p=2024-01-02"),
        ([True, False], "p=true"),
    ],
)
def test_chosen_partitions(tmp_path: Path, values: list[Any], wanted: str) -> None:
    partitioned(tmp_path, "p", values)
    assert compact(tmp_path, "--partition", wanted) == 0
    assert files(tmp_path) == 3 * len(values) - 2


def test_an_unknown_partition_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partitioned(tmp_path, "p", ["a"])
    assert compact(tmp_path, "--partition", "q=a") == 1
    assert "is not partitioned by q, but by p" in capsys.readouterr().err


def test_a_file_that_cannot_be_as_the_log_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """delta-rs would leave it, and each run would claim the table again to merge nothing."""
    for _ in range(2):
        write_deltalake(tmp_path, pa.table({"a": [1]}), mode="append")
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    commit.write_text(re.sub(r'"size":\d+', '"size":-1', commit.read_text()))
    assert compact(tmp_path) == 1
    assert "has -1 bytes: whatever wrote that is no Delta writer" in capsys.readouterr().err
    assert DeltaTable(tmp_path).version() == 1


def test_text_of_partition_values() -> None:
    assert as_text(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2024-01-02 03:04:05"


class Losing:
    """Loses against another writer so many times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.whole = TableOptimizer.compact

    def compact(self, optimizer: TableOptimizer, *words: Any, **named: Any) -> dict[str, Any]:
        if self.left:
            self.left -= 1
            raise CommitFailedError("planted: a file was removed")
        return self.whole(optimizer, *words, **named)


@pytest.mark.parametrize("times", [1, compaction.MAX_ATTEMPTS])
def test_conflicts(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], times: int
) -> None:
    losing = Losing(times)
    monkeypatch.setattr(TableOptimizer, "compact", lambda self, *words, **named: losing.compact(self, *words, **named))
    gives_up = times == compaction.MAX_ATTEMPTS
    assert compact(pipeline.path) == int(gives_up)
    assert ("planted: a file was removed" in capsys.readouterr().out) == gives_up
    assert files(pipeline.path) == (5 if gives_up else 1)


def test_a_footer_that_arrow_does_not_support_is_an_error_of_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not all of Arrow's errors are a ValueError or OSError."""

    def not_implemented(*words: object, **named: object) -> None:
        raise pa.ArrowNotImplementedError("planted: not supported")

    write_deltalake(str(tmp_path / "f"), pa.table({"x": [1.5]}))
    write_deltalake(str(tmp_path / "f"), pa.table({"x": [2.5]}), mode="append")
    monkeypatch.setattr(pq, "read_metadata", not_implemented)
    assert compact(tmp_path / "f") == 1
    assert "delta-rs cannot compact" in (shown := capsys.readouterr().err)
    assert "planted: not supported" in shown


def race(monkeypatch: pytest.MonkeyPatch, rival: Callable[[], object]) -> None:
    """Have ``rival`` run once, between the look and the commit."""
    whole = TableOptimizer.compact
    rivals = [rival]

    def compact_late(self: TableOptimizer, *words: Any, **named: Any) -> dict[str, Any]:
        if rivals:
            next_rival = rivals.pop()
            with monkeypatch.context() as undone:
                undone.setattr(TableOptimizer, "compact", whole)
                next_rival()
        return whole(self, *words, **named)

    monkeypatch.setattr(TableOptimizer, "compact", compact_late)


def test_two_runs_at_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """delta-rs alone would let both through, and double the rows: see the module."""
    statuses: list[int] = []
    race(monkeypatch, lambda: statuses.append(compact(pipeline.path)))
    assert compact(pipeline.path) == 0
    assert statuses == [1]
    assert "another compaction (`sparkonce compact` or `sparkonce ingest`) is at work on" in capsys.readouterr().err
    assert files(pipeline.path) == 1
    assert pipeline.rows() == list(range(50))
    assert compact(pipeline.path) == 0, "the claim was given back"
    assert [each["operation"] for each in DeltaTable(str(pipeline.path)).history()].count("OPTIMIZE") == 1


def test_two_claims_at_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen the table unclaimed: the commit decides."""
    runs = [Compaction(Location.parse(str(pipeline.path)), {}, 1000, {}) for _ in range(2)]
    table = DeltaTable(str(pipeline.path))
    assert runs[0]._claim("first", None) > 0
    whole, stale = Compaction._load, [table]
    monkeypatch.setattr(Compaction, "_load", lambda self: stale.pop() if stale else whole(self))
    with pytest.raises(CompactionError, match="another compaction"):
        runs[1]._claim("second", None)


def test_a_claim_that_fails_without_a_rival_says_why(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise CommitConflictError("planted: the table's schema has changed")

    monkeypatch.setattr(TableLog, "commit", fail)
    assert compact(pipeline.path) == 1
    message = capsys.readouterr().err
    assert f"cannot claim {pipeline.path} for compaction: planted: the table's schema has changed" in message
    assert "another compaction" not in message


def test_the_claim_of_a_killed_run_ends(pipeline: Pipeline) -> None:
    """A run is killed between claim and end; a later one waits until the claim is over, and renews its own."""
    clock = [1_000_000_000_000]
    run = Compaction(Location.parse(str(pipeline.path)), {}, 1000, {}, now_ms=lambda: clock[0])
    until_ms = run._claim("killed", None)
    clock[0] = until_ms - 1
    with pytest.raises(CompactionError, match="its claim ends at 2001-09-09 02:01:40 UTC"):
        run._claim("later", None)
    clock[0] = until_ms
    again_ms = run._claim("later", None)
    assert again_ms == until_ms + compaction.CLAIM_MS
    clock[0] += 1
    assert run._claim("later", again_ms) == again_ms + 1


def test_a_long_run_renews_its_claim(tmp_path: Path) -> None:
    partitioned(tmp_path, "p", ["a", "b", "c"])
    clock = [1_000_000_000_000]
    run = Compaction(Location.parse(str(tmp_path)), {}, 10**9, {}, now_ms=lambda: clock[0])
    _, columns, plan = run.plan()
    claims = set()
    for _ in run.merge(columns, plan):
        claims.add(DeltaTable(str(tmp_path)).transaction_version(compaction.CLAIM_TXN_ID))
        clock[0] += compaction.CLAIM_MS // 3
    assert len(claims) == 2
    assert DeltaTable(str(tmp_path)).transaction_version(compaction.CLAIM_TXN_ID) == clock[0]


def test_another_programs_compaction_at_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    race(monkeypatch, lambda: DeltaTable(str(pipeline.path)).optimize.compact())
    assert compact(pipeline.path) == 0
    assert files(pipeline.path) == 1
    assert pipeline.rows() == list(range(50))
    assert pipeline.offsets() == {0: 50}
    operations = [entry["operation"] for entry in DeltaTable(str(pipeline.path)).history()]
    assert operations[1:4] == ["RESTORE", "OPTIMIZE", "OPTIMIZE"]


def test_another_programs_compaction_that_cannot_be_undone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch lands right after the doubled rows: its commit is not undone with them, the way out is told instead."""
    race(monkeypatch, lambda: DeltaTable(str(pipeline.path)).optimize.compact())
    whole = Compaction._rival

    def rival_late(self: Compaction, *words: Any) -> int | None:
        pipeline.commit(5, {0: (50, 60)})
        return whole(self, *words)

    monkeypatch.setattr(Compaction, "_rival", rival_late)
    assert compact(pipeline.path) == 1
    message = capsys.readouterr().err
    assert "their rows stand twice" in message
    advice = message.partition("`sparkonce ")[2].partition("`")[0].split()
    assert main(advice) == 0
    assert (pipeline.rows(), pipeline.offsets()) == (list(range(50)), {0: 50})


def test_a_delete_at_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    race(monkeypatch, lambda: DeltaTable(str(pipeline.path)).delete("x = 3"))
    assert compact(pipeline.path) == 0
    assert pipeline.rows() == [x for x in range(50) if x != 3]
    assert files(pipeline.path) == 1


def test_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compact(tmp_path / "none") == 1
    assert "there is no Delta table" in capsys.readouterr().err


def test_an_error_of_the_store_while_a_compaction_is_undone_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_log: TableLog) -> TableState:
        raise OSError("GET with the key very-secret-text was refused")

    monkeypatch.setattr(TableLog, "state", refused)
    secret = {"aws_secret_access_key": "very-secret-text"}
    with pytest.raises(CompactionError, match=r"could not be undone \(GET with the key \*\*\* was refused\)"):
        Compaction(Location.parse("s3://lake/t"), secret, 1, {})._undo(8, 7)
