"""Runs of `sparkonce verify` while they go on, and the simulator's seeds as pictures."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from sparkonce.jobs.lab.verify.cells import Cell, Moment, Outcome, Shows
from sparkonce.jobs.lab.verify.cluster.cells import all_faults
from sparkonce.jobs.lab.verify.matrix import full
from sparkonce.jobs.lab.verify.progress import FILE, ProgressFile, read_progress
from sparkonce.jobs.lab.verify.results import AnyOutcome
from sparkonce.jobs.lab.verify.setback.cells import all_setbacks
from sparkonce.jobs.ui.pages.proof import PROOF
from sparkonce.jobs.ui.proof.seeds import (
    MAX_RUNNING,
    SeedError,
    TraceLine,
    picture_after,
    places,
    read_output,
    run_seed,
)
from sparkonce.jobs.ui.site import Given, Site
from tests.unit.ui.shown import shown


def outcome_of(cell: Cell, wrong: str | None = None) -> Outcome[Cell]:
    moments = (Moment(0.1, "pipeline", "starts"), Moment(0.5, "fault", "SIGKILL"))
    return Outcome(cell, Shows.NEITHER, 10, 0, 0, True, wrong, moments, ("an error",), 1.5)


def test_a_run_is_read_while_it_goes_on(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    cells = full()[:3]
    file = ProgressFile(tmp_path, cells)
    outcomes: list[AnyOutcome] = [outcome_of(cells[0]), outcome_of(cells[1], "it lost a record")]
    for each in outcomes:
        file.outcome(each)
    with (tmp_path / FILE).open("a") as half_written:
        half_written.write('{"outcome": {"cel')
    progress = read_progress(tmp_path)
    assert progress is not None
    assert progress.chosen == tuple(cell.name for cell in cells)
    assert list(progress.outcomes) == outcomes
    assert (progress.result, progress.unknown) == (None, 1)


def test_cells_of_all_dimensions_are_read(tmp_path: Path) -> None:
    setback, fault = all_setbacks()[0], all_faults()[0]
    file = ProgressFile(tmp_path, [setback, fault])
    outcomes: list[AnyOutcome] = [
        Outcome(setback, Shows.NEITHER, 1, 0, 0, True, None, (), (), 0.5, remark="as it must", to_compare=False),
        Outcome(fault, Shows.MAYBE_LOSS, 1, 1, 0, True, None, (), (), 0.5),
    ]
    for each in outcomes:
        file.outcome(each)
    file.result("RESULT cells=2")
    progress = read_progress(tmp_path)
    assert progress is not None
    assert (list(progress.outcomes), progress.result, progress.unknown) == (outcomes, "RESULT cells=2", 0)


def test_a_second_run_in_the_same_file_begins_anew(tmp_path: Path) -> None:
    first, second = full()[:2]
    file = ProgressFile(tmp_path, [first])
    file.outcome(outcome_of(first))
    file.result("RESULT cells=1")
    ProgressFile(tmp_path, [second])
    progress = read_progress(tmp_path)
    assert progress is not None
    assert (progress.chosen, progress.outcomes, progress.result) == ((second.name,), (), None)


def test_a_line_that_is_nested_too_deeply_is_unknown(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[" * 100_000 + "\n")
    progress = read_progress(tmp_path)
    assert progress is not None
    assert progress.unknown == 1


def proof_of(folder: Path) -> str:
    with closing(Site(Given(folder=folder))) as site:
        return shown(PROOF, site)


def test_a_result_is_good_only_if_the_outcome_of_each_cell_is_known(tmp_path: Path) -> None:
    cells = full()[:2]
    file = ProgressFile(tmp_path, cells)
    file.outcome(outcome_of(cells[0]))
    (tmp_path / "whole").mkdir()
    whole = ProgressFile(tmp_path / "whole", cells)
    for each in cells:
        whole.outcome(outcome_of(each))
    for progress in (file, whole):
        progress.result("RESULT cells=2 lost=0")
    assert "? RESULT cells=2" in proof_of(tmp_path)
    assert "Of 1 cells that were chosen no outcome is here" in proof_of(tmp_path)
    assert "✓ RESULT cells=2" in proof_of(tmp_path / "whole")


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ProgressFile(None, full()[:1]).result("RESULT")
    assert list(tmp_path.iterdir()) == []


def changed(in_sync: str, leader: int, epoch: int) -> str:
    state = f"PartitionState(replicas=(1, 2), in_sync_replicas=({in_sync}), leader={leader}, leader_epoch={epoch}, x=1)"
    return f"PartitionChanged(topic_id=UUID('a-b'), partition=0, state={state})"


OUTPUT = f"""seed 3: 2 brokers, durability budgeted
  TopicPlan(name='t0', partitions=1)
