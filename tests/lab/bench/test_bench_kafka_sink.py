"""The benchmark of the Kafka sinks, with a Spark session and brokers that only pretend."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest

from lab.bench import kafka_sink
from lab.bench.__main__ import parse
from lab.bench.kafka_sink import MICRO, PEER, THROUGHPUT, Broker, order_of
from lab.bench.load import LoadError, committed_in, create_topic, fill
from lab.bench.processes import cpu_s
from lab.bench.results import Missing, Results
from lab.bench.sessions import WARM_UP_BATCHES, SideError
from lab.bench.settings import MICRO_BATCH_ROWS, SINK_BENCHMARKS, TARGETS
from lab.bench.spark_side import Batch, Outcome, Query
from sparkonce import EmbeddedBroker
from sparkonce.jobs.shared.jars import PeerMissingError

SECONDS = {"at-least-once": 0.5, "exactly-once": 1.0, None: 2.0}
BATCHES = 3


class FakeSide:
    """A query takes 2 s through Spark's own sink, less through ours; a micro-batch a tenth of that."""

    pid = 0

    def __init__(self) -> None:
        self.queries: list[Query] = []
        self.lost = 0

    def __enter__(self) -> FakeSide:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, query: Query) -> Outcome:
        self.queries.append(query)
        wall_s = SECONDS[query.sink_options.get("deliveryGuarantee")]
        batches = (Batch(9.0, 0.0),) * WARM_UP_BATCHES + (Batch(wall_s / 10, 0.0),) * BATCHES
        return Outcome(wall_s, rows_of(query) - self.lost, batches, cpu_s=1.0)


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> FakeSide:
    side = FakeSide()

    @contextmanager
    def broker(name: str, results: Results) -> Iterator[Broker]:
        yield Broker(name, f"{name}:9092")

    monkeypatch.setattr(kafka_sink, "SparkSide", lambda *_: side)
    monkeypatch.setattr(kafka_sink, "spark_kafka_jars", lambda: ["kafka.jar"])
    monkeypatch.setattr(kafka_sink, "_broker", broker)
    for name in ("create_topic", "delete_topic", "fill"):
        monkeypatch.setattr(kafka_sink, name, lambda *_: None)
    monkeypatch.setattr(kafka_sink, "committed_in", lambda *_: side.queries and rows_of(side.queries[-1]))
    return side


def rows_of(query: Query) -> int:
    return {"100B": 1000, "1KiB": 200}.get(
        query.topic.rpartition("-")[2], (WARM_UP_BATCHES + BATCHES) * MICRO_BATCH_ROWS
    )


def measure(*words: str) -> Results:
    settings = parse([*words, "--rows", "1000", "--rounds", "2", "--micro-batches", str(BATCHES)])[0]
    results = Results({})
    kafka_sink.run(settings, results)
    return results


def lines(results: Results) -> list[str | None]:
    return [one.line() for one in results.comparisons]


def test_throughput_is_of_rows_and_of_cpu_time(side: FakeSide) -> None:
    assert lines(measure("kafka-sink-100B", "--broker", "apache-kafka")) == [
        "RATIO kafka-sink-100B-tuned-peer=1.000",
        "RATIO kafka-sink-100B-tuned-peer-cpu=1.000",
        "RATIO kafka-sink-100B-at-least-once=4.000 target>=1",
        "RATIO kafka-sink-100B-at-least-once-cpu=1.000",
        "RATIO kafka-sink-100B-exactly-once=2.000 target>=0.8",
        "RATIO kafka-sink-100B-exactly-once-cpu=1.000",
        "RATIO kafka-sink-100B-at-least-once-jvm-source=4.000",
        "RATIO kafka-sink-100B-at-least-once-jvm-source-cpu=1.000",
        "RATIO kafka-sink-100B-exactly-once-jvm-source=2.000",
        "RATIO kafka-sink-100B-exactly-once-jvm-source-cpu=1.000",
    ]


def test_micro_batches_leave_out_the_first_ones(side: FakeSide) -> None:
    results = measure("kafka-sink-micro", "--broker", "embedded")
    assert lines(results) == [
        "RATIO kafka-sink-micro-batch-embedded=0.500 target<=1",
        "RATIO kafka-sink-micro-batch-embedded-cpu=1.000",
        "RATIO kafka-sink-micro-batch-at-least-once-embedded=0.250 target<=1",
        "RATIO kafka-sink-micro-batch-at-least-once-embedded-cpu=1.000",
    ]
    assert [len(one.ours) for one in results.comparisons[::2]] == [2 * BATCHES] * 2
    assert {query.rows_per_batch for query in side.queries} == {MICRO_BATCH_ROWS}


