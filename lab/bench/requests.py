"""Single requests, one after another: latency, requests of one record, a request beside a bulk load, transactions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import median

from confluent_kafka import KafkaException, Producer

from lab.bench.load import DEADLINE_S, LoadError, create_topic, delete_topic, records_in
from lab.bench.results import Comparison, Results
from lab.bench.settings import PARTITIONS, TARGETS, Settings
from lab.bench.sides import KAFKA, Side, in_turn, records_per_second
from lab.bench.tools import Latency, end_to_end, produce
from lab.bench.wire import BrokerConnection, produce_frame, round_trip_s

TRANSACTION_RECORDS = 500
_LATENCY_VALUE_BYTES = 100
_SMALL_VALUE_BYTES = 1024
_BULK_VALUE_BYTES = 1024
_BULK_BATCH_BYTES = 65536
_BESIDE_VALUE_BYTES = 1000
_BESIDE_EVERY_S = 0.001


def latency(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Run EndToEndLatency: a record at a time, sent with acks=all and waited for at a consumer."""

    def once(side: Side, number: int) -> Latency:
        topic = f"{name}-{number}"
        create_topic(side.bootstrap_servers, topic, 1)
        records = settings.broker.latency_records
        return end_to_end(side.bootstrap_servers, topic, records if number else records // 5, _LATENCY_VALUE_BYTES)

    ours, peer = in_turn(name, sides, settings.rounds, once, lambda one: f"{one.average_ms:.3f} ms on average")
    averages = [tuple(one.average_ms for one in side) for side in (ours, peer)]
    p99s = [tuple(one.p99_ms for one in side) for side in (ours, peer)]
    for line, (of_ours, of_peer) in ((f"{name}-average", averages), (f"{name}-p99", p99s)):
        results.comparisons.append(Comparison(line, "ms", of_ours, of_peer, KAFKA, TARGETS[line], less_is_better=True))


def small(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Send records of 1 KiB, each in a batch and a request of its own: linger.ms=0 and no batches, one partition."""

    def once(side: Side, number: int) -> float:
        topic = f"{name}-{number}"
        create_topic(side.bootstrap_servers, topic, 1)
        records = settings.broker.small_records
        return produce(
            side.bootstrap_servers, topic, records if number else max(1, records // 5), _SMALL_VALUE_BYTES, 0,
            "linger.ms=0",
        )  # fmt: skip

    ours, peer = in_turn(name, sides, settings.rounds, once, records_per_second)
    results.comparisons.append(Comparison(name, "records/s", ours, peer, KAFKA, TARGETS[name]))


def beside_bulk(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Time a record of 1 KB, sent every millisecond during ProducerPerformance at full speed."""

    def once(side: Side, number: int) -> float:
        bulk, quiet = f"{name}-load-{number}", f"{name}-{number}"
        create_topic(side.bootstrap_servers, bulk, PARTITIONS)
        create_topic(side.bootstrap_servers, quiet, 1)
        rows = settings.rows_of(_BULK_VALUE_BYTES)
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(
                produce, side.bootstrap_servers, bulk, rows, _BULK_VALUE_BYTES, _BULK_BATCH_BYTES
            )  # fmt: skip
            while not load.done() and not records_in(side.bootstrap_servers, bulk, PARTITIONS):
                time.sleep(_BESIDE_EVERY_S)
            samples = _beside(side.bootstrap_servers, quiet, load)
            load.result()
        delete_topic(side.bootstrap_servers, bulk)
        if not samples:
            raise LoadError(f"{name}: the load was over before a record was sent beside it; use more --rows")
        return median(samples) * 1e6

    ours, peer = in_turn(name, sides, settings.rounds, once, lambda micros: f"{micros:,.0f} µs at the median")
    results.comparisons.append(Comparison(name, "µs", ours, peer, KAFKA, TARGETS[name], less_is_better=True))


def _beside(bootstrap_servers: str, topic: str, load: Future[float]) -> list[float]:
    """Return the round trips, in seconds, during the load."""
    frame = produce_frame(topic, 0, 1, _BESIDE_VALUE_BYTES)
    samples = []
    with BrokerConnection(bootstrap_servers) as connection:
        while not load.done():
            samples.append(round_trip_s(connection, frame))
            time.sleep(_BESIDE_EVERY_S)
    return samples


def transactions(name: str, sides: Sequence[Side], settings: Settings, results: Results) -> None:
    """Commit transactions of 500 records of 100 bytes over four partitions, one after another, by confluent-kafka."""
    for side in sides:
        create_topic(side.bootstrap_servers, name, PARTITIONS)

    def once(side: Side, number: int) -> float:
        count = settings.broker.transactions if number else max(1, settings.broker.transactions // 5)
        return transactions_per_second(side.bootstrap_servers, name, count)

    ours, peer = in_turn(name, sides, settings.rounds, once, lambda speed: f"{speed:.1f} transactions/s")
    results.comparisons.append(Comparison(name, "transactions/s", ours, peer, KAFKA, TARGETS[name]))


def transactions_per_second(bootstrap_servers: str, topic: str, count: int) -> float:
    """Commit ``count`` transactions, timed from after InitProducerId.

    Raises:
        LoadError: if one does not commit.
    """
    # No linger: a commit flushes, and lingering would be in the figure of both.
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": f"{topic}-bench", "linger.ms": 0, "log_level": 3}
    )
    value = bytes(_LATENCY_VALUE_BYTES)
    try:
        producer.init_transactions(DEADLINE_S)
        began = time.perf_counter()
        for _ in range(count):
            producer.begin_transaction()
            for row in range(TRANSACTION_RECORDS):
                producer.produce(topic, value, partition=row % PARTITIONS)
            producer.commit_transaction(DEADLINE_S)
        return count / (time.perf_counter() - began)
    except KafkaException as error:
        raise LoadError(f"transactions on {bootstrap_servers}: {error}") from error