steps (1 of 1):
  [0] 1160 ms produce target=1 for 0 ms amount=1
      0 broker 1 starts
      0 broker 2 starts
      0 log 1: ControllerElected(controller_id=1, controller_epoch=1)
    270 log 10: TopicCreated(name='t0', topic_id=UUID('a-b'))
    271 log 11: {changed("1, 2", 1, 0)}
    272 broker 1 leads t0-0 in epoch 0
    300 broker 1 appends t0-0 0 to 4
    310 broker 1: t0-0 is safe below 3
    400 step: 400 ms elect target=1 for 180 ms amount=31
    401 broker 1 dies
    402 a line of which the picture knows nothing
    500 log 12: {changed("2,", 2, 1)}
    600 broker 1 starts
    601 broker 1 cuts t0-0 at 2
violation: none
TRACE seed=3 lines=14 hash=abc"""


def test_a_trace_is_read_and_drawn() -> None:
    run = read_output(3, "", OUTPUT.splitlines())
    assert run is not None
    assert len(run.head) == 4
    assert (len(run.lines), run.violation, run.digest) == (14, None, "abc")
    assert run.lines[-1] == TraceLine(601, "broker 1 cuts t0-0 at 2")
    assert [line.text for line in run.lines if line.is_fault] == [
        "step: 400 ms elect target=1 for 180 ms amount=31",
        "broker 1 dies",
    ]
    before = picture_after(run.lines[:8])
    assert (before.brokers, before.controller) == ({1: "up", 2: "up"}, 1)
    assert (before.leaders, before.in_sync) == ({"t0-0": (1, 0)}, {"t0-0": (1, 2)})
    log = before.logs[1, "t0-0"]
    assert (log.end, log.safe) == (5, 3)
    after = picture_after(run.lines)
    assert (after.leaders, after.in_sync) == ({"t0-0": (2, 1)}, {"t0-0": (2,)})
    assert (after.logs[1, "t0-0"].end, after.logs[1, "t0-0"].safe) == (2, 2)
    assert picture_after(run.lines[:10]).brokers == {1: "down", 2: "up"}


def test_a_run_that_broke_off_is_none() -> None:
    assert read_output(3, "", OUTPUT.splitlines()[:-1]) is None
    assert read_output(3, "", []) is None


def test_a_seed_of_the_simulator_has_a_picture() -> None:
    run = run_seed(3)
    assert run.violation is None
    picture = picture_after(run.lines[: len(run.lines) // 2])
    assert "up" in picture.brokers.values()
    assert picture.controller in picture.brokers
    assert picture.partitions == ["t0-0", "t1-0"]
    assert all(len(picture.in_sync[name]) > 0 for name in picture.partitions)
    assert picture_after(run.lines).longest > 1


def test_a_seed_that_cannot_be_run() -> None:
    with pytest.raises(SeedError, match="no such bug"):
        run_seed(3, "no such bug")


def test_no_more_seeds_run_at_once_than_there_are_places() -> None:
    with ExitStack() as stack:
        for _ in range(MAX_RUNNING):
            stack.enter_context(places)
        with pytest.raises(SeedError, match="2 seeds are running: try again when one has ended"):
            run_seed(4)
