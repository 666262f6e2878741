"""Decodes many Avro values at once, each with its writer's schema."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s
from sparkonce.connectors.values.avro import machine, schema
from sparkonce.connectors.values.avro.program import Programs
from sparkonce.connectors.values.columns import UNREADABLE, Layout, to_arrow
from sparkonce.connectors.values.pieces import PieceDecoder


class AvroDecoder(PieceDecoder):
    """Decodes values into the columns of one reader's schema."""

    def __init__(self, reader: schema.Schema, kind: DataType) -> None:
        """``kind`` is the type of the column, or a part of it: other fields of records are not decoded."""
        layout = Layout(kind)
        self._programs = Programs(reader, layout)
        super().__init__(layout)

    def add(self, writer: schema.Schema) -> int:
        """Prepare to read values of a writer's schema; return its number for `decode`."""
        return self._programs.add(writer)

    def _piece(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s, problems: Int32s) -> pa.Array:
        bytes_here, rows = int((ends - starts).sum()), starts.shape[0]
        # An item takes a byte at least, and each value and item may have the items of all defaults.
        cells = self._cells.make(rows, bytes_here + (bytes_here + rows) * self._programs.items_of_defaults)
        open_at_once = machine.MOST_LISTS + machine.MOST_OPEN if self._programs.skips else self._programs.deepest + 1
        stack: Int64s = np.zeros(open_at_once, np.int64)
        values = machine.Values(data, starts, ends, entries, problems, stack)
        machine.run(self._programs.code, values, cells, np.zeros(self._layout.levels, np.int64))
        if isinstance(self._layout.root.kind, StructType):  # as in from_avro, a record with null fields
            malformed = np.flatnonzero((problems != 0) | (entries == UNREADABLE))
            cells.valid[cells.base[self._layout.root.at] + malformed] = 1
        return to_arrow(self._layout.root, cells, data, self._programs.pool)

    def _explain(self, problem: int) -> str:
        return self._programs.explain(problem)
