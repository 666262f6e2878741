"""Texts that are not UTF-8, at any depth: Arrow and Spark let any bytes be a text (``CAST(value AS STRING)``).

delta-rs and DuckDB do not read a file with such a text. Arrow's own check reads non-ASCII texts byte by byte, so ASCII
texts are recognized first, by their smallest byte: for 100 bytes 10 ns, where Arrow's check of others takes 45.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparkonce.connectors.values.nulls import entries_of, offsets_of

_NONE: NDArray[np.int64] = np.zeros(0, np.int64)


def rows_not_utf8(column: pa.Array) -> NDArray[np.int64]:
    """Return the rows with a text that is not UTF-8, in order; what a null hides is no text."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _NONE if _is_ascii(column) else _texts_not_utf8(column)
    if pa.types.is_struct(kind):
        found = [rows_not_utf8(pc.struct_field(column, [index])) for index in range(kind.num_fields)]
        return np.unique(np.concatenate([_NONE, *found]))
    if pa.types.is_map(kind):
        offsets, below = entries_of(column)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, below = offsets_of(column), column.flatten()
    else:
        return _NONE
    inside = rows_not_utf8(below)
    return np.unique(np.searchsorted(offsets.to_numpy(), inside, side="right") - 1)


def _is_ascii(column: pa.Array) -> bool:
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return True
    places = np.frombuffer(offsets, np.int32 if pa.types.is_string(column.type) else np.int64)
    texts = np.frombuffer(data, np.int8)[places[column.offset] : places[column.offset + len(column)]]
    return bool(texts.min(initial=0) >= 0)


def _texts_not_utf8(column: pa.Array) -> NDArray[np.int64]:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        values = column.cast(pa.large_binary()).to_pylist()
        return np.flatnonzero([value is not None and not _is_utf8(value) for value in values])
    return _NONE


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
