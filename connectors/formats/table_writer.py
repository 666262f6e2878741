"""`write_stream`: the writer of ``delta_once`` for tables with names, and with ``partitionBy``.

It has the methods of PySpark's ``DataStreamWriter``, classic and Connect, but those that no path or name goes with
(``foreach``, ``foreachBatch``) and ``clusterBy``. It keeps the options until a query starts.
Then it checks them, looks the table up or creates it, and passes the sink a path. So errors in options come from
``start`` and ``toTable``, where a plain ``rows.writeStream`` raises them in the first batch; and before anything is
created, but for options that name the same place as a table whose location is only known then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame

from sparkonce.connectors.catalogs.tables import find_or_create_table
from sparkonce.connectors.delta_sink.options import (
    CHECKED_RULES,
    CREATE_TABLE,
    FORMAT,
    PARTITION_BY,
    PATH,
    TABLE_NAME,
    SinkOptions,
)
from sparkonce.connectors.direct.plan import source_secrets, table_of_source
from sparkonce.connectors.direct.source import find_source, reads_by_topic
from sparkonce.connectors.formats.dead_letter_target import rows_schema
from sparkonce.connectors.formats.table_query import stream_sink
from sparkonce.connectors.formats.table_reader import is_path
from sparkonce.connectors.formats.table_rules import with_table_rules
from sparkonce.connectors.formats.topic_tables import TopicTables
from sparkonce.connectors.reference.hints import checked
from sparkonce.connectors.runtime.active_session import active_in_thread
from sparkonce.offset_store.locations import Location
from sparkonce.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

APP_ID = "appId"
_Setting: TypeAlias = "Callable[[DataStreamWriter], DataStreamWriter]"


def write_stream(rows: DataFrame) -> DeltaStreamWriter:
    """Return a writer of the sink ``delta_once`` for the rows of a streaming query.

    Use it in place of ``rows.writeStream.format("delta_once")`` for rows of `read_stream`, whose table it writes, or
    to write to a table by its name:

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
        self._settings: list[_Setting] = []
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
        self._replaces = outputMode.lower() == "complete"
        return self._set(lambda writer: writer.outputMode(outputMode))

    def queryName(self, queryName: str) -> DeltaStreamWriter:  # noqa: N802, N803
        """Name the query."""
        return self._set(lambda writer: writer.queryName(queryName))

    def trigger(self, **trigger: Any) -> DeltaStreamWriter:
        """Set when batches start, as ``DataStreamWriter.trigger`` does."""
        return self._set(lambda writer: writer.trigger(**trigger))

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
        """Start the query: into the table at ``path``, or the one that the option ``table`` or the source names.

        Raises:
            OptionError: for options that cannot work, or a name that is not a Delta table's.
            SchemaError: for rows that a new table cannot hold.
        """
        place = {} if path is None else {PATH: path}
        return self._start(place, format, outputMode, partitionBy, queryName, options)

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
        return self._start({TABLE_NAME: tableName}, format, outputMode, partitionBy, queryName, options)

    def _set(self, setting: _Setting) -> DeltaStreamWriter:
        """Store what PySpark's writer would get; it checks it at once."""
        setting(self._rows.writeStream)
        self._settings.append(setting)
        return self

    def _start(
        self,
        place: dict[str, str],
        source: str | None,
        output_mode: str | None,
        partition_by: str | list[str] | None,
        query_name: str | None,
        options: Mapping[str, bool | float | str | None],
    ) -> StreamingQuery:
        """Start a query into a ``place``, which, as in PySpark's writer, the next query does not inherit."""
        self.options(**options)
        if source is not None:
            self.format(source)
        if output_mode is not None:
            self.outputMode(output_mode)
        if partition_by is not None:
            self.partitionBy(partition_by)
        if query_name is not None:
            self.queryName(query_name)
        given = {key: value for key, value in self._options.items() if key.lower() not in place} | place
        given = self._checked(self._with_table_of_source(given))
        rows, checks = with_table_rules(self._rows, given)
        writer = rows.writeStream.format(FORMAT).options(**given, **checks)
        for setting in self._settings:
            writer = setting(writer)
        active_in_thread(self._rows.sparkSession)  # for Spark to find the format in a thread that did not start it
        return writer.start()

    def _with_table_of_source(self, given: dict[str, str]) -> dict[str, str]:
        """Return the options with the appId and the table of `read_stream`, where they are not given.

        Raises:
            OptionError: if another table is given: the source begins where that of `read_stream` ends.
        """
        found = table_of_source(self._rows)
        if found is None:
            return given
        (table, app_id), known = found, {key.lower(): text for key, text in given.items()}
        place = PATH if is_path(table) else TABLE_NAME
        other = known.get(PATH) or known.get(TABLE_NAME)
        if other is not None and (place not in known or not _is_same(other, table)):
            raise OptionError(
                f"{FORMAT}: the rows are read for the table {table}, and are to be written into {other}: the source "
                "would begin where the first one ends. Name the same table in read_stream"
            )
        own = {APP_ID: app_id, place: table}
        return given | {key: text for key, text in own.items() if key.lower() not in known}

    def _checked(self, given: dict[str, str]) -> dict[str, str]:
        """Return the checked options of the sink, with the table found or created."""
        if any(key.lower() == CHECKED_RULES.lower() for key in given):
            raise OptionError(f"{FORMAT}: option {CHECKED_RULES} is set by write_stream itself: leave it out")
        given = source_secrets(FORMAT, self._rows) | given
        options, schema = checked(SinkOptions.read_with_name, given), self._rows.schema
        if TopicTables.are_of(given, schema):
            TopicTables.sink_of(given, schema, replace=self._replaces)
            if reads_by_topic(schema):  # then the columns of each are known when it is written
                return given
        source = find_source(FORMAT, schema, given)
        stream_sink(options, schema, replace=self._replaces, source=source)
        if options.table_name is None:
            return given
        columns = rows_schema(schema if source is None else source.schema)
        path = find_or_create_table(self._rows.sparkSession, options.table_name, columns, options.partition_by)
        found = {key: value for key, value in given.items() if key.lower() != TABLE_NAME}
        found |= {PATH: path, CREATE_TABLE: "false"}
        checked(SinkOptions.read, found)  # again: tables that must differ
        return found


def _is_same(table: str, other: str) -> bool:
    if is_path(table) and is_path(other):
        return Location.parse(table) == Location.parse(other)
    return table == other
