"""What may be done to a direct query that its own tests do not do: switched, doubled, written elsewhere, spied on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from lab.crash_plans import arm, disarm
from sparkonce import EmbeddedBroker, write_stream
from tests.parity.support import Cluster
from tests.spark.sink_support import run

pytestmark = pytest.mark.spark

DEADLINE_S = 120
RANGES = {"handOver": "ranges"}


class World:
    """One topic, and one query from it into one table."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path, crash_folder: Path) -> None:
        self.spark, self.cluster, self.crash_folder = spark, cluster, crash_folder
        self.topic = cluster.create(2)
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"

    def send(self, first: int, count: int) -> None:
        self.cluster.send(self.topic, range(first, first + count))

    def stream(self, form: str = "kafka_once", **options: Any) -> DataFrame:
        given = self.cluster.source_options(subscribe=self.topic, startingOffsets="earliest", **options)
        return self.spark.readStream.format(form).options(**given).load()

    def run(self, rows: DataFrame, **options: object) -> None:
        run(rows, self.table, self.checkpoint, **options)

    def crash(self, rows: DataFrame, at: str = "sink.before_commit", **options: object) -> None:
        """Run until a point, before which all is written and nothing committed, and stop there."""
        arm(self.crash_folder, self.topic, f"{at}=raise")
        try:
            with pytest.raises(StreamingQueryException, match="injected failure"):
                self.run(rows, **options)
        finally:
            disarm(self.crash_folder, self.topic)

    def refused(self, rows: DataFrame, match: str, **options: object) -> None:
        before = self.values()
        with pytest.raises(StreamingQueryException, match=match):
            self.run(rows, **options)
        assert self.values() == before

    def values(self) -> list[int]:
        if not DeltaTable.is_deltatable(str(self.table)):
            return []
        return sorted(map(int, DeltaTable(self.table).to_pyarrow_table()["value"].to_pylist()))

    def batches(self) -> int:
        return len([each for each in (self.checkpoint / "commits").iterdir() if each.name.isdigit()])


@pytest.fixture
def world(spark: SparkSession, kafka: Any, tmp_path: Path, crash_folder: Path) -> World:
    return World(spark, Cluster(kafka.bootstrap_servers), tmp_path, crash_folder)


def test_handing_over_may_be_switched_between_two_runs(world: World) -> None:
    """From rows to ranges with an unfinished batch, and without anything new; back only when the batch is complete."""
    world.send(0, 10)
    world.crash(world.stream())
    world.run(world.stream(**RANGES))
    assert (world.values(), world.batches()) == (list(range(10)), 1)
    world.run(world.stream())
    world.run(world.stream(**RANGES))
    assert world.batches() == 1
    world.send(10, 10)
    (world.crash_folder / f"{world.topic}.fired").unlink()
    world.crash(world.stream(**RANGES))
    world.refused(world.stream(), "planned with handOver=ranges.*complete this batch with handOver=ranges first")
    world.run(world.stream(**RANGES))
    world.send(20, 10)
    world.run(world.stream())
    assert (world.values(), world.batches()) == (list(range(30)), 3)


def test_a_batch_of_sparks_own_connector_is_completed_with_rows_first(
    jvm_kafka_spark: SparkSession, world: World
) -> None:
    """Its lines in the checkpoint say nothing to a sink of what the batch covers."""
    world.send(0, 10)
    world.crash(world.stream("kafka"))
    at = {"checkpointLocation": str(world.checkpoint)}
    world.refused(
        world.stream(**at, **RANGES), "planned by another source.*complete the batch with handOver=rows first"
    )
    world.run(world.stream(**at))
    world.send(10, 10)
    world.run(world.stream(**RANGES))
    assert world.values() == list(range(20))


@pytest.mark.parametrize("lost_checkpoint", [pytest.param(False, marks=pytest.mark.lab), True])
def test_rows_are_made_as_the_dead_letters_of_their_batch_were(world: World, lost_checkpoint: bool) -> None:
    """Another SELECT between the two commits would put a record into both places, or into neither."""
    world.send(0, 10)
    letters = world.table.with_name("letters")

    def selecting(parity: int) -> dict[str, object]:
        text = "CAST(value AS STRING)"
        kept = f"CAST(CASE WHEN CAST({text} AS INT) % 2 = {parity} THEN {text} ELSE 'odd' END AS INT)"
        return {"sql": f"SELECT {kept} AS value FROM records", "deadLetters": f"table:{letters}"}

    def rows() -> DataFrame:
        return world.stream(**RANGES, includeDeadLetters="true", offsetStore=f"delta:{world.table}", appId="app")

    world.crash(rows(), "sink.between_targets", **selecting(0))
    if lost_checkpoint:
        world.checkpoint = world.checkpoint.with_name("another")
        world.send(10, 2)
    world.refused(rows(), "its dead letters are written, found by another sql", **selecting(1))
    world.run(rows(), **selecting(0))
    count = 12 if lost_checkpoint else 10
    odd = [int(each) for each in DeltaTable(letters).to_pyarrow_table()["value"].to_pylist()]
    assert (world.values(), sorted(odd)) == (list(range(0, count, 2)), list(range(1, count, 2)))
    world.send(count, 2)
    world.run(rows(), **selecting(1))
    assert len(world.values()) == count // 2 + 1


