"""Exactly-once pipelines over three brokers of which one after another is killed: nothing lost, nothing twice."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkonce import EmbeddedCluster
from tests.cluster.files import check_files

pytestmark = pytest.mark.spark

PARTITIONS = 3
RECORDS_A_SECOND = 400
DEADLINE_S = 120.0
BETWEEN_KILLS_S = 10.0


class Writer:
    """An idempotent producer that numbers its records until it is told to stop."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "log_level": 2})
        self._topic = topic
        self._stop = threading.Event()
        self._news = threading.Condition()
        self.acknowledged: list[bytes] = []
        self.failures: list[object] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(1 / RECORDS_A_SECOND):
            self._producer.produce(self._topic, b"%d" % number, b"%d" % (number % 17), on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, message: object) -> None:
        with self._news:
            if error is None:
                self.acknowledged.append(message.value())  # type: ignore[attr-defined]
            else:
                self.failures.append(error)
            self._news.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        with self._news:
            wanted = len(self.acknowledged) + count
            came = self._news.wait_for(lambda: len(self.acknowledged) >= wanted, DEADLINE_S)
        assert came, f"{len(self.acknowledged)} acknowledged, {wanted} wanted, within {DEADLINE_S} s"

    def finish(self) -> list[bytes]:
        """Stop, and give what is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.failures == []
        return self.acknowledged


class Pipeline:
    """One query that is started again whenever it ends with an error, as a supervisor would."""

    def __init__(self, spark: SparkSession, servers: str, name: str, folder: Path, sink: dict[str, str]) -> None:
        self.restarts = 0
        self._spark, self._servers, self._name, self._folder, self._sink = spark, servers, name, folder, sink
        self.query = self._start()

    def _start(self) -> StreamingQuery:
        kafka = {"kafka.bootstrap.servers": self._servers}
        store = {"appId": self._name, "offsetStore": self._sink["offsetStore"]}
        reader = self._spark.readStream.format("kafka_once").options(**kafka, **store, subscribe="in")
        rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="400").load().select("key", "value")
        options = {name: text for name, text in self._sink.items() if name not in ("format", "offsetStore")}
        writer = rows.writeStream.format(self._sink["format"]).options(appId=self._name, **options)
        return writer.option("checkpointLocation", str(self._folder / f"{self._name}-checkpoint")).start()

    def keep_up(self) -> None:
        """Start it again if it has ended."""
        if not self.query.isActive:
            error = self.query.exception()
            print(f"{self._name} ended and is started again: {error}")
            self.restarts += 1
            self.query = self._start()

    def drain(self) -> None:
        """Read all there is, and stop."""
        for _ in range(3):
            try:
                self.keep_up()
                self.query.processAllAvailable()
                break
            except StreamingQueryException as error:
                print(f"{self._name}: {error}")
        self.query.stop()
        assert self.query.exception() is None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = {"min.insync.replicas": 2, "default.replication.factor": 3, "num.partitions": PARTITIONS}
    with EmbeddedCluster(3, tmp_path / "data", process=True, config=config) as embedded:
        admin = AdminClient({"bootstrap.servers": embedded.bootstrap_servers})
        for topic in ("in", "out"):
            admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(60)
        embedded.wait_in_sync()
        yield embedded
    check_files(tmp_path / "data")


def committed(spark: SparkSession, servers: str, topic: str) -> list[bytes]:
    reader = spark.read.format("kafka_once").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    rows = reader.option("kafka.isolation.level", "read_committed").load().select("value").collect()
    return [bytes(row.value) for row in rows]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kills", "every_s"), [(1, 0.0), pytest.param(12, BETWEEN_KILLS_S, marks=pytest.mark.soak)], ids=["quick", "soak"]
)
def test_each_record_once_while_brokers_die(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, kills: int, every_s: float
) -> None:
    seed = uuid.uuid4().int
    print(f"seed {seed}")
    chance, servers = random.Random(seed), cluster.bootstrap_servers
    table = tmp_path / "table"
    to_delta = {"format": "delta_once", "offsetStore": f"delta:{table}", "path": str(table)}
    to_topic = {"format": "kafka_once", "offsetStore": "group:copy", "topic": "out", "kafka.bootstrap.servers": servers}
    writer = Writer(servers, "in")
    pipelines = [
        Pipeline(spark, servers, name, tmp_path, sink) for name, sink in (("rows", to_delta), ("copy", to_topic))
    ]
    try:
        for _ in range(kills):
            writer.wait_for_more(RECORDS_A_SECOND)
            victim = chance.choice(sorted(cluster.brokers))
            cluster.kill(victim)
            writer.wait_for_more(RECORDS_A_SECOND)
            threading.Event().wait(every_s / 2)
            cluster.restart(victim)
            cluster.wait_in_sync()
            threading.Event().wait(every_s / 2)
            for each in pipelines:
                each.keep_up()
    finally:
        sent = writer.finish()
    for each in pipelines:
        each.drain()
    expected = Counter(sent)
    in_table: Counter[bytes] = Counter(DeltaTable(table).to_pyarrow_table(columns=["value"])["value"].to_pylist())
    in_topic: Counter[bytes] = Counter(committed(spark, servers, "out"))
    print(f"sent={len(sent)} kills={kills} restarts={[each.restarts for each in pipelines]}")
    for found in (in_table, in_topic):
        lost, doubled = (expected - found).total(), (found - expected).total()
        assert (lost, doubled) == (0, 0)
