"""The moving picture of the demo: `python docs/moving.py [.demo/events.json]` makes docs/drawings/moving/demo.svg.

The events are those of one run of `make demo`, which writes them into its folder; `docs/demo.json` keeps them.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from sparkonce.jobs.demo.report import LANES, Event, events_of, marks, ticks_of
from sparkonce.jobs.shared.drawing import picture, shape, sized, timeline, words

DOCS = Path(__file__).parent
EVENTS, PICTURE = DOCS / "demo.json", DOCS / "drawings" / "moving" / "demo.svg"
LABEL = "One run of the demo: broker, publisher and job are killed again and again, and the table has every flight once"
LOOP_S, SWEEP = 24, 85
"""How long the picture takes, and the share of it, in percent, in which it moves; then the result is shown."""

STYLE = f"""
svg{{color-scheme:light dark}}
text{{font:12px system-ui,sans-serif;fill:#57606a}}
.grid{{stroke:#8b949e;stroke-opacity:.3}}
.span{{fill:#6ea8fe}}.publish{{fill:#56b37a}}
.commit{{stroke:#2f6fdf;stroke-width:2}}.kill{{stroke:#d1242f;stroke-width:3}}
.checkpoint{{stroke:#d1242f;stroke-width:2;stroke-dasharray:3 3}}.start{{stroke:#1a7f37;stroke-width:2}}
.result{{font:bold 15px ui-monospace,monospace;fill:#1a7f37}}
@media (prefers-color-scheme:dark){{text{{fill:#9aa4ae}}.result{{fill:#56d364}}}}
@media (prefers-reduced-motion:no-preference){{
.past{{animation:sweep {LOOP_S}s linear infinite}}
.result{{animation:appear {LOOP_S}s linear infinite}}
}}
@keyframes sweep{{from{{transform:scaleX(0)}}{SWEEP}%,to{{transform:scaleX(1)}}}}
@keyframes appear{{from,{SWEEP}%{{opacity:0}}{SWEEP + 1}%,to{{opacity:1}}}}
"""


def svg(events: list[Event], result: str) -> str:
    """Return the picture: what is past appears from left to right, over lanes that are always there."""
    last_s, _ = ticks_of(events)
    empty, full = (timeline(LANES, drawn, ("begin", "end"), LABEL, last_s) for drawn in ([], marks(events)))
    across, down = (float(part) for part in empty.partition('viewBox="0 0 ')[2].partition('"')[0].split())
    empty, full = (sized(each, across, down) for each in (empty, full))
    past = shape("rect", kind="past", width=across, height=down)
    parts = [
        shape("style", STYLE),
        shape("defs", shape("clipPath", past, id="past")),
        empty,
        shape("g", full, clip_path="url(#past)"),
        words(0, down + 22, result, "result"),
    ]
    return picture(across, down + 34, LABEL, parts, xmlns="http://www.w3.org/2000/svg") + "\n"


def main() -> None:
    """Draw the run that is given, or the one that was kept."""
    if sys.argv[1:]:
        shutil.copy(sys.argv[1], EVENTS)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn())


def drawn() -> str:
    """Return the picture of the run that is kept."""
    kept = json.loads(EVENTS.read_text())
    return svg(events_of(kept["events"]), kept["result"])


if __name__ == "__main__":
    main()
