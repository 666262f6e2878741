"""Append and overwrite with a guarantee: `AppendWriter`, for tables that `delta_once` rejects.

delta-spark writes the rows, so constraints are checked, and generated, default and identity columns filled, as in any
write of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from sparkonce.connectors.delta_spark.other_rows import OtherRows
from sparkonce.connectors.delta_spark.result import TXN_APP_ID, TXN_VERSION, USER_METADATA, WriteFunction, quoted
from sparkonce.connectors.delta_spark.writer import DeltaWriter
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.offset_store.delta import DeltaOffsetStore

QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""The property that Spark sets on the thread of a query."""
_MODES = {"append": "append", "complete": "overwrite"}
"""What a batch does to the rows of the table, in the terms of `DataFrameWriter.mode`, by ``output_mode``."""
_OPTIONS = {TXN_APP_ID: "txnAppId", TXN_VERSION: "txnVersion", USER_METADATA: "userMetadata"}
"""The options of a write that go before the session's settings of these names."""

_WIDENING = (
    (t.ByteType, t.ShortType, t.IntegerType, t.LongType),
    (t.ByteType, t.ShortType, t.IntegerType, t.DoubleType),
    (t.FloatType, t.DoubleType),
)
"""Types in whose order values can be widened (PROTOCOL.md of Delta, "Type Widening"), but for decimals and dates."""


@dataclass(slots=True)
class AppendWriter(DeltaWriter):
    """Appends each batch to the Delta table at ``path``; pass it to ``writeStream.foreachBatch``.

    Its other arguments are those of `DeltaWriter`.

    Args:
        output_mode: the query's ``outputMode``: ``append``, or ``complete``, where each batch replaces all rows.
        merge_schema: whether columns that the rows have and the table lacks are added to the table.
        covered_twice: whether rows are written of records that the table has under another ``app_id``, on purpose, as
            where several queries divide a topic. Otherwise they stop the query.
    """

    output_mode: str = field(default="append", kw_only=True)
    merge_schema: bool = field(default=False, kw_only=True)
    covered_twice: bool = field(default=False, kw_only=True)

    def _function(self) -> WriteFunction:
        if self.output_mode not in _MODES:
            raise ValueError(
                f"output_mode={self.output_mode!r} is not append or complete; rows that change go into a table with "
                "MergeWriter"
            )
        if self.output_mode == "complete" and Guarantee(self.guarantee) is not Guarantee.EXACTLY_ONCE:
            raise ValueError("output_mode='complete' replaces all rows, with exactly-once: leave guarantee out")
        return self._write

    def _write(self, path: str, rows: DataFrame, settings: Mapping[str, str]) -> None:
        writer = _widened(rows, rows.sparkSession.read.format("delta").load(path).schema).write.format("delta")
        # Under the session's spark.sql.sources.partitionOverwriteMode=dynamic an overwrite would keep old partitions.
        writer = writer.mode(_MODES[self.output_mode]).option("partitionOverwriteMode", "static")
        options = {_OPTIONS[name]: value for name, value in settings.items()}
        writer.options(**options).option("mergeSchema", self.merge_schema).save(path)

    def _other_rows(self) -> OtherRows | None:
        if self.output_mode == "complete":  # each batch replaces all rows
            return None
        stores = [self._result.store, *([] if self.offsets else [self._intents.store])]
        own = (DeltaOffsetStore(each.location, self.app_id, self.storage_options) for each in stores)
        return OtherRows(tuple(own), self.covered_twice)

    def _covered_twice(self) -> str | None:
        return "covered_twice=True on the writer"

    def _check(self, rows: DataFrame) -> None:
        """Reject rows of a query in another output mode: they would be in the table several times, or be removed."""
        mode = _output_mode(rows)
        if mode is not None and mode != self.output_mode:
            raise ValueError(
                f"the query's outputMode is {mode}, and the writer's output_mode {self.output_mode}: set both to the "
                "same; for outputMode update use MergeWriter"
            )


def _widened(rows: DataFrame, table: t.StructType) -> DataFrame:
    """Cast columns whose type is narrower than the table's, as after ``ALTER COLUMN … TYPE``: Delta rejects them."""
    types = {column.name.lower(): column.dataType for column in table}
    wider = {
        column.name: types[column.name.lower()]
        for column in rows.schema
        if column.name.lower() in types and _is_wider(types[column.name.lower()], column.dataType)
    }
    return rows.withColumns({name: rows[quoted(name)].cast(wanted) for name, wanted in wider.items()})


def _is_wider(wanted: t.DataType, given: t.DataType) -> bool:
    """Whether each value of ``given`` is one of ``wanted``, and the types differ."""
    chain = next((each for each in _WIDENING if isinstance(given, each) and isinstance(wanted, each)), None)
    return chain is not None and chain.index(type(given)) < chain.index(type(wanted))


def _output_mode(rows: DataFrame) -> str | None:
    """Return the output mode of the query that runs now; None if there is none, or Spark does not show it."""
    session = rows.sparkSession
    query_id = session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    jvm = session._jvm
    if query_id is None or jvm is None:
        return None
    try:
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        query = running.get(jvm.java.util.UUID.fromString(query_id))
        return None if query is None else str(query.outputMode().toString()).lower()
    except Py4JError:  # this is not an interface of Spark's: other versions may not have it
        return None
