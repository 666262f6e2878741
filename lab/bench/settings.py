"""The size of a run, and the bounds of its figures."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 4
BATCHES = {"default": None, "64KiB": 65536}
"""`batch.size` of Kafka's producer in the broker benchmarks: with its default, 16 KiB, the client limits more."""
VALUE_BYTES = 100
"""The value size of benchmarks whose names do not say it."""
MICRO_BATCH_ROWS = 400
MANY_PARTITIONS = 1000
GUARANTEE_BATCH_ROWS = 100_000

CONNECTIONS = (1, 8, 64)
GROUP_MEMBERS = (1, 8)
PARTITION_COUNTS = (1, 1000)

TOOL_BENCHMARKS = tuple(
    f"broker-{what}-{size}-{batch}" for what in ("produce", "consume") for size in ("100B", "1KiB") for batch in BATCHES
)
SHARED_BENCHMARKS = (
    "broker-latency",
    "broker-small-1KiB",
    "broker-beside-bulk",
    "broker-transactions-500",
    "broker-connections",
    "broker-groups",
    "broker-partitions",
)
ALONE_BENCHMARKS = ("broker-ready", "broker-recovery")
"""Benchmarks that start and stop their own brokers."""
BROKER_BENCHMARKS = TOOL_BENCHMARKS + SHARED_BENCHMARKS + ALONE_BENCHMARKS
THROUGHPUT_BENCHMARKS = (
    "source-noop",
    "source-columns",
    "source-1KiB",
    "source-zstd",
    "pipeline-delta",
    "pipeline-json",
)
MICRO_VERSIONS = {
    "micro-batch-400": 0,
    **{f"micro-batch-{versions}-versions": versions for versions in (2_000, 20_000, 100_000)},
}
"""Of the table that micro-batches are written into; 0: a new one."""
MICRO_BENCHMARKS = tuple(MICRO_VERSIONS)
PLANNING_BENCHMARKS = ("planning-1000", "planning-memory")
SPARK_BENCHMARKS = THROUGHPUT_BENCHMARKS + MICRO_BENCHMARKS + PLANNING_BENCHMARKS
GUARANTEE_BENCHMARKS = ("guarantee-throughput", "guarantee-micro-batch")
SINK_VALUE_BYTES = {"kafka-sink-100B": 100, "kafka-sink-1KiB": 1024}
SINK_MICRO_BATCH = "kafka-sink-micro-batch"
SINK_BROKERS = ("apache-kafka", "embedded")
SINK_BENCHMARKS = (*SINK_VALUE_BYTES, SINK_MICRO_BATCH)
CLUSTER_NODES = 3
CLUSTER_THROUGHPUT = ("cluster-produce-100B-default", "cluster-produce-1KiB-64KiB")
CLUSTER_FAILOVER = "cluster-failover"
CLUSTER_IDLE = "cluster-idle"
IDLE_PARTITIONS = 1100
CLUSTER_BENCHMARKS = (*CLUSTER_THROUGHPUT, CLUSTER_FAILOVER, CLUSTER_IDLE)
DIRECT_THROUGHPUT = ("direct-100B", "direct-1KiB", "direct-json", "direct-json-where")
DIRECT_MICRO = "direct-micro-batch"
DIRECT_KAFKA_VALUE_BYTES = {"direct-kafka-100B": 100, "direct-kafka-1KiB": 1024}
DIRECT_KAFKA_MICRO = "direct-kafka-micro-batch"
DIRECT_KAFKA = (*DIRECT_KAFKA_VALUE_BYTES, DIRECT_KAFKA_MICRO)
DIRECT_MEMORY = "direct-memory"
DIRECT_GROWTH = "direct-growth"
DIRECT_PARTS = "direct-parts"
DIRECT_BENCHMARKS = (*DIRECT_THROUGHPUT, DIRECT_MICRO, *DIRECT_KAFKA, DIRECT_MEMORY, DIRECT_GROWTH, DIRECT_PARTS)
VALUES_AVRO, VALUES_PROTOBUF = "values-avro", "values-protobuf"
VALUES_DECODE, VALUES_DECODE_TEN = "values-decode", "values-ten-writers"
VALUES_BENCHMARKS = (VALUES_AVRO, VALUES_PROTOBUF, VALUES_DECODE, VALUES_DECODE_TEN)
PAGES_VERSIONS_COUNT = 100_000
PAGES_PARTITIONS, PAGES_VERSIONS, PAGES_THROUGHPUT = "ui-1000-partitions", "ui-100000-versions", "ui-throughput"
PAGES_TOPICS, PAGES_PIPELINES = "ui-1000-topics", "ui-200-pipelines"
PAGES_OPENED = (PAGES_PARTITIONS, PAGES_VERSIONS, PAGES_TOPICS, PAGES_PIPELINES)
COMMIT_AGE, COMMIT_RATE = "commit-age", "commit-rate"
COMMIT_VERSIONS = (50, 2_000, 20_000, 100_000)


