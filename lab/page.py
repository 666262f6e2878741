"""Shared by HTML reports: a self-contained page, and its colours in light and dark.

A page needs no other file (no script, font or picture from elsewhere), so it opens from disk.
"""

from __future__ import annotations

from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6a737d; --line: #d8dee4; --page: #ffffff;
  --span: #9ec5fe; --commit: #2f6fdf; --kill: #d1242f; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #8b949e; --line: #30363d; --page: #0d1117;
  --span: #1f4b8e; --commit: #6ea8fe; --kill: #ff6b6b; --good: #56d364; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1140px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.verdict { font-size: 1.15rem; font-weight: 600 } .good { color: var(--good) } .bad { color: var(--kill) }
.scroll { overflow-x: auto } table { border-collapse: collapse }
td, th { padding: .2rem .9rem .2rem 0; text-align: left;
  border-bottom: 1px solid var(--line) } td.number { text-align: right; font-variant-numeric: tabular-nums }
code { font-size: .9em } svg text { fill: var(--ink); font: 12px system-ui, sans-serif } svg .soft { fill: var(--soft) }
svg .grid { stroke: var(--line) }
.lanes { display: block; min-width: 560px; max-width: 1100px; width: 100%; height: auto }
"""


def document(title: str, style: str, body: str) -> str:
    """Return a whole page; ``style`` is added to the common one, ``body`` is HTML."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>
{body}
</body></html>
"""
