"""docs/options_*.md: a page with a reference of options."""

from __future__ import annotations

import textwrap

from sparkonce.connectors.reference.tables import REFUSED, WITHOUT_EFFECT, Reference
from sparkonce.jobs.cli.options import groups, reasons, scope
from sparkonce.settings import Setting


def markdown(reference: Reference) -> str:
    """Return the page of a reference."""
    name = reference.name
    lines = [
        f"# {reference.title}",
        "",
        _paragraph(
            f"For {reference.use}. `sparkonce options {name} NAME` shows one of them in the terminal. "
            "(This page is generated from the code: `python -m lab.pages .`)"
        ),
        "",
        _paragraph(
            "Names are compared without case. An unknown name is an error that suggests the nearest one. "
            "Options marked S are those of Spark's own connector, with the same meaning. Values of options marked "
            "*secret* appear in no message and no log, nor in plans in a session of `sparkonce.spark_session`."
        ),
    ]
    if reference.note:
        lines += ["", _paragraph(reference.note)]
    for group, entries in groups(reference):
        lines += ["", f"## {group}", ""]
        if group in (WITHOUT_EFFECT, REFUSED):
            lines += [
                "These have no effect here; they are accepted silently." if group == WITHOUT_EFFECT else _REFUSING
            ]
            lines += ["", f"| setting | {'why' if group == WITHOUT_EFFECT else 'instead'} |", "|---|---|"]
            for names, why in reasons(entries):
                lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {_cell(why)} |")
            continue
        lines += _table(entries)
    return "\n".join(lines) + "\n"


_REFUSING = "Each is an error that says what to use instead, before anything is read or written."


def _table(entries: list[Setting]) -> list[str]:
    """Return a table without empty columns."""
    columns = {
        "option": [f"`{entry.name}`" for entry in entries],
        "value": [f"`{entry.form}`" if entry.form else "" for entry in entries],
        "default": [_default(entry) for entry in entries],
        "for": [scope(entry) for entry in entries],
        "": ["S" if entry.spark else "" for entry in entries],
        "meaning": [f"{entry.documentation} *secret*" if entry.sensitive else entry.documentation for entry in entries],
    }
    kept = {heading: cells for heading, cells in columns.items() if any(cells)}
    rows = [kept, ["---"] * len(kept), *([_cell(cell) for cell in row] for row in zip(*kept.values(), strict=True))]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _default(entry: Setting) -> str:
    plain = entry.shown_default in ("", "required", "none") or " " in entry.shown_default
    return entry.shown_default if plain else f"`{entry.shown_default}`"


def _cell(written: str) -> str:
    return written.replace("|", "\\|")


def _paragraph(said: str) -> str:
    return textwrap.fill(said, 130, break_on_hyphens=False, break_long_words=False)
