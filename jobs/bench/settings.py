"""How large a run is, and the bounds that its ratios are held to."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 4
BATCH_BYTES = 65536
"""Of Kafka's producer in the broker benchmarks, with acks=all: its default of 16 KiB measures the client."""
MICRO_BATCH_ROWS = 400
GUARANTEE_BATCH_ROWS = 100_000

BROKER_BENCHMARKS = (
    "broker-produce-100B",
    "broker-produce-1KiB",
    "broker-consume-100B",
    "broker-consume-1KiB",
)
SPARK_BENCHMARKS = ("source-noop", "pipeline-delta", "micro-batch-400")
GUARANTEE_BENCHMARKS = ("guarantee-throughput", "guarantee-micro-batch")
ALL_BENCHMARKS = BROKER_BENCHMARKS + SPARK_BENCHMARKS + GUARANTEE_BENCHMARKS

TARGETS = {
    "broker-produce-100B": 1.0,
    "broker-produce-1KiB": 1.0,
    "broker-consume-100B": 1.0,
    "broker-consume-1KiB": 1.0,
    "source-noop": 1.0,
    "pipeline-delta": 1.1,
    "micro-batch-400": 0.3,
    "guarantee-throughput": 1.0,
    "guarantee-micro-batch": 1.0,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """One run: ``rows`` of 100 bytes; of 1 KiB there are a fifth as many, twice the bytes."""

    names: tuple[str, ...]
    rows: int
    rounds: int
    micro_batches: int
    micro_passes: int
    guarantee_rows: int
    guarantee_rounds: int
    """Of both guarantees: they differ by little, so there are more of them."""
    guarantee_micro_batches: int
    """That are measured in each query."""

    def rows_of(self, value_bytes: int) -> int:
        """Give the number of records of a benchmark with values of ``value_bytes``."""
        return self.rows if value_bytes <= 100 else max(1, self.rows // 5)

    def rounds_of(self, what: str) -> int:
        """Give the number of measured rounds; to consume takes a second or two, so noise weighs more: twice as many."""
        return self.rounds * 2 if what == "consume" else self.rounds


FULL = {
    "rows": 3_000_000,
    "rounds": 3,
    "micro_batches": 50,
    "micro_passes": 2,
    "guarantee_rows": 1_000_000,
    "guarantee_rounds": 6,
    "guarantee_micro_batches": 20,
}
QUICK = {
    "rows": 1_000_000,
    "rounds": 2,
    "micro_batches": 10,
    "micro_passes": 1,
    "guarantee_rows": 500_000,
    "guarantee_rounds": 2,
    "guarantee_micro_batches": 15,
}
