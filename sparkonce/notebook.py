"""HTML tables: small ones, which represent objects in a notebook (``_repr_html_``), and those of reports.

All text is escaped. In a notebook there is no script, style sheet or colour: text and lines inherit those of the page,
light or dark.
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


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", note: str = "", page: bool = False
) -> str:
    """Return a table with numbers aligned right; ``title`` is above it, ``note`` below.

    On a ``page`` of its own it has all rows, whole texts and no style; numbers are of the class ``number``.
    """
    kept = list(rows)
    shown = kept if page else kept[:SHOWN_ROWS]
    lines = "\n".join(f"<tr>{''.join(_cell(value, page) for value in row)}</tr>" for row in shown)
    look, left = ("", "") if page else (f' style="{_TABLE}"', f' style="{_CELL};text-align:left"')
    names = "".join(f'<th scope="col"{left}>{escape(name)}</th>' for name in head)
    parts = [
        f"<div><b>{text(title)}</b></div>" if title else "",
        f"<table{look}><thead><tr>{names}</tr></thead><tbody>\n{lines}</tbody></table>",
        f"<div>… and {len(kept) - len(shown):,} more</div>" if len(kept) > len(shown) else "",
        f"<div>{text(note)}</div>" if note else "",
    ]
    return "".join(parts)


def text(value: object) -> str:
    """Return text as HTML: escaped and truncated."""
    whole = str(value)
    return escape(whole if len(whole) <= MAX_TEXT else whole[: MAX_TEXT - 1] + "…")


def _cell(value: object, page: bool) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number:
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    else:
        shown = escape(str(value)) if page else text("-" if value is None else value)
    if page:
        return f'<td class="number">{shown}</td>' if is_number else f"<td>{shown}</td>"
    return f'<td style="{_CELL};text-align:{"right" if is_number else "left"}">{shown}</td>'
