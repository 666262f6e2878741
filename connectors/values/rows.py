"""Turns the decoder's output into the requested rows: values decoded, dead letters marked.

A `RowMaker` belongs to one task. Most records take the compiled path; those that it leaves undecided are decoded one by
one by `jackson_parser.JacksonParser`, and put in their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparkonce.connectors.runtime.compiled import Bytes
from sparkonce.connectors.sinks.dead_letters import COLUMN as DEAD_LETTER
from sparkonce.connectors.sinks.dead_letters import REASON
from sparkonce.connectors.values import scanning
from sparkonce.connectors.values.jackson_parser import JacksonParser, Parsed
from sparkonce.connectors.values.nodes import make_node
from sparkonce.connectors.values.options import (
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    VALUE,
    JsonOptions,
    ParseMode,
    RowOptions,
)
from sparkonce.connectors.values.scanning import Level

NO_VALUE, EMPTY_VALUE = "value is null", "value is empty"
"""The reasons of dead letters whose records have no value, or one without any JSON; such rows have a null value."""
ASCII_BELOW = 0x80
MAX_CELLS = 8 << 20
"""Fields of the schema times rows that are decoded at once: each takes some bytes, though its value may be absent."""

Problems = dict[int, str]
"""By the number of the row, why its value does not parse."""


class MalformedValueError(ValueError):
    """A value that does not parse, in mode FAILFAST."""


class RowMaker:
    """Makes the rows of one task."""

    def __init__(self, options: RowOptions, topic: str, partition: int) -> None:
        self._options = options
        self._topic, self._partition = topic, partition
        self._json = JsonDecoder(options.json) if options.json is not None else None
        self._schema = to_arrow_schema(options.spark_schema(), timezone="UTC") if self._json else None
        self._most_rows = max(1, MAX_CELLS // fields_in(options.json.schema)) if options.json is not None else 0

    def batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows for a batch, in pieces where the schema has so many fields that memory asks for it.

        Raises:
            MalformedValueError: as `rows`.
        """
        if self._json is None or batch.num_rows <= self._most_rows:
            yield self.rows(batch)
            return
        for start in range(0, batch.num_rows, self._most_rows):
            yield self.rows(batch.slice(start, self._most_rows))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for a batch of the columns that `RowOptions.decoded` names.

        Raises:
            MalformedValueError: for the first value that does not parse, in mode FAILFAST.
        """
        if self._json is None:
            return batch
        values, problems = self._json.decode(batch.column(VALUE))
        mode = self._json.mode
        if problems and mode is ParseMode.FAILFAST:
            row, problem = min(problems.items())
            raise MalformedValueError(
                f"kafka_once: the value of topic {self._topic}, partition {self._partition}, at offset "
                f"{batch.column(OFFSET)[row].as_py()} does not parse: {problem}. Correct what writes it, or use mode "
                "PERMISSIVE or DROPMALFORMED instead of FAILFAST"
            )
        made = {name: values if name == VALUE else batch.column(name) for name in self._options.columns}
        if self._options.dead_letters:
            made[DEAD_LETTER] = self._letters(batch, values, problems)
        rows = pa.RecordBatch.from_arrays(list(made.values()), schema=self._schema)
        if problems and mode is ParseMode.DROPMALFORMED:
            return rows.take(pa.array(np.delete(np.arange(rows.num_rows), sorted(problems))))
        return rows

    def _letters(self, batch: pa.RecordBatch, values: pa.StructArray, problems: Problems) -> pa.Array:
        """Return the column of dead letters; a record without a value, or with an empty one, is one, too."""
        assert self._schema is not None
        kind = self._schema.field(DEAD_LETTER).type
        raw = batch.column(VALUE)
        nulls = np.flatnonzero(np.asarray(values.is_null())).tolist()
        reasons = {**{row: EMPTY_VALUE if raw[row].is_valid else NO_VALUE for row in nulls}, **problems}
        if not reasons:
            return pa.nulls(batch.num_rows, kind)
        at = np.array(sorted(reasons), np.int64)
        taken = batch.take(at)
        parts = {
            REASON: pa.array([reasons[row] for row in at.tolist()], pa.string()),
            TOPIC: pa.array([self._topic] * at.shape[0], pa.string()),
            PARTITION: pa.array([self._partition] * at.shape[0], pa.int32()),
        }
        parts |= {name: taken.column(name) for name in (KEY, VALUE, OFFSET, TIMESTAMP)}
        letters = pa.StructArray.from_arrays([parts[field.name] for field in kind], fields=list(kind))
        places: NDArray[np.int64] = np.full(batch.num_rows, -1, np.int64)
        places[at] = np.arange(at.shape[0])
        return letters.take(pa.array(places, mask=places < 0))


def fields_in(schema: DataType) -> int:
    """Count the fields of a schema, those of its structs, lists and maps included; 1 at least."""
    if isinstance(schema, StructType):
        return sum(fields_in(field.dataType) for field in schema) + 1
    if isinstance(schema, ArrayType):
        return fields_in(schema.elementType) + 1
    if isinstance(schema, MapType):
        return fields_in(schema.valueType) + 2
    return 1


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

    def decode(self, values: pa.BinaryArray) -> tuple[pa.StructArray, Problems]:
        """Return the decoded values, with the fields that parse of malformed ones; and the problems."""
        fast, odd = self._compiled(values)
        problems: Problems = {}
        if odd.shape[0]:
            parsed = [self._careful.parse(values[row].as_py()) for row in odd.tolist()]
            problems = {row: each.problem for row, each in zip(odd.tolist(), parsed, strict=True) if each.problem}
            fast = self._put(fast, odd, parsed)
        return (fast if self._corrupt is None else self._with_corrupt(fast, values, problems)), problems

    def _compiled(self, values: pa.BinaryArray) -> tuple[pa.StructArray, NDArray[np.int64]]:
        """Decode on the compiled path; return the rows that it leaves undecided."""
        count = len(values)
        _, offset_buffer, data_buffer = values.buffers()
        bounds = np.frombuffer(offset_buffer, np.int32)[values.offset : values.offset + count + 1]
        data = np.frombuffer(data_buffer if data_buffer is not None and data_buffer.size else b"\0", np.uint8)
        starts = bounds[:-1].copy()
        if values.null_count:
            starts[np.asarray(values.is_null())] = scanning.NULL
        level = Level(starts, bounds[1:], np.arange(count, dtype=np.int32))
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
