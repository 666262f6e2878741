"""Our connectors beside the JVM's: one topic in one broker, two Spark sessions of the same settings.

Each side is a separate process with a long-lived session, so that its JVM, its Python workers and its compiled code
are warm; the sides take turns. Every query reads the whole topic from its beginning with Trigger.AvailableNow and is
timed from `readStream` to the end of the query. Tables and checkpoints are new for each query. CPU time is that of the
whole session: the JVM, its Python workers, the driver's Python; not the broker's.

This module compares rows per second; `micro_batches` and `planning` have the rest, over the same sessions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lab.bench.load import DOCUMENT_SCHEMA, create_topic, delete_topic, documents, fill, random_bytes, words
from lab.bench.micro_batches import compare_micro_batches
from lab.bench.planning import compare_planning, watch_memory
from lab.bench.results import Comparison, Results, say
from lab.bench.sessions import JVM, OURS, SideError, SparkSide, session_settings
from lab.bench.settings import (
    MICRO_BENCHMARKS,
    PARTITIONS,
    PLANNING_BENCHMARKS,
    SPARK_BENCHMARKS,
    TARGETS,
    THROUGHPUT_BENCHMARKS,
    VALUE_BYTES,
    Settings,
)
from lab.bench.sides import round_name
from lab.bench.spark_side import Outcome, Query
from sparkonce.broker_lite.embedded import EmbeddedBroker


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic to read: created for the first benchmark that uses it, and deleted after the last."""

    name: str
    rows: Callable[[Settings], int]
    values: Callable[[], Sequence[bytes]]
    compression: str = "none"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How one side reads and writes."""

    source: str
    sink: str
    source_options: Mapping[str, str] = field(default_factory=dict)
    selections: Sequence[Sequence[str]] = ()
    where: str | None = None
    sink_options: Mapping[str, str] = field(default_factory=dict)
    java_functions: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One benchmark: the topic, and each side's pipeline."""

    topic: Topic
    ours: Pipeline
    jvm: Pipeline
    every_column_filled: bool = False
    """Whether a null in the table means that a side has failed to decode."""
    kept: Callable[[int], int] = lambda rows: rows
    """How many of the topic's rows belong in the table."""
    others: Mapping[str, Pipeline] = field(default_factory=dict)
    """The pipelines of further sides, by name."""

    def pipeline(self, side: str) -> Pipeline:
        """Return a side's pipeline."""
        return {OURS: self.ours, JVM: self.jvm, **self.others}[side]


class Runner(Protocol):
    """A side under measurement."""

    @property
    def name(self) -> str:
        """The name in the results."""

    def run(self, query: Query) -> Outcome:
        """Run one query to its end; raises `SideError` if it fails."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one query."""

    rows_per_s: float
    cpu_s_per_million_rows: float


PLAIN = Topic("rows", lambda settings: settings.rows, lambda: random_bytes(VALUE_BYTES))
KIBIBYTES = Topic("rows-1KiB", lambda settings: settings.rows_of(1024), lambda: random_bytes(1024))
ZSTD = Topic("rows-zstd", lambda settings: settings.rows, lambda: words(VALUE_BYTES), "zstd")
JSON = Topic("rows-json", lambda settings: settings.json_rows, documents)

JSON_OPTIONS = {"columns": "value", "valueFormat": "json", "valueSchema": DOCUMENT_SCHEMA}
FROM_JSON = (f"from_json(cast(value as string), '{DOCUMENT_SCHEMA}') as value",)

CASES: Mapping[str, Case] = dict(
    zip(
        THROUGHPUT_BENCHMARKS,
        (
            Case(PLAIN, Pipeline("kafka_once", "noop"), Pipeline("kafka", "noop")),
            Case(
                PLAIN,
                Pipeline("kafka_once", "noop", {"columns": "value"}),
                Pipeline("kafka", "noop", selections=(("value",),)),
            ),
            Case(KIBIBYTES, Pipeline("kafka_once", "noop"), Pipeline("kafka", "noop")),
            Case(ZSTD, Pipeline("kafka_once", "noop"), Pipeline("kafka", "noop")),
            Case(PLAIN, Pipeline("kafka_once", "delta_once"), Pipeline("kafka", "delta")),
            Case(
                JSON,
                Pipeline("kafka_once", "delta_once", JSON_OPTIONS, (("value.*",),)),
                Pipeline("kafka", "delta", selections=(FROM_JSON, ("value.*",))),
                every_column_filled=True,
            ),
        ),
        strict=True,
    )
)


