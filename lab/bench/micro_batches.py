"""Small micro-batches from Kafka into Delta, from the trigger to the end of the commit: ours beside the JVM's.

The JVM's side runs twice: with default settings, by which Delta computes a table's state in 50 Spark tasks, and with
``snapshotPartitions=1``, which suits a small table. Tables are new, or have as many versions as a query
makes in a day: see `many_versions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from lab.bench.load import create_topic, delete_topic, fill, random_bytes
from lab.bench.many_versions import Template, copy_of, template
from lab.bench.results import Comparison, Results, say
from lab.bench.sessions import JVM, OURS, WARM_UP_BATCHES, SideError, SparkSide
from lab.bench.settings import (
    MANY_VERSIONS,
    MICRO_BATCH_ROWS,
    MICRO_BENCHMARKS,
    PARTITIONS,
    TARGETS,
    VALUE_BYTES,
    Settings,
)
from lab.bench.spark_side import Outcome, Query

TUNED = f"{JVM}, snapshotPartitions=1"
TUNED_CONF = {"spark.databricks.delta.snapshotPartitions": "1"}
FORMATS = {OURS: ("kafka_once", "delta_once"), JVM: ("kafka", "delta")}
_SEED_BATCHES = 3


def variants(side: str) -> Mapping[str, Mapping[str, str]]:
    """Return a side's variants, by the name of their figures, with their session settings."""
    return {JVM: {}, TUNED: TUNED_CONF} if side == JVM else {OURS: {}}


def compare_micro_batches(
    name: str, broker: str, sides: Sequence[SparkSide], settings: Settings, results: Results
) -> None:
    """Compare the time and CPU time of a micro-batch; the times omit a query's first batches."""
    passes = settings.micro_passes
    batches = max(1, settings.micro_batches // passes) + WARM_UP_BATCHES
    _fill(broker, name, batches)
    templates = _templates(name, broker, sides)
    times: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    for number in range(passes):
        for side in sides:
            for variant, conf in variants(side.name).items():
                query = _query(side.name, broker, name, conf)
                found = templates.get(side.name)
                outcome = _run_on_copy(side, query, found) if found else side.run(query)
                _expect(name, variant, outcome, batches * MICRO_BATCH_ROWS, 0 if found is None else found.rows)
                measured = [batch.trigger_s for batch in outcome.batches[WARM_UP_BATCHES:]]
                times.setdefault(variant, []).extend(measured)
                cpu.setdefault(variant, []).append(outcome.cpu_s / batches)
                say(f"{name}: pass {number + 1}/{passes}, {variant} median {median(measured):.3f} s")
    delete_topic(broker, name)
    results.comparisons.extend(comparisons(name, times, cpu))


def compare_direct_micro_batches(
    name: str, broker: str, sides: Sequence[SparkSide], settings: Settings, results: Results
) -> None:
    """Compare the direct path's micro-batches, into new tables, with the tuned peer's."""
    passes = settings.micro_passes
    batches = max(1, settings.micro_batches // passes) + WARM_UP_BATCHES
    _fill(broker, name, batches)
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    cpu: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(passes):
        for side in sides:
            source_options = {"handOver": "ranges"} if side.name == OURS else {}
            conf = {} if side.name == OURS else TUNED_CONF
            outcome = side.run(replace(_query(side.name, broker, name, conf), source_options=source_options))
            _expect(name, side.name, outcome, batches * MICRO_BATCH_ROWS, 0)
            measured = [batch.trigger_s for batch in outcome.batches[WARM_UP_BATCHES:]]
            times[side.name].extend(measured)
            cpu[side.name].append(outcome.cpu_s / batches)
            say(f"{name}: pass {number + 1}/{passes}, {side.name} median {median(measured):.3f} s")
    delete_topic(broker, name)
    for unit, line, figures in (("s", name, times), ("CPU s", f"{name}-cpu", cpu)):
        ours, theirs = tuple(figures[OURS]), tuple(figures.get(JVM, ()))
        results.comparisons.append(Comparison(line, unit, ours, theirs, TUNED, TARGETS.get(line), less_is_better=True))


def comparisons(
    name: str, times: Mapping[str, Sequence[float]], cpu: Mapping[str, Sequence[float]]
) -> list[Comparison]:
    """Compare ours with both variants of the peer: times, and CPU time."""
    found = []
    for peer, line in ((JVM, name), (TUNED, f"{name}-tuned")):
        for unit, of, figures in (("s", line, times), ("CPU s", f"{line}-cpu", cpu)):
            target = TARGETS.get(of)
            ours, theirs = tuple(figures[OURS]), tuple(figures.get(peer, ()))
            found.append(Comparison(of, unit, ours, theirs, peer, target, less_is_better=True))
    return found


def _templates(name: str, broker: str, sides: Sequence[SparkSide]) -> dict[str, Template]:
    """Let each side create a table, with the wanted versions less the warm-up; none if it should be new."""
    if name == MICRO_BENCHMARKS[0]:
        return {}
    seed = f"{name}-seed"
    _fill(broker, seed, _SEED_BATCHES)
    found = {}
    for side in sides:
        table = side.directory / "template"
        side.run(_query(side.name, broker, seed, {}, table=str(table), app_id="before"))
        # The first batch makes version 2,000, where both sides write a checkpoint of the table's state.
        found[side.name] = template(table, MANY_VERSIONS)
        say(f"{name}: the table of {side.name} has {found[side.name].versions:,} versions")
    delete_topic(broker, seed)
    return found


def _run_on_copy(side: SparkSide, query: Query, table: Template) -> Outcome:
    with copy_of(table, side.directory / "copy") as copy:
        return side.run(replace(query, table=str(copy)))


def _query(
    side: str,
    broker: str,
    topic: str,
    conf: Mapping[str, str],
    table: str | None = None,
    app_id: str = "bench",
) -> Query:
    source, sink = FORMATS[side]
    return Query(source, sink, broker, topic, MICRO_BATCH_ROWS, conf, table=table, app_id=app_id, count_table=True)


def _fill(broker: str, topic: str, batches: int) -> None:
    create_topic(broker, topic, PARTITIONS)
    fill(broker, topic, batches * MICRO_BATCH_ROWS, random_bytes(VALUE_BYTES), PARTITIONS)


def _expect(name: str, variant: str, outcome: Outcome, rows: int, before: int) -> None:
    written = None if outcome.table is None else outcome.table["rows"]
    if outcome.rows not in (None, rows) or written != before + rows:
        raise SideError(f"{name}: {variant} read {outcome.rows} of {rows} rows; the table has {written}")
