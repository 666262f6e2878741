"""The results of the benchmarks, as values and text; and progress, on stderr."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from sparkonce.jobs.shared.arguments import show_columns

_BEGAN = time.monotonic()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours beside the peer's in one benchmark: a sample per round, for micro-batches a sample per batch.

    ``peer`` is empty where the peer is missing. ``target`` bounds the ratio of the medians, ours to the peer's: from
    below, or from above where ``less_is_better``.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    peer_name: str
    target: float | None = None
    less_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """The ratio of the medians, ours to the peer's; None where the peer is missing."""
        return median(self.ours) / median(self.peer) if self.peer else None

    @property
    def reached(self) -> bool | None:
        """Whether the ratio meets the target; None without ratio or target."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio <= self.target if self.less_is_better else self.ratio >= self.target

    def line(self) -> str | None:
        """Return the line for machines, ``RATIO name=value target>=value``; None where there is no ratio."""
        if self.ratio is None:
            return None
        bound = "" if self.target is None else f" target{'<=' if self.less_is_better else '>='}{self.target:g}"
        return f"RATIO {self.name}={self.ratio:.3f}{bound}"


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure of ours with an upper limit; the peer's is reported beside it."""

    name: str
    unit: str
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    peer_name: str
    limit: float

    @property
    def reached(self) -> bool:
        """Whether the median is within the limit."""
        return median(self.ours) <= self.limit

    def line(self) -> str:
        """Return the line for machines, ``RATIO name=value target<=value``; the name ends in the unit."""
        return f"RATIO {self.name}={median(self.ours):.3f} target<={self.limit:g}"


@dataclass(frozen=True, slots=True)
class BrokerUse:
    """A broker process's use during a benchmark: CPU over all measured rounds, peak memory so far."""

    benchmark: str
    broker: str
    cpu_s: float
    gigabytes: float
    peak_rss_mb: float

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds per gigabyte (10^9 bytes) of values."""
        return self.cpu_s / self.gigabytes


@dataclass(frozen=True, slots=True)
class Missing:
    """A peer that could not be measured, the reason, and the remedy."""

    peer: str
    because: str
    remedy: str

    def line(self) -> str:
        """Return the line for machines."""
        return f"MISSING peer={self.peer} because {self.because}; {self.remedy}"


@dataclass(slots=True)
class Results:
    """All results of one run."""

    settings: dict[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    broker_uses: list[BrokerUse] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def text(self) -> str:
        """Return the tables and the lines for machines."""
        parts = [_table(("benchmark", "unit", "ours", "peer", "peer is", "ratio", "target", ""), self._rows())]
        if self.broker_uses:
            header = ("broker in", "broker", "CPU s", "CPU s/GB", "peak RSS MB")
            parts.append(_table(header, self._use_rows()))
        parts.extend(missing.line() for missing in self.missing)
        lines = [comparison.line() for comparison in self.comparisons] + [bound.line() for bound in self.bounds]
        parts.append("\n".join(line for line in lines if line))
        return "\n\n".join(part for part in parts if part)

    def markdown(self) -> str:
        """Return the table as in the documentation."""
        header = ("benchmark", "unit", "ours", "peer", "peer is", "ratio", "target", "")
        lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        for name, *cells in self._rows():
            lines.append(f"| `{name}` | " + " | ".join(cell.replace("..", " to ") for cell in cells) + " |")
        return "\n".join(lines) + "\n"

    def as_json(self) -> str:
        """Return all samples, with the machine that they were measured on."""
        machine = {"platform": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()}
        comparisons = [asdict(one) | {"ratio": one.ratio, "reached": one.reached} for one in self.comparisons]
        document = {
            "machine": machine,
            "settings": self.settings,
            "comparisons": comparisons,
            "bounds": [asdict(one) | {"reached": one.reached} for one in self.bounds],
            "broker_uses": [asdict(use) | {"cpu_s_per_gb": use.cpu_s_per_gb} for use in self.broker_uses],
            "missing": [asdict(missing) for missing in self.missing],
        }
        return json.dumps(document, indent=2)

    def _rows(self) -> Iterable[Sequence[str]]:
        for one in self.comparisons:
            bound = "" if one.target is None else f"{'<=' if one.less_is_better else '>='}{one.target:g}"
            verdict = {True: "ok", False: "MISSED", None: ""}[one.reached]
            ratio = "-" if one.ratio is None else f"{one.ratio:.2f}"
            yield (
                one.name, one.unit, _spread(one.ours), _spread(one.peer), one.peer_name, ratio, bound, verdict,
            )  # fmt: skip

        for held in self.bounds:
            verdict = "ok" if held.reached else "MISSED"
            yield (
                held.name, held.unit, _spread(held.ours), _spread(held.peer), held.peer_name, "-",
                f"<={held.limit:g} {held.unit}", verdict,
            )  # fmt: skip

    def _use_rows(self) -> Iterable[Sequence[str]]:
        for use in self.broker_uses:
            yield (use.benchmark, use.broker, f"{use.cpu_s:.1f}", f"{use.cpu_s_per_gb:.2f}", f"{use.peak_rss_mb:.0f}")


def _spread(samples: Sequence[float]) -> str:
    """Return the median, with minimum and maximum."""
    if not samples:
        return "-"
    return f"{figure_text(median(samples))} ({figure_text(min(samples))}..{figure_text(max(samples))})"


def figure_text(value: float) -> str:
    """Return a figure as it is printed."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, tuple("-" * width for width in widths))
    return show_columns(lines, indent="")


def say(text: str) -> None:
    """Print one line with the seconds since the start."""
    print(f"[{time.monotonic() - _BEGAN:4.0f} s] {text}", file=sys.stderr, flush=True)
