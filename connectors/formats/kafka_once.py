"""The format ``kafka_once`` as PySpark sees it: a source and a sink, for streams and for batches.

Spark creates this object in every Python process of a query, before it requests a reader or a writer. So options are
read only then, as those of a source or of a sink, and what only a sink needs is imported then, since a worker that only
reads should not wait for it.
"""

from __future__ import annotations

import sparkonce.connectors.runtime.spark_version  # noqa: F401 - complains, before others fail, where Spark is too old

# isort: split

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sparkonce.connectors.kafka_source.hand_over import HandOver
from sparkonce.connectors.kafka_source.options import FORMAT, OPTIONS, SourceOptions
from sparkonce.connectors.kafka_source.source import KafkaOnceReader, KafkaOnceStreamReader
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.values.registered import columns_of_latest, resolved
from sparkonce.kafka.client.client import Client
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.options import OptionError
from sparkonce.shipping import Shipped


def _settled_group(client: Client, group_id: str, app_id: str) -> KafkaGroupOffsets:
    from sparkonce.connectors.kafka_sink.before_reading import settled_group

    return settled_group(client, group_id, app_id)


class KafkaOnceDataSource(DataSource, metaclass=Shipped):
    """Kafka topics as DataFrames and DataFrames as topics: ``readStream``, ``read``, ``writeStream`` and ``write``.

    Example:
        >>> flights = (
        ...     spark.readStream.format("kafka_once")
        ...     .option("kafka.bootstrap.servers", "localhost:9092")
        ...     .option("subscribe", "flights")
        ...     .load()
        ... )  # doctest: +SKIP
        >>> query = (
        ...     flights.select("key", "value").writeStream.format("kafka_once")
        ...     .option("kafka.bootstrap.servers", "localhost:9092")
        ...     .option("topic", "flights-copy")
        ...     .option("appId", "copy")
        ...     .option("checkpointLocation", "/tmp/copy")
        ...     .start()
        ... )  # doctest: +SKIP
    """

    _of_latest: tuple[str, ...] = ()
    """What is read as the version that was the latest when the query began: `value`, `key`, or both."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that are read: those of Spark's Kafka connector.

        Raises:
            OptionError: for options that cannot work.
        """
        self._of_latest = columns_of_latest(self.options)
        self.options = resolved(OPTIONS, self.options)  # Spark keeps this object for what follows
        return self._schema(self._source_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query.

        Raises:
            OptionError: for options that cannot work, or a schema of the user's own.
        """
        return KafkaOnceReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream.

        Raises:
            OptionError: for options that cannot work, or a schema of the user's own.
        """
        options = self._checked(schema)
        if options.rows.dead_letters and not options.hands_over_ranges and self._of_latest:
            chosen = " and ".join(f"{each}SchemaId={self.options[f'{each}SchemaId']}" for each in self._of_latest)
            raise OptionError(
                f"{FORMAT}: includeDeadLetters=true needs a schema that stays: after a crash between dead letters and "
                "rows, another version could find other dead letters. Set handOver=ranges, where the sink notes which "
                f"version it was, or {chosen}, the latest now"
            )
        hand_over = HandOver.of(self.options) if options.hands_over_ranges else None
        return KafkaOnceStreamReader(options, hand_over, _settled_group)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch.

        Raises:
            OptionError: for options or columns that cannot work, or the mode overwrite.
        """
        from sparkonce.connectors.direct.source import reject_ranges
        from sparkonce.connectors.kafka_sink.batch_writer import KafkaBatchWriter
        from sparkonce.connectors.kafka_sink.options import KafkaBatchOptions

        if overwrite:
            raise OptionError(f"{FORMAT}: mode overwrite would have to empty the topic first; use mode('append')")
        reject_ranges(FORMAT, schema)
        options = checked(KafkaBatchOptions.read, dict(self.options))
        return KafkaBatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802, ARG002
        """Return the writer of one batch of a stream; see `connectors.sinks.stream_sink` for when.

        As in Spark's own Kafka sink, the output modes append the rows of the batch; Spark itself refuses update.

        Raises:
            OptionError: for options or columns that cannot work.
            DeliveryError, OffsetStoreError: if the batch must not be written.
        """
        from sparkonce.connectors.direct.source import find_source
        from sparkonce.connectors.formats.kafka_writer import kafka_stream_sink
        from sparkonce.connectors.kafka_sink.options import KafkaSinkOptions
        from sparkonce.connectors.sinks.stream_sink import called_to_commit

        options = checked(KafkaSinkOptions.read, dict(self.options))
        sink = kafka_stream_sink(options, schema, find_source(FORMAT, schema, self.options))
        if not called_to_commit():
            sink.begin()
        return sink

    def _source_options(self) -> SourceOptions:
        return checked(SourceOptions.read, dict(self.options))

    def _schema(self, options: SourceOptions) -> StructType:
        return HandOver.of(self.options).schema() if options.hands_over_ranges else options.rows.spark_schema()

    def _checked(self, schema: StructType) -> SourceOptions:
        options = self._source_options()
        if schema != self._schema(options):
            raise OptionError(
                f"{FORMAT}: the columns are fixed (key, value, topic, …); leave out .schema(…) and convert the columns "
                "with DataFrame operations, e.g. from_json(CAST(value AS STRING), …), or have values decoded with the "
                "options valueFormat and valueSchema"
            )
        return options
