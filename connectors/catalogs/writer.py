"""`write_stream`: the writer of ``delta_once`` for tables with names, and with ``partitionBy``.

It has the methods of PySpark's ``DataStreamWriter``, classic and Connect, but those that no path or name goes with
(``foreach``, ``foreachBatch``) and ``clusterBy``. It keeps the options until the query starts.
Then it checks them, looks the table up or creates it, and passes the sink a path. So errors in options come from
``start`` and ``toTable``, where a plain ``rows.writeStream`` raises them in the first batch; and before anything is
created, but for options that name the same place as a table whose location is only known then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from sparkonce.connectors.catalogs.tables import find_or_create_table
from sparkonce.connectors.delta_sink.options import CREATE_TABLE, FORMAT, PARTITION_BY, PATH, TABLE_NAME, SinkOptions
from sparkonce.connectors.formats.dead_letter_target import rows_schema
from sparkonce.connectors.formats.delta_once import stream_sink
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.settings.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def write_stream(rows: DataFrame) -> DeltaStreamWriter:
    """Return a writer of the sink ``delta_once`` for the rows of a streaming query.

    Use it in place of ``rows.writeStream.format("delta_once")`` to write to a table by its name:

    Example:
        >>> query = (
        ...     write_stream(rows)
        ...     .option("appId", "orders")
        ...     .option("checkpointLocation", "/data/checkpoints/orders")
        ...     .partitionBy("day")
        ...     .toTable("shop.orders")
        ... )  # doctest: +SKIP
    """
    return DeltaStreamWriter(rows)


class DeltaStreamWriter:
    """Sets up a query that writes with ``delta_once``; the methods are those of PySpark's ``DataStreamWriter``."""

    def __init__(self, rows: DataFrame) -> None:
        if not rows.isStreaming:
            raise OptionError(
                f"{FORMAT}: write_stream writes the rows of a stream, and these are of a batch (spark.read)"
            )
        self._rows = rows
        self._writer = rows.writeStream.format(FORMAT)
        self._options: dict[str, str] = {}
        self._replaces = False

    def option(self, key: str, value: bool | float | str | None) -> DeltaStreamWriter:
        """Set an option of the sink: `sparkonce options delta-sink` lists all. ``None`` unsets it."""
        for known in [known for known in self._options if known.lower() == key.lower()]:
            del self._options[known]
        if value is not None:
            self._options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: bool | float | str | None) -> DeltaStreamWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def partitionBy(self, *cols: str | list[str]) -> DeltaStreamWriter:  # noqa: N802
        """Set the partition columns of a new table; those of an existing table must be the same."""
        names = [name for each in cols for name in ([each] if isinstance(each, str) else each)]
        return self.option(PARTITION_BY, ",".join(names) or None)

    def outputMode(self, outputMode: str) -> DeltaStreamWriter:  # noqa: N802, N803
        """Set the output mode: ``append`` or ``complete``."""
        self._writer = self._writer.outputMode(outputMode)
        self._replaces = outputMode.lower() == "complete"
        return self

    def queryName(self, queryName: str) -> DeltaStreamWriter:  # noqa: N802, N803
        """Name the query."""
        self._writer = self._writer.queryName(queryName)
        return self

    def trigger(self, **trigger: Any) -> DeltaStreamWriter:
        """Set when batches start, as ``DataStreamWriter.trigger`` does."""
        self._writer = self._writer.trigger(**trigger)
        return self

    def format(self, source: str) -> DeltaStreamWriter:
        """Accept the name of this format.

        Raises:
            OptionError: for another format.
        """
        if source.lower() != FORMAT:
            raise OptionError(f"write_stream writes with {FORMAT}: for format({source!r}) use rows.writeStream")
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: bool | float | str | None,
    ) -> StreamingQuery:
        """Start the query: into the table at ``path``, or into the one that the option ``table`` names.

        Raises:
            OptionError: for options that cannot work, or a name that is not a Delta table's.
            SchemaError: for rows that a new table cannot hold.
        """
        self.options(**options)
        if path is not None:
            self.option(PATH, path)
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if queryName is not None:
            self.queryName(queryName)
        return self._writer.options(**self._checked()).start()

    def toTable(  # noqa: N802
        self,
        tableName: str,  # noqa: N803
        format: str | None = None,  # noqa: A002
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: bool | float | str | None,
    ) -> StreamingQuery:
        """Start the query into the Delta table of this name, which is created if it does not exist.

        Raises:
            OptionError, SchemaError: as `start`.
        """
        self.options(**options).option(TABLE_NAME, tableName)
        return self.start(None, format, outputMode, partitionBy, queryName)

    def _checked(self) -> dict[str, str]:
        """Return the options for the sink, after what needs no table is checked, and the table found or created."""
        options = checked(SinkOptions.read_with_name, self._options)
        stream_sink(options, self._rows.schema, replace=self._replaces)
        if options.table_name is None:
            return self._options
        columns = rows_schema(self._rows.schema)
        path = find_or_create_table(self._rows.sparkSession, options.table_name, columns, options.partition_by)
        given = {key: value for key, value in self._options.items() if key.lower() != TABLE_NAME}
        given |= {PATH: path, CREATE_TABLE: "false"}
        checked(SinkOptions.read, given)  # again: what must not be the same table
        return given
