"""What the writers of this folder share: one function for ``writeStream.foreachBatch``, with a guarantee.

delta-spark writes the rows, in one commit for each batch, so a table may require of its writers whatever delta-spark
supports. The offsets are in a Delta table of their own, inside the result's folder by default (``_sparkonce``, which
Delta's readers and VACUUM ignore). How the two tables are kept consistent is in `sequence`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sparkonce.connectors.delta_spark.intents import OFFSETS_FOLDER, DeltaIntents
from sparkonce.connectors.delta_spark.other_rows import OtherRows
from sparkonce.connectors.delta_spark.result import DeltaResult, PlainResult, WriteFunction, delta_table
from sparkonce.connectors.delta_spark.sequence import NumberedTable
from sparkonce.connectors.delta_spark.taking_over import take_over, take_over_for_good
from sparkonce.exactly_once.foreach_batch import ForeachBatch
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.refusals import StoreName
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from sparkonce.shipping import Shipped

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class DeltaWriter(metaclass=Shipped):
    """Writes each batch into the Delta table at ``path``; a subclass says how: `MergeWriter`, `AppendWriter`.

    Create it before the query starts: it resolves what a crash has left, so that a source with `offset_store` starts
    from the right offsets.

    Args:
        path: the result, a local path or a URI. The table is created from the first batch's columns if it is missing.
        app_id: a name for this pipeline, stable over restarts: its offsets are kept under it.
        checkpoint: the query's ``checkpointLocation``.
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
    guarantee: str | Guarantee = field(default=Guarantee.EXACTLY_ONCE, kw_only=True)
    offsets: str | None = field(default=None, kw_only=True)
    partition_by: Sequence[str] = field(default=(), kw_only=True)
    schema: StructType | str | None = field(default=None, kw_only=True)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, kw_only=True)
    _result: DeltaResult = field(init=False, repr=False)
    _intents: DeltaIntents = field(init=False, repr=False)
    _foreach_batch: ForeachBatch = field(init=False, repr=False)
    _is_taken_over: bool = field(init=False, repr=False, default=False)
    _warned: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        if isinstance(self.partition_by, str):
            raise ValueError("partition_by is a list of column names")
        function = self._function()
        result = Location.parse(self.path)
        offsets = Location.parse(self.offsets or f"{self.path.rstrip('/')}/{OFFSETS_FOLDER}")
        if offsets.is_same(result):  # the numbers of both tables would be one number, which always agrees with itself
            raise ValueError(
                f"offsets={self.offsets} is the result itself, and its offsets need a table of their own: name another "
                f"path, or leave offsets out, for {OFFSETS_FOLDER} in the result's folder"
            )
        self._result = DeltaResult(
            DeltaOffsetStore(result, self.app_id, self.storage_options),
            f"file:{result.text}" if result.is_local else self.path,
            function,
        )
        self._intents = DeltaIntents(
            DeltaOffsetStore(offsets, self.app_id, self.storage_options, create_missing=True),
        )
        other_rows = self._other_rows()
        table = NumberedTable(self._result, self._intents, other_rows)
        guarantee = Guarantee(self.guarantee)
        together = guarantee is Guarantee.EXACTLY_ONCE
        self._foreach_batch = ForeachBatch(
            table if together else PlainResult(self._result, other_rows),
            self.checkpoint,
            self.app_id,
            guarantee,
            None if together else self._intents.store,
            StoreName("the result", str(self._intents), covered_twice=self._covered_twice()),
            self.storage_options,
        )
        if self._result.exists():
            take_over(self._result.store, self._intents.store)
            table.snapshot()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write one batch, unless it is there already.

        Raises:
            ValueError: if the arguments do not fit the rows or the query, or it is a query of Spark Connect.
            DeliveryError, TableError, SchemaError: if it must not be written; the query then stops.
            ModuleNotFoundError: if delta-spark is not installed.
        """
        if type(rows).__module__.startswith("pyspark.sql.connect"):
            raise ValueError(
                f"{type(self).__name__} runs delta-spark in the driver's own session, and this query is of Spark "
                "Connect: run it by spark-submit, write with ForeachBatch, or append with delta_once (docs/shipping.md)"
            )
        delta_table()
        self._check(rows)
        self._warn_of_second_driver(rows.sparkSession)
        self._result.create_missing(rows.sparkSession, self._columns(rows), self.partition_by)
        if not self._is_taken_over:
            numbered = Guarantee(self.guarantee) is Guarantee.EXACTLY_ONCE
            take_over_for_good(self._result.store, self._intents.store, numbered=numbered)
            self._is_taken_over = True
        self._foreach_batch(rows, batch_id)

    def _function(self) -> WriteFunction:
        """Check the arguments, and return what writes a batch. Raises ValueError for arguments that cannot work."""
        raise NotImplementedError

    def _other_rows(self) -> OtherRows | None:
        """Return a reader of other applications' rows, if a batch may write them again; not by keys."""
        return None

    def _covered_twice(self) -> str | None:
        """Return the setting by which a user allows rows to be written twice."""
        return None

    def _check(self, rows: DataFrame) -> None:
        """Check a batch before a table is created for it. Raises ValueError if the arguments do not fit."""
        raise NotImplementedError

    def _warn_of_second_driver(self, spark: SparkSession) -> None:
        """Log once that delta-spark's own commits on S3 are safe within one JVM only, if no other way is configured."""
        place = Location.parse(self.path)
        scheme = self.path.partition(":")[0]
        if self._warned or not place.text.startswith("s3:"):
            return
        self._warned = True
        setting = f"spark.delta.logStore.{scheme}.impl"
        if spark.conf.get(setting, None) is None:
            _log.warning(
                "%s: %s is written by delta-spark, whose default LogStore for S3 keeps apart writers of one JVM only: "
                "never run two drivers with this result, or name another LogStore in %s",
                type(self).__name__,
                place,
                setting,
            )

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
