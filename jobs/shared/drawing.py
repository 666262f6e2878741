"""Pictures as SVG: lanes over time, strips, sparklines. All text is escaped; the page's style has the colours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

CHARACTER = 6.6
"""The approximate width of a letter, in pixels."""
WIDTH, ROW, TOP, BOTTOM = 900, 34, 6, 24


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, or a span if it has an end, on a lane; without a lane, a line through all of them."""

    kind: str
    """Its class."""
    title: str
    """What a pointer on it shows."""
    start: float
    end: float | None = None
    lane: int | None = None
    form: str = "line"
    """Of a moment: ``line``, ``square``, ``circle`` or ``cross``."""
    sign: str = ""
    """A short text above it."""
    tall: float = 1.0
    """Of a box of a strip: its share of the height."""


def shape(name: str, content: str = "", title: str = "", **attributes: Any) -> str:
    """Return an element; ``kind`` is its class, ``content`` is SVG. Attributes that are empty are left out."""
    listed = "".join(
        f' {"class" if key == "kind" else key.replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    content = (f"<title>{escape(title)}</title>" if title else "") + content
    return f"<{name}{listed}>{content}</{name}>" if content else f"<{name}{listed}/>"


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    """Return a line of text."""
    return shape("text", escape(text), kind=kind, x=x, y=y, text_anchor=anchor)


def picture(across: float, down: float, label: str, parts: Iterable[str], **attributes: Any) -> str:
    """Return a whole picture; ``label`` stands for it where it is not seen."""
    view = f"0 0 {across:g} {down:g}"
    return shape("svg", "\n".join(parts), viewBox=view, role="img", aria_label=label, **attributes)


def sized(drawn: str, across: float, down: float) -> str:
    """Return a picture with a size of its own, to be placed in another one."""
    return drawn.replace("<svg ", f'<svg width="{across:g}" height="{down:g}" ', 1)


def timeline(
    lanes: Sequence[str], marks: Sequence[Mark], ticks: Sequence[str], label: str, last: float, first: float = 0.0
) -> str:
    """Draw marks on lanes, from ``first`` to ``last``; ``ticks`` are evenly spread below."""
    left = 12 + CHARACTER * max(map(len, lanes))
    bottom = TOP + ROW * len(lanes)

    def place(at: float) -> float:
        return left + (at - first) / (last - first or 1.0) * WIDTH

    parts = []
    for number, lane in enumerate(lanes):
        y = TOP + ROW * (number + 1)
        parts.append(words(0, y - ROW / 2 + 4, lane))
        parts.append(shape("line", kind="grid", x1=0, x2=left + WIDTH, y1=y, y2=y))
    for number, tick in enumerate(ticks):
        anchor = {0: "start", len(ticks) - 1: "end"}.get(number, "middle")
        parts.append(words(left + WIDTH * number / (len(ticks) - 1), bottom + 18, tick, "soft", anchor))
    for mark in sorted(marks, key=lambda mark: (mark.lane is not None, mark.end is None)):
        end = None if mark.end is None else place(mark.end)
        parts.append(_drawn(mark, place(mark.start), end, bottom))
    signs = defaultdict(list)
    for mark in sorted(marks, key=lambda mark: mark.start):
        if mark.sign:
            signs[mark.lane].append((place(mark.start), mark.sign))
    for on_lane, listed in signs.items():
        y = TOP + ROW * (on_lane or 0) + 11
        parts += [words(x, y, sign, "soft", "middle") for x, sign in _apart(listed, left + WIDTH)]
    return picture(left + WIDTH + 20, bottom + BOTTOM, label, parts, kind="lanes")


def _drawn(mark: Mark, x: float, end: float | None, bottom: float) -> str:
    look = {"title": mark.title, "kind": mark.kind}
    if mark.lane is None:
        return shape("line", **look, x1=x, x2=x, y1=TOP, y2=bottom)
    middle = TOP + ROW * mark.lane + 22
    if end is not None:
        return shape("rect", **look, x=x, y=middle - 6, width=max(end - x, 2.0), height=12, rx=3)
    if mark.form == "square":
        return shape("rect", **look, x=x - 5, y=middle - 5, width=10, height=10)
    if mark.form == "circle":
        return shape("circle", **look, cx=x, cy=middle, r=7)
    if mark.form == "cross":
        return shape("path", **look, d=f"M{x - 5:.1f} {middle - 5:.1f}l10 10m0-10l-10 10")
    return shape("line", **look, x1=x, x2=x, y1=middle - 7, y2=middle + 7)


def _apart(signs: Sequence[tuple[float, str]], most: float) -> list[tuple[float, str]]:
    """Return the middles of signs: near their marks, without overlaps, and within the picture."""
    halves = [CHARACTER * len(sign) / 2 + 3 for _, sign in signs]
    moved, least = [], 0.0
    for (x, _), half in zip(signs, halves, strict=True):
        moved.append(max(x, least + half))
        least = moved[-1] + half
    for number in reversed(range(len(signs))):
        moved[number] = min(moved[number], most - halves[number])
        most = moved[number] - halves[number]
    return [(x, sign) for x, (_, sign) in zip(moved, signs, strict=True)]


def _value(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value))


def strip(boxes: Iterable[Mark], first: float, last: float, label: str, kind: str = "") -> str:
    """Draw spans as boxes on one line, which fills its place on the page."""
    scale, parts = 1000 / max(last - first, 1), []
    for box in boxes:
        x, width = (box.start - first) * scale, max(((box.end or last) - box.start) * scale, 1.5)
        tall = max(100 * box.tall, 1.0)
        parts.append(shape("rect", title=box.title, kind=box.kind, x=x, y=100 - tall, width=width, height=tall))
    return picture(1000, 100, label, parts, preserveAspectRatio="none", kind=kind)


def sparkline(points: Sequence[tuple[float, float]], label: str, width: int = 110, height: int = 22) -> str:
    """Draw values over time as a line above its filled area, from zero; nothing of less than two."""
    if len(points) < 2:
        return ""
    first, last, top = points[0][0], points[-1][0], max(max(value for _, value in points), 1.0)
    across = max(last - first, 1e-9)
    at = " ".join(
        f"{1 + (when - first) / across * (width - 2):.1f},{height - 1 - value / top * (height - 3):.1f}"
        for when, value in points
    )
    area = shape("polygon", points=f"1,{height} {at} {width - 1},{height}")
    return picture(width, height, label, [area, shape("polyline", points=at)], kind="spark", width=width, height=height)
