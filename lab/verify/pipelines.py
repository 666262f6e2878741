"""The pipelines that are made to fail: a topic into a Delta table or another topic, in three small batches.

The session's process runs this module; the engine sends a `Pipeline` as JSON, from which the session builds
the query.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lab.verify.cells import RecordPath, Result
from lab.verify.records import (
    DOCUMENT_FIELD,
    PARTITIONS,
    REJECTED_EVERY,
    make,
    make_documents,
    make_evolving,
)
from sparkonce.exactly_once.guarantee import Guarantee

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder, DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from sparkonce.connectors.ingest.ingestion import Ingestion

COLUMNS = ("key", "value", "partition", "offset")
DATABASE_COLUMNS = ("partition", "offset", "key", "value")
RANGE_COLUMN = "kafka_once_range"
"""The columns that the source passes on the direct path."""
COUNT_COLUMN = "n"
"""In a merged table: how often the record with this partition and offset was merged."""


@dataclass(frozen=True, slots=True)
class Locations:
    """The locations of a query: its input, its table and its checkpoint."""

    app_id: str
    bootstrap_servers: str
    topic: str
    folder: str
    stored_in: str = field(default="", kw_only=True)
    """The URI of the folder of table and checkpoint, if not `folder`."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)
    """The options with which delta-rs reaches it."""
    checkpoint_name: str = field(default="checkpoint", kw_only=True)
    """The folder of the checkpoint: a second driver has one of its own."""

    @property
    def table(self) -> str:
        """The table of the rows, if any: a path or a URI that ends in the cell's name."""
        home = (self.stored_in or self.folder).rstrip("/")
        return f"{home}/{home.rpartition('/')[2]}"

    @property
    def database(self) -> Path:
        """The database of the rows, if any."""
        return Path(self.folder) / "result.db"

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint: a path or a URI."""
        return f"{self.stored_in or self.folder}/{self.checkpoint_name}"

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """Each table of the rows, and the appId of its offsets."""
        return ((self.table, self.app_id),)

    @property
    def query_options(self) -> dict[str, str]:
        """Options with which source and sink reach the store."""
        return {f"storage.{name}": value for name, value in self.storage_options.items()}


@dataclass(frozen=True, slots=True)
class Pipeline(Locations):
    """One query: it reads from the stored or earliest offsets to the current end, then it ends."""

    guarantee: str
    result: str
    records_per_batch: int
    transaction_timeout_ms: int | None = None
    """`kafka.transaction.timeout.ms` of the sink, if not the default."""
    path: str = field(default=RecordPath.SPARK.value, kw_only=True)
    """The value of a `RecordPath`."""
    registry: str = field(default="", kw_only=True)
    """The schema registry of its values, if it decodes Avro."""
    features: str = field(default="", kw_only=True)
    """The value of a `Features`, if its table has any."""
    topics: int = field(default=1, kw_only=True)
    """The number of its topics; several have a table each."""
    is_ingested: bool = field(default=False, kw_only=True)
    """Whether `sparkonce.ingest` runs it, and looks after its tables."""

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The names of its topics."""
        return (self.topic,) if self.topics == 1 else tuple(f"{self.topic}-{index}" for index in range(self.topics))

    @property
    def path_option(self) -> str:
        """The table, or the tables of all topics."""
        return self.table if self.topics == 1 else f"{self.table}/{{topic}}"

    @property
    def tables(self) -> tuple[tuple[str, str], ...]:
        """See `Locations`."""
        if self.topics == 1:
            return ((self.table, self.app_id),)
        return tuple((f"{self.table}/{topic}", f"{self.app_id}.{topic}") for topic in self.subscribed)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table to which rows are appended."""
        return (*COLUMNS, "topic") if self.features else COLUMNS

    @property
    def output_topic(self) -> str | None:
        """The topic of rows, or of rejected ones; None if all go to the table."""
        return {Result.TOPIC: f"{self.topic}-copies", Result.DEAD_LETTERS: f"{self.topic}-dead"}.get(
            Result(self.result)
        )

    @property
    def tasks(self) -> int:
        """The minimal number of tasks per batch.

        Several transactions end one after the other. Without transactions one task does all the work: with two it would
        be random whether the other one has sent its rows when the first is hit.
        """
        return PARTITIONS if Guarantee(self.guarantee) is Guarantee.EXACTLY_ONCE and self.output_topic else 1

    @property
    def is_direct(self) -> bool:
        """Whether the sink reads the records."""
        return RecordPath(self.path) is RecordPath.DIRECT

    def records(self, numbers: Sequence[int]) -> list[tuple[int, bytes, bytes]]:
        """Return partition, key and value of the records for a topic.

        On the direct path no rule of Spark's can reject records: those to be rejected do not parse.
        """
        if not (self.is_direct and Result(self.result) is Result.DEAD_LETTERS):
            return make(numbers)
        if not self.registry:
            return make_documents(numbers)
        # Only with exactly-once does the dead-letter topic show which version has found them.
        return make_evolving(numbers, ambiguous=Guarantee(self.guarantee) is Guarantee.EXACTLY_ONCE)


def start(spark: SparkSession, pipeline: Pipeline) -> StreamingQuery | Ingestion:
    """Start the query, which ends by itself."""
    if pipeline.is_ingested:
        return _ingestion(spark, pipeline)
    build = _BUILDERS[Result(pipeline.result)]
    return build(spark, pipeline).option("checkpointLocation", pipeline.checkpoint).trigger(availableNow=True).start()


def _ingestion(spark: SparkSession, pipeline: Pipeline) -> Ingestion:
    from sparkonce.connectors.ingest.ingest import ingest

    return ingest(
        spark,
        app_id=pipeline.app_id,
        checkpoint=pipeline.checkpoint,
        kafka={"bootstrap.servers": pipeline.bootstrap_servers},
        trigger="availableNow",
        storage=pipeline.storage_options,
        topics=pipeline.subscribed,
        path=pipeline.path_option,
        columns=pipeline.columns,
        source={"maxOffsetsPerTrigger": str(pipeline.records_per_batch * pipeline.topics)},
    )


def _records(spark: SparkSession, pipeline: Pipeline, offset_store: str | None, **options: str) -> DataFrame:
    reader = (
        spark.readStream.format("kafka_once")
        .option("kafka.bootstrap.servers", pipeline.bootstrap_servers)
        .option("subscribe", ",".join(pipeline.subscribed))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(pipeline.records_per_batch * pipeline.topics))
        .option("appId", pipeline.app_id)
        .options(**pipeline.query_options)
        .options(**options)
    )
    if offset_store is not None:
        reader = reader.option("offsetStore", offset_store)
    return (reader.option("minPartitions", str(pipeline.tasks)) if pipeline.tasks > 1 else reader).load()


def _ranges(
    spark: SparkSession, pipeline: Pipeline, offset_store: str, columns: Sequence[str], **options: str
) -> DataFrame:
    """Return the ranges from which the sink reads these columns itself.

    Raises:
        ValueError: if they contain anything else, so that Spark would pass records.
    """
    named = ",".join(columns)
    ranges = _records(spark, pipeline, offset_store, handOver="ranges", columns=named, **options)
    if ranges.columns != [RANGE_COLUMN]:
        raise ValueError(f"the source hands over {ranges.columns}, and not ranges alone")
    return ranges


def read(spark: SparkSession, pipeline: Pipeline, offset_store: str | None, columns: Sequence[str]) -> DataFrame:
    """Return these columns of the topic's records, or the ranges of records on the direct path."""
    if pipeline.is_direct and offset_store is not None:
        return _ranges(spark, pipeline, offset_store, columns)
    return _records(spark, pipeline, offset_store).select(*columns)


