"""Queries with their checkpoint, sources and tables: locations, rates, lag, and others with the same appId.

A query is known by Spark's id of it, which its checkpoint has and every commit of it records, as does every decision of
a query into topics. Of a checkpoint whose query writes to none of the known tables and topics, only Spark's own log is
shown; of a query without a known checkpoint, only what it has committed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar

from sparkonce.connectors.lag.runs import Run, Runs
from sparkonce.connectors.lag.state import Slot
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.ui.delta.checkpoints import CheckpointState, read_checkpoint
from sparkonce.jobs.ui.delta.figures import BatchFigures, figures
from sparkonce.jobs.ui.delta.queries_seen import MINUTE_MS, MINUTES, Minute, QuerySeen, Switch
from sparkonce.jobs.ui.delta.query_states import (
    BEHIND,
    FAILED,
    FENCED,
    IDLE,
    RUNNING,
    STOPPED,
    QueryState,
    pause_ms,
    query_state,
)
from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.jobs.ui.delta.timeline import MAX_BATCHES, Event, Timeline, events_of, timeline
from sparkonce.jobs.ui.delta.versions import VersionState
from sparkonce.jobs.ui.kafka.past import slope
from sparkonce.jobs.ui.kafka.topic_queries import TopicQuery
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.offsets import OffsetRange, lag, total_lag
from sparkonce.offset_store.record import CommittedBatch, PartitionKey

_T = TypeVar("_T")
Past = Callable[[str, int], tuple[tuple[float, int], ...]]

LOOKS_S = 0.4
"""How long one call opens tables and looks for data files, so that a page is there soon; the next calls do the rest."""

ORDER = FAILED, FENCED, BEHIND, RUNNING, STOPPED, IDLE
"""Of states on the page."""
GOING = RUNNING, BEHIND, IDLE
"""States of a query that goes on, if they are certain."""
MAX_OTHERS = 50
"""How many other queries with the same appId are listed: the most recent ones."""
NAMES = 3
"""How many of its appIds name a query that writes many tables."""

SETTLED_MS = 5_000
"""A log counts as shorter than what a query has read if its end was requested this long after the query's last batch:
a running query may have read later records. The two times are of different clocks."""


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """The end offsets of logs at one time."""

    of: Callable[[str, str, int], int | None]
    """Receives the topic's name, its id ("" if unknown) and the partition; None: unknown."""
    at_ms: int = 0
    age_s: Callable[[str, int, int], float | None] = lambda *_: None
    """Receives the topic's name, the partition and an offset; returns how long ago that was written, None: unknown."""
    stable: Callable[[str, str, int], int | None] = lambda *_: None
    """As `of`, for readers of committed records."""
    is_anew: Callable[[str, str], bool] = lambda *_: False
    """Receives the topic's name and its id; returns whether there is another topic of that name now."""

    def for_reader(self, topic: str, topic_id: str, partition: int, position: int | None) -> int | None:
        """Return where the log ends for a query that reads ``position`` next.

        Which records it reads is not known from what it leaves: if it has passed an open transaction, all.
        """
        stable = self.stable(topic, topic_id, partition)
        return stable if stable is not None and (position or 0) <= stable else self.of(topic, topic_id, partition)


@dataclass(frozen=True, slots=True)
class Sink:
    """A query's state in one table."""

    watch: TableWatch
    app_id: str
    guarantee: Guarantee | None
    last_batch: int
    last_version: int
    last_ms: int
    commits: int


WEAKER = f"{Guarantee.AT_LEAST_ONCE.value} or {Guarantee.AT_MOST_ONCE.value}"
"""Of a query whose offsets are in a consumer group: what is committed there does not say whether rows come first."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of one source."""

    source: str
    topic: str
    partition: int
    planned: int | None
    """The next offset after the newest planned batch."""
    stored: int | None
    """The next offset after the newest committed batch."""
    last_records: int | None
    """The number of offsets in the newest committed batch that moved it."""
    log_end: int | None
    age_s: float | None = None
    """How long ago the record that is read next was written; None if there is none, or if it is not known."""
    is_anew: bool = False
    """Whether its topic is another one by now, of the same name."""

    @property
    def next(self) -> int | None:
        """The next offset that is not committed, or not planned."""
        return self.planned if self.stored is None else self.stored

    @property
    def lag(self) -> int | None:
        """Uncommitted offsets; negative if the log ended before the committed offset."""
        return lag(self.next, self.log_end)


