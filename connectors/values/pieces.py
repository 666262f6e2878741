"""Decodes a batch of values in pieces that fit into a processor's cache."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, read_only
from sparkonce.connectors.values.columns import CellMaker, Layout, Problems

BYTES_AT_ONCE = 1 << 20
"""The bytes of values decoded at once: each column reads its cells again."""
MAX_CELLS = 4 << 20
"""The number of columns times values decoded at once."""


class PieceDecoder(ABC):
    """Decodes values into the columns of one reader's schema."""

    def __init__(self, layout: Layout) -> None:
        """``layout`` has all of its columns already."""
        self._layout = layout
        self._cells = CellMaker(layout)
        self._most_rows = max(1, MAX_CELLS // len(layout.level_of))

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s) -> tuple[pa.Array, Problems]:
        """Return the column, and the problems of values: those are null, or a struct of nulls.

        Of each value, ``starts`` and ``ends`` say where in ``data`` its bytes are, and ``entries`` its writer's
        number, `columns.NULL` or `columns.UNREADABLE`.
        """
        data, parts = read_only(data), list[pa.Array]()
        problems: Problems = {}
        for first, last in self._pieces(starts, ends):
            found: Int32s = np.zeros(last - first, np.int32)
            parts.append(self._piece(data, starts[first:last], ends[first:last], entries[first:last], found))
            problems |= {first + int(row): self._explain(int(found[row])) for row in np.flatnonzero(found)}
        return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)), problems

    def _pieces(self, starts: Int64s, ends: Int64s) -> list[tuple[int, int]]:
        """Cut values into pieces of about `BYTES_AT_ONCE`, one at least."""
        count = starts.shape[0]
        total = int(ends[-1] - starts[0]) if count else 0
        size = min(-(-count // (total // BYTES_AT_ONCE + 1)) or 1, self._most_rows)
        return [(first, min(first + size, count)) for first in range(0, count, size)] or [(0, 0)]

    @abstractmethod
    def _piece(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s, problems: Int32s) -> pa.Array:
        """Decode some values; put the problem of each into ``problems``, 0 if there is none."""

    @abstractmethod
    def _explain(self, problem: int) -> str:
        """Return a value's problem, in words."""
