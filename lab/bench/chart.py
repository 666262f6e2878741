"""A chart of the results as an SVG: throughput by size, and the pipelines beside their peers.

A panel for each kind of size, and for each unit of the pipelines; a pair of bars for each result; bars of one panel
share a scale. Draw again what a run wrote with ``--json``: ``python -m lab.bench.chart FILE.json FILE.svg``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

from lab.bench.results import Comparison, figure_text
from lab.bench.settings import DIRECT_BENCHMARKS, SPARK_BENCHMARKS

_SIZED = re.compile(
    r"(broker-(?:connections|groups|partitions-produce|partitions-consume)|direct-growth-\d+|many)-(\d+)"
    r"(|-cores-ratio|-memory-mb-ratio|-commit-cpu-ms-ratio|-freshness-p95-s-ratio)$"
)
_TITLES = {
    "broker-connections": "connections, produce requests of 16 KiB",
    "broker-groups": "members of a group, eight partitions",
    "broker-partitions-produce": "partitions, ProducerPerformance",
    "broker-partitions-consume": "partitions, ConsumerPerformance",
    "direct-growth-1": "partitions, direct into a table, one task slot",
    "direct-growth-2": "partitions, direct into a table, two task slots",
    "many-cores-ratio": "tables by one query, a record a second each",
    "many-memory-mb-ratio": "tables by one query, the driver with all its processes",
    "many-commit-cpu-ms-ratio": "tables by one query, CPU for each commit of a table",
    "many-freshness-p95-s-ratio": "tables by one query, from acknowledgement to commit, p95",
}
_UNITS = {
    "rows/s": "rows a second: more is better",
    "CPU s/M rows": "CPU seconds for a million rows: less is better",
    "s": "seconds: less is better",
    "CPU s": "CPU seconds for a micro-batch: less is better",
}


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
            sized.setdefault(match[1] + match[3], []).append((int(match[2]), comparison))
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
    from matplotlib import rc_context

    written = StringIO()
    # Letters stay letters, and nothing differs from one run to the next.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "sparkonce", "font.size": 9}):
        figure(found).savefig(written, format="svg", metadata={"Date": None})
    return " ".join(written.getvalue().split()) + "\n"


def figure(found: Sequence[Panel]) -> Any:
    """Draw the panels below each other."""
    from matplotlib.figure import Figure

    lines = [len(panel.lines) for panel in found]
    drawn = Figure(figsize=(8, 0.6 + 0.45 * sum(lines) + 0.35 * len(found)), layout="constrained")
    axes = drawn.subplots(len(found), squeeze=False, height_ratios=lines)[:, 0]
    for panel, axis in zip(found, axes, strict=True):
        _draw(panel, axis)
    peers = ", ".join(dict.fromkeys(one.peer_name.split(",")[0] for panel in found for _, one in panel.lines))
    drawn.legend(axes[0].containers, ("sparkonce", peers), loc="outside upper left", ncols=2, frameon=False)
    return drawn


def _draw(panel: Panel, axis: Any) -> None:
    for shift, colour, is_ours in ((-0.2, "#2f6fdf", True), (0.2, "#9aa4ad", False)):
        sides = [(place + shift, one, one.ours if is_ours else one.peer) for place, (_, one) in enumerate(panel.lines)]
        drawn = [(place, one, median(samples)) for place, one, samples in sides if samples]
        bars = axis.barh([place for place, _, _ in drawn], [value for _, _, value in drawn], 0.36, color=colour)
        ratios = ["" if one.ratio is None or not is_ours else f" ({one.ratio:.2f} times)" for _, one, _ in drawn]
        axis.bar_label(
            bars, [figure_text(each[2]) + ratio for each, ratio in zip(drawn, ratios, strict=True)], padding=4
        )
    axis.set_title(panel.title, loc="left", fontsize=9)
    axis.set_yticks(range(len(panel.lines)), [label for label, _ in panel.lines])
    axis.invert_yaxis()
    axis.xaxis.set_visible(False)
    axis.margins(x=0.25)
    axis.spines[["top", "right", "bottom"]].set_visible(False)


def read(file: Path) -> list[Comparison]:
    """Return the comparisons of a run from what it wrote with ``--json``."""
    names = {each.name for each in fields(Comparison)}
    found = json.loads(file.read_text())["comparisons"]
    return [Comparison(**{name: value for name, value in each.items() if name in names}) for each in found]


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(svg(read(source)) or sys.exit(f"{source} has nothing to draw"))
