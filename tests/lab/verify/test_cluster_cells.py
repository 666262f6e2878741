"""The cells on a cluster: what can occur, what each must show, which are chosen, and what the page says of them."""

from __future__ import annotations

import argparse
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.verify.__main__ import _cannot_run, add_arguments, choose, needs_delta_spark, run
from lab.verify.cells import BY_DELTA_SPARK, Cell, Moment, Outcome, Result, Shows
from lab.verify.cluster.cells import (
    ClusterCell,
    Fault,
    _pairs,
    all_faults,
    ends_the_run,
    must_show,
    quick_faults,
)
from lab.verify.cluster.faults import FAULTS, OF_OUR_CLUSTER
from lab.verify.cluster.section import section
from lab.verify.report import page
from lab.verify.results import result_line
from lab.verify.setback.cells import SetBackCell
from sparkonce.connectors.kafka_source.crash_points import SourcePoint
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.guarantee import Guarantee

EXACTLY, AT_LEAST, AT_MOST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def outcome(cell: ClusterCell, wrong: str | None = None) -> Outcome[ClusterCell]:
    moments = (Moment(1.0, "fault", "the <executor> is killed"),)
    return Outcome(cell, must_show(cell), 20, 0, 8, True, wrong, moments, (), 1.0)


def test_every_fault_has_cells_of_every_guarantee_and_what_is_done() -> None:
    assert {(cell.fault, cell.guarantee) for cell in all_faults()} == {(f, g) for f in Fault for g in Guarantee}
    assert FAULTS.keys() == set(Fault)
    names = [cell.name for cell in all_faults()]
    assert len(set(names)) == len(names)


def test_exactly_once_shows_neither_whatever_happens() -> None:
    strict = [cell for cell in all_faults() if cell.guarantee is EXACTLY]
    assert {cell.result for cell in strict} == set(Result)
    assert {must_show(cell) for cell in strict} == {Shows.NEITHER}


@pytest.mark.parametrize(
    ("fault", "point", "guarantee", "result", "shown"),
    [
        # The new attempt of at-most-once writes nothing; the old one's file is not in the table.
        (Fault.EXECUTOR_KILLED, SinkPoint.WRITING, AT_MOST, Result.APPEND, Shows.LOSS),
        (Fault.WORKER_STOPPED, SinkPoint.WRITING, AT_MOST, Result.APPEND, Shows.LOSS),
        # Rows that were sent are there, and come again.
        (Fault.MACHINE_KILLED, SinkPoint.FILE_WRITTEN, AT_LEAST, Result.TOPIC, Shows.DUPLICATES),
        (Fault.NETWORK_CUT, SinkPoint.FILE_WRITTEN, AT_LEAST, Result.TOPIC, Shows.DUPLICATES),
        # Rows that are not yet sent are sent by the new attempt, and perhaps by the old one.
        (Fault.EXECUTOR_KILLED, SinkPoint.WRITING, AT_LEAST, Result.TOPIC, Shows.NEITHER),
        (Fault.WORKER_STOPPED, SinkPoint.WRITING, AT_LEAST, Result.TOPIC, Shows.MAYBE_DUPLICATES),
        (Fault.NETWORK_STALLED, SinkPoint.WRITING, AT_MOST, Result.TOPIC, Shows.MAYBE_LOSS),
        (Fault.NETWORK_STALLED, SinkPoint.WRITING, AT_LEAST, Result.APPEND, Shows.NEITHER),
        # Functions of the driver write: tasks only read.
        (Fault.EXECUTOR_KILLED, SourcePoint.READING, AT_MOST, Result.MERGE, Shows.NEITHER),
        # Spark may take any task for slow.
        (Fault.SPECULATION, SinkPoint.FILE_WRITTEN, AT_MOST, Result.TOPIC, Shows.MAYBE_LOSS),
        # The run goes on, or is started again.
        (Fault.MASTER_RESTARTED, SinkPoint.BETWEEN_WRITES, AT_MOST, Result.APPEND, Shows.NEITHER),
        (Fault.DRIVER_MOVED, SinkPoint.BETWEEN_WRITES, AT_MOST, Result.APPEND, Shows.LOSS),
        (Fault.TASK_FAILED, SinkPoint.FILE_WRITTEN, AT_LEAST, Result.TOPIC, Shows.DUPLICATES),
    ],
)
def test_the_weaker_guarantees_show_what_follows(
    fault: Fault, point: SinkPoint, guarantee: Guarantee, result: Result, shown: Shows
) -> None:
    cell = ClusterCell(fault, point, guarantee, result)
    assert cell in all_faults()
    assert must_show(cell) is shown
    assert ends_the_run(cell) is (fault in (Fault.DRIVER_MOVED, Fault.TASK_FAILED))


