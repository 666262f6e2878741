"""The choices have every pair that they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.verify.cells import BY_DELTA_SPARK, Cell, Features, RecordPath, Result, Shows, table_words
from lab.verify.matrix import SOURCE_POINTS, full, must_show
from lab.verify.pairwise import Pair, few_pairs, pairs, pairwise, quick
from sparkonce.exactly_once.guarantee import Guarantee
from tests.chance import examples

CHOICES = [pytest.param(pairwise, pairs, id="pairwise"), pytest.param(quick, few_pairs, id="quick")]
Choosing = Callable[[Sequence[Cell], int], tuple[Cell, ...]]
Bringing = Callable[[Cell], set[Pair]]


def all_of(bring: Bringing, cells: Iterable[Cell]) -> set[Pair]:
    return set[Pair]().union(*map(bring, cells))


@pytest.mark.parametrize(("choose", "bring"), CHOICES)
def test_every_pair_that_occurs_is_chosen(choose: Choosing, bring: Bringing) -> None:
    for seed in range(2):
        chosen = choose(full(), seed)
        assert all_of(bring, chosen) == all_of(bring, full())
        assert len(chosen) < len(full()) / 6


@pytest.mark.parametrize(("choose", "bring"), CHOICES)
@given(some=st.sets(st.sampled_from(full()), max_size=40), seed=st.integers(0, 1000))
@settings(max_examples=examples(50), deadline=None)
def test_of_any_cells_all_their_pairs_are_chosen(choose: Choosing, bring: Bringing, some: set[Cell], seed: int) -> None:
    cells = tuple(sorted(some, key=lambda cell: cell.name))
    chosen = choose(cells, seed)
    assert all_of(bring, chosen) == all_of(bring, cells)
    assert set(chosen) <= some


def test_what_the_source_does_need_not_meet_every_result() -> None:
    places = {(cell.point, writer(cell)) for cell in pairwise(full())}
    assert places >= {(cell.point, writer(cell)) for cell in full() if cell.point not in SOURCE_POINTS}


def test_the_direct_path_meets_each_point_under_each_guarantee() -> None:
    chosen = pairwise(full())
    direct = {(cell.point, cell.guarantee) for cell in chosen if cell.path is RecordPath.DIRECT}
    assert direct == {(cell.point, cell.guarantee) for cell in full() if cell.path is RecordPath.DIRECT}


def test_tables_with_features_meet_each_point_on_each_path_under_exactly_once() -> None:
    def met(cells: Iterable[Cell]) -> set[tuple[object, ...]]:
        once = [cell for cell in cells if cell.features and cell.guarantee is Guarantee.EXACTLY_ONCE]
        return {(cell.features, cell.point, cell.path) for cell in once}

    chosen = pairwise(full())
    assert met(chosen) == met(full())
    assert {(cell.features, cell.guarantee) for cell in chosen if cell.features} == set(product(Features, Guarantee))
    assert not any(cell.features for cell in quick(full()))


def test_the_quick_choice_has_every_point_under_exactly_once_and_all_that_it_can_show() -> None:
    chosen, once = quick(full()), Guarantee.EXACTLY_ONCE
    plain = [cell for cell in full() if not table_words(cell)]
    assert {cell.point for cell in chosen if cell.guarantee is once} == {
        cell.point for cell in plain if cell.guarantee is once
    }
    assert {(cell.point, must_show(cell)) for cell in chosen} == {(cell.point, must_show(cell)) for cell in plain}
    assert len(chosen) < len(pairwise(full())) / 2


def test_both_writers_of_delta_spark_are_there_with_every_guarantee() -> None:
    chosen = {(cell.result, cell.guarantee) for cell in quick(full())}
    assert chosen == set(product(Result, Guarantee))
    assert {cell.kind for cell in pairwise(full()) if cell.result in BY_DELTA_SPARK} >= {
        cell.kind for cell in full() if cell.result in BY_DELTA_SPARK
    }


def writer(cell: Cell) -> object:
    return BY_DELTA_SPARK if cell.result in BY_DELTA_SPARK else cell.result


def test_one_seed_chooses_one_way() -> None:
    assert quick(full(), 3) == quick(full(), 3)
    assert quick(full(), 3) != quick(full(), 4)


def test_the_choice_is_the_same_in_every_process() -> None:
    code = "from lab.verify.matrix import full; from lab.verify.pairwise import quick\n"
    code += "print(*(cell.name for cell in quick(full())))"
    told = set()
    for hashes in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        ended = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        told.add(ended.stdout)
    assert len(told) == 1
    assert len(told.pop().split()) > 30


def test_the_choices_show_losses_and_duplicates() -> None:
    for choose in (pairwise, quick):
        assert {must_show(cell) for cell in choose(full())} == {Shows.NEITHER, Shows.LOSS, Shows.DUPLICATES}
