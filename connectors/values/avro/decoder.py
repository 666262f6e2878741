"""Decodes many values of Avro at once, each with the schema that it was written with."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import DataType, StructType

from sparkonce.connectors.runtime.compiled import Int32s, Int64s
from sparkonce.connectors.values.avro import machine, schema
from sparkonce.connectors.values.avro.program import Programs
from sparkonce.connectors.values.columns import UNREADABLE, CellMaker, Layout, Problems, to_arrow

BYTES_AT_ONCE = 1 << 20
"""Bytes of values that are decoded at once: each column goes over its cells again, which should be in a cache."""
MAX_CELLS = 4 << 20
"""Columns times values that are decoded at once."""


class AvroDecoder:
    """Decodes values into the columns of one reader's schema."""

    def __init__(self, reader: schema.Schema, kind: DataType) -> None:
        """``kind`` is the type of the column, or a part of it: fields of records that are not there are not decoded."""
        self._layout = Layout(kind)
        self._programs = Programs(reader, self._layout)
        self._cells = CellMaker(self._layout)
        self._most_rows = max(1, MAX_CELLS // len(self._layout.level_of))

    def add(self, writer: schema.Schema) -> int:
        """Prepare to read what a writer's schema has written; return the number to give to `decode`."""
        return self._programs.add(writer)

    def decode(
        self, data: NDArray[np.uint8], starts: Int64s, ends: Int64s, entries: Int32s
    ) -> tuple[pa.Array, Problems]:
        """Return the column, and why values do not parse: those are null, or a struct of nulls.

        Of each value, ``starts`` and ``ends`` say where in ``data`` its bytes are, and ``entries`` its writer's
        number, `columns.NULL` or `columns.UNREADABLE`.
        """
        parts: list[pa.Array] = []
        problems: Problems = {}
        for first, last in self._pieces(starts, ends):
            found: Int32s = np.zeros(last - first, np.int32)
            parts.append(self._piece(data, starts[first:last], ends[first:last], entries[first:last], found))
            problems |= {first + int(row): self._programs.explain(int(found[row])) for row in np.flatnonzero(found)}
        return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)), problems

    def _pieces(self, starts: Int64s, ends: Int64s) -> list[tuple[int, int]]:
        """Cut values into pieces of about `BYTES_AT_ONCE`, one at least."""
        count = starts.shape[0]
        total = int(ends[-1] - starts[0]) if count else 0
        size = min(-(-count // (total // BYTES_AT_ONCE + 1)) or 1, self._most_rows)
        return [(first, min(first + size, count)) for first in range(0, count, size)] or [(0, 0)]

    def _piece(
        self, data: NDArray[np.uint8], starts: Int64s, ends: Int64s, entries: Int32s, problems: Int32s
    ) -> pa.Array:
        bytes_here, rows = int((ends - starts).sum()), starts.shape[0]
        # An item takes a byte at least, and each value and item may have the items of all defaults.
        cells = self._cells.make(rows, bytes_here + (bytes_here + rows) * self._programs.items_of_defaults)
        stack: Int64s = np.zeros(self._programs.deepest + 1, np.int64)
        values = machine.Values(data, starts, ends, entries, problems, stack)
        machine.run(self._programs.code, values, cells, np.zeros(self._layout.levels, np.int64))
        if isinstance(self._layout.root.kind, StructType):  # as from_avro, a record whose fields are null
            malformed = np.flatnonzero((problems != 0) | (entries == UNREADABLE))
            cells.valid[cells.base[self._layout.root.at] + malformed] = 1
        return to_arrow(self._layout.root, cells, data, self._programs.pool)
