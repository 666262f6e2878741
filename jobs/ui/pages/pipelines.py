"""The pages *Pipelines*: what needs a person, and all queries; one with partitions, last hour, batches and others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkonce.jobs.shared import drawing
from sparkonce.jobs.shared.events import noted
from sparkonce.jobs.ui.delta.figures import charts
from sparkonce.jobs.ui.delta.pipelines import MAX_OTHERS, EndOffsets, Pipeline, batches_of, look, pipelines, timeline_of
from sparkonce.jobs.ui.delta.timeline import Event, Timeline
from sparkonce.jobs.ui.kafka.loop import Result
from sparkonce.jobs.ui.kafka.past import EndOffsetHistory
from sparkonce.jobs.ui.kafka.state import ClusterState, PartitionState
from sparkonce.jobs.ui.kafka.topic_queries import topic_queries
from sparkonce.jobs.ui.needs import Seen, link_of, needs
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, part
from sparkonce.jobs.ui.rendering import amount, grouped, moment
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.offsets import total_lag

AT_ONCE = 200
"""Queries in one part of the table."""
PARTITIONS = 100
"""Partitions in one part of the table."""


@dataclass(frozen=True, slots=True)
class _All:
    """All queries, what else is known, and the looks at the brokers that they are shown by."""

    seen: Seen
    looks: tuple[Result[Any], ...] = ()
    left_out: str = ""
    """What is not looked at, in words."""

    @property
    def unread(self) -> list[str]:
        """What was named and is not read yet, or cannot be, in words."""
        names = ("topics", "groups", "transactions")
        found = [name for name, each in zip(names, self.looks, strict=False) if each.at_ms is None or each.problem]
        groups = sum(1 for each in self.seen.groups.values() if each.problem is not None)
        counted = ((groups, "group"), (len(self.seen.known.still_reading), "table"))
        found += [amount(count, noun) for count, noun in counted if count]
        return [*found, "the tables below"] if self.left_out else found


@dataclass(frozen=True, slots=True)
class _Totals:
    """What all queries do together, but for those that another one has gone on for."""

    offsets_by_minute: tuple[tuple[int, int], ...]
    """The offsets committed in each minute of the last hour."""
    lag: int | None
    """In offsets; None if it is known of no query."""
    lag_s: float | None
    """The longest time that a record has waited for its query; None if none waits, or if it is not known of one."""
    tables: int
    topics: int
    """Those that they write to."""
    unknown: int
    """Queries whose lag is not known, or not of all partitions."""

    @property
    def in_the_hour(self) -> int:
        """The offsets committed in the last hour."""
        return sum(offsets for _, offsets in self.offsets_by_minute)


def _totals(every: Sequence[Pipeline]) -> _Totals:
    every = [each for each in every if not any(other.is_newer and other.is_here for other in each.others)]
    by_minute = Counter[int]()
    for each in every:
        if not each.is_past:
            by_minute.update(dict(each.offsets_by_minute))
    sinks = [sink for each in every for sink in each.sinks]
    ages = [each.lag_s for each in every if each.lag]
    return _Totals(
        tuple(sorted(by_minute.items())),
        total_lag(each.lag for each in every),
        None if None in ages else max((age for age in ages if age is not None), default=None),
        len({sink.watch.key for sink in sinks}),
        len({topic for each in every for sink in each.topic_sinks for topic in sink.topics}),
        sum(1 for each in every if each.lag is None or not each.is_whole),
    )


def _all(site: Site) -> _All:
    watches, left_out = site.watches()
    known = look(site.checkpoints(), watches, site.given.storage)
    if site.cluster is None:
        found = pipelines(known, EndOffsets(lambda *_: None), now_ms())
        return _All(Seen(known, found, now_ms=now_ms()), left_out=left_out)
    state, groups, transactions = site.cluster.state(), site.cluster.groups(), site.cluster.transactions()
    known = replace(known, topic_queries=topic_queries(transactions.found, groups.found.values()))
    found = pipelines(known, _ends(state, site.cluster.past), now_ms(), site.lags.note)
    site.lags.keep({each.query_id for each in found})
    seen = Seen(
        known, found, state.found, groups.found, transactions.found, servers=site.cluster.servers, now_ms=now_ms()
    )
    return _All(seen, (state, groups, transactions), left_out)


def known_queries(site: Site) -> Seen:
    """Return all queries, and what else is known."""
    return _all(site).seen


def _ends(look: Result[ClusterState], past: EndOffsetHistory) -> EndOffsets:
    """Return where the logs of partitions end, and when they were written."""
    topics = look.found.topics
    logs: dict[str, dict[int, PartitionState]] = {}

    def is_anew(topic: str, topic_id: str) -> bool:
        found = topics.get(topic)
        return found is not None and bool(topic_id and found.topic_id) and topic_id != found.topic_id

    def partition_of(topic: str, topic_id: str, partition: int) -> PartitionState | None:
        if topic not in topics or is_anew(topic, topic_id):
            return None
        if topic not in logs:
            logs[topic] = {each.partition: each for each in topics[topic].partitions}
        return logs[topic].get(partition)

    def end_of(topic: str, topic_id: str, partition: int) -> int | None:
        found = partition_of(topic, topic_id, partition)
        return None if found is None else found.end

    def stable_of(topic: str, topic_id: str, partition: int) -> int | None:
        found = partition_of(topic, topic_id, partition)
        return None if found is None else found.stable

    def age_s(topic: str, partition: int, offset: int) -> float | None:
        written_s = past.written_at((topic, partition), offset)
        return None if written_s is None else max(time.monotonic() - written_s, 0.0)

    return EndOffsets(end_of, look.at_ms or 0, age_s, stable_of, is_anew)


def _list(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    found = _all(site)
    needed = needs(found.seen)
    links = {each.link for each in needed}
    every = sorted(found.seen.pipelines, key=lambda each: link_of(each) not in links)
    wanted = asked.query.get("name", "").lower()
    return {
        "known": found.seen.known,
        "needs": needed,
        "unread": found.unread,
        "max_others": MAX_OTHERS,
        "left_out": found.left_out,
        "counts": Counter((each.state.word, each.state.is_certain) for each in every),
        "totals": _totals(every),
        "part": part(
            asked, [each for each in every if wanted in " ".join([each.name, *each.sources]).lower()], AT_ONCE
        ),
        "looks": found.looks,
    }


def _one(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    found = _all(site)
    pipeline = next((each for each in found.seen.pipelines if each.query_id == asked.path["query"]), None)
    if pipeline is None:
        raise NoSuchThingError(f"No known checkpoint, table or topic of decisions has the query {asked.path['query']}.")
    events = [] if site.given.folder is None else noted(site.given.folder)
    shown = timeline_of(pipeline, [Event(each.at_ms, each.kind, each.text) for each in events])
    return {
        "looks": found.looks,
        "pipeline": pipeline,
        "needs": [each for each in needs(found.seen) if each.link == link_of(pipeline)],
        "hour": _hour(pipeline),
        "charts": charts(batches_of(pipeline)),
        "timeline": shown,
        "batches": _batches(shown),
        "partitions": part(asked, pipeline.partitions, PARTITIONS),
    }


def _hour(pipeline: Pipeline) -> str:
    """Draw the offsets committed in each minute."""
    boxes, most = [], pipeline.most_in_a_minute
    for number, (start, minute) in enumerate(pipeline.minutes):
        rows = "" if minute.rows is None else f", {grouped(minute.rows)} rows"
        title = f"{moment(start)}: {amount(minute.records, 'offset')}, {amount(minute.batches, 'commit')}{rows}"
        tall = minute.records / (most or 1)
        boxes.append(drawing.Mark("" if minute.records else "quiet", title, number, number + 0.85, tall=tall))
    label = f"Offsets committed in each of 60 minutes; at most {grouped(most)} in one"
    return drawing.strip(boxes, 0, len(boxes), label, "bars")


def _batches(shown: Timeline) -> str:
    """Draw a lane for each batch."""
    if not shown.lines:
        return ""
    lanes = [f"batch {line.batch_id}{f' ({line.attempts} attempts)' * (line.attempts > 1)}" for line in shown.lines]
    ticks = moment(shown.from_ms), f"+{max(shown.to_ms - shown.from_ms, 1) / 1000:.1f} s"
    label = "".join(f"{each}. " for each in (*(line.words for line in shown.lines), *(e.text for e in shown.events)))
    return drawing.timeline(lanes, [*_marks(shown)], ticks, label, shown.to_ms, shown.from_ms)


def _marks(shown: Timeline) -> Iterator[drawing.Mark]:
    for event in shown.events:
        yield drawing.Mark(f"event-{event.kind}", f"{moment(event.at_ms)}: {event.text}", event.at_ms)
    for lane, line in enumerate(shown.lines):
        times = {"planned": line.planned_ms, "finished": line.done_ms}
        title = line.words + "".join(f"; {what} {moment(at_ms)}" for what, at_ms in times.items() if at_ms)
        kind = "batch open" if line.done_ms is None else "batch"
        yield drawing.Mark(kind, title, line.first_ms or 0, line.last_ms, lane)
        for each in line.marks:
            if each.has_rows and each.rows_to_ms:
                title = f"rows written until {moment(each.rows_to_ms)}"
                yield drawing.Mark("mark-rows", title, each.rows_to_ms, lane=lane, form="square")
            title = f"version {each.version}, {moment(each.at_ms)}: {each.what}"
            yield drawing.Mark("mark-commit", title, each.at_ms, lane=lane)
            if each.has_offsets:
                yield drawing.Mark("mark-offsets", title, each.at_ms, lane=lane, form="circle")


PIPELINES = Page("/pipelines", "Pipelines", "pipelines.html", _list, menu="Pipelines", interval_s=0.5)
PIPELINE = Page("/pipelines/{query}", "Pipeline", "pipeline.html", _one)
