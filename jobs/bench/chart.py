"""A picture of how throughput changes with connections, members of a group, and partitions: one SVG, a few lines.

A panel for each kind of size, a pair of bars for each size; bars of one panel share a scale. Nothing is loaded from
elsewhere, and the colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from statistics import median

from jobs.bench.results import Comparison

WIDTH = 720
_SIZED = re.compile(r"(broker-(?:connections|groups|partitions-produce|partitions-consume))-(\d+)$")
_TITLES = {
    "broker-connections": "connections, produce requests of 16 KiB",
    "broker-groups": "members of a group, eight partitions",
    "broker-partitions-produce": "partitions, ProducerPerformance",
    "broker-partitions-consume": "partitions, ConsumerPerformance",
}
_STYLE = """\
:root { --ink: #1b1f24; --ours: #2f6fdf; --peer: #9aa4ad; --line: #d8dee4; --page: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --ours: #6ea8fe; --peer: #6a737d; --line: #30363d;
  --page: #0d1117 } }
rect.page { fill: var(--page) } text { fill: var(--ink); font: 12px system-ui, sans-serif }
.ours { fill: var(--ours) } .peer { fill: var(--peer) } line { stroke: var(--line) }"""
_BAR_HEIGHT = 16
_LEFT = 70
_RIGHT = 130


def panels(comparisons: Sequence[Comparison]) -> dict[str, list[tuple[int, Comparison]]]:
    """Give the comparisons that belong to a row of sizes, by the row, least size first."""
    found: dict[str, list[tuple[int, Comparison]]] = {}
    for comparison in comparisons:
        match = _SIZED.match(comparison.name)
        if match:
            found.setdefault(match[1], []).append((int(match[2]), comparison))
    return {row: sorted(sizes, key=lambda one: one[0]) for row, sizes in found.items()}


def svg(comparisons: Sequence[Comparison]) -> str | None:
    """Give the chart of all rows of sizes; None where none was measured."""
    rows = panels(comparisons)
    if not rows:
        return None
    parts, top = [], 34
    for row, sizes in rows.items():
        drawn, height = _panel(_TITLES[row], sizes, top)
        parts.append(drawn)
        top += height
    legend = (
        '<rect class="ours" x="10" y="8" width="12" height="12"/><text x="27" y="18">sparkonce</text>'
        '<rect class="peer" x="110" y="8" width="12" height="12"/><text x="127" y="18">Apache Kafka</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" role="img"'
        f' aria-label="Records a second by size, sparkonce and Apache Kafka"><style>{_STYLE}</style>'
        f'<rect class="page" width="{WIDTH}" height="{top}"/>{legend}{"".join(parts)}</svg>\n'
    )


def _panel(title: str, sizes: Sequence[tuple[int, Comparison]], top: int) -> tuple[str, int]:
    """Draw one row of sizes; gives the drawing and its height."""
    unit = sizes[0][1].unit
    most = max(median(side) for _, one in sizes for side in (one.ours, one.peer) if side)
    parts = [f'<text x="10" y="{top + 16}">{escape(title)}: {escape(unit)}</text>']
    y = top + 26
    for size, one in sizes:
        parts.append(f'<text x="{_LEFT - 10}" y="{y + _BAR_HEIGHT}" text-anchor="end">{size:,}</text>')
        for kind, samples in (("ours", one.ours), ("peer", one.peer)):
            if samples:
                parts.append(_bar(kind, median(samples), most, y))
            y += _BAR_HEIGHT
        y += 6
    parts.append(f'<line x1="{_LEFT}" y1="{top + 24}" x2="{_LEFT}" y2="{y - 4}"/>')
    return "".join(parts), y - top + 10


def _bar(kind: str, value: float, most: float, y: int) -> str:
    width = value / most * (WIDTH - _LEFT - _RIGHT)
    return (
        f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT - 2}"/>'
        f'<text x="{_LEFT + width + 6:.1f}" y="{y + _BAR_HEIGHT - 4}">{value:,.0f}</text>'
    )
