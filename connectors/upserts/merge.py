"""Upserts with a guarantee: `MergeWriter`, for ``writeStream.foreachBatch``.

It runs a MERGE of delta-spark for each batch and keeps the offsets in a Delta table of their own, inside the result's
folder by default (``_sparkonce``, which Delta's readers and VACUUM ignore). How the two tables are kept consistent is
in `merge_sequence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from sparkonce.connectors.upserts.merge_offsets import DeltaIntents
from sparkonce.connectors.upserts.merge_result import DeltaResult, MergeFunction, PlainMerge, upsert_on
from sparkonce.connectors.upserts.merge_sequence import MergeTable
from sparkonce.exactly_once.foreach_batch import ForeachBatch
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.refusals import Place
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location

OFFSETS_FOLDER = "_sparkonce"
"""The table of offsets, within the result's folder. A name with an underscore is hidden from readers and VACUUM."""


@dataclass(slots=True)
class MergeWriter:
    """Merges each batch into the Delta table at ``path``; pass it to ``writeStream.foreachBatch``.

    Create it before the query starts: it resolves what a crash has left, so that a source with `offset_store` starts
    from the right offsets.

    Args:
        path: the result, a local path or a URI. The table is created from the first batch's columns if it is missing.
        app_id: a name for this pipeline, stable over restarts: its offsets are kept under it.
        checkpoint: the query's ``checkpointLocation``.
        keys: the columns that identify a row. Rows of one batch must differ in them, unless ``newest_by`` is set.
        newest_by: with ``keys``: a column without nulls; of a batch's rows with equal keys the highest is used.
        merge: instead of updating and inserting all columns by ``keys``: a function of the target and the batch's rows
            that returns the MERGE to run.
        guarantee: ``exactly-once``, ``at-least-once`` or ``at-most-once``.
        offsets: where the table of offsets is, if not in the result's folder.
        partition_by: the partition columns of a new table.
        schema: the columns of a new table, if not those of the rows: a `StructType`, or ``a INT, b STRING``.
        storage_options: for tables and a checkpoint that are not local, as delta-rs takes them; Spark has its own.

    Raises:
        ValueError: for arguments that cannot work.
        DeliveryError, OffsetStoreError: if what a crash has left cannot be resolved.
    """

    path: str
    app_id: str
    checkpoint: str
    keys: Sequence[str] = ()
    merge: MergeFunction | None = None
    guarantee: str | Guarantee = Guarantee.EXACTLY_ONCE
    offsets: str | None = None
    partition_by: Sequence[str] = ()
    schema: StructType | str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    newest_by: str | None = None
    _result: DeltaResult = field(init=False, repr=False)
    _intents: DeltaIntents = field(init=False, repr=False)
    _foreach_batch: ForeachBatch = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) or isinstance(self.partition_by, str):
            raise ValueError("keys and partition_by are lists of column names")
        if bool(self.keys) == (self.merge is not None):
            raise ValueError("pass either keys, for update-or-insert, or merge, a function that builds the MERGE")
        if self.newest_by is not None and not self.keys:
            raise ValueError("newest_by needs keys: with merge, your function chooses the rows")
        result = Location.parse(self.path)
        offsets = Location.parse(self.offsets or f"{self.path.rstrip('/')}/{OFFSETS_FOLDER}")
        self._result = DeltaResult(
            DeltaOffsetStore(result, self.app_id, self.storage_options),
            f"file:{result.text}" if result.is_local else self.path,
            self.merge or upsert_on(self.keys, self.newest_by),
        )
        self._intents = DeltaIntents(
            DeltaOffsetStore(offsets, self.app_id, self.storage_options, create_missing=True),
        )
        table = MergeTable(self._result, self._intents)
        guarantee = Guarantee(self.guarantee)
        together = guarantee is Guarantee.EXACTLY_ONCE
        self._foreach_batch = ForeachBatch(
            table if together else PlainMerge(self._result),
            self.checkpoint,
            self.app_id,
            guarantee,
            None if together else self._intents.store,
            Place("the result", str(self._intents)),
            self.storage_options,
        )
        if self._result.exists():
            table.snapshot()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Merge one batch, unless it is there already.

        Raises:
            ValueError: if the rows have no column that ``keys`` or ``newest_by`` names.
            DeliveryError, TableError, SchemaError: if it must not be written; the query then stops.
        """
        self._check_columns(rows.columns)
        self._result.create_missing(rows.sparkSession, self._columns(rows), self.partition_by)
        self._foreach_batch(rows, batch_id)

    def _check_columns(self, columns: Sequence[str]) -> None:
        """Find a wrong name before a table is created; Spark's own error for it is hundreds of lines long."""
        known = {column.lower() for column in columns}
        newest_by = [] if self.newest_by is None else [self.newest_by]
        for argument, names in (("keys", self.keys), ("newest_by", newest_by)):
            for name in names:
                if name.lower() not in known:
                    raise ValueError(f"{argument}: no column {name!r}; the rows have {', '.join(columns)}")

    def _columns(self, rows: DataFrame) -> StructType:
        if not isinstance(self.schema, str):
            return self.schema or rows.schema
        read = StructType.fromDDL(self.schema)  # needs the JVM, so not before there is a session
        assert isinstance(read, StructType)
        return read

    @property
    def offset_store(self) -> str:
        """The source's option ``offsetStore``, to start where this result ends."""
        return str(self._intents)
