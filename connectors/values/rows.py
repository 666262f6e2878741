"""Turns the decoder's output into the requested rows: values decoded, dead letters marked.

A `RowMaker` belongs to one task. Most records take the compiled path; those that it leaves undecided are decoded one by
one by `jackson_parser.JacksonParser`, and put in their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from sparkonce.connectors.sql.select import ConditionRunner, SelectRunner

NO_VALUE, EMPTY_VALUE = "value is null", "value is empty"
"""The reasons of dead letters whose records have no value, or one without any JSON; such rows have a null value."""
ASCII_BELOW = 0x80
BYTES_AT_ONCE = 1 << 20
"""Text that is decoded at once. Each field of the schema goes over it again, so it must stay in a processor's cache."""
MAX_CELLS = 8 << 20
"""Fields of the schema times rows that are decoded at once: each takes some bytes, though its value may be absent."""
MOST_KEPT = 0.5
IDLE_BATCHES = 15
"""Where WHERE keeps a larger part of the records, reading its fields first costs more than it saves, so that is tried
again after some batches only."""

Problems = dict[int, str]
"""By the number of the row, why its value does not parse."""


class MalformedValueError(ValueError):
    """A value that does not parse, in mode FAILFAST."""


class EarlyFilter:
    """Drops records that WHERE drops before all fields that the SELECT reads are decoded.

    It may keep too many: the SELECT has its WHERE, too.
    """

    def __init__(self, condition: ConditionRunner, read: RowOptions) -> None:
        """``read`` says which columns and fields WHERE reads."""
        self._columns, self._schema = read.columns, to_arrow_schema(read.record_schema(), timezone="UTC")
        self._json = JsonDecoder(read.json) if read.json is not None else None
        self._condition = condition
        self._idle = 0

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that WHERE keeps, and those of which it is not certain."""
        if self._idle:
            self._idle -= 1
            return batch
        columns, kept = {name: batch.column(name) for name in self._columns}, np.zeros(batch.num_rows, np.bool_)
        if self._json is not None:
            columns[VALUE], odd = self._json.certain(batch.column(VALUE))
            kept[odd] = True
        rows = self._condition.run(pa.RecordBatch.from_arrays(list(columns.values()), schema=self._schema))
        if rows is None:
            return batch
        kept[rows] = True
        if np.count_nonzero(kept) > batch.num_rows * MOST_KEPT:
            self._idle = IDLE_BATCHES
        return batch.filter(pa.array(kept))


class RowMaker:
    """Makes the rows of one task."""

    def __init__(self, options: RowOptions, topic: str, partition: int) -> None:
        self._options = options
        self._topic, self._partition = topic, partition
        self._json = JsonDecoder(options.json) if options.json is not None else None
        self._select = None if options.select is None else options.select.runner()
        self._filter = _early_filter(options)
        self._decoded = to_arrow_schema(options.record_schema(), timezone="UTC")
        self._schema = to_arrow_schema(options.spark_schema(), timezone="UTC")
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
            MalformedValueError: for the first value that does not parse in mode FAILFAST, or that makes ``sql`` fail,
                unless such records are dead letters or are dropped.
        """
        if self._json is None and self._select is None and not self._options.dead_letters:
            return batch
        if self._filter is not None:
            batch = self._filter.kept(batch)
        records, problems = self._decode(batch)
        if problems and self._drops_malformed:
            kept = _others(batch, problems)
            batch, records, problems = batch.take(kept), records.take(kept), {}
        letters = self._reasons(batch, records, problems) if self._options.dead_letters else {}
        if self._select is not None:
            return self._selected(self._select, batch, records, letters)
        if not self._options.dead_letters:
            return records
        places: NDArray[np.int64] = np.full(batch.num_rows, -1, np.int64)
        places[sorted(letters)] = np.arange(len(letters))
        column = self._letters(batch, letters).take(pa.array(places, mask=places < 0))
        return pa.RecordBatch.from_arrays([*records.columns, column], schema=self._schema)

    def _decode(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Problems]:
        """Return the records with their values decoded, and why values do not parse."""
        columns, problems = {name: batch.column(name) for name in self._options.columns}, Problems()
        if self._json is not None:
            columns[VALUE], problems = self._json.decode(batch.column(VALUE))
            if problems and self._json.mode is ParseMode.FAILFAST:
                raise self._error(batch, problems, "does not parse", "mode PERMISSIVE or DROPMALFORMED, not FAILFAST")
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self._decoded), problems

    def _selected(
        self, select: SelectRunner, batch: pa.RecordBatch, records: pa.RecordBatch, letters: Problems
    ) -> pa.RecordBatch:
        """Return the rows that ``sql`` makes of records that are no dead letters, and after them the dead letters."""
        kept = _others(batch, letters)
        selected = select.run(records.take(kept) if letters else records)
        failed = {int(kept[row]): reason for row, reason in selected.failed}
        if self._options.dead_letters:
            column = self._letters(batch, {**letters, **failed})
            empty = [pa.nulls(len(column), field.type) for field in selected.rows.schema]
            parts = [(*selected.rows.columns, pa.nulls(selected.rows.num_rows, column.type)), (*empty, column)]
            arrays = [pa.concat_arrays(each) for each in zip(*parts, strict=True)]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if failed and not self._drops_malformed:
            raise self._error(
                batch,
                failed,
                "makes the option sql fail",
                "includeDeadLetters=true on the source, or try_cast in the sql",
            )
        return selected.rows

    @property
    def _drops_malformed(self) -> bool:
        return self._json is not None and self._json.mode is ParseMode.DROPMALFORMED

    def _error(self, batch: pa.RecordBatch, problems: Problems, what: str, instead: str) -> MalformedValueError:
        row, problem = min(problems.items())
        return MalformedValueError(
            f"kafka_once: the value of topic {self._topic}, partition {self._partition}, at offset "
            f"{batch.column(OFFSET)[row].as_py()} {what}: {problem}. Correct what writes it, or use {instead}"
        )

    def _reasons(self, batch: pa.RecordBatch, records: pa.RecordBatch, problems: Problems) -> Problems:
        """Return why records are dead letters; one without a value, or with an empty one, is one, too."""
        if self._json is None:
            return problems
        raw = batch.column(VALUE)
        nulls = np.flatnonzero(np.asarray(records.column(VALUE).is_null())).tolist()
        return {**{row: EMPTY_VALUE if raw[row].is_valid else NO_VALUE for row in nulls}, **problems}

    def _letters(self, batch: pa.RecordBatch, reasons: Problems) -> pa.StructArray:
        """Return the dead letters of these rows, in order."""
        kind = self._schema.field(DEAD_LETTER).type
        at = np.array(sorted(reasons), np.int64)
        taken = batch.take(at)
        parts = {
            REASON: pa.array([reasons[row] for row in at.tolist()], pa.string()),
            TOPIC: pa.array([self._topic] * at.shape[0], pa.string()),
            PARTITION: pa.array([self._partition] * at.shape[0], pa.int32()),
        }
        parts |= {name: taken.column(name) for name in (KEY, VALUE, OFFSET, TIMESTAMP)}
        return pa.StructArray.from_arrays([parts[field.name] for field in kind], fields=list(kind))


def _early_filter(options: RowOptions) -> EarlyFilter | None:
    read = options.read_first
    runner = None if options.select is None or read is None else options.select.condition_runner()
    return None if runner is None or read is None else EarlyFilter(runner, read)


def _others(batch: pa.RecordBatch, rows: Problems) -> NDArray[np.int64]:
    """Return the numbers of the other rows."""
    return np.delete(np.arange(batch.num_rows), sorted(rows))


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
        fast, odd = self.certain(values)
        problems: Problems = {}
        if odd.shape[0]:
            parsed = [self._careful.parse(values[row].as_py()) for row in odd.tolist()]
            problems = {row: each.problem for row, each in zip(odd.tolist(), parsed, strict=True) if each.problem}
            fast = self._put(fast, odd, parsed)
        return (fast if self._corrupt is None else self._with_corrupt(fast, values, problems)), problems

    def certain(self, values: pa.BinaryArray) -> tuple[pa.StructArray, NDArray[np.int64]]:
        """Decode on the compiled path only; return the rows that it leaves undecided, too."""
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
