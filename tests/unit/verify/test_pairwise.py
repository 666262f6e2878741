"""The quick choice has every pair that can occur."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.lab.verify.cells import BY_DELTA_SPARK, Cell, RecordPath, Result, Shows
from sparkonce.jobs.lab.verify.matrix import SOURCE_POINTS, full, must_show
from sparkonce.jobs.lab.verify.pairwise import Pair, pairs, quick
from tests.chance import examples


def all_pairs(cells: tuple[Cell, ...]) -> set[Pair]:
    return set[Pair]().union(*(pairs(cell) for cell in cells))


@pytest.mark.parametrize("seed", range(2))
def test_every_pair_that_occurs_is_chosen(seed: int) -> None:
    chosen = quick(full(), seed)
    assert all_pairs(chosen) == all_pairs(full())
    assert len(chosen) < len(full()) / 6


@given(st.sets(st.sampled_from(full()), max_size=40), st.integers(0, 1000))
@settings(max_examples=examples(100), deadline=None)
def test_of_any_cells_all_their_pairs_are_chosen(some: set[Cell], seed: int) -> None:
    cells = tuple(sorted(some, key=lambda cell: cell.name))
    chosen = quick(cells, seed)
    assert all_pairs(chosen) == all_pairs(cells)
    assert set(chosen) <= some


def test_what_the_source_does_need_not_meet_every_result() -> None:
    places = {(cell.point, writer(cell)) for cell in quick(full())}
    assert places >= {(cell.point, writer(cell)) for cell in full() if cell.point not in SOURCE_POINTS}
    assert {point for point, _ in places} == {cell.point for cell in full()}


def test_both_writers_of_delta_spark_are_there_with_every_guarantee() -> None:
    chosen = {(cell.result, cell.guarantee) for cell in quick(full())}
    assert chosen == set(product(Result, Guarantee))
    assert {cell.kind for cell in quick(full()) if cell.result in BY_DELTA_SPARK} >= {
        cell.kind for cell in full() if cell.result in BY_DELTA_SPARK
    }


def writer(cell: Cell) -> object:
    return BY_DELTA_SPARK if cell.result in BY_DELTA_SPARK else cell.result


@pytest.mark.parametrize("seed", range(2))
def test_the_direct_path_meets_each_point_under_each_guarantee(seed: int) -> None:
    chosen = quick(full(), seed)
    direct = {(cell.point, cell.guarantee) for cell in chosen if cell.path is RecordPath.DIRECT}
    assert direct == {(cell.point, cell.guarantee) for cell in full() if cell.path is RecordPath.DIRECT}
    met = {(cell.point, cell.path) for cell in chosen}
    assert met == {(cell.point, cell.path) for cell in full()}


def test_the_second_path_adds_few_cells() -> None:
    through_spark = tuple(cell for cell in full() if cell.path is RecordPath.SPARK)
    assert len(quick(full())) <= len(quick(through_spark)) * 1.05


def test_one_seed_chooses_one_way() -> None:
    assert quick(full(), 3) == quick(full(), 3)
    assert quick(full(), 3) != quick(full(), 4)


def test_the_choice_is_the_same_in_every_process() -> None:
    code = "from sparkonce.jobs.lab.verify.matrix import full; from sparkonce.jobs.lab.verify.pairwise import quick\n"
    code += "print(*(cell.name for cell in quick(full())))"
    told = set()
    for hashes in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        ended = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        told.add(ended.stdout)
    assert len(told) == 1
    assert len(told.pop().split()) > 100


def test_the_quick_choice_shows_losses_and_duplicates() -> None:
    assert {must_show(cell) for cell in quick(full())} == {Shows.NEITHER, Shows.LOSS, Shows.DUPLICATES}
