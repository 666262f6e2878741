"""The queries whose checkpoints are set back. The session's process runs this; the engine sends a `Setup` as JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.verify.pipelines import Locations
from lab.verify.records import PARTITIONS, REJECTED_EVERY
from lab.verify.setback.cells import Query, Sink, StateStore
from lab.verify.setback.due import BEGIN_S, JOIN_WITHIN_S, KEYS, REPEATED_AFTER, STEP_S, WINDOW_S

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder, DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

COLUMNS = ("key", "value")
COUNT_COLUMN = "n"
"""In a merged table: how often the row was merged; 1 where a row replaces another."""
_PROVIDERS = {
    StateStore.HDFS: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    StateStore.ROCKSDB: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_DEDUPLICATION_DELAY = "60 seconds"
"""Longer than the distance of a repeated record from the first one, so that neither is late."""


@dataclass(frozen=True, slots=True)
class Setup(Locations):
    """One run of one query: to the current end, then it ends."""

    query: str
    state: str
    sink: str
    records_per_batch: int
    files_per_batch: int
    starting_offsets: str = "earliest"
    batches_without_data: bool = True
    """Whether Spark may run a batch without data when the watermark has moved."""

    @property
    def files(self) -> Path:
        """The folder of a file source."""
        return Path(self.folder) / "files"

    @property
    def output_topic(self) -> str | None:
        """The topic of rows, or of rejected ones; None if there are none."""
        return f"{self.topic}-out" if Sink(self.sink) in (Sink.TOPIC, Sink.DEAD_LETTERS) else None

    @property
    def offset_store(self) -> str | None:
        """The source's option ``offsetStore``; None if it cannot read the result's offsets."""
        return {
            Sink.APPEND: f"delta:{self.table}",
            Sink.DEAD_LETTERS: f"delta:{self.table}",
            Sink.MERGE: f"delta:{self.table}/_sparkonce",
            Sink.APPEND_WRITER: f"delta:{self.table}/_sparkonce",
            Sink.TOPIC: f"group:{self.app_id}",
        }.get(Sink(self.sink))


def start(spark: SparkSession, setup: Setup) -> StreamingQuery:
    """Start the query, which ends by itself."""
    session = spark.newSession()  # its own settings: queries run side by side
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(setup.batches_without_data).lower())
    if (provider := _PROVIDERS.get(StateStore(setup.state))) is not None:
        session.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    query = Query(setup.query)
    writer = _SINKS[Sink(setup.sink)](_ROWS[query](session, setup), setup)
    if query is Query.WINDOW_UPDATE:
        writer = writer.outputMode("update")
    return writer.option("checkpointLocation", setup.checkpoint).trigger(availableNow=True).start()


# Rows.


def _records(spark: SparkSession, setup: Setup) -> DataFrame:
    """Return the records with their numbers and event times, marked if some are to be dead letters."""
    reader = (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", setup.bootstrap_servers)
        .option("subscribe", setup.topic)
        .option("startingOffsets", setup.starting_offsets)
        .option("maxOffsetsPerTrigger", str(setup.records_per_batch))
        .option("appId", setup.app_id)
    )
    if setup.offset_store is not None:
        reader = reader.option("offsetStore", setup.offset_store)
    if Sink(setup.sink) is Sink.TOPIC:
        reader = reader.option("minPartitions", str(PARTITIONS))
    records = reader.load()
    if Sink(setup.sink) is Sink.DEAD_LETTERS:
        from pyspark.sql import functions

        from sparkonce.connectors.sinks.dead_letters import mark

        number = functions.substring_index(functions.col("value").cast("string"), " ", -1).cast("int")
        records = mark(records, rules={"its number can be divided": number % REJECTED_EVERY == 0})
    numbered = records.selectExpr("*", "int(substring_index(string(value), ' ', -1)) AS number")
    return numbered.selectExpr("*", f"timestamp_seconds({BEGIN_S} + {STEP_S} * number) AS at")


def _as_rows(records: DataFrame, key: str = "concat('record ', number)", value: str = "''") -> DataFrame:
    from sparkonce.connectors.values.letters import COLUMN

    letters = [COLUMN] if COLUMN in records.columns else []
    return records.selectExpr(f"{key} AS key", f"{value} AS value", *letters)


def _stateless(spark: SparkSession, setup: Setup) -> DataFrame:
    return _as_rows(_records(spark, setup))


def _windows(spark: SparkSession, setup: Setup) -> DataFrame:
    from pyspark.sql import functions

    records = _records(spark, setup).withWatermark("at", "0 seconds")
    counts = records.groupBy(functions.window("at", f"{WINDOW_S} seconds")).count()
    return _as_rows(counts, "concat('window ', bigint(unix_timestamp(window.start)))", "string(count)")


def _deduplicated(spark: SparkSession, setup: Setup) -> DataFrame:
    records = _records(spark, setup).drop("at")
    first = f"IF(number % 3 = 2 AND number >= {REPEATED_AFTER}, number - {REPEATED_AFTER}, number)"
    same = records.selectExpr("*", f"{first} AS first")
    same = same.selectExpr("*", f"timestamp_seconds({BEGIN_S} + {STEP_S} * first) AS at")
    unique = same.withWatermark("at", _DEDUPLICATION_DELAY).dropDuplicates(["first", "at"])
    return _as_rows(unique, "concat('record ', first)")


def _joined(spark: SparkSession, setup: Setup) -> DataFrame:
    from pyspark.sql import functions

    records = _records(spark, setup).selectExpr("number", "number div 2 AS pair", "at")
    left = records.where("number % 2 = 0").withWatermark("at", "0 seconds").alias("l")
    right = records.where("number % 2 = 1 AND pair % 3 != 0").withWatermark("at", "0 seconds").alias("r")
    within = f"l.pair = r.pair AND r.at >= l.at AND r.at <= l.at + INTERVAL {JOIN_WITHIN_S} SECONDS"
    pairs = left.join(right, functions.expr(within), "leftOuter")
    return pairs.selectExpr("concat('pair ', l.pair) AS key", "IF(r.pair IS NULL, 'alone', 'match') AS value")


def _numbered(spark: SparkSession, setup: Setup) -> DataFrame:
    from pyspark.sql.streaming.state import GroupStateTimeout

    records = _records(spark, setup).selectExpr(f"number % {KEYS} AS key")
    return records.groupBy("key").applyInPandasWithState(
        _number, "key STRING, value STRING", "count INT", "append", GroupStateTimeout.NoTimeout
    )


def _number(key: tuple[Any], groups: Iterable[Any], state: Any) -> Iterator[Any]:
    """Count the records of a key, on from its state."""
    import pandas

    before = state.get[0] if state.exists else 0
    after = before + sum(len(group) for group in groups)
    state.update((after,))
    keys = [f"key {key[0]} number {ordinal}" for ordinal in range(before + 1, after + 1)]
    yield pandas.DataFrame({"key": keys, "value": [""] * len(keys)})


def _lines(spark: SparkSession, setup: Setup) -> DataFrame:
    reader = spark.readStream.format("text").option("maxFilesPerTrigger", str(setup.files_per_batch))
    return reader.load(str(setup.files)).selectExpr("concat('file ', value) AS key", "'' AS value")


def _united(spark: SparkSession, setup: Setup) -> DataFrame:
    return _stateless(spark, setup).unionByName(_lines(spark, setup))


_ROWS = {
    Query.STATELESS: _stateless,
    Query.WINDOW: _windows,
    Query.WINDOW_UPDATE: _windows,
    Query.DEDUPLICATED: _deduplicated,
    Query.JOIN: _joined,
    Query.STATE: _numbered,
    Query.UNION: _united,
    Query.FILES: _lines,
}

# Sinks.


def _appending(rows: DataFrame, setup: Setup) -> DataStreamWriter:
    return rows.writeStream.format("delta_once").option("path", setup.table).option("appId", setup.app_id)


def _with_dead_letters(rows: DataFrame, setup: Setup) -> DataStreamWriter:
    writer = _appending(rows, setup).option("kafka.bootstrap.servers", setup.bootstrap_servers)
    return writer.option("deadLetters", f"topic:{setup.output_topic}")


def _sending(rows: DataFrame, setup: Setup) -> DataStreamWriter:
    return (
        rows.writeStream.format("kafka_once")
        .option("kafka.bootstrap.servers", setup.bootstrap_servers)
        .option("topic", str(setup.output_topic))
        .option("appId", setup.app_id)
    )


def _merging(rows: DataFrame, setup: Setup) -> DataStreamWriter:
    from sparkonce.connectors.delta_spark.merge import MergeWriter

    merge = _replace if Query(setup.query) is Query.WINDOW_UPDATE else _count
    writer = MergeWriter(setup.table, setup.app_id, setup.checkpoint, merge=merge)
    return rows.selectExpr("*", f"1 AS {COUNT_COLUMN}").writeStream.foreachBatch(writer)


def _appending_by_delta_spark(rows: DataFrame, setup: Setup) -> DataStreamWriter:
    from sparkonce.connectors.delta_spark.append import AppendWriter

    return rows.writeStream.foreachBatch(AppendWriter(setup.table, setup.app_id, setup.checkpoint))


def _count(target: DeltaTable, rows: DataFrame) -> DeltaMergeBuilder:
    """Insert a new row, and count a known one, so that duplicates are visible."""
    merge = target.alias("t").merge(rows.alias("s"), "t.key = s.key AND t.value = s.value")
    return merge.whenMatchedUpdate(set={COUNT_COLUMN: f"t.{COUNT_COLUMN} + s.{COUNT_COLUMN}"}).whenNotMatchedInsertAll()


def _replace(target: DeltaTable, rows: DataFrame) -> DeltaMergeBuilder:
    merge = target.alias("t").merge(rows.alias("s"), "t.key = s.key")
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()


def _into_database(rows: DataFrame, setup: Setup) -> DataStreamWriter:
    from sparkonce.connectors.sinks.foreach import SqlResult
    from sparkonce.exactly_once.foreach_batch import ForeachBatch

    with closing(sqlite3.connect(setup.database)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS result (key TEXT, value TEXT)")
        connection.commit()
    result = SqlResult(lambda: sqlite3.connect(setup.database), setup.app_id, _insert)
    return rows.writeStream.foreachBatch(ForeachBatch(result, setup.checkpoint, setup.app_id))


def _insert(connection: sqlite3.Connection, rows: DataFrame) -> None:
    connection.executemany("INSERT INTO result VALUES (?, ?)", [tuple(row) for row in rows.collect()])


def _by_delta_spark(rows: DataFrame, setup: Setup) -> DataStreamWriter:
    return rows.writeStream.format("delta").option("path", setup.table)


_SINKS = {
    Sink.APPEND: _appending,
    Sink.MERGE: _merging,
    Sink.APPEND_WRITER: _appending_by_delta_spark,
    Sink.TOPIC: _sending,
    Sink.DEAD_LETTERS: _with_dead_letters,
    Sink.FOREACH_BATCH: _into_database,
    Sink.DELTA_SPARK: _by_delta_spark,
}