def run(settings: Settings, results: Results) -> None:
    """Run the selected Spark benchmarks."""
    names = [name for name in SPARK_BENCHMARKS if name in settings.names]
    if not names:
        return
    conf, with_jvm = session_settings(results)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = stack.enter_context(EmbeddedBroker(process=True)).bootstrap_servers
        say("starting the Spark sessions")
        sides = [
            stack.enter_context(SparkSide(name, conf, directory)) for name in ((OURS, JVM) if with_jvm else (OURS,))
        ]
        wanted = {name: case for name, case in CASES.items() if name in names}
        throughput(wanted, broker, sides, settings, settings.rounds, results)
        for name in names:
            if name in MICRO_BENCHMARKS:
                compare_micro_batches(name, broker, sides, settings, results)
            elif name == PLANNING_BENCHMARKS[0]:
                compare_planning(name, broker, sides, settings, results)
            elif name == PLANNING_BENCHMARKS[1]:
                watch_memory(name, broker, sides[0], settings, results)


def throughput(
    cases: Mapping[str, Case],
    broker: str,
    sides: Sequence[Runner],
    settings: Settings,
    rounds: int,
    results: Results,
) -> None:
    """Compare rows per second, and CPU seconds per million rows, over whole queries."""
    filled: set[str] = set()
    names = list(cases)
    for position, (name, case) in enumerate(cases.items()):
        topic = case.topic
        rows = topic.rows(settings)
        if topic.name not in filled:
            say(f"filling topic {topic.name} with {rows:,} records")
            create_topic(broker, topic.name, PARTITIONS)
            fill(broker, topic.name, rows, topic.values(), PARTITIONS, topic.compression)
            filled.add(topic.name)
        results.comparisons.extend(_compare(name, case, broker, sides, rows, rounds))
        if all(cases[later].topic is not topic for later in names[position + 1 :]):
            delete_topic(broker, topic.name)


def _compare(name: str, case: Case, broker: str, sides: Sequence[Runner], rows: int, rounds: int) -> list[Comparison]:
    """Run the sides in turn; the first round of each is its warm-up, and dropped."""
    samples: dict[str, list[Sample]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            outcome = side.run(query(case, side.name, broker))
            check(name, case, side.name, outcome, rows)
            sample = Sample(rows / outcome.wall_s, outcome.cpu_s / rows * 1e6)
            say(
                f"{name}: {round_name(number, rounds)}, {side.name} {sample.rows_per_s:,.0f} rows/s, "
                f"{sample.cpu_s_per_million_rows:.2f} CPU s/M rows; {_times(outcome)}"
            )
            if number:
                samples[side.name].append(sample)
    return comparisons(name, samples)


def _times(outcome: Outcome) -> str:
    """Return how long a query took, and its micro-batches' share; the rest is starting and stopping it."""
    in_batches = sum(batch.trigger_s for batch in outcome.batches)
    return f"{outcome.wall_s:.2f} s" + (f", of these {in_batches:.2f} s in batches" if outcome.batches else "")


def comparisons(name: str, samples: Mapping[str, Sequence[Sample]]) -> list[Comparison]:
    """Compare ours with each other side: speeds and CPU time; the lines of sides other than the JVM's name them."""
    speeds = {side: tuple(one.rows_per_s for one in taken) for side, taken in samples.items()}
    cpu = {side: tuple(one.cpu_s_per_million_rows for one in taken) for side, taken in samples.items()}
    found = []
    for peer in (JVM, *(side for side in samples if side not in (OURS, JVM))):
        line = name if peer == JVM else f"{name}-{peer}"
        theirs, their_cpu = speeds.get(peer, ()), cpu.get(peer, ())
        found += [
            Comparison(line, "rows/s", speeds[OURS], theirs, peer, TARGETS.get(line)),
            Comparison(f"{line}-cpu", "CPU s/M rows", cpu[OURS], their_cpu, peer, less_is_better=True),
        ]
    return found


def query(case: Case, side: str, broker: str) -> Query:
    """Return one side's query of a benchmark."""
    pipeline = case.pipeline(side)
    return Query(
        pipeline.source,
        pipeline.sink,
        broker,
        case.topic.name,
        None,
        sink_options=pipeline.sink_options,
        source_options=pipeline.source_options,
        selections=pipeline.selections,
        where=pipeline.where,
        java_functions=pipeline.java_functions,
        count_table=pipeline.sink != "noop",
    )


def check(name: str, case: Case, side: str, outcome: Outcome, rows: int) -> None:
    """Check that a query did all of its work.

    Raises:
        SideError: if rows are missing or surplus, or columns that should be filled are null.
    """
    if outcome.rows is not None and outcome.rows != rows:
        raise SideError(f"{name}: {side} read {outcome.rows} of {rows} rows")
    if outcome.table is None:
        return
    kept = case.kept(rows)
    if outcome.table["rows"] != kept:
        raise SideError(f"{name}: {side} wrote {outcome.table['rows']} of {kept} rows")
    nulls = {column: number for column, number in outcome.table["nulls"].items() if number}
    if nulls and case.every_column_filled:
        raise SideError(f"{name}: {side} wrote nulls where the records have values: {nulls}")
