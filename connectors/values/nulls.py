"""Where a column has a null that is not allowed, at any depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_NONE: NDArray[np.int64] = np.zeros(0, np.int64)


def null_rows(column: pa.Array, path: Sequence[str]) -> NDArray[np.int64]:
    """Return the rows with a null at a path, in order; none if there is nothing at the path.

    As to Delta, a struct that is null has fields that are null; an array or map that is null has no elements.
    ``element``, ``key`` and ``value`` lead into arrays and maps; names of fields are compared without case.
    """
    if not path:
        return np.flatnonzero(np.asarray(column.is_null())) if column.null_count else _NONE
    if pa.types.is_struct(column.type):
        positions = {column.type.field(index).name.lower(): index for index in range(column.type.num_fields)}
        position = positions.get(path[0].lower())
        return _NONE if position is None else null_rows(pc.struct_field(column, [position]), path[1:])
    if pa.types.is_map(column.type):
        offsets, entries = entries_of(column)
        below = entries.field(0 if path[0] == "key" else 1)
    else:
        offsets, below = offsets_of(column), column.flatten()
    found = null_rows(below, path[1:])
    return np.unique(np.searchsorted(offsets.to_numpy(), found, side="right") - 1) if found.shape[0] else _NONE


def offsets_of(column: pa.Array) -> pa.Array:
    """Return offsets into the flattened values: the column may be a slice, and null lists may hide values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def entries_of(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return a map's offsets, and its entries as structs."""
    entries = column.view(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    return offsets_of(entries), entries.flatten()
