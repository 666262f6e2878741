"""Decodes many values of Protobuf at once, each by the message that it was written with."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from pyspark.sql.types import StructType

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s
from sparkonce.connectors.values.columns import UNREADABLE, CellMaker, Layout, Problems, to_arrow
from sparkonce.connectors.values.protobuf import machine
from sparkonce.connectors.values.protobuf.finishing import Finishing
from sparkonce.connectors.values.protobuf.program import Programs

BYTES_AT_ONCE = 1 << 20
"""Bytes of values that are decoded at once: each column goes over its cells again, which should be in a cache."""
MAX_CELLS = 4 << 20
"""Columns times values that are decoded at once."""


class ProtobufDecoder:
    """Decodes values into the columns of one reader's message."""

    def __init__(self, reader: Descriptor, kind: StructType, *, emit_defaults: bool = True) -> None:
        """``kind`` is the type of the column, or a part of it: fields that are not there are not decoded.

        With ``emit_defaults``, fields without presence have their default where they do not appear, otherwise null.

        Raises:
            ProtobufSchemaError: the type has a field that the message has not, or of another type.
        """
        self._layout = Layout(kind)
        self._programs = Programs(reader, self._layout, emit_defaults)
        self._finishing = Finishing(self._programs.places)
        self._cells = CellMaker(self._layout)
        self._most_rows = max(1, MAX_CELLS // len(self._layout.level_of))

    def add(self, writer: Descriptor) -> int:
        """Prepare to read what a writer's message has written; return the number to give to `decode`."""
        return self._programs.add(writer)

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s) -> tuple[pa.Array, Problems]:
        """Return the column, and why values do not parse: those are structs of nulls.

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

    def _piece(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s, problems: Int32s) -> pa.Array:
        cells = self._cells.make(starts.shape[0], int((ends - starts).sum()))
        stack: Int64s = np.zeros((machine.DEEPEST + 1) * machine.STACK_WIDTH, np.int64)
        firsts: Int64s = np.full(self._layout.levels, -1, np.int64)
        values = machine.Values(data, starts, ends, entries, problems, stack, firsts)
        machine.run(self._programs.code, values, cells, np.zeros(self._layout.levels, np.int64))
        pool, kept = self._finishing.finish(cells, data)
        cells.valid[cells.base[0] + np.flatnonzero((problems != 0) | (entries == UNREADABLE))] = 1
        return to_arrow(self._layout.root, cells, data, pool, kept)
