"""Decodes JSON: most values compiled, undecided ones one by one by `jackson_parser.JacksonParser`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from sparkonce.connectors.runtime.compiled import Bytes, read_only
from sparkonce.connectors.values import scanning
from sparkonce.connectors.values.columns import Problems
from sparkonce.connectors.values.jackson_parser import JacksonParser, Parsed
from sparkonce.connectors.values.nodes import make_node
from sparkonce.connectors.values.options import JsonOptions, ParseMode
from sparkonce.connectors.values.scanning import Level

ASCII_BELOW = 0x80
BYTES_AT_ONCE = 1 << 20
"""Bytes of text decoded at once. Each field of the schema reads them again, so they must stay in the CPU cache."""


class JsonDecoder:
    """Decodes values from JSON."""

    def __init__(self, options: JsonOptions) -> None:
        self.mode = options.mode
        self._kind = to_arrow_type(options.schema, timezone="UTC")
        self._corrupt = (
            options.schema.names.index(options.corrupt_column)
            if (options.corrupt_column in options.schema.names)
            else None
        )
        plain = StructType([field for field in options.schema if field.name != options.corrupt_column])
        self._plain = to_arrow_type(plain, timezone="UTC")
        self._node = make_node(plain, self._plain, options)
        self._careful = JacksonParser(options)

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[pa.StructArray, Problems]:  # noqa: ARG002
        """Return the decoded values, with the fields that parse of malformed ones; and the problems."""
        fast, odd = self.certain(values)
        problems: Problems = {}
        if odd.shape[0]:
            parsed = [self._careful.parse(values[row].as_py()) for row in odd.tolist()]
            problems = {row: each.problem for row, each in zip(odd.tolist(), parsed, strict=True) if each.problem}
            fast = self._put(fast, odd, parsed)
        return (fast if self._corrupt is None else self._with_corrupt(fast, values, problems)), problems

    def certain(self, values: pa.BinaryArray) -> tuple[pa.StructArray, NDArray[np.int64]]:
        """Decode on the compiled path only; return also the rows that it leaves undecided."""
        count = len(values)
        bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + count + 1]
        pieces = int(bounds[-1] - bounds[0]) // BYTES_AT_ONCE + 1 if count else 1
        if pieces == 1:
            return self._piece(values)
        size = -(-count // pieces)
        starts = range(0, count, size)
        made = [self._piece(values.slice(start, size)) for start in starts]
        odd = [found + start for start, (_, found) in zip(starts, made, strict=True)]
        return pa.concat_arrays([rows for rows, _ in made]), np.concatenate(odd)

    def _piece(self, values: pa.BinaryArray) -> tuple[pa.StructArray, NDArray[np.int64]]:
        """Decode some rows; as `certain`."""
        count = len(values)
        _, offset_buffer, data_buffer = values.buffers()
        bounds = np.frombuffer(offset_buffer, np.int32)[values.offset : values.offset + count + 1]
        has_data = data_buffer is not None and data_buffer.size
        data = read_only(np.frombuffer(data_buffer if has_data else b"\0", np.uint8))
        starts = bounds[:-1].copy()
        if values.null_count:
            starts[np.asarray(values.is_null())] = scanning.NULL
        level = Level(starts, bounds[1:].copy(), np.arange(count, dtype=np.int32))
        odd: Bytes = np.zeros(count, np.uint8)
        if data[bounds[0] : bounds[-1]].max(initial=0) >= ASCII_BELOW:
            scanning.check_utf8(data, level, odd)
        made = self._node.build(data, level, odd)
        return made, np.flatnonzero(odd)

    def _put(self, fast: pa.StructArray, odd: NDArray[np.int64], parsed: Sequence[Parsed]) -> pa.StructArray:
        """Insert records that were decoded one by one."""
        careful: list[dict[str, Any] | None] = [each.fields for each in parsed]
        places = np.arange(len(fast))
        places[odd] = len(fast) + np.arange(len(careful))
        return pa.concat_arrays([fast, pa.array(careful, self._plain)]).take(pa.array(places))

    def _with_corrupt(self, fast: pa.StructArray, values: pa.BinaryArray, problems: Problems) -> pa.StructArray:
        """Add the field for the text of records that do not parse."""
        assert self._corrupt is not None
        texts: list[str | None] = [None] * len(values)
        for row in problems if self.mode is ParseMode.PERMISSIVE else ():
            texts[row] = values[row].as_py().decode(errors="replace")
        fields = [fast.field(at) for at in range(fast.type.num_fields)]
        fields.insert(self._corrupt, pa.array(texts, pa.string()))
        mask = fast.is_null() if fast.null_count else None
        return pa.StructArray.from_arrays(fields, fields=list(self._kind), mask=mask)