@dataclass(frozen=True, slots=True)
class OtherQuery:
    """Another query with the same appId, or another checkpoint of the same query."""

    what: str
    last_ms: int | None
    is_newer: bool
    """Whether it has written after this one."""
    is_here: bool = True
    """Whether it writes where this one does, and not only under the same name."""


@dataclass(frozen=True)
class Pipeline:
    """One query. What is concluded is kept: a page asks for it many times, in sorting, counting and showing."""

    query_id: str
    name: str
    checkpoint: CheckpointState | None
    sinks: tuple[Sink, ...]
    """Tables."""
    topic_sinks: tuple[TopicQuery, ...]
    partitions: tuple[PartitionRow, ...]
    minutes: tuple[tuple[int, Minute], ...]
    """The last hour up to the newest commit, or up to now: the start of each minute, and its commits."""
    is_past: bool
    """Whether that hour is long past."""
    others: tuple[OtherQuery, ...]
    ends_at_ms: int
    """When the ends of logs were looked at."""
    run: Run | None
    """What its listener has heard."""
    looked_at_ms: int
    other_sources: tuple[str, ...] = ()
    """Its sources other than topics."""
    past: tuple[tuple[float, int], ...] = ()
    """Its earlier lags, with seconds of a monotonic clock."""

    @property
    def targets(self) -> Sequence[Sink | TopicQuery]:
        """All that it writes to."""
        return [*self.sinks, *self.topic_sinks]

    @property
    def app_ids(self) -> tuple[str, ...]:
        """The applications that it writes as."""
        return tuple(dict.fromkeys(sink.app_id for sink in self.targets))

    @property
    def guarantee(self) -> str:
        """What it promises, by the order of its writes."""
        known = [sink.guarantee.value for sink in self.sinks if sink.guarantee is not None]
        if not known:
            known = [WEAKER if sink.guarantee is None else sink.guarantee.value for sink in self.topic_sinks]
        return ", ".join(dict.fromkeys(known)) or "not known"

    @cached_property
    def state(self) -> QueryState:
        """Whether it runs, and keeps up."""
        found = query_state(self.run, self.checkpoint, self.last_ms, self.lag, self.looked_at_ms, self.written)
        return replace(found, word=BEHIND) if found.word == RUNNING and self.is_behind else found

    @property
    def is_behind(self) -> bool:
        """Whether more waits than it has ever committed in a minute of that hour."""
        return self.most_in_a_minute > 0 and (self.lag or 0) > self.most_in_a_minute

    @cached_property
    def read(self) -> Sequence[PartitionRow]:
        """The partitions that it reads: those of its newest plan, if that is known."""
        return [each for each in self.partitions if each.planned is not None] or self.partitions

    @cached_property
    def lag_s(self) -> float | None:
        """The longest time that a record has waited; None if none waits, or if it is not known of one."""
        ages = [each.age_s for each in self.read if (each.lag or 0) > 0]
        return None if None in ages else max((age for age in ages if age is not None), default=None)

    @cached_property
    def trend(self) -> float:
        """The growth of its lag in offsets per second; negative if it shrinks."""
        return slope(self.past)

    @cached_property
    def durations_s(self) -> tuple[float, float] | None:
        """The median and the 95th percentile of its batches, from plan to end; None if no batch has ended."""
        known = self.checkpoint
        took = [] if known is None else [known.done[n] - at for n, at in known.planned.items() if n in known.done]
        ordered = sorted(max(each, 0) / 1000 for each in took)
        return (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]) if ordered else None

    @cached_property
    def pause_s(self) -> float:
        """The usual time between two of its batches; 0 if it is not known."""
        return pause_ms(self.checkpoint.planned.values()) / 1000 if self.checkpoint else 0.0

    @property
    def written(self) -> int | None:
        """The newest batch of which something is in each of its tables and topics."""
        return min((sink.last_batch for sink in self.targets), default=None)

    @property
    def committed(self) -> int | None:
        """The newest batch in a table or in topics."""
        return max((sink.last_batch for sink in self.targets), default=None)

    @cached_property
    def last_ms(self) -> int | None:
        """When it last committed, or planned."""
        times = [sink.last_ms for sink in self.targets]
        times += list(self.checkpoint.planned.values()) if self.checkpoint else []
        return max(times, default=None)

    @cached_property
    def lag(self) -> int | None:
        """The lag of all partitions with a known one; None if nothing is known to wait and not all are known."""
        known = total_lag(each.lag for each in self.read)
        return known if known or self.is_whole else None

    @cached_property
    def is_whole(self) -> bool:
        """Whether the lag of each partition is known."""
        return all(each.lag is not None for each in self.read)

    @cached_property
    def made_anew(self) -> tuple[str, ...]:
        """Its topics that were deleted and created again since it has read them."""
        return tuple(dict.fromkeys(each.topic for each in self.read if each.is_anew))

    @cached_property
    def beyond(self) -> frozenset[PartitionRow]:
        """The partitions whose log ends before the committed offset: the topic was recreated, or has lost records."""
        if self.ends_at_ms < (self.last_ms or 0) + SETTLED_MS:
            return frozenset()
        return frozenset(each for each in self.read if each.lag is not None and each.lag < 0)

    @cached_property
    def most_in_a_minute(self) -> int:
        """The maximum, for the scale of the chart."""
        return max((minute.records for _, minute in self.minutes), default=0)

    @property
    def offsets_by_minute(self) -> list[tuple[int, int]]:
        """The offsets committed in each minute of that hour."""
        return [(start, minute.records) for start, minute in self.minutes]

    @property
    def topics(self) -> tuple[str, ...]:
        """Its topics."""
        return tuple(dict.fromkeys(each.topic for each in self.partitions))

    @property
    def sources(self) -> tuple[str, ...]:
        """Its sources."""
        return (*self.topics, *self.other_sources)


