"""Kafka to Kafka: Spark's own source and sink beside ours, at-least-once, exactly-once and direct, on the same broker.

All variants run in one warm Spark session and take turns, each round in the opposite order of the one before.
Each query copies keys and values of one topic, filled beforehand, into a new topic by Trigger.AvailableNow.
Variants with the JVM's source and our sink compare only the sinks.

CPU time is that of the whole session: the JVM, its Python workers and the driver's Python. The output of each variant's
first round, which is dropped, is counted as a ``read_committed`` reader sees it; of direct queries, whose records Spark
does not count, that of each round.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from lab.bench.load import committed_in, create_topic, delete_topic, fill, random_bytes
from lab.bench.results import Comparison, Missing, Results, say
from lab.bench.sessions import SESSION, WARM_UP_BATCHES, SideError, SparkSide
from lab.bench.settings import (
    DIRECT_KAFKA,
    DIRECT_KAFKA_MICRO,
    DIRECT_KAFKA_VALUE_BYTES,
    MICRO_BATCH_ROWS,
    PARTITIONS,
    SINK_BENCHMARKS,
    SINK_BROKERS,
    SINK_MICRO_BATCH,
    SINK_VALUE_BYTES,
    TARGETS,
    VALUE_BYTES,
    Settings,
)
from lab.bench.sides import round_name
from lab.bench.spark_side import Outcome, Query
from lab.peers import RealKafka, spark_kafka_jars
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.shared.jars import PeerMissingError

APACHE_KAFKA, _ = SINK_BROKERS
SESSION_NAME = "the Kafka sinks"


@dataclass(frozen=True, slots=True)
class Variant:
    """A pipeline under measurement."""

    name: str
    """The suffix of the results' names."""
    source: str
    sink: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the sink, besides topic and broker."""
    source_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_direct(self) -> bool:
        """Whether Spark passes ranges of records, and not the records."""
        return "handOver" in self.source_options

    @property
    def needs_jvm(self) -> bool:
        """Whether it needs the jars of Spark's connector."""
        return "kafka" in (self.source, self.sink)


def _ours(guarantee: Guarantee, source: str = "kafka_once") -> Variant:
    suffix = "" if source == "kafka_once" else "-jvm-source"
    return Variant(guarantee.value + suffix, source, "kafka_once", {"deliveryGuarantee": guarantee.value})


PEER = Variant("peer", "kafka", "kafka")
TUNED_PEER = Variant("tuned-peer", "kafka", "kafka", {"kafka.batch.size": str(512 * 1024), "kafka.linger.ms": "5"})
"""With batches twice as large as our default; reported in addition."""
OURS = (_ours(Guarantee.AT_LEAST_ONCE), _ours(Guarantee.EXACTLY_ONCE))
THROUGHPUT = (
    PEER,
    TUNED_PEER,
    *OURS,
    _ours(Guarantee.AT_LEAST_ONCE, "kafka"),
    _ours(Guarantee.EXACTLY_ONCE, "kafka"),
)
MICRO = (PEER, *OURS)
_DIRECT = Variant(
    "direct",
    "kafka_once",
    "kafka_once",
    {"deliveryGuarantee": Guarantee.EXACTLY_ONCE.value},
    {"handOver": "ranges"},
)
"""A mirror: whole records; their batches are copied, or packed into new ones, without being decoded."""
_DECODED = Variant(
    "decoded", "kafka_once", "kafka_once", _DIRECT.options, {**_DIRECT.source_options, "columns": "key,value"}
)
"""The same for keys and values only, as the peer copies them, decoded and encoded."""
DIRECT = (PEER, _DIRECT, _DECODED)
DIRECT_MICRO = (PEER, _DIRECT)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker on which topics are copied."""

    name: str
    bootstrap_servers: str

    @property
    def suffix(self) -> str:
        """The suffix of its results' names: none for Apache Kafka."""
        return "" if self.name == APACHE_KAFKA else f"-{self.name}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one query."""

    rows_per_s: float
    cpu_s_per_million_rows: float
    batches_s: tuple[float, ...]

    @property
    def measured_s(self) -> tuple[float, ...]:
        """The micro-batches without the first ones."""
        return self.batches_s[WARM_UP_BATCHES:]

    def told(self) -> str:
        """Return the line of progress, for throughput."""
        return f"{self.rows_per_s:,.0f} rows/s, {self.cpu_s_per_million_rows:.2f} CPU s/M rows"

    def micro_told(self) -> str:
        """Return the line of progress, for micro-batches."""
        cpu_s_per_batch = self.cpu_s_per_million_rows / 1e6 * MICRO_BATCH_ROWS
        return f"median {median(self.measured_s):.3f} s, {cpu_s_per_batch:.3f} CPU s a batch"