def test_faults_of_a_task_need_one_that_stands_at_the_point() -> None:
    points = {cell.point for cell in all_faults() if cell.fault is Fault.EXECUTOR_KILLED}
    assert SinkPoint.FILE_WRITTEN in points
    assert not points & {SinkPoint.BEFORE_COMMIT, SinkPoint.BETWEEN_WRITES, SinkPoint.ROWS_LANDED}


@given(st.integers(0, 20))
def test_the_quick_choice_has_every_fault_and_every_pair(seed: int) -> None:
    chosen = quick_faults(all_faults(), seed)
    assert {cell.fault for cell in chosen} == set(Fault)
    assert set().union(*map(_pairs, chosen)) == set().union(*map(_pairs, all_faults()))
    assert len(chosen) < len(all_faults()) / 8


def test_they_run_on_a_cluster_alone() -> None:
    assert not [cell for cell in choose(options()) if isinstance(cell, ClusterCell)]
    for where in (["--cluster"], ["--master", "spark://host:7077"]):
        chosen = choose(options(*where))
        assert {type(cell) for cell in chosen} == {Cell, ClusterCell}
        assert {type(cell) for cell in choose(options(*where, "--setback", "twin"))} == {SetBackCell}
        assert {type(cell) for cell in choose(options(*where, "--kind", "exception"))} == {Cell}
    stopped = choose(options("--cluster", "--fault", "worker-stopped", "--result", "topic"))
    assert {(cell.fault, cell.result) for cell in stopped if isinstance(cell, ClusterCell)} == {
        (Fault.WORKER_STOPPED, Result.TOPIC)
    }
    left = choose(options("--cluster", "--fault", "all", "--without-merge"))
    assert {cell.result for cell in left if isinstance(cell, ClusterCell)} == {*Result} - BY_DELTA_SPARK


def test_without_a_cluster_its_faults_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options("--fault", "executor-killed")) == 2
    assert capsys.readouterr().err == "lab.verify: --fault needs --cluster or --master\n"


@pytest.mark.parametrize("master", ["local[2]", "yarn", "spark://host", "host:7077", "spark://"])
def test_other_masters_are_refused(master: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--master", master)
    assert f"{master!r} is not the address of a standalone cluster: spark://HOST:PORT" in capsys.readouterr().err


def test_a_master_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
    assert run(options("--master", master, "--fault", "all")) == 2
    assert capsys.readouterr().err == (
        f"lab.verify: no Spark Master listens at {master} ({master[8:]}: Connection refused): start one, "
        "or use --cluster\n"
    )


def test_a_cluster_that_is_not_ours_runs_what_does_not_hurt_it() -> None:
    class Anything:
        def cannot_run(self, cell: Cell) -> None: ...

    left_out = {
        cell.fault
        for cell in all_faults()
        if _cannot_run(cell, Anything(), None, "spark://host:7077")  # type: ignore[arg-type]
    }
    assert left_out == OF_OUR_CLUSTER
    assert {Fault.EXECUTOR_KILLED, Fault.DRIVER_MOVED, Fault.SPECULATION} <= set(Fault) - left_out
    assert not any(_cannot_run(cell, Anything(), None, None) for cell in all_faults())  # type: ignore[arg-type]
    merges = {cell for cell in all_faults() if needs_delta_spark(cell)}
    assert {cell.result for cell in merges} == BY_DELTA_SPARK


def test_the_list_says_what_may_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    name = "cluster_worker-stopped_sink.writing_at-least-once_topic"
    assert run(options("--cluster", "--list", "--cell", name)) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"{name}  duplicates or neither"


def test_the_page_has_them() -> None:
    good = outcome(ClusterCell(Fault.MACHINE_KILLED, SinkPoint.FILE_WRITTEN, AT_LEAST, Result.TOPIC))
    bad = outcome(ClusterCell(Fault.SPECULATION, SinkPoint.WRITING, EXACTLY, Result.APPEND), "8 rows <twice>")
    whole = page([], "RESULT", faults=[good, bad])
    assert "1 of 2 cells did not show what they must." in whole
    assert "8 rows &lt;twice&gt;" in whole
    assert "the &lt;executor&gt; is killed" in whole
    assert whole.index(bad.cell.name) < whole.index(good.cell.name)
    assert section([]) == ""
    assert result_line([good, bad]) == "RESULT cells=2 lost=0 duplicated=8 wrong=1"
