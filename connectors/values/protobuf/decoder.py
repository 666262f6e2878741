"""Decodes many Protobuf values at once, each with its writer's message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from pyspark.sql.types import StructType

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s
from sparkonce.connectors.values.columns import UNREADABLE, Layout, to_arrow
from sparkonce.connectors.values.pieces import PieceDecoder
from sparkonce.connectors.values.protobuf import machine
from sparkonce.connectors.values.protobuf.finishing import Finishing
from sparkonce.connectors.values.protobuf.program import Programs


class ProtobufDecoder(PieceDecoder):
    """Decodes values into the columns of one reader's message."""

    def __init__(self, reader: Descriptor, kind: StructType, *, emit_defaults: bool = True) -> None:
        """``kind`` is the type of the column, or a part of it: other fields are not decoded.

        With ``emit_defaults``, absent fields without presence have their default, otherwise null.

        Raises:
            ProtobufSchemaError: the type has a field that the message lacks, or that has another type there.
        """
        layout = Layout(kind)
        self._programs = Programs(reader, layout, emit_defaults)
        self._finishing = Finishing(self._programs.tree)
        super().__init__(layout)

    def add(self, writer: Descriptor) -> int:
        """Prepare to read values of a writer's message; return its number for `decode`."""
        return self._programs.add(writer)

    def _piece(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s, problems: Int32s) -> pa.Array:
        cells = self._cells.make(starts.shape[0], int((ends - starts).sum()))
        stack: Int64s = np.zeros((machine.DEEPEST + 1) * machine.STACK_WIDTH, np.int64)
        firsts: Int64s = np.full(self._layout.levels, -1, np.int64)
        values = machine.Values(data, starts, ends, entries, problems, stack, firsts)
        machine.run(self._programs.code, values, cells, np.zeros(self._layout.levels, np.int64))
        pool, kept = self._finishing.finish(cells, data)
        cells.valid[cells.base[0] + np.flatnonzero((problems != 0) | (entries == UNREADABLE))] = 1
        return to_arrow(self._layout.root, cells, data, pool, kept)

    def _explain(self, problem: int) -> str:
        return self._programs.explain(problem)
