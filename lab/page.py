"""Shared by HTML reports: a self-contained page, in the style of the live pages.

A page needs no other file (no script, font or picture from elsewhere), so it opens from disk.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

STYLE = f"""
{(Path(__file__).parents[1] / "jobs" / "ui" / "static" / "base.css").read_text()}
body {{ max-width: 1140px; margin: 2rem auto; padding: 0 1rem }} h1 {{ margin-bottom: .2rem }}
.lanes {{ display: block; min-width: 560px; max-width: 1100px; width: 100%; height: auto }}
"""


def document(title: str, style: str, body: str) -> str:
    """Return a whole page; ``style`` is added to the common one, ``body`` is HTML."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>
{body}
</body></html>
"""