def test_direct_queries_are_held_to_the_peer_by_the_name_of_the_benchmark(side: FakeSide) -> None:
    assert lines(measure("direct-kafka", "--broker", "apache-kafka")) == [
        "RATIO direct-kafka-100B=2.000 target>=3",
        "RATIO direct-kafka-100B-cpu=1.000",
        "RATIO direct-kafka-100B-decoded=2.000",
        "RATIO direct-kafka-100B-decoded-cpu=1.000",
        "RATIO direct-kafka-1KiB=2.000 target>=1.5",
        "RATIO direct-kafka-1KiB-cpu=1.000",
        "RATIO direct-kafka-1KiB-decoded=2.000",
        "RATIO direct-kafka-1KiB-decoded-cpu=1.000",
        "RATIO direct-kafka-micro-batch=0.500 target<=1",
        "RATIO direct-kafka-micro-batch-cpu=1.000",
    ]
    assert {(query.sink, query.is_direct) for query in side.queries} == {("kafka", False), ("kafka_once", True)}


def test_what_a_direct_query_wrote_is_counted_in_each_round(side: FakeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost_in_the_last_round(*_: object) -> int:
        query = side.queries[-1]
        return rows_of(query) - (query.is_direct and len(side.queries) > 4)

    monkeypatch.setattr(kafka_sink, "committed_in", lost_in_the_last_round)
    with pytest.raises(SideError, match="direct: 999 of 1000 rows are visible in direct-kafka-100B-direct-"):
        measure("direct-kafka-100B", "--broker", "embedded")


def test_the_variants_take_turns_forwards_and_backwards(side: FakeSide) -> None:
    measure("kafka-sink-micro", "--broker", "embedded")
    ran = [(query.sink, query.sink_options.get("deliveryGuarantee")) for query in side.queries]
    once = [(variant.sink, variant.options.get("deliveryGuarantee")) for variant in MICRO]
    assert ran == once + once[::-1] + once
    assert order_of(1, THROUGHPUT)[-1] is PEER


def test_every_query_of_ours_is_an_application_of_its_own(side: FakeSide) -> None:
    measure("kafka-sink-100B", "--broker", "embedded")
    ids = [query.sink_options["appId"] for query in side.queries if query.sink == "kafka_once"]
    assert len(ids) == len(set(ids)) == 12
    assert all("appId" not in query.sink_options for query in side.queries if query.sink == "kafka")
    assert {query.sink_options["kafka.bootstrap.servers"] for query in side.queries} == {"embedded:9092"}


def test_rows_that_were_not_read_fail_the_run(side: FakeSide) -> None:
    side.lost = 1
    with pytest.raises(SideError, match="peer read 999 of 1000 rows"):
        measure("kafka-sink-100B", "--broker", "embedded")


def test_rows_that_readers_do_not_see_fail_the_run(side: FakeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_sink, "committed_in", lambda *_: 998)
    with pytest.raises(SideError, match="peer: 998 of 1000 rows are visible in kafka-sink-100B-peer-"):
        measure("kafka-sink-100B", "--broker", "embedded")


def test_without_the_jars_ours_is_measured_alone(side: FakeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> list[str]:
        raise PeerMissingError("no mvn found")

    monkeypatch.setattr(kafka_sink, "spark_kafka_jars", missing)
    results = measure("kafka-sink-100B", "--broker", "embedded")
    assert [missed.peer for missed in results.missing] == ["spark-jvm-kafka"]
    assert {query.source for query in side.queries} == {"kafka_once"}
    assert lines(results) == [None] * 4


def test_without_apache_kafka_the_embedded_broker_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise PeerMissingError("no java found")

    monkeypatch.setattr(kafka_sink, "RealKafka", missing)
    results = Results({})
    with kafka_sink._broker("apache-kafka", results) as broker:
        assert broker is None
    assert results.missing == [Missing("apache-kafka", "no java found", "name a folder of its jars in KAFKA_LIBS")]


def test_nothing_is_started_when_no_sink_was_asked_for(side: FakeSide) -> None:
    settings = replace(parse(["broker"])[0])
    results = Results({})
    kafka_sink.run(settings, results)
    assert side.queries == []


def test_the_bounds_are_those_of_the_names_that_are_printed(side: FakeSide) -> None:
    bounds = {name for name in TARGETS if name.startswith("kafka-sink")}
    printed = {one.name for one in measure("kafka-sink", "--broker", "apache-kafka").comparisons}
    assert bounds <= printed
    assert set(parse(["kafka-sink"])[0].names) == set(SINK_BENCHMARKS)


def test_cpu_time_counts_processes_that_have_ended() -> None:
    loop = "sum(i * i for i in range(10**6))"
    before = cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", loop], check=True)
    used = psutil.Process().cpu_times()
    assert cpu_s(os.getpid()) - before > 0
    assert cpu_s(os.getpid()) >= used.children_user


def test_what_arrived_is_counted_by_reading(kafka_broker: EmbeddedBroker) -> None:
    create_topic(kafka_broker.bootstrap_servers, "counted", 4)
    assert committed_in(kafka_broker.bootstrap_servers, "counted", 4) == 0
    fill(kafka_broker.bootstrap_servers, "counted", 2500, [bytes(10)], 4)
    assert committed_in(kafka_broker.bootstrap_servers, "counted", 4) == 2500


def test_a_partition_that_is_not_there_cannot_be_counted(
    kafka_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka_broker.bootstrap_servers, "short", 1)
    monkeypatch.setattr("lab.bench.load.DEADLINE_S", 0.3)
    with pytest.raises(LoadError, match="short"):
        committed_in(kafka_broker.bootstrap_servers, "short", 2)
