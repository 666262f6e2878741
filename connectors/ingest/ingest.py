"""`sparkonce.ingest`: topics into tables, without a query to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from pyspark.sql import SparkSession

from sparkonce.connectors.ingest.ingestion import Ingestion
from sparkonce.connectors.ingest.routing import routes
from sparkonce.connectors.ingest.settings import (
    DEFAULT_STOP_TIMEOUT_S,
    DEFAULT_TOPIC_INTERVAL_S,
    DEFAULT_TRIGGER,
    LOOPBACK,
    IngestSettings,
    IngestTable,
    TableEntries,
)
from sparkonce.connectors.lag.listener import LagListener
from sparkonce.options import OptionError


def ingest(
    spark: SparkSession,
    *,
    app_id: str,
    checkpoint: str,
    kafka: Mapping[str, str],
    tables: Sequence[IngestTable] = (),
    trigger: str = DEFAULT_TRIGGER,
    storage: Mapping[str, str] | None = None,
    schema_registry: Mapping[str, str] | None = None,
    metrics_port: int | None = None,
    metrics_address: str = LOOPBACK,
    topic_interval_s: float = DEFAULT_TOPIC_INTERVAL_S,
    stop_timeout_s: float = DEFAULT_STOP_TIMEOUT_S,
    **entries: Unpack[TableEntries],
) -> Ingestion:
    """Start queries that write Kafka topics into Delta tables, exactly once, and look after them.

    With one table, its entries are arguments; with several, each is an `IngestTable` in ``tables``, and the arguments
    are what those have that they do not set. docs/ingest_entries.md lists all of them, and the same entries in a file.

    Example:
        >>> with ingest(
        ...     spark,
        ...     app_id="shop",
        ...     checkpoint="/data/checkpoints/shop",
        ...     kafka={"bootstrap.servers": "localhost:9092"},
        ...     topic_pattern="^shop[.]",
        ...     path="/data/{topic}",
        ... ) as ingestion:
        ...     ingestion.awaitTermination()  # doctest: +SKIP

    Args:
        spark: the session; all queries share it and its workers.
        app_id: the name of the ingestion. Tables keep their offsets under it: never change it.
        checkpoint: the folder of the tables' checkpoints.
        kafka: settings of Kafka's clients, by Kafka's names, such as ``bootstrap.servers``.
        tables: several tables.
        trigger: an interval, ``availableNow`` or ``once``.
        storage: settings of the object store that tables and checkpoints are in.
        schema_registry: settings of the schema registry, such as ``url``.
        metrics_port: where Prometheus finds the lag; 0 takes any free port.
        metrics_address: the address of that port.
        topic_interval_s: how often new topics are looked for, in seconds.
        stop_timeout_s: how long a batch has to complete when the ingestion is stopped, in seconds.
        **entries: the fields of `IngestTable`, such as ``topics`` and ``path``.

    Raises:
        OptionError, SchemaError: for what cannot work; then no query runs.
        KafkaUnreachableError: if no broker answers.
    """
    settings = IngestSettings.of(
        IngestTable(**entries),
        tables,
        app_id=app_id,
        checkpoint=checkpoint,
        kafka=kafka,
        trigger=trigger,
        storage=storage or {},
        schema_registry=schema_registry or {},
        metrics_port=metrics_port,
        metrics_address=metrics_address,
        topic_interval_s=topic_interval_s,
        stop_timeout_s=stop_timeout_s,
    )
    return start_ingestion(spark, settings)


def start_ingestion(spark: SparkSession, settings: IngestSettings) -> Ingestion:
    """Start what the settings say.

    Raises:
        OptionError, SchemaError, KafkaUnreachableError: as `ingest`.
        OSError: if the port of the metrics is in use.
    """
    made = routes(settings)
    lag = None
    if hasattr(spark, "_jsparkSession"):  # listeners run in the driver's own Python, not with Spark Connect
        lag = LagListener(spark).start(settings.metrics_port, settings.metrics_address)
    elif settings.metrics_port is not None:
        raise OptionError("metrics_port cannot be combined with Spark Connect, whose listeners run on the server")
    return Ingestion(spark, settings, made, lag).start()
