"""One query of an ingestion: started from its flow, and stopped between two batches.

The source's offset store is the table itself, once there is one: with its checkpoint gone, a query begins where the
table ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from sparkonce.connectors.catalogs.names import TableName
from sparkonce.connectors.catalogs.tables import find_or_create_table, find_table
from sparkonce.connectors.delta_sink.options import CREATE_TABLE, TABLE_NAME, SinkOptions
from sparkonce.connectors.formats.dead_letter_target import rows_schema
from sparkonce.connectors.formats.table_writer import write_stream
from sparkonce.connectors.ingest.routing import Flow, direct_source
from sparkonce.connectors.kafka_source.options import OPTIONS
from sparkonce.connectors.runtime.failures import is_behind
from sparkonce.connectors.values.evolution import SchemaChangedError
from sparkonce.connectors.values.options import VALUE
from sparkonce.connectors.values.registered import columns_of_latest, resolved
from sparkonce.offset_store.offsets import SourceOffset, is_ours
from sparkonce.options import KAFKA_FORMAT, OptionError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RECORDS = "records"
"""The table of a SELECT."""
_one_view = Lock()
"""Ingestions start queries in threads of their own, and one session has one view of a name."""
_WAITING = "Waiting for"
"""The beginning of Spark's status of an idle query: waiting for data, or for its next trigger."""


def start_query(spark: SparkSession, flow: Flow, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Start the query of a flow; ``trigger`` are the arguments of ``DataStreamWriter.trigger``.

    Raises:
        OptionError, SchemaError: for options, columns or a table that cannot work.
    """
    reader = spark.readStream.format(KAFKA_FORMAT).options(**flow.source)
    path = table_path_of(spark, flow)
    if path is not None:
        reader = reader.option("offsetStore", f"delta:{path}")
    rows = _selected(spark, reader.load(), flow.sql)
    if flow.transform is not None:
        rows = flow.transform(rows)
    writer = write_stream(rows).options(**flow.sink).queryName(flow.query_name).trigger(**trigger)
    return writer.start(flow.path) if flow.table is None else writer.toTable(flow.table)


def table_path_of(spark: SparkSession, flow: Flow) -> str | None:
    """Return where a flow's table is, or will be; None for a name not there yet. Raises OptionError for others."""
    return flow.path if flow.table is None else find_table(spark, TableName.parse(flow.table))


def made_table(spark: SparkSession, flow: Flow) -> str:
    """Return where the table of a direct flow is, which has a name in a catalog; it is created if there is none.

    Raises:
        OptionError, SchemaError: if the name is of something else, or the table cannot be created.
    """
    source = direct_source(flow, resolved(OPTIONS, flow.source))
    assert source is not None, "only direct queries write several tables"
    name = flow.table or ""
    partition_by = SinkOptions.read_with_name({**flow.sink, TABLE_NAME: name}).partition_by
    return find_or_create_table(spark, name, rows_schema(source.schema), partition_by)


def placed(shared: Flow, places: Mapping[str, str]) -> Flow:
    """Return a shared query of these tables, by topic."""
    chosen = {name: text for name, text in shared.source.items() if name != "subscribePattern"}
    return replace(
        shared,
        table=None,
        path=json.dumps(places),
        source={**chosen, "subscribe": ",".join(places)},
        sink={**shared.sink, CREATE_TABLE: "false"},
    )


def batch_of(query: StreamingQuery) -> int:
    """Return the number of the last batch that a query has reported, -1 before the first."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def ends_of(query: StreamingQuery) -> list[SourceOffset]:
    """Return where our sources stand after the last batch that a query has reported."""
    progress = query.lastProgress
    ends = [] if progress is None else [source["endOffset"] for source in progress["sources"]]
    return [SourceOffset.from_json(end) for end in ends if end and is_ours(end)]


def is_under_way(query: StreamingQuery) -> bool:
    """Whether a query has done its first batch, or found nothing to read; or has ended."""
    return not query.isActive or query.lastProgress is not None or query.status["message"].startswith(_WAITING)


def was_planned(query: StreamingQuery) -> bool:
    """Whether a query has planned a batch, or found nothing to read: brokers have answered it."""
    status = query.status
    return query.lastProgress is not None or status["isDataAvailable"] or status["message"].startswith(_WAITING)


def may_stop(query: StreamingQuery, batch: int) -> bool:
    """Whether a query is between batches, or has just completed one, since ``batch`` was reported a moment ago."""
    return not query.status["isTriggerActive"] or batch_of(query) != batch


def has_newer_schema(flow: Flow, error: BaseException) -> bool:
    """Return whether a query has ended only because its values have a newer schema, which it reads from the next start.

    One that is bound to a version by its options does not.
    """
    return is_behind(SchemaChangedError, error) and VALUE in columns_of_latest(flow.source)


def _selected(spark: SparkSession, rows: DataFrame, sql: str | None) -> DataFrame:
    """Let Spark run a SELECT over the rows, as a view named as its table. Raises OptionError if that view exists."""
    if sql is None:
        return rows
    with _one_view:
        if any(view.isTemporary and view.name == RECORDS for view in spark.catalog.listTables(pattern=RECORDS)):
            raise OptionError(
                f"sql reads the records as the table {RECORDS}, and the session has a temporary view of that name: "
                f"drop it (spark.catalog.dropTempView({RECORDS!r})), or use transform"
            )
        rows.createOrReplaceTempView(RECORDS)
        try:
            return spark.sql(sql)
        finally:
            spark.catalog.dropTempView(RECORDS)
