"""`read_stream`: the reader of ``kafka_once`` for rows that go into one table, which is said once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from sparkonce.connectors.catalogs.names import TableName
from sparkonce.connectors.catalogs.tables import find_table
from sparkonce.connectors.direct.plan import INTO
from sparkonce.offset_store import DELTA
from sparkonce.options import KAFKA_FORMAT, OptionError

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamReader


def is_path(table: str) -> bool:
    """Whether a table is named by its path or URI, and not by its name in a catalog."""
    return "/" in table and "`" not in table


def read_stream(
    spark: SparkSession,
    topics: str | Sequence[str] | None = None,
    *,
    table: str,
    app_id: str,
    topic_pattern: str | None = None,
) -> DataStreamReader:
    """Return a reader of the source ``kafka_once`` for a query that writes ``table``.

    The source wants to know the table because its log has the Kafka offsets up to which it holds the records: without
    a checkpoint, the query begins there. ``table`` is a path or URI, which has a ``/``, or a table's name, and
    ``app_id`` names the query in it. ``write_stream(rows).start()`` takes both from here, but not with Spark Connect,
    where the plan is on the server. ``topics`` are names; ``topic_pattern`` is a Java regular expression in their
    place.

    Example:
        >>> orders = (
        ...     read_stream(spark, "orders", table="/data/orders", app_id="orders")
        ...     .option("kafka.bootstrap.servers", "localhost:9092")
        ...     .load()
        ... )  # doctest: +SKIP

    Raises:
        OptionError: for neither or both of ``topics`` and ``topic_pattern``, or a name that is not a Delta table's.
    """
    if (topics is None) == (topic_pattern is None):
        raise OptionError(f"{KAFKA_FORMAT}: read_stream reads topics, or those of a topic_pattern: give one of the two")
    reader = spark.readStream.format(KAFKA_FORMAT).option("appId", app_id).option(INTO, table)
    if topics is not None:
        reader = reader.option("subscribe", topics if isinstance(topics, str) else ",".join(topics))
    elif topic_pattern is not None:
        reader = reader.option("subscribePattern", topic_pattern)
    # A named table that does not exist yet has no offsets either, and is found at the next start.
    path = table if is_path(table) else find_table(spark, TableName.parse(table))
    return reader if path is None else reader.option("offsetStore", f"{DELTA}{path}")
