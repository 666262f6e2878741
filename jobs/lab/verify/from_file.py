"""The outcomes of `sparkonce verify`, read again, to be looked at in a notebook."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.lab.verify.cells import Shows
from sparkonce.jobs.lab.verify.cluster.cells import ClusterCell
from sparkonce.jobs.lab.verify.progress import read_progress
from sparkonce.jobs.lab.verify.results import AnyOutcome, from_json, what_is_wrong
from sparkonce.jobs.lab.verify.setback.cells import SetBackCell
from sparkonce.notebook import table

SIGNS = {
    Shows.NEITHER: "=",
    Shows.LOSS: "−",  # noqa: RUF001 - as in docs/crash_points.md
    Shows.MAYBE_LOSS: "−",  # noqa: RUF001
    Shows.DUPLICATES: "+",
    Shows.MAYBE_DUPLICATES: "+",
}
OTHERS = "other cells"
"""The row of cells that are no crashes: of checkpoints set back, and of faults of a cluster."""
_ORDER = (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)


@dataclass(frozen=True, slots=True)
class VerifiedCell:
    """One cell, and what came of it."""

    name: str
    point: str
    kind: str
    guarantee: Guarantee
    must_show: Shows
    records: int
    lost: int
    duplicated: int
    wrong: str | None
    """Why it did not show what it must; None if it did."""


@dataclass(frozen=True, slots=True)
class VerifyResults:
    """All cells of a run, without those that only compare."""

    cells: Sequence[VerifiedCell]

    @property
    def wrong(self) -> Sequence[VerifiedCell]:
        """The cells that did not show what they must."""
        return [cell for cell in self.cells if cell.wrong is not None]

    def __str__(self) -> str:
        strict = [cell for cell in self.cells if cell.guarantee is Guarantee.EXACTLY_ONCE]
        lost, duplicated = sum(cell.lost for cell in strict), sum(cell.duplicated for cell in strict)
        return f"{len(self.cells)} cells: lost={lost} duplicated={duplicated} wrong={len(self.wrong)}"

    def _repr_html_(self) -> str:
        points = list(dict.fromkeys(cell.point for cell in self.cells))
        kinds = list(dict.fromkeys(cell.kind for cell in self.cells))
        rows = [[point, *(_tile(self._at(point, kind)) for kind in kinds)] for point in points]
        note = "Exactly-once, at-least-once, at-most-once: = nothing lost, nothing twice; + rows twice; "
        note += "− rows lost, as it must be."  # noqa: RUF001
        matrix = table(["crash point", *kinds], rows, title=str(self), note=note)
        wrong = [(cell.name, cell.wrong) for cell in self.wrong]
        return matrix + (table(("wrong", "why"), wrong) if wrong else "")

    def _at(self, point: str, kind: str) -> list[VerifiedCell]:
        return [cell for cell in self.cells if (cell.point, cell.kind) == (point, kind)]


def verify_results(path: str | Path) -> VerifyResults:
    """Read the file that ``sparkonce verify --json`` has written, or the folder of ``--keep``, while it runs too.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is something else, or of a version with other cells.
    """
    place = Path(path)
    if place.is_dir():
        run = read_progress(place)
        if run is None:
            raise ValueError(f"{path} is not a folder of sparkonce verify --keep")
        outcomes = run.outcomes
    else:
        try:
            outcomes = tuple(from_json(each) for each in json.loads(place.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a file of sparkonce verify --json ({error!r})") from error
    return VerifyResults([_cell(each) for each in outcomes if not each.to_compare])


def _cell(outcome: AnyOutcome) -> VerifiedCell:
    cell = outcome.cell
    point = OTHERS if isinstance(cell, SetBackCell) else cell.point.value
    kind = cell.setback if isinstance(cell, SetBackCell) else cell.fault if isinstance(cell, ClusterCell) else cell.kind
    return VerifiedCell(
        name=cell.name,
        point=point,
        kind=kind.value,
        guarantee=cell.guarantee,
        must_show=outcome.must_show,
        records=outcome.records,
        lost=outcome.lost,
        duplicated=outcome.duplicated,
        wrong=what_is_wrong(outcome),
    )


def _tile(cells: Iterable[VerifiedCell]) -> str:
    """Return a sign for each guarantee, as docs/crash_points.md has them."""
    found = list(cells)
    if not found:
        return "·"
    signs = []
    for guarantee in _ORDER:
        own = [cell for cell in found if cell.guarantee is guarantee]
        if own:
            signs.append("✗" if any(cell.wrong is not None for cell in own) else _sign(own))
    return f"{' '.join(signs)} ({len(found)})"


def _sign(cells: Iterable[VerifiedCell]) -> str:
    shown = {SIGNS[cell.must_show] for cell in cells}
    return shown.pop() if len(shown) == 1 else "".join(sorted(shown))
