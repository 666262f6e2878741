"""Small HTML tables that represent objects in a notebook (``_repr_html_``).

All text is escaped. There is no script, style sheet or colour: text and lines inherit those of the page, light or
dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

SHOWN_ROWS = 50
"""The most rows of a table; of the others only the number is shown."""
MAX_TEXT = 300
"""The most characters of a cell."""

_TABLE = "border-collapse:collapse;margin:.3em 0"
_CELL = "padding:.15em .6em"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", note: str = "") -> str:
    """Return a table with numbers aligned right; ``title`` is above it, ``note`` below."""
    kept = list(rows)
    more = len(kept) - SHOWN_ROWS
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in kept[:SHOWN_ROWS])
    names = "".join(f'<th scope="col" style="{_CELL};text-align:left">{escape(name)}</th>' for name in head)
    parts = [
        f"<div><b>{text(title)}</b></div>" if title else "",
        f'<table style="{_TABLE}"><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>',
        f"<div>… and {more:,} more</div>" if more > 0 else "",
        f"<div>{text(note)}</div>" if note else "",
    ]
    return "".join(parts)


def text(value: object) -> str:
    """Return text as HTML: escaped and truncated."""
    whole = str(value)
    return escape(whole if len(whole) <= MAX_TEXT else whole[: MAX_TEXT - 1] + "…")


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td style="{_CELL};text-align:left">{text("-" if value is None else value)}</td>'
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return f'<td style="{_CELL};text-align:right">{shown}</td>'
