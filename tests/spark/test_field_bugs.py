"""How others have lost or doubled records on the way from Kafka to a table: each as a test, on both of our paths.

`make test` takes one path, in turns; what both paths do at each crash point is the crash matrix's to find.

The issues are those of Iceberg's sink for Kafka Connect, Delta Lake, Paimon and kafka-delta-ingest.
docs/internals/field_bugs.md says what each was, and why the same cannot happen here.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from lab.crash_plans import arm, disarm, fired, release
from sparkonce import EmbeddedBroker, LagListener
from sparkonce.offset_store.txn_ids import OffsetTxn, parse_txn_id
from tests.parity.support import Cluster
from tests.spark.sink_support import start
from tests.unit.replaced.brokers import restorable

pytestmark = pytest.mark.spark

DEADLINE_S = 120
PARTITIONS = 2


class World:
    """One topic, and one query from it into one table, by one of the two paths."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path, crash_folder: Path, path: str) -> None:
        self.spark, self.cluster, self.folder, self.crash_folder, self.path = spark, cluster, folder, crash_folder, path
        self.topic = cluster.create(PARTITIONS)
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"
        self._armed = 0

    def send(self, first: int, count: int) -> None:
        """Write numbers to the partitions in turns."""
        self.cluster.send(self.topic, range(first, first + count))

    def stream(self, **options: Any) -> DataFrame:
        given = {"startingOffsets": "earliest", "columns": "value,partition,offset", "handOver": self.path, **options}
        chosen = {name: text for name, text in {"subscribe": self.topic, **given}.items() if text is not None}
        return self.spark.readStream.format("kafka_once").options(**self.cluster.source_options(**chosen)).load()

    def start(self, checkpoint: Path | None = None, **options: Any) -> StreamingQuery:
        return start(self.stream(**options), self.table, checkpoint or self.checkpoint)

    def run(self, checkpoint: Path | None = None, **options: Any) -> None:
        """Write what is there, to the end."""
        assert self.start(checkpoint, **options).awaitTermination(DEADLINE_S)

    def refused(self, match: str, checkpoint: Path | None = None, **options: Any) -> None:
        before = self.values()
        with pytest.raises(StreamingQueryException, match=match):
            self.run(checkpoint, **options)
        assert self.values() == before

    def crash(self, plan: str, message: str = "injected failure", **options: Any) -> None:
        """Run with a point armed, and see it stop the query."""
        name = self._arm(plan)
        try:
            with pytest.raises(StreamingQueryException, match=message):
                self.run(**options)
        finally:
            disarm(self.crash_folder, name)

    def _arm(self, plan: str) -> str:
        self._armed += 1
        name = f"{self.topic}-{self._armed}"
        self.armed = arm(self.crash_folder, name, plan)
        return name

    @contextmanager
    def held(self, plan: str, **options: Any) -> Iterator[StreamingQuery]:
        """Yield a query that stands still at a point; it goes on after the block."""
        name = self._arm(plan)
        query = self.start(**options)
        try:
            deadline = time.monotonic() + DEADLINE_S
            while fired(self.armed) is None:
                assert time.monotonic() < deadline, f"{plan} has not fired"
                assert query.isActive, query.exception()
                query.awaitTermination(0.02)  # type: ignore[arg-type]
            disarm(self.crash_folder, name)
            yield query
        finally:
            release(self.armed)

    def values(self) -> list[int]:
        """Return the numbers in the table."""
        if not (self.table / "_delta_log").is_dir():
            return []
        return sorted(map(int, DeltaTable(self.table).to_pyarrow_table()["value"].to_pylist()))

    def commits(self) -> list[list[dict[str, Any]]]:
        """Return the actions of each commit."""
        logs = sorted((self.table / "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]

    def assert_once(self, count: int) -> None:
        """Check that numbers up to ``count`` are there once each, and that no file was added twice."""
        assert self.values() == list(range(count))
        added = Counter(action["add"]["path"] for commit in self.commits() for action in commit if "add" in action)
        assert added
        assert set(added.values()) == {1}


PATHS = ("rows", "ranges")


def first(path: str) -> pytest.MarkDecorator:
    """Take one path in `make test`, and the other in `make lab`."""
    (other,) = set(PATHS) - {path}
    return pytest.mark.parametrize("world", [path, pytest.param(other, marks=pytest.mark.lab)], indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, spark: SparkSession, kafka: Any, tmp_path: Path, crash_folder: Path) -> World:
    return World(spark, Cluster(kafka.bootstrap_servers), tmp_path, crash_folder, request.param)


@first("rows")
def test_iceberg_16282_a_file_is_not_committed_again_after_a_recovery(world: World) -> None:
    """A coordinator committed a file and died before it had stored how far it was; the next one committed it again.

    Here the offsets are in the commit that has the files. So a driver that dies right after it finds its batch in the
    table when it comes back, and adds nothing.
    """
    world.send(0, 20)
    world.crash("sink.after_commit@0=raise")
    version = DeltaTable(world.table).version()
    world.run()
    assert DeltaTable(world.table).version() == version
    world.send(20, 20)
    world.run()
    world.assert_once(40)


@first("ranges")
def test_iceberg_17637_two_coordinators_after_a_rebalance(world: World) -> None:
    """A rebalance left two coordinators, and each of them committed the same files.

    Two drivers with one appId may run at the same time. The one that was paused before its commit finds that the table
    is ahead of it, and adds nothing.
    """
    world.send(0, 20)
    world.run()
    world.send(20, 20)
    with LagListener(world.spark).start(port=None) as lag:
        with world.held("sink.before_commit@1=hold") as paused:
            other = world.folder / "other"
            world.run(other, offsetStore=f"delta:{world.table}", appId="app", maxOffsetsPerTrigger=10)
        with pytest.raises(StreamingQueryException, match=r"FencedError.*Another driver runs with the same appId"):
            paused.awaitTermination(DEADLINE_S)
        assert lag.wait(paused, DEADLINE_S)
        assert {query.query_id: query.fenced for query in lag.queries()}[paused.id]
    world.assert_once(40)
    world.send(40, 4)
    world.run(other)
    world.assert_once(44)


@first("ranges")
def test_iceberg_16016_a_failed_write_leaves_no_zombie(world: World) -> None:
    """When a write to S3 failed, the coordinator's thread stayed alive and went on committing beside its successor.

    Here a failed write ends the query, and the table never names what that attempt has written.
    """
    world.send(0, 20)
    world.crash("sink.file_written@0=disk-full", "No space left on device")
    assert world.values() == []
    world.run()
    world.send(20, 4)
    world.run()
    world.assert_once(24)


@first("rows")
def test_iceberg_17340_a_watermark_that_went_back(world: World) -> None:
    """After tasks were restarted, the stored position went back: 149 files were referenced twice, 111,927 rows doubled.

    Here Spark's checkpoint is the position, and it is put back to an older copy. The same batches are recognized and
    skipped; other batches over the same records are refused.
    """
    world.send(0, 10)
    world.run(maxOffsetsPerTrigger=10)
    old, older = world.folder / "old", world.folder / "older"
    shutil.copytree(world.checkpoint, old)
    shutil.copytree(world.checkpoint, older)
    world.send(10, 20)
    world.run(maxOffsetsPerTrigger=10)
    version = DeltaTable(world.table).version()
    world.run(old, maxOffsetsPerTrigger=10)
    assert DeltaTable(world.table).version() == version
    world.refused("OffsetMismatchError", older, maxOffsetsPerTrigger=20)
    world.send(30, 10)
    world.run(old, maxOffsetsPerTrigger=10)
    world.assert_once(40)


@first("rows")
def test_iceberg_17551_defaults_lose_nothing(world: World) -> None:
    """The record at the stored position had aged out, so the sink began at the latest one and lost all between.

    That is its default. Here a query without its checkpoint begins there, too. But the table knows where it should
    so its first batch is refused, and offsetStore reads on from there. Where the records aged out, the query stops.
    """
    world.send(0, 20)
    world.run()
    shutil.rmtree(world.checkpoint)
    world.send(20, 10)
    world.run(startingOffsets=None)
    world.send(30, 10)
    world.refused(r"records \[10, 15\) are in neither the table nor this batch", startingOffsets=None)
    stored = {"offsetStore": f"delta:{world.table}", "appId": "app", "startingOffsets": None}
    found = world.folder / "found"
    world.run(found, **stored)
    world.assert_once(40)
    world.send(40, 10)
    world.cluster.forget_records(world.topic, {0: 22})
    world.refused("DataLossError", found)
    world.assert_once(40)


@first("ranges")
def test_iceberg_15293_commits_go_on_with_a_new_cluster(world: World) -> None:
    """The Kafka cluster was made anew, with offsets from 0; files were written, and the sink dropped them silently.

    Its filter compared the new offsets with those of the old cluster. Here an offset belongs to a topic's id: the query
    stops and says so, or with failOnDataLoss=false goes on with the new topic, commit by commit.
    """
    world.send(0, 20)
    world.run()
    with EmbeddedBroker() as broker:
        world.cluster = Cluster(broker.bootstrap_servers)
        world.cluster.create(PARTITIONS, world.topic)
        world.send(20, 4)
        world.refused("was deleted and created again")
        for count in (24, 28):
            world.run(failOnDataLoss=False)
            world.assert_once(count)
            world.send(count, 4)


@first("ranges")
def test_delta_6314_the_end_of_a_batch_that_vanishes(world: World, tmp_path: Path) -> None:
    """The last commit of a planned batch was gone when it was read; the batch ended early, and the rest was skipped.

    Here the log ends before the planned end when the batch is read. The query stops; it does not take what is left for
    the whole. With failOnDataLoss=false it writes what is left, and reads the new records at the lost offsets.
    """
    with restorable("process", tmp_path / "broker") as broker:
        world.cluster = Cluster(broker.bootstrap_servers)
        world.cluster.create(PARTITIONS, world.topic)
        world.send(0, 20)
        broker.copy()
        world.send(900, 10)
        world.crash("source.split=raise")
        broker.put_back()
        world.cluster = Cluster(broker.bootstrap_servers)
        world.refused("DataLossError")
        world.run(failOnDataLoss=False)
        world.assert_once(20)
        world.send(20, 20)
        world.run(failOnDataLoss=False)
        world.assert_once(40)


@first("rows")
def test_delta_6338_commits_that_become_visible_late(world: World) -> None:
    """While a table was written, commits between two listings were skipped: of 100 values, four were lost on average.

    Here records become visible late when a transaction stays open. A query that runs all the time reads up to the
    first open one, and reads all of it when it is committed.
    """
    query = world.stream(**{"kafka.isolation.level": "read_committed"}).writeStream.format("delta_once")
    query = query.option("checkpointLocation", str(world.checkpoint)).option("appId", "app")
    running = query.trigger(processingTime="0 seconds").start(str(world.table))
    try:
        expected = _write_interleaved(world, 40)
        running.processAllAvailable()
    finally:
        running.stop()
    committed: dict[str, Any] = {"kafka.isolation.level": "read_committed"}
    world.run(**committed)
    assert world.values() == expected


def _write_interleaved(world: World, count: int) -> list[int]:
    """Write numbers in transactions, each open until the next but one was begun; every fourth is aborted."""
    writers = [_transactional(world) for _ in range(2)]
    expected, opened = [], [False, False]
    for number in range(count + len(writers)):
        turn = number % len(writers)
        if opened[turn]:
            earlier = number - len(writers)
            if earlier % 4 == 3:
                writers[turn].abort_transaction(DEADLINE_S)
            else:
                writers[turn].commit_transaction(DEADLINE_S)
                expected.append(earlier)
        opened[turn] = number < count
        if opened[turn]:
            writers[turn].begin_transaction()
            writers[turn].produce(world.topic, b"%d" % number, partition=number // 2 % PARTITIONS)
            assert writers[turn].flush(DEADLINE_S) == 0
    for partition in range(PARTITIONS):
        world.cluster.wait_for_end(world.topic, world.cluster.end(world.topic, partition), partition)
    return expected


def _transactional(world: World) -> Producer:
    settings = {"bootstrap.servers": world.cluster.bootstrap_servers, "transactional.id": world.cluster.name("writer")}
    producer = Producer(settings)
    producer.init_transactions(DEADLINE_S)
    return producer


@first("ranges")
def test_paimon_10105_a_replayed_batch_in_a_table(world: World) -> None:
    """A query that failed after the sink's commit, before Spark noted the batch, wrote the whole batch again.

    Here the state that such a failure leaves, no entry of the last batch in the checkpoint, is made by hand.
    """
    world.send(0, 20)
    world.run(maxOffsetsPerTrigger=10)
    _forget_last_commit(world.checkpoint)
    world.send(20, 10)
    world.run(maxOffsetsPerTrigger=10)
    world.assert_once(30)


@first("rows")
def test_paimon_10105_a_replayed_batch_in_a_topic(world: World) -> None:
    """The same into Kafka: Spark's own sink there writes a replayed batch again, too."""
    target = world.cluster.create(1)
    for first, count in ((0, 20), (20, 10)):
        world.send(first, count)
        writer = world.stream(columns="value").writeStream.format("kafka_once").option("topic", target)
        writer = writer.option("kafka.bootstrap.servers", world.cluster.bootstrap_servers).option("appId", world.topic)
        query = writer.option("checkpointLocation", str(world.checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        _forget_last_commit(world.checkpoint)
    read = world.cluster.batch(subscribe=target, **{"kafka.isolation.level": "read_committed"})
    assert sorted(int(row["value"]) for row in read) == list(range(30))


def _forget_last_commit(checkpoint: Path) -> None:
    last = max((each for each in (checkpoint / "commits").iterdir() if each.name.isdigit()), key=lambda e: int(e.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@first("ranges")
def test_kafka_delta_ingest_92_rows_and_txn_offsets_agree_in_every_commit(world: World) -> None:
    """A consumer that had not reached its starting offsets yet read from the earliest ones, and wrote that.

    Its remedy is a ``txn`` action for each partition, also of the starting offsets. Here each commit has the rows and
    the ``txn`` that follows from them, over crashes; and a query that begins elsewhere is refused.
    """
    world.send(0, 40)
    starting = json.dumps({world.topic: {"0": 5, "1": 10}})
    limited: dict[str, Any] = {"startingOffsets": starting, "maxOffsetsPerTrigger": 10}
    world.crash("sink.before_commit@0=raise", **limited)
    world.crash("sink.after_commit@1=raise", **limited)
    world.run(**limited)
    assert world.values() == sorted([*range(10, 40, 2), *range(21, 40, 2)])
    read = {0: 5, 1: 10}
    for commit in world.commits():
        read = _check_offsets(world, commit, read)
    assert read == {0: 20, 1: 20}
    world.send(40, 10)
    world.refused("OffsetMismatchError", world.folder / "again")


def _check_offsets(world: World, commit: list[dict[str, Any]], read: dict[int, int]) -> dict[int, int]:
    """Check one commit's transactions against its rows, and return how far the partitions are read after it."""
    files = [pq.ParquetFile(world.table / each["add"]["path"]).read() for each in commit if "add" in each]
    rows = sorted((row["partition"], row["offset"]) for file in files for row in file.to_pylist())
    moved = {partition: offset + 1 for partition, offset in rows}
    assert rows == [(partition, at) for partition in sorted(moved) for at in range(read[partition], moved[partition])]
    stored = {}
    for action in commit:
        found = parse_txn_id(action["txn"]["appId"]) if "txn" in action else None
        if isinstance(found, OffsetTxn):
            stored[found.partition.partition] = action["txn"]["version"]
    assert stored == moved
    return {**read, **moved}
