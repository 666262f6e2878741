"""A hand that undoes one of a batch's two commits before the other is made: the other is then not made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once import commit as commit_module
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.errors import FencedError
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.exactly_once.recovery import plan_rewind, plan_set
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.administration import ChangeKind, ManualChange
from sparkonce.offset_store.delta import DeltaOffsetStore, DeltaSnapshot
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import BatchRecord
from tests.unit.recovery.recovery_support import APP, SOURCE, Pipeline, key, partition

AT_LEAST, AT_MOST = Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
BOTH_ORDERS = pytest.mark.parametrize("guarantee", [AT_LEAST, AT_MOST])


class Driver:
    """A driver that stops between the two commits of a batch, for ``meanwhile``."""

    def __init__(self, pipeline: Pipeline, guarantee: Guarantee, offsets: Path | None = None) -> None:
        self.pipeline = pipeline
        store = DeltaOffsetStore(Location.parse(str(offsets)), APP, create_missing=True) if offsets else None
        self.delivery = Delivery(pipeline.store(), ORDERS[guarantee], store)

    def run(self, number: int, query: str = "q", attempt: str = "", meanwhile: Callable[[], Any] | None = None) -> bool:
        start, end = number * 10, number * 10 + 10
        ranges = {(SOURCE, partition()): OffsetRange(start, end)}
        batch = Batch(BatchRecord(APP, query, number, f"{query}-{number}{attempt}", ranges), stateful=False)

        def reach(point: CrashPoint, *_: object) -> None:
            if point is SinkPoint.BETWEEN_WRITES and meanwhile is not None:
                meanwhile()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit_module, "reach", reach)
            plan = self.delivery.begin(batch)
            files = [self.pipeline.write(list(range(start, end)))] if plan.writes_rows else []
            return self.delivery.finish(batch, plan, files)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline.create(tmp_path / "table")


def restore(pipeline: Pipeline, version: int) -> Callable[[], None]:
    def run() -> None:
        opened = pipeline.opened()
        now, then = opened.stored(), opened.stored(version)
        # Without offsets the rows could be of an application that keeps them elsewhere: a plan by the log is refused.
        entries = opened.entries() if now.offsets else []
        opened.apply(plan_rewind(now, then, entries, app_id=None, restore=True))

    return run


@BOTH_ORDERS
@pytest.mark.parametrize("first", [0, 1], ids=["the first batch", "a later batch"])
def test_a_restore_between_the_two_commits_stops_the_batch(
    pipeline: Pipeline, guarantee: Guarantee, first: int
) -> None:
    driver = Driver(pipeline, guarantee)
    for number in range(first):
        driver.run(number)
    with pytest.raises(FencedError, match=r"version \d \(rows and offsets restored by hand\) came after its"):
        driver.run(first, meanwhile=restore(pipeline, pipeline.version))
    assert pipeline.rows() == list(range(first * 10))
    assert Driver(pipeline, guarantee).run(first, attempt=" again")
    assert pipeline.rows() == list(range(first * 10 + 10))
    assert pipeline.offsets() == {0: first * 10 + 10}


@BOTH_ORDERS
@pytest.mark.parametrize("first", [0, 1], ids=["the first batch", "a later batch"])
def test_a_restore_right_before_the_second_commit_conflicts(
    pipeline: Pipeline, guarantee: Guarantee, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look, and before the commit: only the id that both write tells."""
    driver = Driver(pipeline, guarantee)
    for number in range(first):
        driver.run(number)
    original, late = DeltaSnapshot.write, restore(pipeline, pipeline.version)
    calls = []

    def overtaken(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            late()
        original(*arguments)

    monkeypatch.setattr(DeltaSnapshot, "write", overtaken)
    with pytest.raises(FencedError, match="restored by hand"):
        driver.run(first)
    assert (pipeline.rows(), len(calls)) == (list(range(first * 10)), 2)


@BOTH_ORDERS
@pytest.mark.parametrize("first", [0, 1], ids=["the first batch", "a later batch"])
def test_a_hand_that_did_not_see_the_second_commit_changes_nothing(
    pipeline: Pipeline, guarantee: Guarantee, first: int
) -> None:
    driver = Driver(pipeline, guarantee)
    for number in range(first):
        driver.run(number)
    before, opened = pipeline.version, []
    driver.run(first, meanwhile=lambda: opened.append(pipeline.opened()))
    with pytest.raises(CommitConflictError, match="nothing was changed"):
        opened[0].apply(ManualChange(ChangeKind.RESTORE, (), (), before))
    assert pipeline.rows() == list(range(first * 10 + 10))


def test_offsets_set_back_and_forth_under_a_batch_stop_it(pipeline: Pipeline) -> None:
    """Another query read the records again meanwhile: they are in the table, and the offsets are at the end again."""
    driver = Driver(pipeline, AT_MOST)

    def read_again() -> None:
        words = ("--app-id", APP, "--topic", "shop.orders", "--partition", 0, "--offset", 0, "--apply")
        assert main(["offsets", "set", str(pipeline.path), *map(str, words)]) == 0
        Driver(pipeline, AT_MOST).run(0, "another")

    with pytest.raises(FencedError, match=r"offsets set by hand\) came after its offsets were committed"):
        driver.run(0, meanwhile=read_again)
    assert pipeline.rows() == list(range(10))


def test_rows_go_in_after_another_query_went_on(pipeline: Pipeline) -> None:
    assert Driver(pipeline, AT_MOST).run(0, meanwhile=lambda: Driver(pipeline, AT_MOST).run(1, "another"))
    assert pipeline.rows() == list(range(20))


def test_deltas_own_restore_matters_where_rows_come_first(pipeline: Pipeline) -> None:
    take_out = [lambda: DeltaTable(str(pipeline.path)).restore(0)]
    with pytest.raises(FencedError, match=r"version 2 \(RESTORE\) came after its rows were committed"):
        Driver(pipeline, AT_LEAST).run(0, meanwhile=take_out[0])
    assert (pipeline.rows(), pipeline.offsets()) == ([], {})
    assert Driver(pipeline, AT_MOST).run(0, meanwhile=take_out[0])
    assert pipeline.rows() == list(range(10))


def test_a_restore_of_rows_is_seen_where_the_offsets_lie_apart(pipeline: Pipeline, tmp_path: Path) -> None:
    driver = Driver(pipeline, AT_LEAST, tmp_path / "offsets")
    with pytest.raises(FencedError, match="RESTORE"):
        driver.run(0, meanwhile=lambda: DeltaTable(str(pipeline.path)).restore(0))
    assert driver.run(0, attempt=" again")
    assert pipeline.rows() == list(range(10))


def test_a_table_of_offsets_that_is_made_again_under_a_batch_stops_it(pipeline: Pipeline, tmp_path: Path) -> None:
    """Another query goes on from there: it has written the rows by then, and what it stores looks like ours."""
    offsets = tmp_path / "offsets"

    def replaced() -> None:
        shutil.rmtree(offsets)
        Driver(pipeline, AT_MOST, offsets).run(0, "another")

    with pytest.raises(FencedError, match="another table of offsets, made in place of the first, came after its"):
        Driver(pipeline, AT_MOST, offsets).run(0, meanwhile=replaced)
    assert pipeline.rows() == list(range(10))


def set_back(pipeline: Pipeline) -> Callable[[], int]:
    """Read the table now; give what sets its offset back to 0 from there."""
    opened = pipeline.opened()
    return lambda: opened.apply(plan_set(opened.stored(), {key(): 0}))


def test_offsets_set_back_right_before_the_rows_conflict(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows alone move no offset, and nothing in them would conflict."""
    original, calls = DeltaSnapshot.write, []

    def overtaken(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            set_back(pipeline)()
        original(*arguments)

    monkeypatch.setattr(DeltaSnapshot, "write", overtaken)
    with pytest.raises(FencedError, match="offsets set by hand"):
        Driver(pipeline, AT_MOST).run(0)
    assert pipeline.rows() == []


def test_offsets_are_not_set_back_by_a_hand_that_did_not_see_the_rows(pipeline: Pipeline) -> None:
    hands: list[Callable[[], int]] = []
    assert Driver(pipeline, AT_MOST).run(0, meanwhile=lambda: hands.append(set_back(pipeline)))
    with pytest.raises(CommitConflictError, match="nothing was changed"):
        hands[0]()
    assert pipeline.offsets() == {0: 10}