@dataclass(frozen=True, slots=True)
class Load:
    """Topics with a record a second each."""

    topics: int
    trigger_s: int
    """The seconds between two batches."""
    busy: int = 0
    """How many of them have a thousand records a second."""
    times: int = 1
    """How many times as long as others this is measured."""


MANY_TOPICS = {
    "many-1": Load(1, 5),
    "many-8": Load(8, 5),
    "many-40": Load(40, 5),
    "many-500": Load(500, 10),
    "many-1000": Load(1000, 30, busy=50, times=15),
}
FRESHNESS, BACKLOG = "freshness", "backlog"
BACKLOG_TOPICS = 500
PAGES_BENCHMARKS = (*PAGES_OPENED, PAGES_THROUGHPUT)
GROWTH_PARTITIONS = (1, 4, 16, 64)
GROWTH_SLOTS = (1, 2)
ALL_BENCHMARKS = (
    BROKER_BENCHMARKS
    + SPARK_BENCHMARKS
    + DIRECT_BENCHMARKS
    + VALUES_BENCHMARKS
    + GUARANTEE_BENCHMARKS
    + SINK_BENCHMARKS
    + CLUSTER_BENCHMARKS
    + PAGES_BENCHMARKS
    + (COMMIT_AGE, COMMIT_RATE)
    + (*MANY_TOPICS, FRESHNESS, BACKLOG)
)
WITHOUT_TARGET = (DIRECT_GROWTH, DIRECT_PARTS, COMMIT_RATE, "many-1", "many-8")
"""Benchmarks that only show how figures change, or their parts."""

TARGETS = {
    **dict.fromkeys(TOOL_BENCHMARKS, 1.2),
    **{f"{name}-cpu": 0.6 for name in TOOL_BENCHMARKS},
    "broker-latency-average": 1.0,
    "broker-latency-p99": 1.0,
    "broker-small-1KiB": 1.2,
    "broker-beside-bulk": 1.5,
    "broker-transactions-500": 1.0,
    **{f"broker-connections-{count}": 1.0 for count in CONNECTIONS},
    **{f"broker-groups-{count}": 1.0 for count in GROUP_MEMBERS},
    **{f"broker-partitions-{what}-{count}": 1.0 for what in ("produce", "consume") for count in PARTITION_COUNTS},
    "broker-recovery": 1.0,
    "source-noop": 1.15,
    "source-columns": 1.5,
    "source-1KiB": 1.1,
    "source-zstd": 1.1,
    "pipeline-delta": 1.25,
    "pipeline-json": 1.5,
    **dict.fromkeys(MICRO_BENCHMARKS[:2], 0.2),
    **{f"{name}-tuned": 0.25 for name in MICRO_BENCHMARKS},
    **{f"{name}-tuned-cpu": 0.2 for name in MICRO_BENCHMARKS},
    "planning-1000": 1.0,
    "guarantee-throughput": 1.0,
    "guarantee-micro-batch": 1.0,
    **{f"{name}-at-least-once": 1.0 for name in SINK_VALUE_BYTES},
    **{f"{name}-exactly-once": 0.8 for name in SINK_VALUE_BYTES},
    SINK_MICRO_BATCH: 1.0,
    **dict.fromkeys((*CLUSTER_THROUGHPUT, CLUSTER_FAILOVER), 1.0),
    "direct-100B": 6.0,
    "direct-1KiB": 3.0,
    "direct-json": 8.0,
    "direct-json-where": 8.0,
    DIRECT_MICRO: 0.2,
    "direct-kafka-100B": 3.0,
    "direct-kafka-1KiB": 1.5,
    DIRECT_KAFKA_MICRO: 1.0,
    VALUES_AVRO: 2.5,
    VALUES_PROTOBUF: 2.5,
    VALUES_DECODE: 15.0,
    VALUES_DECODE_TEN: 0.8,
    PAGES_THROUGHPUT: 0.97,
    COMMIT_AGE: 1.15,
    "many-40-spark-cores-ratio": 0.15,
    "many-40-loop-cores-ratio": 0.15,
    **{f"{FRESHNESS}-{percentile}": 0.3 for percentile in ("p50", "p99")},
    BACKLOG: 0.7,
}
"""Bounds of ratios, by the name of the line: a benchmark's, or one with that prefix."""

LIMITS = {
    "broker-ready-exec-ms": 100.0,
    "broker-ready-embedded-ms": 30.0,
    "broker-ready-idle-rss-mb": 40.0,
    "broker-ready-1000-partitions-s": 1.0,
    "broker-ready-1000-partitions-rss-mb": 150.0,
    "cluster-idle-cpu-percent": 1.0,
    "planning-memory-growth-mb": 10.0,
    "commit-age-ms": 15.0,
    "many-40-cores": 0.2,
    "many-40-memory-mb": 1200.0,
    "many-40-commit-cpu-ms": 15.0,
    "many-1000-freshness-growth-s": 5.0,
    "many-500-cores": 1.0,
    "many-500-memory-mb": 2000.0,
    "many-500-freshness-p95-s": 15.0,
    "direct-json-cpu-s": 2.0,
    "direct-memory-peak-rss-mb": 600.0,
    "values-decode-cpu-s": 0.33,
    "direct-memory-growth-mb": 60.0,
    **{f"{name}-{what}-ms": 1000.0 for name in PAGES_OPENED for what in ("paint", "update")},
}
"""Upper bounds of figures; Kafka's are reported beside them."""


