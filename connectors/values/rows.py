"""Turns the decoder's output into rows: values decoded, dead letters marked. A `RowMaker` belongs to one task."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparkonce.connectors.values.columns import Problems
from sparkonce.connectors.values.evolution import UnknownWriterError
from sparkonce.connectors.values.json_values import JsonDecoder
from sparkonce.connectors.values.letters import COLUMN as DEAD_LETTER
from sparkonce.connectors.values.letters import REASON
from sparkonce.connectors.values.options import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    RAW_TIMESTAMP,
    TIMESTAMP,
    TOPIC,
    VALUE,
    JsonOptions,
    KeyDecoding,
    ParseMode,
    RowOptions,
    SchemaOptions,
    TextOptions,
    ValueOptions,
)
from sparkonce.connectors.values.partition_values import unwritable
from sparkonce.connectors.values.record_times import timestamps

if TYPE_CHECKING:
    from sparkonce.connectors.sql.select import ConditionRunner, SelectRunner

NO_VALUE, EMPTY_VALUE = "value is null", "value is empty"
"""The reasons of dead letters whose records have no value, or an empty one; such rows have a null value."""
MAX_CELLS = 8 << 20
"""The number of fields of the schema times rows decoded at once: each takes some bytes, even if its value is absent."""
MOST_KEPT = 0.5
IDLE_BATCHES = 15
"""If WHERE keeps a larger share of the records, reading its fields first costs more than it saves, so that is tried
again only after some batches."""


class MalformedValueError(ValueError):
    """A value that does not parse, in mode FAILFAST."""


class EarlyFilter:
    """Drops records that WHERE drops, before all fields are decoded; it may keep too many: the SELECT drops again."""

    def __init__(self, condition: ConditionRunner, read: RowOptions) -> None:
        """``read`` names the columns and fields of WHERE."""
        self._columns, self._schema = read.columns, to_arrow_schema(read.record_schema(), timezone="UTC")
        self._json = JsonDecoder(read.decoding) if isinstance(read.decoding, JsonOptions) else None
        self._condition = condition
        self._idle = 0

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that WHERE keeps, and the uncertain ones."""
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
        self._decoder, self._key_decoder = make_decoder(options.decoding), make_decoder(options.key_decoding)
        self._select = None if options.select is None else options.select.runner()
        self._filter = _early_filter(options)
        self._decoded = to_arrow_schema(options.record_schema(), timezone="UTC")
        self._schema = to_arrow_schema(options.spark_schema(), timezone="UTC")
        fields = sum(fields_in(each.schema) for each in (options.decoding, options.key_decoding) if each is not None)
        self._most_rows = max(1, MAX_CELLS // fields) if fields else 0

    @property
    def unknown(self) -> Set[str]:
        """The schemas so far that the registry lacks, as `RegisteredValues.unknown`."""
        decoders = (self._decoder, self._key_decoder)
        return frozenset().union(*(getattr(each, "unknown", ()) for each in decoders))

    def batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch's rows, in pieces if many fields require memory. Raises MalformedValueError as `rows`."""
        if not self._most_rows or batch.num_rows <= self._most_rows:
            yield self.rows(batch)
            return
        for start in range(0, batch.num_rows, self._most_rows):
            yield self.rows(batch.slice(start, self._most_rows))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for a batch of the columns that `RowOptions.decoded` names.

        Raises:
            MalformedValueError: for the first value that does not parse in mode FAILFAST, or that makes ``sql`` fail,
                or makes a row that cannot be in the table, unless such records are dead letters or are dropped.
        """
        if self._passes_on:
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
        kept = _others(batch, letters)
        unfit = self._unfit(batch, records.take(kept) if letters else records, kept)
        letters = {**{int(kept[row]): reason for row, reason in unfit.items()}, **letters}
        if not self._options.dead_letters:
            return records
        places: NDArray[np.int64] = np.full(batch.num_rows, -1, np.int64)
        places[sorted(letters)] = np.arange(len(letters))
        column = self._letters(batch, letters).take(pa.array(places, mask=places < 0))
        return pa.RecordBatch.from_arrays([*records.columns, column], schema=self._schema)

    def _decode(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Problems]:
        """Return the records with their values decoded, and the problems of values."""
        columns, problems = dict[str, pa.Array](), Problems()
        for name in self._options.columns:
            if name == TIMESTAMP and self._options.dead_letters:
                columns[name], problems = timestamps(batch.column(RAW_TIMESTAMP))
            else:
                columns[name] = batch.column(name)
        headers = batch.column(HEADERS) if HEADERS in self._options.decoded else None
        try:
            if self._key_decoder is not None:
                columns[KEY], found = self._key_decoder.decode(batch.column(KEY), headers)
                problems |= {row: f"key: {problem}" for row, problem in found.items()}
            if self._decoder is not None:
                columns[VALUE], found = self._decoder.decode(batch.column(VALUE), headers)
                problems |= found
        except UnknownWriterError as error:
            where = self._where(batch, error.row)
            raise MalformedValueError(f"{where} names a schema that the registry does not have: {error}") from None
        if problems and self._options.mode is ParseMode.FAILFAST:
            raise self._error(batch, problems, "does not parse", "mode PERMISSIVE or DROPMALFORMED, not FAILFAST")
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self._decoded), problems

    def _selected(
        self, select: SelectRunner, batch: pa.RecordBatch, records: pa.RecordBatch, letters: Problems
    ) -> pa.RecordBatch:
        """Return the rows of ``sql`` for records that are no dead letters, and after them the dead letters."""
        kept = _others(batch, letters)
        selected = select.run(records.take(kept) if letters else records)
        failed = {int(kept[row]): reason for row, reason in selected.failed}
        rows = selected.rows
        made_of = kept if selected.taken is None else kept[np.asarray(selected.taken)]
        unfit = self._unfit(batch, rows, made_of)
        if unfit:
            failed |= {int(made_of[row]): reason for row, reason in unfit.items()}
            rows = rows.take(_others(rows, unfit))
        if self._options.dead_letters:
            column = self._letters(batch, {**letters, **failed})
            empty = [pa.nulls(len(column), field.type) for field in rows.schema]
            parts = [(*rows.columns, pa.nulls(rows.num_rows, column.type)), (*empty, column)]
            arrays = [pa.concat_arrays(each) for each in zip(*parts, strict=True)]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if failed and not self._drops_malformed:
            raise self._error(
                batch,
                failed,
                "makes the option sql fail",
                "includeDeadLetters=true on the source, or try_cast in the sql",
            )
        return rows

    @property
    def _passes_on(self) -> bool:
        """Whether the rows are the records."""
        options = self._options
        checks = options.dead_letters or options.partitioned or options.check is not None
        return options.mode is None and options.select is None and not checks

    @property
    def _drops_malformed(self) -> bool:
        return self._options.mode is ParseMode.DROPMALFORMED

    def _error(self, batch: pa.RecordBatch, problems: Problems, what: str, instead: str) -> MalformedValueError:
        row, problem = min(problems.items())
        where = self._where(batch, row)
        return MalformedValueError(f"{where} {what}: {problem}. Correct what writes it, or use {instead}")

    def _unfit(self, batch: pa.RecordBatch, rows: pa.RecordBatch, made_of: NDArray[np.int64]) -> Problems:
        """Return which rows, ``made_of`` records, cannot be in the table, and why.

        Raises:
            MalformedValueError: for the first, if there are no dead letters.
        """
        found = unwritable(rows, self._options.partitioned)
        if self._options.check is not None:
            found = {**self._options.check.broken(rows), **found}
        if found and not self._options.dead_letters:
            row, reason = min(found.items())
            what = "makes a row that the table cannot have"
            instead = "includeDeadLetters=true on the source, or leave it out (sql)"
            raise self._error(batch, {int(made_of[row]): reason}, what, instead)
        return found

    def _where(self, batch: pa.RecordBatch, row: int) -> str:
        offset = batch.column(OFFSET)[row].as_py()
        return f"kafka_once: the record of topic {self._topic}, partition {self._partition}, at offset {offset}"

    def _reasons(self, batch: pa.RecordBatch, records: pa.RecordBatch, problems: Problems) -> Problems:
        """Return the reasons of dead letters; a record without a value, or with an empty one, is one, too."""
        if self._decoder is None:
            return problems
        raw = batch.column(VALUE)
        found = records.column(VALUE) if isinstance(self._decoder, JsonDecoder) else raw  # Avro has null as a value
        nulls = np.flatnonzero(np.asarray(found.is_null())).tolist()
        return {**{row: EMPTY_VALUE if raw[row].is_valid else NO_VALUE for row in nulls}, **problems}

    def _letters(self, batch: pa.RecordBatch, reasons: Problems) -> pa.StructArray:
        """Return the dead letters of these rows, in order."""
        kind = self._schema.field(DEAD_LETTER).type
        at = np.array(sorted(reasons), np.int64)
        taken = batch.take(at)
        times, no_times = timestamps(taken.column(RAW_TIMESTAMP))
        told = [reasons[row] for row in at.tolist()]
        for row, why in no_times.items():
            told[row] = why if told[row] == why else f"{told[row]}; {why}"
        parts = {
            REASON: pa.array(told, pa.string()),
            TOPIC: pa.array([self._topic] * at.shape[0], pa.string()),
            PARTITION: pa.array([self._partition] * at.shape[0], pa.int32()),
        }
        parts |= {TIMESTAMP: times, **{name: taken.column(name) for name in (KEY, VALUE, OFFSET)}}
        return pa.StructArray.from_arrays([parts[field.name] for field in kind], fields=list(kind))


def _early_filter(options: RowOptions) -> EarlyFilter | None:
    read = options.read_first
    runner = None if options.select is None or read is None else options.select.condition_runner()
    return None if runner is None or read is None else EarlyFilter(runner, read)


def _others(batch: pa.RecordBatch, rows: Problems) -> NDArray[np.int64]:
    """Return the numbers of the other rows."""
    return np.delete(np.arange(batch.num_rows), sorted(rows))


def fields_in(schema: DataType) -> int:
    """Count the fields of a schema, including those of its structs, lists and maps; at least 1."""
    if isinstance(schema, StructType):
        return sum(fields_in(field.dataType) for field in schema) + 1
    if isinstance(schema, ArrayType):
        return fields_in(schema.elementType) + 1
    if isinstance(schema, MapType):
        return fields_in(schema.valueType) + 2
    return 1


class Decoder(Protocol):
    """Decodes the values or keys of records."""

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[pa.Array, Problems]:
        """Return the decoded values of records, and the problems of some; ``headers`` are those of the records."""


class TextDecoder:
    """Decodes keys that are text."""

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[pa.Array, Problems]:  # noqa: ARG002
        """See `Decoder`."""
        try:
            return values.cast(pa.string()), {}
        except pa.ArrowInvalid:
            texts: list[str | None] = []
            problems: Problems = {}
            for row, value in enumerate(values.to_pylist()):
                try:
                    texts.append(None if value is None else value.decode())
                except UnicodeDecodeError as error:
                    texts.append(None)
                    problems[row] = f"it is not UTF-8: {error.reason} at byte {error.start}"
            return pa.array(texts, pa.string()), problems


def make_decoder(options: ValueOptions | KeyDecoding | None) -> Decoder | None:
    """Return a decoder of values or keys; None for bytes."""
    if isinstance(options, TextOptions):
        return TextDecoder()
    if isinstance(options, SchemaOptions):
        from sparkonce.connectors.values.registered_values import RegisteredValues  # imported lazily, as it compiles

        return RegisteredValues(options)
    return None if options is None else JsonDecoder(options)