def test_rows_that_break_a_constraint_are_dead_letters_by_the_constraints_that_their_batch_began_with(
    world: World,
) -> None:
    """A constraint that comes or goes between the two commits would put a record into both places, or into neither."""
    world.send(0, 10)
    letters = world.table.with_name("letters")
    given = {
        "sql": "SELECT CAST(CAST(value AS STRING) AS INT) AS value FROM records",
        "deadLetters": f"table:{letters}",
    }
    table = DeltaTable.create(world.table, pa.schema([("value", pa.int32())]))
    table.alter.add_constraint({"even": "value % 2 = 0"})

    def rows() -> DataFrame:
        return world.stream(**RANGES, includeDeadLetters="true")

    def dead() -> dict[int, str]:
        found = DeltaTable(letters).to_pyarrow_table().to_pylist()
        return {int(each["value"]): each["reason"] for each in found}

    world.crash(rows(), "sink.between_targets", **given)
    assert (world.values(), sorted(dead())) == ([], [1, 3, 5, 7, 9])
    table.alter.drop_constraint("even")
    world.refused(rows(), "by a constraint that the table no longer has", **given)
    table.alter.add_constraint({"even": "value % 2 = 0", "small": "value < 8"})
    world.refused(rows(), r"the check constraint small \(value < 8\) is not kept", **given)
    table.alter.drop_constraint("small")
    table.alter.add_constraint({"small": "value < 11"})
    world.run(rows(), **given)
    assert (world.values(), sorted(dead())) == ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    world.send(10, 3)
    world.run(rows(), **given)
    assert world.values() == [0, 2, 4, 6, 8, 10]
    assert dead()[11] == "the check constraint even (value % 2 = 0) is not kept"
    assert dead()[12] == "the check constraint small (value < 11) is not kept"


def test_two_sources_cannot_be_united(world: World) -> None:
    """Neither twice the same, which would double each row, nor two of two names, of which the sink could read one."""
    world.send(0, 10)
    same = world.stream(**RANGES).union(world.stream(**RANGES))
    world.refused(same, "tasks were told to read")
    other = world.stream(**RANGES, source="other")
    world.checkpoint = world.checkpoint.with_name("another")
    world.refused(world.stream(**RANGES).union(other), "a range of another source")


def test_a_function_of_foreach_batch_cannot_write_ranges_as_rows(world: World) -> None:
    """Offsets would go on, and the table would have texts in place of records."""
    world.send(0, 10)

    def write(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("delta_once").mode("append").save(str(world.table))

    writer = world.stream(**RANGES).writeStream.foreachBatch(write).option("checkpointLocation", str(world.checkpoint))
    with pytest.raises(StreamingQueryException, match="delta_once: the source has handOver=ranges"):
        writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    assert world.values() == []


SECRET = "s3cr3t-pl4nted"
LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
SASL = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": LOGIN}


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Write all events of the block to a file, as spark.eventLog.enabled does."""
    folder.mkdir()
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc.sc()
    assert jvm is not None
    conf = context.getConf().set("spark.eventLog.compress", "false")
    where = jvm.java.net.URI(folder.as_uri())
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app", jvm.scala.Option.empty(), where, conf, context.hadoopConfiguration()
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield
        context.listenerBus().waitUntilEmpty()
    finally:
        context.removeSparkListener(listener)
        listener.stop()


def test_a_password_is_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    """Not in the plans, the UI, the event log, the checkpoint, the table; nor in the message if it is missing."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN.replace(";", f' user_u="{SECRET}";'),
    }
    with EmbeddedBroker(config=config) as broker, event_log(spark, tmp_path / "events"):
        cluster = Cluster(broker.bootstrap_servers)
        topic = cluster.create()
        cluster.send(topic, [1, 2])
        given = {**SASL, **RANGES, "subscribe": topic, "startingOffsets": "earliest"}
        given["kafka.bootstrap.servers"] = broker.listeners["SASL_PLAINTEXT"]
        rows = spark.readStream.format("kafka_once").options(**given).load()
        with pytest.raises(StreamingQueryException, match=r"set source\.kafka\.sasl\.jaas\.config") as refused:
            run(rows, tmp_path / "table", tmp_path / "checkpoint")
        writer = write_stream(rows).format("delta_once").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("appId", "app").trigger(availableNow=True).start(str(tmp_path / "table"))
        assert query.awaitTermination(DEADLINE_S)
        explained = query._jsq.explainInternal(True)
    assert sorted(DeltaTable(tmp_path / "table").to_pyarrow_table()["value"].to_pylist()) == [b"1", b"2"]
    executions = spark._jsparkSession.sharedState().statusStore().executionsList().mkString("\n")
    texts = {"message": str(refused.value), "explain": explained, "rows": rows.schema.json(), "UI": executions}
    found = [name for name, text in texts.items() if SECRET in text]
    found += [str(path) for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []
    logged = "".join(path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    assert "SparkListenerSQLExecutionStart" in logged
