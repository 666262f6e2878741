"""The sink `delta_once`: rows and offsets of a micro-batch in one Delta commit.

The steps of a batch are in `connectors.stream_sink`, what is done with the table in `connectors.delta_once.target`.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceWriter
from pyspark.sql.types import StructType

from connectors.delta_once.options import FORMAT, SinkOptions
from connectors.delta_once.target import DeltaTarget
from connectors.options import OptionError
from connectors.stream_sink import StreamSink, called_to_commit


class DeltaOnceDataSource(DataSource):
    """The format ``delta_once`` of ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Refuse ``spark.read``.

        Raises:
            OptionError: always.
        """
        raise OptionError(f"{FORMAT} only writes: read the table with delta-spark or deltalake")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        """Refuse ``df.write``: a batch has no offsets to commit.

        Raises:
            OptionError: always.
        """
        raise OptionError(f"{FORMAT} is for writeStream: write a batch with delta-spark or deltalake")

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        """Give the writer of one batch; see `connectors.stream_sink` for when.

        Raises:
            OptionError: for options that cannot work.
            DeliveryError, TableError, SchemaError: if the batch must not be written.
        """
        options = SinkOptions.read(self.options)
        if overwrite:
            raise OptionError(
                f"{FORMAT}: outputMode complete would replace the table every batch, which {FORMAT} does not do. Use "
                "append or update; or foreachBatch with delta-spark's overwrite"
            )
        sink = stream_sink(options, schema)
        if not called_to_commit():
            sink.begin()
        return sink


def stream_sink(options: SinkOptions, schema: StructType) -> StreamSink:
    """Give the sink of a query whose rows are of ``schema``."""
    return StreamSink(FORMAT, options.checkpoint, options.app_id, [DeltaTarget(options, schema)])