def run(settings: Settings, results: Results) -> None:
    """Run the selected benchmarks."""
    names = [name for name in (*SINK_BENCHMARKS, *DIRECT_KAFKA) if name in settings.names]
    if not names:
        return
    conf, with_jvm = _session(results)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        say("starting the Spark session for the Kafka sinks")
        side = stack.enter_context(SparkSide(SESSION_NAME, conf, directory))
        for broker_name in settings.sink_brokers:
            with _broker(broker_name, results) as broker:
                if broker is None:
                    continue
                bench = _Bench(broker, side, settings, results, with_jvm)
                for name in names:
                    if name in (SINK_MICRO_BATCH, DIRECT_KAFKA_MICRO):
                        bench.micro_batches(name)
                    else:
                        bench.throughput(name)


def order_of(round_number: int, variants: Sequence[Variant]) -> Sequence[Variant]:
    """Return the order of a round: every second one is reversed."""
    return variants if round_number % 2 == 0 else variants[::-1]


def _session(results: Results) -> tuple[dict[str, str], bool]:
    """Return the session's settings, and whether the JVM's connector is in it."""
    try:
        return {**SESSION, "spark.jars": ",".join(spark_kafka_jars())}, True
    except PeerMissingError as error:
        results.missing.append(Missing("spark-jvm-kafka", str(error), "name its jars in SPARK_KAFKA_JARS"))
        return dict(SESSION), False


@contextmanager
def _broker(name: str, results: Results) -> Iterator[Broker | None]:
    """Start a broker; None if it is not available."""
    say(f"the Kafka sinks, on {name}")
    with ExitStack() as stack:
        try:
            started: RealKafka | EmbeddedBroker
            started = RealKafka() if name == APACHE_KAFKA else EmbeddedBroker(process=True)
            stack.callback(started.close)
        except PeerMissingError as error:
            results.missing.append(Missing(name, str(error), "name a folder of its jars in KAFKA_LIBS"))
            yield None
            return
        yield Broker(name, started.bootstrap_servers)


class _Bench:
    """The benchmarks on one broker, in one session."""

    def __init__(self, broker: Broker, side: SparkSide, settings: Settings, results: Results, with_jvm: bool) -> None:
        self._broker = broker
        self._side = side
        self._settings = settings
        self._results = results
        self._with_jvm = with_jvm

    def throughput(self, name: str) -> None:
        """Compare rows per second, and CPU seconds per million rows; the first round is the warm-up."""
        direct = name in DIRECT_KAFKA
        value_bytes = DIRECT_KAFKA_VALUE_BYTES[name] if direct else SINK_VALUE_BYTES[name]
        rows = self._settings.sink_rows_of(value_bytes, direct=direct)
        with self._topic(name, rows, value_bytes) as topic:
            samples = self._rounds(name, DIRECT if direct else THROUGHPUT, topic, rows, None)
        self._results.comparisons.extend(comparisons(name, self._broker.suffix, samples))

    def micro_batches(self, name: str) -> None:
        """Compare the time of a small micro-batch from trigger to commit; a query's first batches are left out."""
        batches = self._settings.sink_micro_batches + WARM_UP_BATCHES
        rows = batches * MICRO_BATCH_ROWS
        with self._topic(name, rows, VALUE_BYTES) as topic:
            samples = self._rounds(name, DIRECT_MICRO if name in DIRECT_KAFKA else MICRO, topic, rows, MICRO_BATCH_ROWS)
        self._results.comparisons.extend(micro_comparisons(name, self._broker.suffix, samples))

    def _rounds(
        self, name: str, all_variants: Sequence[Variant], topic: str, rows: int, rows_per_batch: int | None
    ) -> dict[str, list[Sample]]:
        """Run the variants in turn; the first round is the warm-up, and dropped."""
        variants = [variant for variant in all_variants if self._with_jvm or not variant.needs_jvm]
        samples: dict[str, list[Sample]] = {variant.name: [] for variant in variants}
        for number in range(self._settings.sink_rounds + 1):
            for variant in order_of(number, variants):
                counted = number == 0 or variant.is_direct
                sample = self._measure(variant, topic, rows, rows_per_batch, count=counted)
                told = sample.told() if rows_per_batch is None else sample.micro_told()
                round_told = round_name(number, self._settings.sink_rounds)
                say(f"{name}{self._broker.suffix}: {round_told}, {variant.name} {told}")
                if number:
                    samples[variant.name].append(sample)
        return samples

    @contextmanager
    def _topic(self, name: str, rows: int, value_bytes: int) -> Iterator[str]:
        say(f"filling topic {name} with {rows:,} records of {value_bytes} bytes")
        create_topic(self._broker.bootstrap_servers, name, PARTITIONS)
        fill(self._broker.bootstrap_servers, name, rows, random_bytes(value_bytes), PARTITIONS)
        yield name
        delete_topic(self._broker.bootstrap_servers, name)

    def _measure(self, variant: Variant, topic: str, rows: int, rows_per_batch: int | None, *, count: bool) -> Sample:
        """Copy the topic, and count the output if requested."""
        target = f"{topic}-{variant.name}-{uuid.uuid4().hex[:8]}"
        create_topic(self._broker.bootstrap_servers, target, PARTITIONS)
        outcome = self._side.run(self._query(variant, topic, target, rows_per_batch))
        _expect(variant, outcome, rows)
        if count:
            arrived = committed_in(self._broker.bootstrap_servers, target, PARTITIONS)
            if arrived != rows:
                raise SideError(f"{variant.name}: {arrived} of {rows} rows are visible in {target}")
        delete_topic(self._broker.bootstrap_servers, target)
        batches_s = tuple(batch.trigger_s for batch in outcome.batches)
        return Sample(rows / outcome.wall_s, outcome.cpu_s / rows * 1e6, batches_s)

    def _query(self, variant: Variant, topic: str, target: str, rows_per_batch: int | None) -> Query:
        options = {**variant.options, "topic": target, "kafka.bootstrap.servers": self._broker.bootstrap_servers}
        if variant.sink == "kafka_once":
            options["appId"] = target  # each query is an application of its own, without stored offsets
        servers = self._broker.bootstrap_servers
        return Query(
            variant.source,
            variant.sink,
            servers,
            topic,
            rows_per_batch,
            sink_options=options,
            source_options=variant.source_options,
        )