@dataclass(frozen=True, slots=True)
class Known:
    """The state of all tables and checkpoints."""

    checkpoints: tuple[CheckpointState, ...]
    tables: tuple[TableWatch, ...]
    problems: Mapping[str, str]
    """Locations that could not be read, with the error."""
    still_reading: tuple[TableWatch, ...]
    """Tables whose log is not at its end: queries of them may be missing, or seem older than they are."""
    topic_queries: tuple[TopicQuery, ...] = ()
    """What Kafka has of queries."""
    runs: Runs = field(default_factory=Runs)


def look(places: Iterable[str], watches: Iterable[TableWatch], storage_options: Mapping[str, str]) -> Known:
    """Read checkpoints and tables."""
    checkpoints, tables, problems, reading = list[CheckpointState](), dict[str, TableWatch](), dict[str, str](), []
    for place in places:
        try:
            checkpoints.append(read_checkpoint(place, storage_options))
        except CheckpointError as error:
            problems[place] = str(error)
    until_s, all_of_them = time.monotonic() + LOOKS_S, list(watches)
    for watch in sorted(all_of_them, key=lambda each: each.followed.looked_at_s):
        is_late = time.monotonic() >= until_s
        if watch.followed.known is None and is_late:
            reading.append(watch)
            continue
        try:
            if watch.followed.look(0.0 if is_late else None).verdict is None:
                reading.append(watch)
            tables[watch.place] = watch
        except (OffsetStoreError, OSError, ValueError) as error:
            problems[watch.place] = str(error) or type(error).__name__
    found = tuple(tables[each.place] for each in all_of_them if each.place in tables)
    return Known(tuple(checkpoints), found, problems, tuple(reading))


def pipelines(known: Known, ends: EndOffsets, now_ms: int, past: Past = lambda *_: ()) -> list[Pipeline]:
    """Return all queries: those that have failed or are behind first, then those that go on by name, then the newest.

    ``past`` notes a query's lag, and returns the earlier ones.
    """
    index = _Index.of(known)
    found = [_pipeline(query_id, index, known.runs, ends, now_ms) for query_id in index.ids]
    noted = [each if each.lag is None or not each.is_whole else _with_past(each, past) for each in found]
    return sorted(noted, key=_order)


def _with_past(pipeline: Pipeline, past: Past) -> Pipeline:
    return replace(pipeline, past=past(pipeline.query_id, pipeline.lag or 0))


def _order(pipeline: Pipeline) -> tuple[int, bool, int, str]:
    """Where a query stands: those that go on stay where they are while each of them commits."""
    state = pipeline.state
    goes_on = state.word in GOING and (state.is_certain or state.word != IDLE)
    return ORDER.index(state.word), not goes_on, 0 if goes_on else -(pipeline.last_ms or 0), pipeline.name


def timeline_of(pipeline: Pipeline, events: Iterable[Event] = ()) -> Timeline:
    """Return a query's newest batches. Raises OffsetStoreError if a table cannot be read."""
    commits, found = list[VersionState](), list(events)
    for sink in pipeline.sinks:
        with sink.watch.followed.lock:
            queries = sink.watch.followed.reading().queries
            versions = sorted(
                {
                    batch.version
                    for (app_id, _), query in queries.all().items()
                    if app_id == sink.app_id
                    for batch in list(query.recent)[-2 * MAX_BATCHES :]
                }
            )[-2 * MAX_BATCHES :]
            switches: Sequence[Switch] = tuple(queries.switches)
        commits += sink.watch.read(versions)
        unnamed = sink.watch.unnamed()
        files = () if unnamed is None else (*unnamed.young, *unnamed.old)
        found += events_of(switches, [sink.app_id], files)
    checkpoint = pipeline.checkpoint
    planned, done = ({}, {}) if checkpoint is None else (checkpoint.planned, checkpoint.done)
    return timeline(pipeline.query_id, commits, planned, done, found)


