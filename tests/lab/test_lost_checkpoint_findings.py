"""How the two pipelines with a lost checkpoint are judged: planted faults are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.lost_checkpoint import JVM, OURS, WITHOUT_STORE, Count, Findings, judge, main

RECORDS = [(b"UA", b"%d" % number) for number in range(10)]
RIGHT = judge(RECORDS, RECORDS)
TWICE = judge(RECORDS, RECORDS * 2)
GOOD = Findings({JVM.name: TWICE, OURS.name: RIGHT, WITHOUT_STORE.name: RIGHT}, RIGHT, "an overlap", True)


@given(st.lists(st.integers(0, 20)))
def test_rows_are_held_against_the_records(rows: list[int]) -> None:
    count = judge(RECORDS, [(b"UA", b"%d" % number) for number in rows])
    assert count.rows == len(rows)
    assert count.lost == len(set(range(10)) - set(rows))
    assert count.unknown == len(set(rows) - set(range(10)))
    assert count.duplicated == len(rows) - len(set(rows))
    assert count.is_right == (sorted(rows) == list(range(10)))


def test_every_row_twice() -> None:
    assert (TWICE.rows, TWICE.distinct, TWICE.lost, TWICE.duplicated) == (20, 10, 0, 10)


def test_the_line_for_machines() -> None:
    assert GOOD.good
    assert GOOD.result() == (
        "RESULT jvm_rows=20 sparkonce_rows=10 records=10 sparkonce_lost=0 sparkonce_duplicated=0 jvm_duplicated=10"
    )
    alone = Findings({OURS.name: RIGHT, WITHOUT_STORE.name: RIGHT}, RIGHT, "an overlap", True)
    assert alone.good
    assert alone.result() == "RESULT sparkonce_rows=10 records=10 sparkonce_lost=0 sparkonce_duplicated=0"


@pytest.mark.parametrize("name", [OURS.name, WITHOUT_STORE.name])
@pytest.mark.parametrize("fault", [TWICE, judge(RECORDS, RECORDS[1:]), judge(RECORDS[1:], RECORDS)])
def test_a_fault_of_ours_fails_the_run(name: str, fault: Count) -> None:
    assert not replace(GOOD, counts={**GOOD.counts, name: fault}).good
    assert not replace(GOOD, later=fault).good


def test_a_run_that_does_not_show_the_fault_of_the_peer_proves_nothing() -> None:
    assert not replace(GOOD, counts={**GOOD.counts, JVM.name: RIGHT}).good


def test_an_overlap_that_was_written_or_passed_over_fails_the_run() -> None:
    assert not replace(GOOD, refused=None).good
    assert not replace(GOOD, untouched=False).good


def test_without_the_jars_it_says_what_is_missing_and_what_can_be_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_KAFKA_JARS", "/nowhere/spark-sql-kafka.jar")
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "SPARK_KAFKA_JARS names /nowhere/spark-sql-kafka.jar, which is not there" in said
    assert "--only-ours" in said


@pytest.mark.parametrize("words", [["--records", "9"], ["--records", "300001"], ["--partitions", "0"]])
def test_figures_that_cannot_be_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert words[1] in capsys.readouterr().err


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(SystemExit):
        main(["--folder", str(tmp_path)])
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
