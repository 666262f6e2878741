"""Rows whose expressions fail: found without a query for each row, so that the others are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkonce.connectors.sql.engine import Engine, message_of, one_batch
from sparkonce.connectors.sql.planning import ROW, Computed

Failure = tuple[int, str]
"""The number of a row in the input, and why it failed."""

INFINITE = "sql: a date or time is the last or one of the first that there are, which the engine cannot compute with"
_FIRST_TIME = -9_223_372_022_400_000_000
"""Of the engine, four hours after Spark's."""
EXACT_REASONS = 100
"""The number of a batch's failures with the engine's own message: each takes a query of 1 to 3 ms. The others name the
column that failed."""


def run_without_failures(
    engine: Engine, computed: Computed, inputs: pa.RecordBatch
) -> tuple[pa.RecordBatch, Sequence[Failure]]:
    """Return the result of the rows that do not fail, and those that do. Raises duckdb.Error for other reasons."""
    infinite = infinite_rows(inputs)
    if infinite:
        result, more = run_without_failures(engine, computed, _without(inputs, infinite))
        numbers = inputs.column(ROW).to_pylist()
        return result, sorted([*((numbers[row], INFINITE) for row in infinite), *more])
    try:
        return engine.run(computed.query, inputs), ()
    except engine.row_errors:
        if not inputs.num_rows:
            raise
    found = (_explained(engine, computed, inputs, *each) for each in _failing(engine, computed, inputs))
    failed = [each for each in found if each is not None]
    rest = _without(inputs, [row for row, _ in failed])
    result, more = _halved(engine, computed, rest)
    numbers = inputs.column(ROW).to_pylist()
    return result, sorted([*((numbers[row], reason) for row, reason in failed), *more])


def infinite_rows(inputs: pa.RecordBatch) -> list[int]:
    """Return the indexes of rows with the minimal or maximal day or time: for the engine, infinity or none."""
    return sorted(set().union(*map(_infinite, inputs.columns)))


def _infinite(column: pa.Array) -> set[int]:
    """As `infinite_rows`, of a column: at any depth."""
    kind = column.type
    if pa.types.is_struct(kind):
        return set().union(*map(_infinite, column.flatten()))
    if pa.types.is_map(kind):
        lists = (pa.ListArray.from_arrays(column.offsets, each) for each in (column.keys, column.items))
        return set().union(*map(_infinite, lists))
    if pa.types.is_list(kind):
        elements = _infinite(pc.list_flatten(column))
        parents = pc.list_parent_indices(column)
        return {parents[element].as_py() for element in elements}
    bits = 32 if pa.types.is_date32(kind) else 64 if pa.types.is_timestamp(kind) else 0
    if not bits:
        return set()
    last = 2 ** (bits - 1) - 1
    first = -last if bits == 32 else _FIRST_TIME - 1
    numbers = column.view(pa.int32() if bits == 32 else pa.int64())
    bounds = pc.min_max(numbers).as_py()
    if bounds["max"] is None or (bounds["max"] < last and bounds["min"] > first):
        return set()
    return {row for row, number in enumerate(numbers.to_pylist()) if number is not None and not first < number < last}


def _failing(engine: Engine, computed: Computed, inputs: pa.RecordBatch) -> list[tuple[int, str, bool]]:
    """Return the failing rows, each with the part that fails, and whether its exact reason should be found.

    Not all of them, if the engine does not show it: then `_halved` finds them.
    """
    try:
        flags = engine.run(computed.failing, inputs)
    except engine.row_errors:  # should not happen: the engine has moved a failing expression out of its TRY
        return []
    found = np.stack([column.to_numpy(zero_copy_only=False) for column in flags.columns[1:]])
    rows = np.flatnonzero(found.any(axis=0))
    first = found[:, rows].argmax(axis=0)
    return [
        (row, computed.parts[part], at < EXACT_REASONS)
        for at, (row, part) in enumerate(zip(rows.tolist(), first.tolist(), strict=True))
    ]


def _explained(
    engine: Engine, computed: Computed, inputs: pa.RecordBatch, row: int, part: str, exact: bool
) -> Failure | None:
    """Return why a row fails; None if it does not: the query may evaluate less than the one that asks for all."""
    if not exact:
        return row, f"sql: {part}: an expression fails for this row's values"
    try:
        engine.run(computed.query, inputs.slice(row, 1))
    except engine.row_errors as error:
        return row, f"sql: {part}: {message_of(error)}"
    return None


def _without(inputs: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    kept = np.ones(inputs.num_rows, dtype=bool)
    kept[list(rows)] = False
    return inputs.filter(pa.array(kept))


def _halved(engine: Engine, computed: Computed, inputs: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Failure]]:
    """As `run_without_failures`, by halves: for failures of the whole query only, not of its parts."""
    try:
        return engine.run(computed.query, inputs), []
    except engine.row_errors as error:
        if inputs.num_rows == 0:
            raise
        if inputs.num_rows == 1:
            (row,) = inputs.column(ROW).to_pylist()
            return engine.run(computed.query, inputs.slice(0, 0)), [(row, f"sql: {message_of(error)}")]
    middle = inputs.num_rows // 2
    halves = [_halved(engine, computed, half) for half in (inputs.slice(0, middle), inputs.slice(middle))]
    result = one_batch(pa.Table.from_batches([rows for rows, _ in halves]))
    return result, [failure for _, failed in halves for failure in failed]
