"""The format ``kafka_once`` as PySpark sees it.

Spark makes this object anew in every Python process that does something for a query, and says only afterwards what for.
So options are read when a reader is asked for.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from connectors.kafka_once.options import FORMAT, SourceOptions
from connectors.kafka_once.schema import spark_schema
from connectors.kafka_once.source import KafkaOnceReader, KafkaOnceStreamReader
from connectors.options import OptionError


class KafkaOnceDataSource(DataSource):
    """Kafka topics as DataFrames, for ``spark.readStream`` and ``spark.read``.

    Example:
        >>> flights = (
        ...     spark.readStream.format("kafka_once")
        ...     .option("kafka.bootstrap.servers", "localhost:9092")
        ...     .option("subscribe", "flights")
        ...     .load()
        ... )  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns that are read: those of Spark's Kafka connector.

        Raises:
            OptionError: for options that cannot work.
        """
        return spark_schema(self._source_options().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query.

        Raises:
            OptionError: for options that cannot work, or a schema of the user's own.
        """
        return KafkaOnceReader(self._checked(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Make the reader of a stream.

        Raises:
            OptionError: for options that cannot work, or a schema of the user's own.
        """
        return KafkaOnceStreamReader(self._checked(schema))

    def _source_options(self) -> SourceOptions:
        return SourceOptions.read(dict(self.options))

    def _checked(self, schema: StructType) -> SourceOptions:
        options = self._source_options()
        if schema != spark_schema(options.include_headers):
            raise OptionError(
                f"{FORMAT}: the columns are fixed (key, value, topic, …); leave out .schema(…) and convert the columns "
                "with DataFrame operations, e.g. from_json(CAST(value AS STRING), …)"
            )
        return options
