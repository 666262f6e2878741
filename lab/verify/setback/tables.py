"""Outcomes of set-back cells as tables: a row for each way to set back, a column for each query.

As Markdown, from a file that ``python -m lab.verify --json`` wrote:

    python -m lab.verify.setback.tables FILE
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from lab.verify.cells import Outcome
from lab.verify.setback.cells import Query, SetBack, SetBackCell, Sink, StateStore, all_setbacks
from sparkonce.notebook import table

_CONDITION = re.compile(r"\[([A-Z_.]+)\]")
_NEVER = "·"


def short(remark: str | None, wrong: str | None) -> str:
    """Return a remark, shortened."""
    text = remark or ""
    if wrong is not None:
        return f"WRONG: {text or wrong}"
    if text.startswith("refuses: "):
        found = _CONDITION.search(text)
        return f"stops: {found[1] if found else text.removeprefix('refuses: ').partition(':')[0].rpartition('.')[2]}"
    return "refuses" if "after a refusal" in text else text.partition(" of ")[0].partition(" not due")[0]


def rows(said: Mapping[SetBackCell, str], sink: Sink) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of one sink's table; state stores with equal outcomes share a word."""
    queries = [query for query in Query if any((cell.query, cell.sink) == (query, sink) for cell in said)]
    lines = []
    for setback in SetBack:
        found = [_slot(said, setback, query, sink) for query in queries]
        if any(each != _NEVER for each in found):
            lines.append([setback.value.replace("-", " "), *found])
    return [sink.value, *(query.value for query in queries)], lines


def _slot(said: Mapping[SetBackCell, str], setback: SetBack, query: Query, sink: Sink) -> str:
    found = {store: said.get(SetBackCell(setback, query, store, sink)) for store in StateStore}
    words = {store: text for store, text in found.items() if text is not None}
    if len(set(words.values())) < 2:
        return next(iter(words.values()), _NEVER)
    return "; ".join(f"{store.value}: {text}" for store, text in words.items())


def section(outcomes: Sequence[Outcome[SetBackCell]]) -> str:
    """Return the HTML page's part about these cells; empty if none ran."""
    if not outcomes:
        return ""
    said = {each.cell: short(each.remark, each.wrong) for each in outcomes}
    parts = [f'<div class="scroll">{table(*rows(said, sink), page=True)}</div>' for sink in _sinks(said)]
    details = (_details(each) for each in sorted(outcomes, key=lambda each: each.wrong is None))
    return f"<h2>Checkpoints set back</h2>{''.join(parts)}{''.join(details)}"


def _details(outcome: Outcome[SetBackCell]) -> str:
    sign, is_open = ("✓", "") if outcome.wrong is None else ("✗", " open")
    told = [text for text in (outcome.wrong, outcome.remark) if text]
    steps = ((f"{each.at_s:.2f}", each.lane, each.what) for each in outcome.moments)
    body = "".join(f"<p>{escape(text)}</p>" for text in told) + table(("seconds", "lane", "what"), steps, page=True)
    return f"<details{is_open}><summary>{sign} {escape(outcome.cell.name)}</summary><div>{body}</div></details>\n"


def _sinks(said: Iterable[SetBackCell]) -> list[Sink]:
    sinks = {cell.sink for cell in said}
    return [sink for sink in Sink if sink in sinks]


def markdown(outcomes: Iterable[Mapping[str, object]]) -> str:
    """Return the tables of outcomes from ``--json``, without cells of other dimensions."""
    known = {cell.name: cell for cell in all_setbacks()}
    said = {}
    for outcome in outcomes:
        cell = outcome["cell"]
        assert isinstance(cell, dict)
        if cell["name"] in known:
            said[known[cell["name"]]] = short(_text(outcome["remark"]), _text(outcome["wrong"]))
    tables = []
    for sink in _sinks(said):
        head, lines = rows(said, sink)
        tables.append("\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines]))
    return "\n\n".join(tables)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text())))
