"""An HTML page about one demo: the verdict, a timeline of kills and commits, the checksums.

The events of the timeline are gathered as they come; the commits are read from the Delta log at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from lab.flights_check import Verdict
from lab.page import document
from sparkonce.jobs.shared.drawing import Mark, timeline
from sparkonce.jobs.shared.events import NotedEvent, note
from sparkonce.notebook import table
from sparkonce.offset_store.record import read_history


@dataclass(frozen=True, slots=True)
class Event:
    """A moment (``start_s`` only) or a span, in seconds since the demo's start, on one lane of the picture."""

    lane: str
    kind: str
    label: str
    start_s: float
    end_s: float | None = None
    sign: str = ""
    """A short label for a moment in the picture."""


@dataclass(slots=True)
class Timeline:
    """Collects events; times are of the wall clock, so that the table's commit times can be shown beside them."""

    began_s: float = field(default_factory=time.time)
    events: list[Event] = field(default_factory=list)
    at_work: dict[str, Event] = field(default_factory=dict)
    """The open span of each lane."""
    folder: Path | None = None
    """The folder in which moments are also noted, for `sparkonce ui`."""

    def now(self) -> float:
        """Return the seconds since the demo began."""
        return time.time() - self.began_s

    def moment(self, lane: str, kind: str, label: str, sign: str = "") -> None:
        """Note an event that happens now."""
        now_s = self.now()
        self.events.append(Event(lane, kind, label, now_s, sign=sign))
        if self.folder is not None:
            note(self.folder, NotedEvent(round(1000 * (self.began_s + now_s)), kind, f"{lane}: {label}"))

    def begin(self, lane: str, kind: str, label: str) -> None:
        """Note the start of a span: `end` completes it."""
        self.at_work[lane] = Event(lane, kind, label, self.now())

    def end(self, lane: str, label: str) -> None:
        """Note the end of a lane's span, and its result."""
        begun = self.at_work.pop(lane)
        self.events.append(replace(begun, label=label, end_s=self.now()))

    def so_far(self) -> list[Event]:
        """Return all events, with open spans up to now."""
        now_s = float(int(self.now()))
        running = [
            replace(each, label=f"{each.label}, at work", end_s=max(now_s, each.start_s))
            for each in list(self.at_work.values())
        ]
        return [*self.events, *running]

    def commits(self, table: DeltaTable) -> list[Event]:
        """Return every commit of the table."""
        history = table.history()
        batches = {batch.version: batch.record for batch in read_history(history)}
        made = []
        for entry in reversed(history):
            record = batches.get(entry["version"])
            label = f"version {entry['version']}: {entry['operation'].lower()}"
            if record is not None:
                records = sum(extent.end - extent.start for extent in record.ranges.values())
                label = f"version {entry['version']}: batch {record.batch_id}, {records:,} records"
            made.append(Event("commits", "commit", label, entry["timestamp"] / 1000 - self.began_s))
        return made


LANES = ("broker", "publisher", "job", "commits")
TICKS = 10

STYLE = """
svg rect { stroke: var(--page); stroke-width: 2 }
.numbers { display: flex; flex-wrap: wrap; gap: 1rem 3rem; margin: 1.2rem 0 1.6rem } .numbers dt { color: var(--soft) }
.numbers dd { margin: 0 } .numbers strong { display: block; font-size: 2.4rem; line-height: 1.2 }
summary { cursor: pointer; font-weight: 600; padding: .4rem 0 }
"""


def page(verdict: Verdict, events: Sequence[Event], result: str) -> str:
    """Return the whole page as text: three numbers and the picture; the rest can be unfolded."""
    state, words = ("good", "Nothing lost, nothing twice.") if verdict.good else ("bad", "The table is wrong.")
    body = f"""<h1>Flights, exactly once</h1>
<p>Kafka's protocol to Delta Lake through Spark, with every process ended by SIGKILL again and again.</p>
<p class="verdict {state}">{words}</p>
<dl class="numbers">{"".join(_number(*each) for each in _numbers(verdict, events))}</dl>
<div class="scroll">{picture(events)}</div>
<p>Bars are processes at work. <span class="bad">Red lines</span> are SIGKILLs (dashed: the checkpoint folder
deleted). Blue lines are commits of the Delta table, each with rows and offsets in one. Rest
the pointer on a mark for its name.</p>
<details><summary>Step by step</summary>
<div class="scroll">{table(("seconds", "where", "what"), steps(events), page=True)}</div></details>
<details{"" if verdict.good else " open"}><summary>Checksums by column</summary>
<div class="scroll">{table(("column", "source data", "table", ""), _checksums(verdict), page=True)}</div></details>
<p><code>{escape(result)}</code></p>"""
    return document("sparkonce demo", STYLE, body)


def _numbers(verdict: Verdict, events: Sequence[Event]) -> Iterable[tuple[str, str, str]]:
    """Yield the three numbers: what, how many, and what is beside it."""
    kills = [each for each in events if each.kind == "kill"]
    of_job = sum(each.lane == "job" for each in kills)
    yield "rows in the table", f"{verdict.rows:,}", f"of {verdict.expected:,} flights"
    yield "SIGKILLs", f"{len(kills)}", f"{of_job} of the job, {len(kills) - of_job} of the broker"
    yield (
        "lost or twice",
        f"{verdict.lost + verdict.duplicated:,}",
        f"{verdict.lost:,} lost, {verdict.duplicated:,} twice",
    )


def _number(name: str, number: str, beside: str) -> str:
    return f"<div><dt>{name}</dt><dd><strong>{number}</strong> {beside}</dd></div>"


def picture(events: Sequence[Event]) -> str:
    """Draw processes, kills and commits over time (SVG)."""
    last_s, ticks = ticks_of(events)
    return timeline(LANES, marks(events), ticks, "Timeline of processes, kills and commits", last_s)


def marks(events: Iterable[Event]) -> list[Mark]:
    """Return what is drawn of each event."""
    return [
        Mark(each.kind, f"{each.start_s:.1f} s: {each.label}", each.start_s, each.end_s, lane, sign=each.sign)
        for each in events
        for lane in [LANES.index(each.lane)]
    ]


def ticks_of(events: Iterable[Event]) -> tuple[float, list[str]]:
    """Return the end of the last event in seconds, and the labels below the picture."""
    last_s = max([1.0, *(event.end_s or event.start_s for event in events)])
    return last_s, [f"{last_s * tick / TICKS:.0f} s" for tick in range(TICKS + 1)]


def as_json(events: Iterable[Event], result: str) -> str:
    """Return events, and how the demo ended, as text: `events_of` reads them."""
    listed = [
        {**asdict(each), "start_s": round(each.start_s, 1), "end_s": each.end_s and round(each.end_s, 1)}
        for each in events
    ]
    return json.dumps({"result": result, "events": listed}, indent=1) + "\n"


def events_of(listed: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Return the events of a document of `as_json`."""
    return [Event(**each) for each in listed]


def steps(events: Sequence[Event]) -> Iterable[tuple[str, str, str]]:
    """Yield time, lane and text, in order of time."""
    for event in sorted(events, key=lambda event: event.start_s):
        end = "" if event.end_s is None else f" to {event.end_s:.1f}"
        yield f"{event.start_s:.1f}{end}", event.lane, event.label


def _checksums(verdict: Verdict) -> Iterable[Sequence[str]]:
    for column in verdict.columns:
        yield column.name, column.source, column.table, "equal" if column.equal else "DIFFERENT"
