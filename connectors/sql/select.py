"""One stateless SELECT over the records of a batch, run in the worker: Arrow in, Arrow out.

Checked on the driver (`check_select`), sent to the tasks (`Select`), run there (`SelectRunner`). Columns, fields of
structs and stars are copied from the batch, without the engine and without a copy of data; the engine gets the
columns that expressions read, and returns the remaining rows and the computed columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import StructField, StructType

from sparkonce.connectors.sql import planning
from sparkonce.connectors.sql.engine import engine_here
from sparkonce.connectors.sql.failures import Failure, infinite_rows, run_without_failures
from sparkonce.connectors.sql.planning import ROW, Computed, Condition, Output, inputs_of
from sparkonce.connectors.sql.types import arrow_schema


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT that was checked; it is pickled for the tasks."""

    text: str
    schema: StructType
    """Of its rows."""
    outputs: tuple[Output, ...]
    computed: Computed | None
    """The engine's part; None if it is not needed."""

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The columns and fields of structs that it reads, by their paths."""
        inputs = () if self.computed is None else (path for _, path in self.computed.inputs)
        taken = (output.path for output in self.outputs if output.path is not None)
        return frozenset(path.names for path in (*taken, *inputs))

    @property
    def condition(self) -> Condition | None:
        """WHERE without the columns; None if there is none."""
        return None if self.computed is None else self.computed.condition

    def runner(self) -> SelectRunner:
        """Return what runs it, made once a task: it loads the engine. Raises OptionError if that is not installed."""
        return SelectRunner(self)

    def condition_runner(self) -> ConditionRunner | None:
        """Return what runs WHERE alone; as `runner`. None if there is no WHERE."""
        return None if self.condition is None else ConditionRunner(self.condition)


@dataclass(frozen=True, slots=True)
class Selected:
    """The result of a batch."""

    rows: pa.RecordBatch
    """Of the SELECT's schema, exactly; in the order of the input."""
    failed: Sequence[Failure]
    """The input rows for which an expression failed, each with the reason; they have no output row."""
    taken: pa.Array | None = None
    """By row of the output, its input row; None if they are the same."""


def check_select(text: str, columns: StructType) -> Select:
    """Check a SELECT over rows with these columns, before the first batch.

    Raises:
        OptionError: it cannot be read, is not a stateless SELECT from ``records``, reads unknown columns, calls
            functions that are not allowed, or returns columns that have no name or no type of Spark; or the engine
            is needed and not installed.
    """
    return _checked(text, columns.json())


@lru_cache(maxsize=64)
def _checked(text: str, columns: str) -> Select:
    """As `check_select`; cached, since Spark asks for a writer twice for each batch. ``columns`` as JSON."""
    outputs, computed = planning.plan(text, StructType.fromJson(json.loads(columns)))
    schema = StructType([StructField(each.name, each.field.dataType, each.field.nullable) for each in outputs])
    return Select(text, schema, outputs, computed)


class SelectRunner:
    """Runs a SELECT over batches; of one task and one thread."""

    def __init__(self, select: Select) -> None:
        self._select = select
        self._schema = arrow_schema(select.schema)
        self._engine = None if select.computed is None else engine_here()

    def run(self, rows: pa.RecordBatch) -> Selected:
        """Return the SELECT's rows of a batch that has the columns it was checked with.

        Raises:
            Exception: the engine fails for another reason than a row's values, such as too little memory.
        """
        computed = self._select.computed
        if computed is None or self._engine is None:
            return Selected(self._batch(rows, None, None), ())
        result, failed = run_without_failures(self._engine, computed, inputs_of(computed.inputs, rows))
        taken = None if computed.keeps_rows and not failed else result.column(ROW)
        return Selected(self._batch(rows, result, taken), failed, taken)

    def _batch(self, rows: pa.RecordBatch, result: pa.RecordBatch | None, taken: pa.Array | None) -> pa.RecordBatch:
        """Return the output: columns of ``rows``, only the rows ``taken`` if given, and of ``result``."""
        count = rows.num_rows if result is None else result.num_rows
        arrays = []
        for output, field in zip(self._select.outputs, self._schema, strict=True):
            if output.path is None:
                assert result is not None
                array = result.column(output.name_in_engine)
            else:
                array = output.path.of(rows)
                array = array if taken is None else pc.take(array, taken)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        assert all(len(array) == count for array in arrays)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class ConditionRunner:
    """Runs WHERE alone over batches; of one task and one thread."""

    def __init__(self, condition: Condition) -> None:
        self._condition, self._engine = condition, engine_here()

    def run(self, rows: pa.RecordBatch) -> NDArray[np.int32] | None:
        """Return the numbers of the rows that remain; None if WHERE fails for one of them."""
        inputs = inputs_of(self._condition.inputs, rows)
        if infinite_rows(inputs):
            return None
        try:
            result = self._engine.run(self._condition.query, inputs)
        except self._engine.row_errors:
            return None
        return np.asarray(result.column(ROW))