def batches_of(pipeline: Pipeline) -> list[BatchFigures]:
    """Return what a query's newest batches have read and written."""
    commits = list[CommittedBatch]()
    for sink in pipeline.sinks:
        with sink.watch.followed.lock:
            query = sink.watch.followed.reading().queries.all().get((sink.app_id, pipeline.query_id))
            commits += [] if query is None else query.recent
    return figures(commits, pipeline.checkpoint)


def _seen(tables: Iterable[TableWatch]) -> list[tuple[TableWatch, QuerySeen]]:
    found = []
    for watch in tables:
        with watch.followed.lock:
            found += [(watch, query.copy()) for query in watch.followed.reading().queries.all().values()]
    return found


@dataclass(frozen=True, slots=True)
class _Index:
    """What is known, by query and by application."""

    ids: tuple[str, ...]
    checkpoints: Mapping[str, list[CheckpointState]]
    in_tables: Mapping[str, list[tuple[TableWatch, QuerySeen]]]
    in_kafka: Mapping[str, list[TopicQuery]]
    by_app_id: Mapping[str, list[tuple[TableWatch, QuerySeen]]]
    """The queries of tables, the most recent one first."""
    in_kafka_by_app_id: Mapping[str, list[TopicQuery]]

    @classmethod
    def of(cls, known: Known) -> _Index:
        seen = _seen(known.tables)
        recent = sorted(seen, key=lambda each: -each[1].last_ms)
        checkpoints = _grouped(known.checkpoints, lambda each: each.query_id)
        in_tables = _grouped(seen, lambda each: each[1].query_id)
        in_kafka = _grouped(known.topic_queries, lambda each: each.query_id)
        return cls(
            tuple(dict.fromkeys([*checkpoints, *in_tables, *in_kafka])),
            checkpoints,
            in_tables,
            in_kafka,
            _grouped(recent, lambda each: each[1].app_id),
            _grouped(known.topic_queries, lambda each: each.app_id),
        )


def _grouped(all_of_them: Iterable[_T], key: Callable[[_T], str]) -> Mapping[str, list[_T]]:
    found = defaultdict[str, list[_T]](list)
    for each in all_of_them:
        found[key(each)].append(each)
    return dict(found)


def _pipeline(query_id: str, index: _Index, runs: Runs, ends: EndOffsets, now_ms: int) -> Pipeline:
    own, copies = index.in_tables.get(query_id, []), index.checkpoints.get(query_id, [])
    checkpoint = max(copies, key=lambda each: max(each.planned.values(), default=0), default=None)
    sinks = tuple(
        Sink(watch, query.app_id, query.guarantee, query.last_batch, query.last_version, query.last_ms, query.commits)
        for watch, query in own
    )
    in_kafka = index.in_kafka.get(query_id, [])
    committed = [query.ends for _, query in own] + [each.ends for each in in_kafka]
    # Offsets in a group may be of rows in a table, which is known then.
    topic_sinks = tuple(each for each in in_kafka if each.guarantee is not None or not sinks)
    minutes, is_past = _hour([query for _, query in own], now_ms)
    sources = () if checkpoint is None else tuple(each.description for each in checkpoint.sources if not each.next)
    others = [*_copies(checkpoint, copies), *_others(query_id, own, index), *_others_in_kafka(in_kafka, index)]
    return Pipeline(
        query_id,
        _name(query_id, checkpoint, [*(each.app_id for each in sinks), *(each.app_id for each in in_kafka)]),
        checkpoint,
        sinks,
        topic_sinks,
        tuple(_partitions(checkpoint, committed, ends)),
        minutes,
        is_past,
        tuple(sorted(others, key=lambda each: -(each.last_ms or 0))[:MAX_OTHERS]),
        ends.at_ms,
        runs.find(query_id),
        now_ms,
        sources,
    )


def _name(query_id: str, checkpoint: CheckpointState | None, app_ids: Sequence[str]) -> str:
    if app_ids:
        names = list(dict.fromkeys(app_ids))
        return ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")
    return query_id if checkpoint is None else checkpoint.place.rstrip("/").rpartition("/")[2]


