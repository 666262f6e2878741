"""The sink `delta_once`: rows and offsets of a micro-batch in one Delta commit.

The steps of a batch are in `connectors.sinks.stream_sink`, the writes to the table in `connectors.delta_sink.target`.
"""

from __future__ import annotations

import sparkonce.connectors.runtime.spark_version  # noqa: F401 - complains, before others fail, where Spark is too old

# isort: split


from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from sparkonce.connectors.delta_sink.batch_writer import DeltaBatchWriter
from sparkonce.connectors.delta_sink.options import FORMAT, BatchOptions
from sparkonce.connectors.direct.source import reject_ranges
from sparkonce.connectors.formats.table_query import TableQuery
from sparkonce.connectors.formats.topic_tables import TopicTables
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.sinks.shared_batch import SharedBatchSink
from sparkonce.connectors.sinks.stream_sink import StreamSink, called_to_commit
from sparkonce.options import OptionError
from sparkonce.shipping import Shipped


class DeltaOnceDataSource(DataSource, metaclass=Shipped):
    """The format ``delta_once`` of ``writeStream`` and ``write``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Reject ``spark.read``. Always raises OptionError."""
        raise OptionError(f"{FORMAT} only writes: read the table with delta-spark or deltalake")

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Reject a catalog's entry of this format, as a plain ``toTable`` makes it. Always raises OptionError."""
        raise OptionError(
            f"{FORMAT} only writes: toTable of a plain rows.writeStream (or saveAsTable) made this entry of the "
            "catalog, and nothing can read it. Drop it (DROP TABLE <name>), and write with sparkonce.write_stream(rows)"
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch.

        Raises:
            OptionError: for options that cannot work.
            TableError, SchemaError, OffsetStoreError: if the rows must not go into the table.
        """
        reject_ranges(FORMAT, schema)
        return DeltaBatchWriter(checked(BatchOptions.read, self.options), schema, replace=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink | SharedBatchSink:  # noqa: N802
        """Return the writer of one batch; see `connectors.sinks.stream_sink` for when.

        Raises:
            OptionError: for options that cannot work.
            DeliveryError, TableError, SchemaError: if the batch must not be written.
            RegistryError: if a registry does not say what its values are read as.
        """
        commits, template = called_to_commit(), TopicTables.are_of(self.options, schema)
        if template:
            shared = TopicTables.sink_of(self.options, schema, replace=overwrite)
            if not commits:
                shared.begin()
            return shared
        query = TableQuery.of(self.options, schema, replace=overwrite)
        return query.sink() if commits else query.begun(StreamSink.begin)
