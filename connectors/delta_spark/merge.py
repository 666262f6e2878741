"""Upserts with a guarantee: `MergeWriter`, which runs a MERGE of delta-spark for each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, max_by, struct

from sparkonce.connectors.delta_spark.result import WriteFunction, delta_table, quoted, session_settings
from sparkonce.connectors.delta_spark.writer import DeltaWriter

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder, DeltaTable

MergeFunction: TypeAlias = "Callable[[DeltaTable, DataFrame], DeltaMergeBuilder]"


@dataclass(slots=True)
class MergeWriter(DeltaWriter):
    """Merges each batch into the Delta table at ``path``; pass it to ``writeStream.foreachBatch``.

    Its other arguments are those of `DeltaWriter`.

    Args:
        keys: the columns that identify a row. Rows of one batch must differ in them, unless ``newest_by`` is set.
        newest_by: with ``keys``: a column without nulls; of a batch's rows with equal keys the highest is used.
        merge: instead of updating and inserting all columns by ``keys``: a function of the target and the batch's rows
            that returns the MERGE to run.
    """

    keys: Sequence[str] = ()
    merge: MergeFunction | None = None
    newest_by: str | None = None

    def _function(self) -> WriteFunction:
        if isinstance(self.keys, str):
            raise ValueError("keys is a list of column names")
        if bool(self.keys) == (self.merge is not None):
            raise ValueError("pass either keys, for update-or-insert, or merge, a function that builds the MERGE")
        if self.newest_by is not None and not self.keys:
            raise ValueError("newest_by needs keys: with merge, your function chooses the rows")
        return merging(self.merge or upsert_on(self.keys, self.newest_by))

    def _check(self, rows: DataFrame) -> None:
        """Find a wrong name before a table is created; Spark's own error for it is hundreds of lines long."""
        columns = rows.columns
        known = {column.lower() for column in columns}
        newest_by = [] if self.newest_by is None else [self.newest_by]
        for argument, names in (("keys", self.keys), ("newest_by", newest_by)):
            for name in names:
                if name.lower() not in known:
                    raise ValueError(f"{argument}: no column {name!r}; the rows have {', '.join(columns)}")


def merging(merge: MergeFunction) -> WriteFunction:
    """Return what runs the MERGE that a function builds."""

    def write(path: str, rows: DataFrame, settings: Mapping[str, str]) -> None:
        builder = merge(delta_table().forPath(rows.sparkSession, path), rows)
        with session_settings(rows.sparkSession, settings):
            builder.execute()

    return write


def upsert_on(keys: Sequence[str], newest_by: str | None = None) -> MergeFunction:
    """Return the default MERGE: update all columns where the keys are equal (null equals null), else insert.

    With ``newest_by``, of rows with equal keys in one batch only the one with the highest value is used.
    """
    condition = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)

    def merge(target: DeltaTable, rows: DataFrame) -> DeltaMergeBuilder:
        if newest_by is not None:
            newest = max_by(struct("*"), col(quoted(newest_by))).alias("newest")
            rows = rows.groupBy(*(col(quoted(key)) for key in keys)).agg(newest).select("newest.*")
        builder = target.alias("t").merge(rows.alias("s"), condition)
        return builder.whenMatchedUpdateAll().whenNotMatchedInsertAll()

    return merge
