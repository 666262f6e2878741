"""Planning over a topic of 1,000 partitions: its time beside the JVM connector's, and its memory.

Few of the partitions have records, so that a micro-batch has few tasks, but all are asked for their offsets in
each batch and are in its offsets. The time is Spark's own: of latestOffset, getBatch, queryPlanning and walCommit.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from lab.bench.load import create_topic, delete_topic, fill, random_bytes
from lab.bench.results import Bound, Comparison, Results, say
from lab.bench.sessions import JVM, OURS, WARM_UP_BATCHES, SideError, SparkSide
from lab.bench.settings import LIMITS, MANY_PARTITIONS, PARTITIONS, TARGETS, VALUE_BYTES, Settings
from lab.bench.sides import round_name
from lab.bench.spark_side import Outcome, Query

ROWS_PER_BATCH = 100
_SETTLED = 0.2
"""The fraction of the batches after which the memory is compared with that at the end."""


def compare_planning(name: str, broker: str, sides: Sequence[SparkSide], settings: Settings, results: Results) -> None:
    """Compare the planning time of a micro-batch; a query's first batches are left out."""
    batches = settings.planning_batches + WARM_UP_BATCHES
    _fill(broker, name, batches)
    times: dict[str, list[float]] = {OURS: [], JVM: []}
    for number in range(settings.rounds + 1):
        for side in sides:
            source = "kafka_once" if side.name == OURS else "kafka"
            outcome = side.run(Query(source, "noop", broker, name, ROWS_PER_BATCH))
            _expect(name, side.name, outcome, batches)
            measured = [batch.planning_s for batch in outcome.batches[WARM_UP_BATCHES:]]
            say(f"{name}: {round_name(number, settings.rounds)}, {side.name} median {median(measured):.3f} s")
            if number:
                times[side.name].extend(measured)
    delete_topic(broker, name)
    ours, peer = tuple(times[OURS]), tuple(times[JVM])
    results.comparisons.append(Comparison(name, "s", ours, peer, JVM, TARGETS[name], less_is_better=True))


def watch_memory(name: str, broker: str, side: SparkSide, settings: Settings, results: Results) -> None:
    """Check that the planning process grows by no more than a limit, from a fifth of the batches to the last ones."""
    batches = settings.memory_batches
    _fill(broker, name, batches)
    query = Query("kafka_once", "delta_once", broker, name, ROWS_PER_BATCH, watch_memory=True)
    outcome = side.run(query)
    delete_topic(broker, name)
    _expect(name, side.name, outcome, batches)
    growth = growth_mb(outcome.memory_mb, batches)
    say(f"{name}: {batches} batches, {growth:+.2f} MB, at the end {outcome.memory_mb[-1][1]:.1f} MB")
    line = f"{name}-growth-mb"
    results.bounds.append(Bound(line, "MB", (growth,), (), "", LIMITS[line]))


def growth_mb(samples: Sequence[tuple[int, float]], batches: int) -> float:
    """Return the memory at the end less that after a fifth of the batches; samples are (batches done, megabytes).

    Raises:
        SideError: if there are fewer than two samples.
    """
    settled = [mb for done, mb in samples if done >= batches * _SETTLED]
    if len(settled) < 2:
        raise SideError(f"the memory was seen {len(settled)} times after the first {batches * _SETTLED:.0f} batches")
    return settled[-1] - settled[0]


def _fill(broker: str, topic: str, batches: int) -> None:
    create_topic(broker, topic, MANY_PARTITIONS)
    fill(broker, topic, batches * ROWS_PER_BATCH, random_bytes(VALUE_BYTES), PARTITIONS)


def _expect(name: str, side: str, outcome: Outcome, batches: int) -> None:
    if outcome.rows != batches * ROWS_PER_BATCH or len(outcome.batches) != batches:
        raise SideError(
            f"{name}: {side} read {outcome.rows} of {batches * ROWS_PER_BATCH} rows in {len(outcome.batches)} batches"
        )