def _partitions(
    checkpoint: CheckpointState | None, committed: Iterable[Mapping[PartitionKey, OffsetRange]], ends: EndOffsets
) -> Iterable[PartitionRow]:
    planned: dict[tuple[str, Slot], int] = {}
    topic_ids: dict[str, str] = {}
    stored: dict[tuple[str, Slot], tuple[int, int]] = {}
    for newest in committed:
        for (name, tp), extent in newest.items():
            stored[name, (tp.topic, tp.partition)] = extent.end, extent.end - extent.start
            topic_ids[tp.topic] = tp.topic_id  # the last one is the newest, if the query went on with another topic
    for source in checkpoint.sources if checkpoint else ():
        planned |= {(source.name, slot): at for slot, at in source.next.items()}
        topic_ids |= source.topic_ids
    for name, (topic, partition) in sorted(planned.keys() | stored.keys()):
        key = name, (topic, partition)
        end, records = stored.get(key, (None, None))
        topic_id = topic_ids.get(topic, "")
        row = PartitionRow(name, topic, partition, planned.get(key), end, records, None)
        log_end = ends.for_reader(topic, topic_id, partition, row.next)
        row = replace(row, log_end=log_end, is_anew=ends.is_anew(topic, topic_id))
        yield replace(row, age_s=ends.age_s(topic, partition, row.next or 0)) if (row.lag or 0) > 0 else row


_NO_COMMITS = Minute()


def _hour(queries: Sequence[QuerySeen], now_ms: int) -> tuple[tuple[tuple[int, Minute], ...], bool]:
    newest = max((max(query.minutes) for query in queries if query.minutes), default=None)
    if newest is None:
        return (), False
    last = now_ms // MINUTE_MS
    is_past = newest < last - MINUTES or newest > last  # also for a clock ahead of ours
    last = newest if is_past else last
    counted = [query.minutes for query in _with_offsets_of_their_own(queries)]
    found = []
    for number in range(last - MINUTES + 1, last + 1):
        parts = [minutes[number] for minutes in counted if number in minutes]
        rows = [minute.rows for query in queries if (minute := query.minutes.get(number)) and minute.rows is not None]
        if not parts and not rows:
            found.append((number * MINUTE_MS, _NO_COMMITS))
            continue
        whole = Minute(
            sum(part.batches for part in parts), sum(part.records for part in parts), sum(rows) if rows else None
        )
        found.append((number * MINUTE_MS, whole))
    return tuple(found), is_past


def _with_offsets_of_their_own(queries: Sequence[QuerySeen]) -> list[QuerySeen]:
    """Return one query for each partition: a table of dead letters has the offsets of the rows' table again."""
    counted, found = set[PartitionKey](), []
    for query in sorted(queries, key=lambda each: (-len(each.ends), -each.last_ms)):
        if counted.isdisjoint(query.ends):
            counted |= query.ends.keys()
            found.append(query)
    return found


def _copies(checkpoint: CheckpointState | None, copies: Sequence[CheckpointState]) -> Iterator[OtherQuery]:
    for copy in copies:
        if copy is not checkpoint:
            what = f"another checkpoint of this query: {copy.place}"
            yield OtherQuery(what, max(copy.planned.values(), default=None), is_newer=False)


def _others(query_id: str, own: Sequence[tuple[TableWatch, QuerySeen]], index: _Index) -> Iterator[OtherQuery]:
    last_ms = max((query.last_ms for _, query in own), default=0)
    for app_id in dict.fromkeys(query.app_id for _, query in own):
        others = ((watch, query) for watch, query in index.by_app_id[app_id] if query.query_id != query_id)
        for watch, query in islice(others, MAX_OTHERS):
            what = f"query {query.query_id} in {watch.name}, batch {query.last_batch} in version {query.last_version}"
            is_here = any(watch is each for each, _ in own)
            yield OtherQuery(f"appId {query.app_id}: {what}", query.last_ms, query.last_ms > last_ms, is_here)


def _others_in_kafka(own: Sequence[TopicQuery], index: _Index) -> Iterator[OtherQuery]:
    last_ms = max((each.last_ms for each in own), default=0)
    for app_id in dict.fromkeys(each.app_id for each in own):
        for each in index.in_kafka_by_app_id[app_id]:
            if each.query_id != own[0].query_id:
                what = f"appId {each.app_id}: query {each.query_id} into topics, batch {each.last_batch}"
                yield OtherQuery(what, each.last_ms, each.last_ms > last_ms)
