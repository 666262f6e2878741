"""Small micro-batches from Kafka into Delta, from the trigger to the end of the commit: ours beside the JVM's.

The JVM's side runs with default settings, by which Delta computes a table's state in 50 Spark tasks, and with
``snapshotPartitions=1``, which suits a small table; of old tables only with the latter. Tables are new, or have as
many versions as a query makes in hours, days and weeks: see `many_versions`.
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
    DIRECT_MICRO,
    MICRO_BATCH_ROWS,
    MICRO_VERSIONS,
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
_OLD = 20_000
"""Versions from which on the JVM's side with default settings would take minutes."""


def peers(name: str) -> Mapping[str, str]:
    """Return the peer's variants in a benchmark, each with the name of its line."""
    if name == DIRECT_MICRO:
        return {TUNED: name}
    tuned = {TUNED: f"{name}-tuned"}
    return tuned if MICRO_VERSIONS[name] >= _OLD else {JVM: name, **tuned}


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
            found = templates.get(side.name)
            for variant in peers(name) if side.name == JVM else (OURS,):
                query = _query(side.name, broker, name, variant)
                outcome = _run_on_copy(side, query, found) if found else side.run(query)
                _expect(name, variant, outcome, batches * MICRO_BATCH_ROWS, 0 if found is None else found.rows)
                measured = [batch.trigger_s for batch in outcome.batches[WARM_UP_BATCHES:]]
                times.setdefault(variant, []).extend(measured)
                cpu.setdefault(variant, []).append(outcome.cpu_s / batches)
                say(
                    f"{name}: pass {number + 1}/{passes}, {variant} median {median(measured):.3f} s, "
                    f"{cpu[variant][-1]:.3f} CPU s"
                )
    delete_topic(broker, name)
    results.comparisons.extend(comparisons(name, times, cpu))


def comparisons(
    name: str, times: Mapping[str, Sequence[float]], cpu: Mapping[str, Sequence[float]]
) -> list[Comparison]:
    """Compare ours with each variant of the peer: times, and CPU time."""
    found = []
    for peer, line in peers(name).items():
        for unit, of, figures in (("s", line, times), ("CPU s", f"{line}-cpu", cpu)):
            target = TARGETS.get(of)
            ours, theirs = tuple(figures[OURS]), tuple(figures.get(peer, ()))
            found.append(Comparison(of, unit, ours, theirs, peer, target, less_is_better=True))
    return found


def _templates(name: str, broker: str, sides: Sequence[SparkSide]) -> dict[str, Template]:
    """Let each side create a table, and make it as old as wanted; none if it should be new."""
    versions = MICRO_VERSIONS.get(name, 0)
    if not versions:
        return {}
    seed = f"{name}-seed"
    _fill(broker, seed, _SEED_BATCHES)
    found = {}
    for side in sides:
        table = side.directory / f"{versions}-versions"
        side.run(replace(_query(side.name, broker, seed, side.name), table=str(table), app_id="before"))
        # The first batch makes the next version, where both sides write a checkpoint of the table's state.
        found[side.name] = template(table, versions)
        say(f"{name}: the table of {side.name} has {found[side.name].versions:,} versions")
    delete_topic(broker, seed)
    return found


def _run_on_copy(side: SparkSide, query: Query, table: Template) -> Outcome:
    with copy_of(table, side.directory / "copy") as copy:
        return side.run(replace(query, table=str(copy)))


def _query(side: str, broker: str, topic: str, variant: str) -> Query:
    source, sink = FORMATS[side]
    conf = TUNED_CONF if variant == TUNED else {}
    source_options = {"handOver": "ranges"} if topic == DIRECT_MICRO and side == OURS else {}
    return Query(source, sink, broker, topic, MICRO_BATCH_ROWS, conf, source_options=source_options, count_table=True)


def _fill(broker: str, topic: str, batches: int) -> None:
    create_topic(broker, topic, PARTITIONS)
    fill(broker, topic, batches * MICRO_BATCH_ROWS, random_bytes(VALUE_BYTES), PARTITIONS)


def _expect(name: str, variant: str, outcome: Outcome, rows: int, before: int) -> None:
    written = None if outcome.table is None else outcome.table["rows"]
    if outcome.rows not in (None, rows) or written != before + rows:
        raise SideError(f"{name}: {variant} read {outcome.rows} of {rows} rows; the table has {written}")