def comparisons(name: str, suffix: str, samples: Mapping[str, Sequence[Sample]]) -> list[Comparison]:
    """Compare each of our variants, and the tuned peer, with the peer: speeds and CPU time."""
    rows = {variant: tuple(sample.rows_per_s for sample in taken) for variant, taken in samples.items()}
    cpu = {variant: tuple(sample.cpu_s_per_million_rows for sample in taken) for variant, taken in samples.items()}
    found = []
    for variant in rows:
        if variant != PEER.name:
            of = name if variant == _DIRECT.name else f"{name}-{variant}"
            found.append(_comparison(of + suffix, "rows/s", rows, variant, TARGETS.get(of)))
            found.append(_comparison(f"{of}{suffix}-cpu", "CPU s/M rows", cpu, variant, None, less_is_better=True))
    return found


def micro_comparisons(name: str, suffix: str, samples: Mapping[str, Sequence[Sample]]) -> list[Comparison]:
    """Compare our micro-batches with the peer's; exactly-once ones have the benchmark's own name."""
    times = {variant: tuple(s for sample in taken for s in sample.measured_s) for variant, taken in samples.items()}
    cpu = {
        variant: tuple(sample.cpu_s_per_million_rows / 1e6 * MICRO_BATCH_ROWS for sample in taken)
        for variant, taken in samples.items()
    }
    found = []
    for variant in (_DIRECT.name, Guarantee.EXACTLY_ONCE.value, Guarantee.AT_LEAST_ONCE.value):
        if variant in samples:
            of = f"{name}-{variant}" if variant == Guarantee.AT_LEAST_ONCE.value else name
            found.append(_comparison(of + suffix, "s", times, variant, TARGETS[name], less_is_better=True))
            found.append(_comparison(f"{of}{suffix}-cpu", "CPU s", cpu, variant, None, less_is_better=True))
    return found


def _comparison(
    name: str,
    unit: str,
    figures: Mapping[str, tuple[float, ...]],
    variant: str,
    target: float | None,
    *,
    less_is_better: bool = False,
) -> Comparison:
    peer = figures.get(PEER.name, ())
    return Comparison(name, unit, figures[variant], peer, "Spark's own sink", target, less_is_better)


def _expect(variant: Variant, outcome: Outcome, rows: int) -> None:
    if outcome.rows not in (None, rows):
        raise SideError(f"{variant.name} read {outcome.rows} of {rows} rows")
