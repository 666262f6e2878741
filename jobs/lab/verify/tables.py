"""The matrix as Markdown, for docs/crash_points.md: a test compares the page with what is said here.

python -m sparkonce.jobs.lab.verify.tables
"""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.lab.verify.cells import Cell, Kind, Result, Shows
from sparkonce.jobs.lab.verify.matrix import IMPOSSIBLE, combinations, full, must_show, why_impossible
from sparkonce.jobs.shared.crash_plans import POINTS

_GUARANTEES = (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)
_SIGNS = {Shows.NEITHER: "=", Shows.LOSS: "−", Shows.DUPLICATES: "+"}  # noqa: RUF001
_NEVER = "·"


def markdown() -> str:
    """Return all tables."""
    parts = [_table(result) for result in Result]
    return "\n\n".join([*parts, _reasons()])


def _table(result: Result) -> str:
    kinds = [kind.value for kind in Kind]
    lines = [f"| {result.value} | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for point in POINTS:
        signs = [_signs(point, kind, result) for kind in Kind]
        if any(each.strip(f"{_NEVER} ") for each in signs):
            lines.append(f"| `{point.value}` | {' | '.join(signs)} |")
    return "\n".join(lines)


def _signs(point: CrashPoint, kind: Kind, result: Result) -> str:
    cells = [Cell(point, kind, guarantee, result, delete_checkpoint=False) for guarantee in _GUARANTEES]
    return " ".join(_NEVER if why_impossible(cell) else _SIGNS[must_show(cell)] for cell in cells)


def _reasons() -> str:
    """Say how many of all combinations cannot occur, and why."""
    every = list(combinations())
    reasons = [why_impossible(cell) for cell in every]
    lines = [f"Of {len(every)} combinations {len(full())} can occur. The others cannot:", ""]
    lines += [f"- {reasons.count(rule.why)}: {rule.why}." for rule in IMPOSSIBLE]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
