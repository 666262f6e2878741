"""The cost of a guarantee: exactly-once beside at-least-once, both ours, in one warm session.

Both run the same code and differ in the order of the writes: exactly-once puts rows and offsets into one commit,
at-least-once makes two, one after the other. The rounds alternate in order (A B, B A),
so that neither always follows the other. The figures are times, and the ratio is exactly-once to at-least-once: at or
below 1 the stronger guarantee costs nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from lab.bench.load import create_topic, fill, random_bytes
from lab.bench.results import Comparison, Results, say
from lab.bench.sessions import OURS, SESSION, WARM_UP_BATCHES, SideError, SparkSide
from lab.bench.settings import (
    GUARANTEE_BATCH_ROWS,
    GUARANTEE_BENCHMARKS,
    MICRO_BATCH_ROWS,
    PARTITIONS,
    TARGETS,
    VALUE_BYTES,
    Settings,
)
from lab.bench.spark_side import Outcome, Query
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.exactly_once.guarantee import Guarantee

THROUGHPUT, MICRO_BATCH = GUARANTEE_BENCHMARKS
_SIDES = (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)


def run(settings: Settings, results: Results) -> None:
    """Run the selected ones of the two benchmarks."""
    names = [name for name in GUARANTEE_BENCHMARKS if name in settings.names]
    if not names:
        return
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = stack.enter_context(EmbeddedBroker(process=True)).bootstrap_servers
        say("starting the Spark session for the guarantees")
        bench = _Bench(broker, stack.enter_context(SparkSide(OURS, SESSION, directory)), settings)
        for name in names:
            results.comparisons.append(bench.throughput() if name == THROUGHPUT else bench.micro_batches())


def order_of(round_number: int) -> Sequence[Guarantee]:
    """Return the order of a round's two queries: the last one of a round is first in the next."""
    return _SIDES if round_number % 2 == 0 else _SIDES[::-1]


class _Bench:
    """The two benchmarks over one session and one broker."""

    def __init__(self, broker: str, side: SparkSide, settings: Settings) -> None:
        self._broker = broker
        self._side = side
        self._settings = settings

    def throughput(self) -> Comparison:
        """Compare the time of the whole topic in large batches; the first round is the warm-up."""
        rows, rounds = self._settings.guarantee_rows, self._settings.guarantee_rounds
        self._fill("guarantee-rows", rows)
        times: dict[Guarantee, list[float]] = {guarantee: [] for guarantee in _SIDES}
        for number in range(rounds + 1):
            for guarantee in order_of(number):
                wall_s = self._run("guarantee-rows", rows, GUARANTEE_BATCH_ROWS, guarantee).wall_s
                round_name = f"round {number}/{rounds}" if number else "warm-up"
                say(f"{THROUGHPUT}: {round_name}, {guarantee.value} {wall_s:.2f} s, {rows / wall_s:,.0f} rows/s")
                if number:
                    times[guarantee].append(wall_s)
        return _comparison(THROUGHPUT, times)

    def micro_batches(self) -> Comparison:
        """Compare the time of a small micro-batch, without the first batches of each query."""
        batches, rounds = self._settings.guarantee_micro_batches + WARM_UP_BATCHES, self._settings.guarantee_rounds
        rows = batches * MICRO_BATCH_ROWS
        self._fill("guarantee-micro", rows)
        times: dict[Guarantee, list[float]] = {guarantee: [] for guarantee in _SIDES}
        for number in range(rounds):
            for guarantee in order_of(number):
                outcome = self._run("guarantee-micro", rows, MICRO_BATCH_ROWS, guarantee)
                measured = [batch.trigger_s for batch in outcome.batches[WARM_UP_BATCHES:]]
                times[guarantee].extend(measured)
                say(f"{MICRO_BATCH}: round {number + 1}/{rounds}, {guarantee.value} median {median(measured):.3f} s")
        return _comparison(MICRO_BATCH, times)

    def _fill(self, topic: str, rows: int) -> None:
        say(f"filling topic {topic} with {rows:,} records of {VALUE_BYTES} bytes")
        create_topic(self._broker, topic, PARTITIONS)
        fill(self._broker, topic, rows, random_bytes(VALUE_BYTES), PARTITIONS)

    def _run(self, topic: str, rows: int, rows_per_batch: int, guarantee: Guarantee) -> Outcome:
        options = {"deliveryGuarantee": guarantee.value}
        query = Query("kafka_once", "delta_once", self._broker, topic, rows_per_batch, sink_options=options)
        outcome = self._side.run(query)
        if outcome.rows != rows:
            raise SideError(f"{guarantee.value} read {outcome.rows} of {rows} rows")
        return outcome


def _comparison(name: str, times: dict[Guarantee, list[float]]) -> Comparison:
    ours, other = (tuple(times[guarantee]) for guarantee in _SIDES)
    return Comparison(name, "s", ours, other, "ours, at-least-once", TARGETS[name], less_is_better=True)
