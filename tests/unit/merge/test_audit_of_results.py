"""`sparkonce audit` of the table of offsets of writes by delta-spark: it looks at the result around it, too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkonce.connectors.delta_spark.intents import OFFSETS_FOLDER, DeltaIntents
from sparkonce.connectors.delta_spark.sequence import NumberedTable
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from tests.unit.merge.test_merge_tables import ResultWithoutSpark, Tables, batch, deliver


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A result with two batches, and its table of offsets in the folder where the writers put it."""
    Tables(tmp_path)
    for number in range(2):
        deliver(opened(tmp_path / "result"), batch(number, number, number + 1, f"a{number}"))
    return tmp_path / "result"


def opened(result: Path) -> NumberedTable:
    rows = DeltaOffsetStore(Location.parse(str(result)), "app")
    offsets = DeltaOffsetStore(Location.parse(str(result / OFFSETS_FOLDER)), "app", create_missing=True)
    return NumberedTable(ResultWithoutSpark(rows, "unused", lambda path, rows, settings: None), DeltaIntents(offsets))


def audited(result: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return main(["audit", str(result / OFFSETS_FOLDER)]), capsys.readouterr().out


def test_nothing_has_happened_to_the_rows(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = audited(result, capsys)
    assert status == 0
    assert "warnings=0 verdict=proven" in said


def test_a_restore_of_the_result(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(result).restore(1)
    status, said = audited(result, capsys)
    assert status == 0
    assert f"[rows-restored] the result {result}, version 3: RESTORE to version 1 removed the rows that" in said
    assert "warnings=1 verdict=proven" in said
    assert main(["audit", str(result / OFFSETS_FOLDER), "--strict"]) == 1


def test_another_writer_removes_rows(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_deltalake(result, pa.table({"n": [1]}), mode="append")
    write_deltalake(result, pa.table({"n": [2]}), mode="overwrite")
    status, said = audited(result, capsys)
    assert status == 0
    assert f"[rows-removed] the result {result}, version 4: it removed or replaced 1 data file" in said


def test_a_result_that_is_not_the_one_that_was_written(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(result / "_delta_log")
    status, said = audited(result, capsys)
    assert status == 1
    assert f"[stored-mismatch] the result {result}, whose writes are confirmed here, is not there" in said
    write_deltalake(result, pa.table({"n": [1]}))
    status, said = audited(result, capsys)
    assert status == 1
    assert f"write 2 of appId app is confirmed here, and the result {result} has none" in said


def test_offsets_in_another_place_are_audited_alone(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    deliver(tables.open(), batch(0, 0, 1))
    shutil.rmtree(tmp_path / "result")
    assert main(["audit", str(tmp_path / "offsets")]) == 0
