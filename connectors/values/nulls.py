"""Where a column has a null that is not allowed, at any depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def first_null(column: pa.Array, path: Sequence[str]) -> int | None:
    """Return the first row with a null at a path; None if there is none, or nothing at the path.

    As to Delta, a struct that is null has fields that are null; an array or map that is null has no elements.
    ``element``, ``key`` and ``value`` lead into arrays and maps; names of fields are compared without case.
    """
    if not path:
        return int(pc.index(column.is_null(), True).as_py()) if column.null_count else None
    if pa.types.is_struct(column.type):
        positions = {column.type.field(index).name.lower(): index for index in range(column.type.num_fields)}
        position = positions.get(path[0].lower())
        return None if position is None else first_null(pc.struct_field(column, [position]), path[1:])
    if pa.types.is_map(column.type):
        offsets, entries = entries_of(column)
        below = entries.field(0 if path[0] == "key" else 1)
    else:
        offsets, below = offsets_of(column), column.flatten()
    found = first_null(below, path[1:])
    return None if found is None else int(np.searchsorted(offsets.to_numpy(), found, side="right")) - 1


def offsets_of(column: pa.Array) -> pa.Array:
    """Return offsets into the flattened values: the column may be a slice, and null lists may hide values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def entries_of(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return a map's offsets, and its entries as structs."""
    entries = column.view(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    return offsets_of(entries), entries.flatten()