def _appending(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    return into_table(read(spark, pipeline, f"delta:{pipeline.path_option}", pipeline.columns), pipeline)


def into_table(rows: DataFrame, pipeline: Pipeline) -> DataStreamWriter:
    """Write rows by `delta_once`."""
    return (
        rows.writeStream.format("delta_once")
        .option("path", pipeline.path_option)
        .option("appId", pipeline.app_id)
        .options(**pipeline.query_options)
        .option("deliveryGuarantee", pipeline.guarantee)
    )


def _sending(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    return into_topic(read(spark, pipeline, f"group:{pipeline.app_id}", ("key", "value")), pipeline)


def into_topic(rows: DataFrame, pipeline: Pipeline) -> DataStreamWriter:
    """Write rows by `kafka_once`."""
    writer = (
        rows.writeStream.format("kafka_once")
        .option("topic", pipeline.output_topic)
        .option("appId", pipeline.app_id)
        .options(**pipeline.query_options)
        .option("deliveryGuarantee", pipeline.guarantee)
    )
    return _with_kafka(writer, pipeline)


def _with_kafka(writer: DataStreamWriter, pipeline: Pipeline) -> DataStreamWriter:
    writer = writer.option("kafka.bootstrap.servers", pipeline.bootstrap_servers)
    if pipeline.transaction_timeout_ms is None:
        return writer
    return writer.option("kafka.transaction.timeout.ms", str(pipeline.transaction_timeout_ms))


def _leaving_dead_letters(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    writer = into_table((_unparsed if pipeline.is_direct else _marked)(spark, pipeline), pipeline)
    writer = writer.option("mergeSchema", "true").option("deadLetters", f"topic:{pipeline.output_topic}")
    return _with_kafka(writer, pipeline)


def _unparsed(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    options = {"valueFormat": "json", "valueSchema": f"{DOCUMENT_FIELD} BIGINT"}
    if pipeline.registry:
        retries = {"schemaRegistry.max.retries": "20"}  # it may be down for a moment
        follows = {"schemaEvolution": "add-columns", "schemaRegistry.url": pipeline.registry}
        options = {"valueFormat": "avro", **follows, **retries}
    return _ranges(spark, pipeline, f"delta:{pipeline.path_option}", COLUMNS, includeDeadLetters="true", **options)


def _marked(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    from pyspark.sql import functions

    from sparkonce.connectors.sinks.dead_letters import mark
    from sparkonce.connectors.values.letters import COLUMN

    records = _records(spark, pipeline, f"delta:{pipeline.table}")
    number = functions.substring_index(functions.col("value").cast("string"), " ", -1).cast("int")
    marked = mark(records, rules={"its number can be divided": number % REJECTED_EVERY == 0})
    return marked.select(*COLUMNS, COLUMN)


def _merging(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    from sparkonce.connectors.delta_spark.merge import MergeWriter

    writer = MergeWriter(
        pipeline.table,
        pipeline.app_id,
        pipeline.checkpoint,
        merge=_count,
        guarantee=pipeline.guarantee,
        storage_options=pipeline.storage_options,
    )
    records = _records(spark, pipeline, writer.offset_store).selectExpr(*COLUMNS, f"1 AS {COUNT_COLUMN}")
    return records.writeStream.foreachBatch(writer)


def _appending_by_delta_spark(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    from sparkonce.connectors.delta_spark.append import AppendWriter

    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{pipeline.table}` (key BINARY, value BINARY, partition INT, offset BIGINT, "
        "next BIGINT GENERATED ALWAYS AS (offset + 1)) USING delta CLUSTER BY (offset)"
    )
    writer = AppendWriter(
        pipeline.table,
        pipeline.app_id,
        pipeline.checkpoint,
        guarantee=pipeline.guarantee,
        storage_options=pipeline.storage_options,
    )
    records = _records(spark, pipeline, writer.offset_store).select(*COLUMNS)
    return records.writeStream.foreachBatch(writer)


def _count(target: DeltaTable, rows: DataFrame) -> DeltaMergeBuilder:
    """Insert a new record, and count a known one, so that duplicates are visible."""
    same = "t.partition = s.partition AND t.offset = s.offset"
    again = {COUNT_COLUMN: f"t.{COUNT_COLUMN} + s.{COUNT_COLUMN}"}
    merge = target.alias("t").merge(rows.alias("s"), same)
    return merge.whenMatchedUpdate(set=again).whenNotMatchedInsertAll()


def _inserting(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    """Store the offsets beside the rows for exactly-once, otherwise in a separate database."""
    from sparkonce.connectors.sinks.foreach import SqlResult
    from sparkonce.exactly_once.foreach_batch import ForeachBatch

    guarantee = Guarantee(pipeline.guarantee)
    with closing(sqlite3.connect(pipeline.database)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS records (partition INT, offset INT, key BLOB, value BLOB)")
        connection.commit()
    result = SqlResult(lambda: sqlite3.connect(pipeline.database), pipeline.app_id, _insert)
    apart = SqlResult(lambda: sqlite3.connect(Path(pipeline.folder) / "offsets.db"), pipeline.app_id, _insert)
    offsets = None if guarantee is Guarantee.EXACTLY_ONCE else apart
    writer = ForeachBatch(
        result, pipeline.checkpoint, pipeline.app_id, guarantee, offsets, storage_options=pipeline.storage_options
    )
    return _records(spark, pipeline, None).select(*DATABASE_COLUMNS).writeStream.foreachBatch(writer)


def _insert(connection: sqlite3.Connection, rows: DataFrame) -> None:
    connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", [tuple(row) for row in rows.collect()])


_BUILDERS = {
    Result.APPEND: _appending,
    Result.MERGE: _merging,
    Result.APPEND_WRITER: _appending_by_delta_spark,
    Result.FOREACH_BATCH: _inserting,
    Result.TOPIC: _sending,
    Result.DEAD_LETTERS: _leaving_dead_letters,
}
