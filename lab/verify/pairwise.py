"""Two selections of cells: one that covers all possible pairs of values, and one of a third of its size.

Most faults need two conditions together (a point and a guarantee, a kind of crash and a lost checkpoint), not
five. `pairwise` covers every possible pair of values. Points have more values beside them
than any other dimension, so they decide the number of cells. `quick` has every point with everything that it can
show, every point under exactly-once, and every pair of the other values; the pairs of a point with kind of crash,
result and path are left to `pairwise`.

Both are greedy: again and again they add the cell with the most new pairs, rare pairs counting for more; among
equals the cheapest one to run, and then a shuffle by the seed decides. At the end, cells are removed if others
cover all their pairs. What a cell shows is a value like the others, so losses and duplicates occur at every
point where they can.

`pairwise` covers each point on the direct path under every guarantee, and each point and path under exactly-once with
each set of features, each table that is hit of several, or each fate of one: three values together. `quick` has plain
tables only, one for each query. The points of the source need not meet every kind of result: nothing there depends on
the sink. Points and kinds of crash need not meet both writers of delta-spark: one sequence writes for both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from math import lcm
from typing import TypeVar

from lab.verify.cells import BY_DELTA_SPARK, Cell, Kind, RecordPath, table_words
from lab.verify.matrix import SOURCE_POINTS, must_show
from sparkonce.exactly_once.guarantee import Guarantee

_POINT, _GUARANTEE, _RESULT, _SHOWS, _PATH, _FEATURES, _SHARED, _FATE = 0, 2, 3, 5, 6, 7, 8, 9
"""Indexes of these dimensions in a cell's values."""
Pair = frozenset[tuple[int, Hashable]]
"""Values with the indexes of their dimensions: pairs, or triples where three must come together."""
CellT = TypeVar("CellT", bound=Hashable)


def quick(cells: Sequence[Cell], seed: int = 0) -> tuple[Cell, ...]:
    """Choose few of ``cells``; the same for the same seed, in the given order."""
    return choose(cells, few_pairs, _costs_more, seed)


def pairwise(cells: Sequence[Cell], seed: int = 0) -> tuple[Cell, ...]:
    """Choose cells that cover all pairs; the same for the same seed, in the given order."""
    return choose(cells, pairs, _costs_more, seed)


def choose(
    cells: Sequence[CellT], pairs: Callable[[CellT], set[Pair]], costs_more: Callable[[CellT], bool | tuple[bool, ...]],
    seed: int,
) -> tuple[CellT, ...]:  # fmt: skip
    """Choose from cells of any dimensions so that every pair returned by ``pairs`` is covered."""
    order = list(cells)
    random.Random(seed).shuffle(order)  # noqa: S311 - a choice that can be repeated, not a secret
    order.sort(key=costs_more)
    # By index from here on: cells are slow to hash.
    brings = [pairs(cell) for cell in order]
    brought_by: dict[Pair, list[int]] = {}
    for place, found in enumerate(brings):
        for pair in found:
            brought_by.setdefault(pair, []).append(place)
    # In integers: sets have another order in each process, and roundings must not decide between equals.
    whole = lcm(*map(len, brought_by.values()))
    worth = {pair: whole // len(places) for pair, places in brought_by.items()}
    worths = [sum(worth[pair] for pair in found) for found in brings]
    chosen = list[int]()
    while any(worths):
        best = max(range(len(order)), key=worths.__getitem__)
        chosen.append(best)
        for pair in brings[best] & worth.keys():
            gained = worth.pop(pair)
            for place in brought_by[pair]:
                worths[place] -= gained
    chosen.sort(key=lambda place: costs_more(order[place]), reverse=True)
    left = {order[place] for place in _without_needless(chosen, brings)}
    return tuple(cell for cell in cells if cell in left)


def _without_needless(chosen: Sequence[int], brings: Sequence[set[Pair]]) -> list[int]:
    times = Counter(pair for place in chosen for pair in brings[place])
    left = list(chosen)
    for place in chosen:
        if all(times[pair] > 1 for pair in brings[place]):
            left.remove(place)
            times.subtract(brings[place])
    return left


def _costs_more(cell: Cell) -> tuple[bool, bool]:
    """Order cells by cost, cheap ones first: `max` takes the first of equals."""
    return cell.result in BY_DELTA_SPARK, cell.kind is Kind.DRIVER_KILLED


def pairs(cell: Cell) -> set[Pair]:
    """Return every pair of values of two dimensions in a cell; on the direct path also (point, guarantee, path).

    Those of a cell with features or with several tables are pairs with these, and under exactly-once triples with point
    and path.
    """
    result: Hashable = BY_DELTA_SPARK if cell.result in BY_DELTA_SPARK else cell.result
    values = (cell.point, cell.kind, cell.guarantee, result, cell.delete_checkpoint, must_show(cell), cell.path)
    if table_words(cell):
        tables = ((_FATE, cell.fate), (_FEATURES, cell.features), (_SHARED, cell.shared))
        table = next(each for each in tables if each[1] is not None)
        found = {frozenset({table, other}) for other in enumerate(values)}
        if cell.guarantee is Guarantee.EXACTLY_ONCE:
            found.add(frozenset({table, (_POINT, cell.point), (_PATH, cell.path)}))
        return found
    found = {frozenset(pair) for pair in combinations(enumerate(values), 2)}
    if cell.path is RecordPath.DIRECT:
        found.add(frozenset({(_POINT, cell.point), (_GUARANTEE, cell.guarantee), (_PATH, cell.path)}))
    if cell.point in SOURCE_POINTS:
        found.discard(frozenset({(_POINT, cell.point), (_RESULT, result)}))
    others = enumerate(values[_GUARANTEE:], _GUARANTEE)
    return found | {frozenset({(_RESULT, cell.result), other}) for other in others if other[0] != _RESULT}


def few_pairs(cell: Cell) -> set[Pair]:
    """Return the pairs of a cell; with its point only what it shows, and exactly-once. Plain tables only."""
    if table_words(cell):
        return set()
    point, kept = (_POINT, cell.point), {(_SHOWS, must_show(cell)), (_GUARANTEE, Guarantee.EXACTLY_ONCE)}
    return {pair for pair in pairs(cell) if point not in pair or (pair & kept and len(pair) == 2)}
