"""The HTML page's part about cells on a cluster: a row for each fault, and a timeline for each cell."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lab.verify.cells import AnyCell, Outcome
from lab.verify.cluster.cells import ClusterCell, Fault
from lab.verify.report_timeline import steps, timeline
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.notebook import table

_GUARANTEES = tuple(Guarantee)
_NEVER = "·"


def section(outcomes: Sequence[Outcome[ClusterCell]]) -> str:
    """Return the part; empty if no such cell ran."""
    if not outcomes:
        return ""
    lines = [
        [fault.value.replace("-", " "), *(_slot(outcomes, fault, each) for each in _GUARANTEES)] for fault in Fault
    ]
    ran = [line for line in lines if any(slot != _NEVER for slot in line[1:])]
    head = ["fault of the cluster", *(guarantee.value for guarantee in _GUARANTEES)]
    details = (cell_details(each) for each in sorted(outcomes, key=lambda each: (each.wrong is None, each.cell.name)))
    return f'<h2>Faults of the cluster</h2><div class="scroll">{table(head, ran, page=True)}</div>{"".join(details)}'


def _slot(outcomes: Sequence[Outcome[ClusterCell]], fault: Fault, guarantee: Guarantee) -> str:
    chosen = [each for each in outcomes if (each.cell.fault, each.cell.guarantee) == (fault, guarantee)]
    if not chosen:
        return _NEVER
    wrong = sum(each.wrong is not None for each in chosen)
    lost, duplicated = sum(each.lost for each in chosen), sum(each.duplicated for each in chosen)
    held = f"{len(chosen) - wrong} of {len(chosen)} right" if wrong else f"{len(chosen)} right"
    return f"{held}: {lost} lost, {duplicated} twice"


def cell_details(outcome: Outcome[AnyCell]) -> str:
    """Return what a cell showed, with its timeline."""
    sign, is_open = ("✓", "") if outcome.wrong is None else ("✗", " open")
    told = (
        f"Must show: {outcome.must_show.value}. {outcome.lost} lost, {outcome.duplicated} twice of {outcome.records}."
    )
    parts = [f"<p>{escape(text)}</p>" for text in (outcome.wrong, told, outcome.remark, *outcome.errors) if text]
    parts.append(f'<div class="scroll">{timeline(outcome.moments)}</div>')
    parts.append(table(("", "seconds", "lane", "what"), steps(outcome.moments), page=True))
    name = f"{sign} {escape(outcome.cell.name)}"
    return f"<details{is_open}><summary>{name}</summary><div>{''.join(parts)}</div></details>\n"
