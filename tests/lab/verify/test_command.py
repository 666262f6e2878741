"""The choice of cells, the last line, and what waves hold."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from lab.spark_process import essence
from lab.verify.__main__ import add_arguments, choose, run
from lab.verify.brokers import Kafka
from lab.verify.cells import (
    BY_DELTA_SPARK,
    Cell,
    Features,
    Kind,
    Outcome,
    RecordPath,
    Result,
    Shared,
    Shows,
    table_words,
)
from lab.verify.engine import WAVE, WAVE_OF_DRIVERS, WAVE_OF_LONERS, waves
from lab.verify.matrix import BROKER_POINTS, full
from lab.verify.pairwise import pairwise, quick
from lab.verify.results import is_good, result_line, to_json, write_results
from lab.verify.setback.cells import (
    SINKS_BY_DELTA_SPARK,
    SetBackCell,
    Sink,
    all_setbacks,
    pairwise_setbacks,
    quick_setbacks,
)
from lab.verify.show import line
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.guarantee import Guarantee


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def outcome(guarantee: Guarantee, lost: int, duplicated: int, wrong: str | None) -> Outcome:
    cell = next(cell for cell in full() if cell.guarantee is guarantee)
    return Outcome(cell, Shows.NEITHER, 20, lost, duplicated, True, wrong, (), (), 1.0)


def test_without_options_all_cells_run() -> None:
    ours = [cell for cell in all_setbacks() if not cell.compares_only]
    assert choose(options()) == [*full(), *ours]
    for option, some, setbacks in (("--quick", quick, quick_setbacks()), ("--pairs", pairwise, pairwise_setbacks())):
        few = [cell for cell in ours if cell in setbacks]
        assert choose(options(option, "--seed", "7")) == [*some(full(), 7), *few]


def test_parts_are_the_whole() -> None:
    whole = choose(options("--pairs"))
    parts = [choose(options("--pairs", "--part", f"{number}/4")) for number in range(1, 5)]
    assert sorted(each.name for part in parts for each in part) == sorted(each.name for each in whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for text in ("0/4", "5/4", "1", "1/0"):
        with pytest.raises(SystemExit):
            options("--part", text)


def test_options_narrow_the_choice() -> None:
    words = ["--guarantee", "exactly-once", "--kind", "driver-killed", "--point", "sink.begun", "--result", "append"]
    assert {cell.path for cell in choose(options(*words)) if isinstance(cell, Cell)} == set(RecordPath)
    of_the_path = [cell for cell in choose(options(*words, "--path", "direct")) if isinstance(cell, Cell)]
    chosen = [cell for cell in of_the_path if not table_words(cell)]
    assert {cell.features for cell in of_the_path} == {None, *Features}
    assert {cell.shared for cell in of_the_path} == {None, *Shared}
    assert {cell.path for cell in chosen} == {RecordPath.DIRECT}
    assert [cell.delete_checkpoint for cell in chosen] == [False, True]
    assert {(cell.guarantee, cell.kind, cell.point) for cell in chosen} == {
        (Guarantee.EXACTLY_ONCE, Kind.DRIVER_KILLED, SinkPoint.BEGUN)
    }
    left = choose(options("--without-merge"))
    assert {cell.result for cell in left if isinstance(cell, Cell)} == set(Result) - BY_DELTA_SPARK
    assert not any(cell.features for cell in left if isinstance(cell, Cell))
    assert {cell.sink for cell in left if isinstance(cell, SetBackCell)} == set(Sink) - SINKS_BY_DELTA_SPARK


def test_options_of_one_dimension_leave_the_other_out() -> None:
    twins = choose(options("--setback", "twin", "--query", "window", "--result", "append"))
    assert [cell.name for cell in twins] == ["setback_twin_window_hdfs_append", "setback_twin_window_rocksdb_append"]
    assert all(isinstance(cell, SetBackCell) for cell in choose(options("--setback", "all")))
    assert all(isinstance(cell, Cell) for cell in choose(options("--kind", "exception")))
    for option in ("all", "rules"):
        featured = [cell for cell in choose(options("--features", option)) if isinstance(cell, Cell)]
        assert featured == [cell for cell in full() if cell.features and option in ("all", cell.features.value)]
        assert featured == choose(options("--features", option))
    assert all(isinstance(cell, Cell) for cell in choose(options("--path", "spark")))
    assert all(isinstance(cell, Cell) for cell in choose(options("--guarantee", "at-least-once")))
    with pytest.raises(ValueError, match="no cell matches"):
        choose(options("--setback", "all", "--kind", "exception"))


def test_sinks_that_are_not_ours_run_where_they_are_named() -> None:
    peers = choose(options("--result", "delta-spark"))
    assert peers
    assert all(cell.compares_only for cell in peers if isinstance(cell, SetBackCell))
    assert choose(options("--cell", peers[0].name)) == [peers[0]]
    shown: Any = Outcome(
        peers[0], Shows.NEITHER, 20, 3, 1, True, None, (), (), 1.0, "3 lost of 20 rows", to_compare=True
    )
    assert result_line([shown]) == "RESULT cells=1 lost=0 duplicated=0 wrong=0"
    assert line(shown) == f"beside {peers[0].name}: 3 lost of 20 rows"


def test_cells_are_chosen_by_name() -> None:
    names = [full()[5].name, full()[2].name]
    assert [cell.name for cell in choose(options("--cell", names[0], "--cell", names[1]))] == names
    with pytest.raises(ValueError, match="no cell is named nonsense"):
        choose(options("--cell", "nonsense"))


def test_the_list_says_what_must_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    name = "at-most-once_append_sink.between_writes_driver-killed"
    assert run(options("--list", "--cell", name)) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.startswith("# cell")
    assert line == f"{name}  loss"
    assert run(options("--cell", "nonsense")) == 2
    assert "--list names all" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--list"]])
def test_options_that_no_cell_matches_are_no_success(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options("--point", "sink.between_writes", "--guarantee", "exactly-once", *more)) == 2
    told = capsys.readouterr()
    assert "no cell matches these options" in told.err
    assert not told.out


@pytest.mark.parametrize("option", ["--report", "--json"])
def test_a_result_file_is_tried_before_the_first_cell(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options(option, str(tmp_path / "missing" / "result"))
    assert ended.value.code == 2
    assert f"{tmp_path / 'missing'} does not exist: make it first" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        options(option, str(tmp_path))
    assert "is a folder" in capsys.readouterr().err
    assert options(option, str(tmp_path / "result")) is not None


def test_a_result_file_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    chosen = options("--json", str(tmp_path / "there" / "a.json"), "--report", str(tmp_path / "b.html"))
    (tmp_path / "there").rmdir()
    assert not write_results([outcome(Guarantee.EXACTLY_ONCE, 0, 0, None)], "RESULT", chosen)
    assert "a.json cannot be written: No such file" in capsys.readouterr().err
    assert (tmp_path / "b.html").exists(), "the other is written all the same"


def test_losses_count_only_where_none_may_be() -> None:
    outcomes = [
        outcome(Guarantee.EXACTLY_ONCE, 1, 2, "something"),
        outcome(Guarantee.AT_MOST_ONCE, 8, 0, None),
        outcome(Guarantee.AT_LEAST_ONCE, 0, 8, None),
    ]
    assert result_line(outcomes) == "RESULT cells=3 lost=1 duplicated=2 wrong=1"
    assert not is_good(outcomes)
    assert is_good(outcomes[1:])
    assert not is_good([])
    assert not is_good([outcome(Guarantee.EXACTLY_ONCE, 1, 0, None)])


def test_an_outcome_is_told_in_words_and_in_json() -> None:
    wrong = outcome(Guarantee.EXACTLY_ONCE, 1, 0, "must show neither")
    assert line(wrong).startswith(f"WRONG {wrong.cell.name}: must show neither; lost=1 duplicated=0 of 20")
    document = to_json(wrong)
    assert document["must_show"] == "neither"
    assert isinstance(document["cell"], dict)
    assert (document["cell"]["name"], document["cell"]["guarantee"]) == (wrong.cell.name, "exactly-once")


def test_waves_hold_every_cell_once_and_one_victim_each() -> None:
    dealt = waves(full())
    assert sorted(cell.name for wave in dealt for cell in wave) == sorted(cell.name for cell in full())
    for wave in dealt:
        limits = {Kind.DRIVER_KILLED: WAVE_OF_DRIVERS, Kind.TASK_RETRIED: WAVE}
        assert len(wave) <= limits.get(wave[0].kind, WAVE_OF_LONERS)
        if any(cell.kind is Kind.DRIVER_KILLED for cell in wave):
            assert {cell.kind for cell in wave} == {Kind.DRIVER_KILLED}
        if any(cell.kind is Kind.TASK_RETRIED for cell in wave):
            assert {cell.kind for cell in wave} == {Kind.TASK_RETRIED}, "they need a session of their own"


def test_a_broker_that_is_not_ours_runs_what_it_can() -> None:
    class Somebodys:
        bootstrap_servers = "somewhere:9092"

        def kill(self) -> None: ...

        def restart(self) -> None: ...

    def left_out(kafka: Kafka) -> set[Cell]:
        return {cell for cell in full() if kafka.cannot_run(cell) is not None}

    killable = left_out(Kafka("Kafka", Somebodys(), may_be_killed=True))
    assert {cell.point for cell in killable} == BROKER_POINTS
    not_killable = left_out(Kafka("Kafka", Somebodys(), may_be_killed=False))
    assert {cell.kind for cell in not_killable - killable} == {Kind.BROKER_KILLED}


def test_the_essence_of_a_spark_error_is_its_own_line() -> None:
    text = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Writing job aborted
Traceback (most recent call last):
  File "commit.py", line 7, in finish
    reach(point)
sparkonce.crash_points.InjectedCrashError: injected failure at sink.before_commit, batch 1
 SQLSTATE: XXKST"""
    assert essence(text).startswith("sparkonce.crash_points.InjectedCrashError: injected failure")
    assert essence("nothing\nknown") == "nothing"
    assert essence("") == "no message"


def test_the_page_names_every_option_and_real_cells() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "internals" / "verify.md").read_text()
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    for action in parser._actions:
        assert f"`{action.option_strings[0]}" in page, action.option_strings[0]
    names = {cell.name for cell in full()} | {cell.name for cell in all_setbacks()}
    mentioned = re.findall(r"--cell ([a-z_.-]+)", page)
    assert mentioned
    assert set(mentioned) <= names