@dataclass(frozen=True, slots=True)
class BrokerSizes:
    """The amounts of the broker benchmarks in a round, apart from `rows`."""

    latency_records: int
    small_records: int
    transactions: int
    requests: int
    """Of 16 KiB, over all connections together."""
    recovery_bytes: int


@dataclass(frozen=True, slots=True)
class Settings:
    """One run: ``rows`` of 100 bytes; of 1 KiB there are a fifth as many, twice the bytes."""

    names: tuple[str, ...]
    rows: int
    rounds: int
    json_rows: int
    micro_batches: int
    """Measured for each variant, in all passes together."""
    micro_passes: int
    planning_batches: int
    """Measured in each round."""
    memory_batches: int
    guarantee_rows: int
    guarantee_rounds: int
    """For both guarantees: they differ by little, so there are more of them."""
    guarantee_micro_batches: int
    """Measured in each query."""
    sink_rows: int
    sink_rounds: int
    sink_micro_batches: int
    """Measured in each query, of which there is one per round."""
    sink_brokers: tuple[str, ...]
    cluster_deaths: int
    """Deaths of leaders, on each side."""
    direct_rows: int
    direct_rounds: int
    direct_json_rows: int
    direct_kafka_rows: int
    values_rows: int
    growth_rows: int
    """Records per topic, for any number of partitions."""
    growth_rounds: int
    many_s: float
    """How long many topics are measured."""
    backlog_records: int
    """In each of many topics."""
    commits: int
    """Measured at each age of a table, and in each round of their rate."""
    broker: BrokerSizes

    def rows_of(self, value_bytes: int) -> int:
        """Return the number of records of a benchmark of brokers or sources with values of ``value_bytes``."""
        return self.rows if value_bytes <= 100 else max(1, self.rows // 5)

    def sink_rows_of(self, value_bytes: int, *, direct: bool = False) -> int:
        """Return the number of records of a benchmark of Kafka sinks with values of ``value_bytes``."""
        rows = self.direct_kafka_rows if direct else self.sink_rows
        return rows if value_bytes <= 100 else max(1, rows // 5)

    def direct_rows_of(self, value_bytes: int) -> int:
        """Return the number of records of a direct query into a table with values of ``value_bytes``."""
        return self.direct_rows if value_bytes <= 100 else max(1, self.direct_rows // 5)

    def rounds_of(self, what: str) -> int:
        """Return the number of measured rounds; consuming takes a second or two and is noisier: twice as many."""
        return self.rounds * 2 if what == "consume" else self.rounds


FULL = Settings(
    names=ALL_BENCHMARKS,
    rows=3_000_000,
    rounds=3,
    json_rows=500_000,
    micro_batches=24,
    micro_passes=2,
    planning_batches=10,
    memory_batches=300,
    guarantee_rows=1_000_000,
    guarantee_rounds=6,
    guarantee_micro_batches=20,
    sink_rows=3_000_000,
    sink_rounds=3,
    sink_micro_batches=20,
    sink_brokers=SINK_BROKERS,
    cluster_deaths=7,
    direct_rows=10_000_000,
    direct_rounds=3,
    direct_json_rows=3_000_000,
    values_rows=500_000,
    direct_kafka_rows=3_000_000,
    growth_rows=4_000_000,
    growth_rounds=2,
    many_s=120.0,
    backlog_records=100_000,
    commits=1_500,
    broker=BrokerSizes(
        latency_records=10_000, small_records=100_000, transactions=300, requests=20_000, recovery_bytes=1_000_000_000
    ),
)
QUICK = Settings(
    names=ALL_BENCHMARKS,
    rows=1_000_000,
    rounds=2,
    json_rows=300_000,
    micro_batches=10,
    micro_passes=1,
    planning_batches=5,
    memory_batches=100,
    guarantee_rows=500_000,
    guarantee_rounds=2,
    guarantee_micro_batches=15,
    sink_rows=1_000_000,
    sink_rounds=2,
    sink_micro_batches=20,
    sink_brokers=SINK_BROKERS,
    cluster_deaths=3,
    direct_rows=1_000_000,
    direct_rounds=1,
    direct_json_rows=300_000,
    values_rows=100_000,
    direct_kafka_rows=500_000,
    growth_rows=500_000,
    growth_rounds=1,
    many_s=60.0,
    backlog_records=10_000,
    commits=300,
    broker=BrokerSizes(
        latency_records=2_000, small_records=20_000, transactions=60, requests=4_000, recovery_bytes=256_000_000
    ),
)
