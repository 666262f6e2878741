"""A chart of the results as one SVG: throughput by size, and the pipelines beside their peers.

A panel for each kind of size, and for each unit of the pipelines; a pair of bars for each result; bars
of one panel share a scale. Nothing is loaded from elsewhere, and the colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from lab.bench.results import Comparison
from lab.bench.settings import DIRECT_BENCHMARKS, SPARK_BENCHMARKS

WIDTH = 760
_SIZED = re.compile(r"(broker-(?:connections|groups|partitions-produce|partitions-consume)|direct-growth-\d+)-(\d+)$")
_TITLES = {
    "broker-connections": "connections, produce requests of 16 KiB",
    "broker-groups": "members of a group, eight partitions",
    "broker-partitions-produce": "partitions, ProducerPerformance",
    "broker-partitions-consume": "partitions, ConsumerPerformance",
    "direct-growth-1": "partitions, direct into a table, one task slot",
    "direct-growth-2": "partitions, direct into a table, two task slots",
}
_UNITS = {
    "rows/s": "rows a second: more is better",
    "CPU s/M rows": "CPU seconds for a million rows: less is better",
    "s": "seconds: less is better",
    "CPU s": "CPU seconds for a micro-batch: less is better",
}
_STYLE = """\
:root { --ink: #1b1f24; --ours: #2f6fdf; --peer: #9aa4ad; --line: #d8dee4; --page: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --ours: #6ea8fe; --peer: #6a737d; --line: #30363d;
  --page: #0d1117 } }
rect.page { fill: var(--page) } text { fill: var(--ink); font: 12px system-ui, sans-serif }
.ours { fill: var(--ours) } .peer { fill: var(--peer) } line { stroke: var(--line) }"""
_BAR_HEIGHT = 16
_RIGHT = 150
_LETTER_WIDTH = 6.6
"""The approximate width of a letter, in pixels."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Results that share a scale, each with its label."""

    title: str
    lines: tuple[tuple[str, Comparison], ...]


def panels(comparisons: Sequence[Comparison]) -> list[Panel]:
    """Return the comparisons of each panel: sizes in ascending order; pipelines by their unit."""
    sized: dict[str, list[tuple[int, Comparison]]] = {}
    units: dict[str, list[tuple[str, Comparison]]] = {}
    for comparison in comparisons:
        match = _SIZED.match(comparison.name)
        if match:
            sized.setdefault(match[1], []).append((int(match[2]), comparison))
        elif comparison.name.startswith(SPARK_BENCHMARKS + DIRECT_BENCHMARKS):
            units.setdefault(comparison.unit, []).append((comparison.name.removesuffix("-cpu"), comparison))
    found = []
    for row, sizes in sized.items():
        title = f"{_TITLES[row]}: {sizes[0][1].unit}"
        lines = tuple((f"{size:,}", one) for size, one in sorted(sizes, key=lambda one: one[0]))
        found.append(Panel(title, lines))
    return found + [Panel(_UNITS[unit], tuple(units[unit])) for unit in _UNITS if unit in units]


def svg(comparisons: Sequence[Comparison]) -> str | None:
    """Return the chart of all panels; None if there is nothing to draw."""
    found = panels(comparisons)
    if not found:
        return None
    parts, top = [], 34
    for panel in found:
        drawn, height = _panel(panel, top)
        parts.append(drawn)
        top += height
    peers = ", ".join(dict.fromkeys(one.peer_name.split(",")[0] for panel in found for _, one in panel.lines))
    legend = (
        '<rect class="ours" x="10" y="8" width="12" height="12"/><text x="27" y="18">sparkonce</text>'
        f'<rect class="peer" x="110" y="8" width="12" height="12"/><text x="127" y="18">{escape(peers)}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" role="img"'
        f' aria-label="sparkonce and {escape(peers, quote=True)} beside each other"><style>{_STYLE}</style>'
        f'<rect class="page" width="{WIDTH}" height="{top}"/>{legend}{"".join(parts)}</svg>\n'
    )


def _panel(panel: Panel, top: int) -> tuple[str, int]:
    """Draw one panel; return the drawing and its height."""
    most = max(median(side) for _, one in panel.lines for side in (one.ours, one.peer) if side)
    left = 24 + int(max(len(label) for label, _ in panel.lines) * _LETTER_WIDTH)
    parts = [f'<text x="10" y="{top + 16}">{escape(panel.title)}</text>']
    y = top + 26
    for label, one in panel.lines:
        parts.append(f'<text x="{left - 10}" y="{y + _BAR_HEIGHT}" text-anchor="end">{escape(label)}</text>')
        for kind, samples in (("ours", one.ours), ("peer", one.peer)):
            if samples:
                told = _told(one, kind == "ours", median(samples))
                parts.append(_bar(kind, median(samples) / most * (WIDTH - left - _RIGHT), told, left, y))
            y += _BAR_HEIGHT
        y += 6
    parts.append(f'<line x1="{left}" y1="{top + 24}" x2="{left}" y2="{y - 4}"/>')
    return "".join(parts), y - top + 10


def _told(one: Comparison, is_ours: bool, value: float) -> str:
    """Return the text of a bar; ours includes the ratio."""
    figure = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{figure} ({one.ratio:.2f} times)" if is_ours and one.ratio is not None else figure


def _bar(kind: str, width: float, told: str, left: int, y: int) -> str:
    return (
        f'<rect class="{kind}" x="{left}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT - 2}"/>'
        f'<text x="{left + width + 6:.1f}" y="{y + _BAR_HEIGHT - 4}">{escape(told)}</text>'
    )
