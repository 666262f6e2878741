"""The columns of a Kafka record, as Spark's own Kafka connector names and types them, and the options about them.

The options select the columns of ``kafka_once``, and define how its value is decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkonce.connectors.settings.options import OptionError, SettingTable
from sparkonce.connectors.sinks.dead_letters import COLUMN as DEAD_LETTER
from sparkonce.connectors.sinks.dead_letters import LETTER
from sparkonce.connectors.values.datetimes import check_pattern, check_zone
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.settings import boolean, camel_case, settings_of, text

if TYPE_CHECKING:
    from sparkonce.connectors.sql.select import Select

KEY, VALUE, TOPIC, PARTITION = "key", "value", "topic", "partition"
OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = "offset", "timestamp", "timestampType", "headers"

COLUMNS = (KEY, VALUE, TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE)
"""The columns that are read by default, in this order."""

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK: dict[str, DataType] = {
    KEY: BinaryType(),
    VALUE: BinaryType(),
    TOPIC: StringType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    TIMESTAMP: TimestampType(),
    TIMESTAMP_TYPE: IntegerType(),
    HEADERS: ArrayType(_HEADER),
}
_ARROW_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ARROW: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(pa.field("element", _ARROW_HEADER)),
}
ALL_COLUMNS = tuple(_SPARK)

BINARY, JSON = "binary", "json"
_LETTERS = "includeDeadLetters"
_LETTERS_NEED = (KEY, VALUE, OFFSET, TIMESTAMP)
"""The columns of a dead letter besides topic and partition, which every task knows."""


def default_columns(include_headers: bool) -> tuple[str, ...]:
    """Return the columns of Spark's own connector; ``headers`` comes last, and only if requested."""
    return (*COLUMNS, HEADERS) if include_headers else COLUMNS


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the schema of records with these columns."""
    return StructType([StructField(name, _SPARK[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the same schema as Spark expects it from a worker: it compares types, names and nullability exactly."""
    return pa.schema([pa.field(name, _ARROW[name]) for name in columns])


class ParseMode(StrEnum):
    """The handling of a record whose value does not parse; the names are Spark's."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


def _columns(text: str) -> tuple[str, ...]:
    by_key = {name.lower(): name for name in ALL_COLUMNS}
    given = [part.strip() for part in text.split(",")]
    unknown = [name for name in given if name.lower() not in by_key]
    if not text.strip() or "" in given or unknown:
        wrong = f", found {unknown[0]!r}" if unknown and unknown[0] else ""
        raise ValueError(f"expected names separated by commas, of {', '.join(ALL_COLUMNS)}{wrong}")
    columns = tuple(by_key[name.lower()] for name in given)
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is there twice")
    return columns


def _mode(text: str) -> ParseMode:
    try:
        return ParseMode(text.strip().upper())
    except ValueError:
        raise ValueError("expected one of " + ", ".join(ParseMode)) from None


def _name(text: str) -> str:
    if not text:
        raise ValueError("expected the name of a field")
    return text


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """How values are decoded from JSON."""

    schema: StructType = text(
        None,
        "the fields of the values, with valueFormat=json: DDL as from_json takes it, or Spark's JSON of a StructType",
        name="valueSchema",
        parse=parse_schema,
        value="id BIGINT, name STRING",
    )
    """With the field for the text of corrupt records, where the user has one."""
    mode: ParseMode = text(
        ParseMode.PERMISSIVE,
        "the handling of a value that does not parse: a row with the fields that do and null for the others "
        "(PERMISSIVE), no row (DROPMALFORMED), or an error that stops the query (FAILFAST)",
        parse=_mode,
        value="|".join(ParseMode),
    )
    corrupt_column: str = text(
        "_corrupt_record",
        "the field of valueSchema, a STRING, that gets the text of a value that does not parse; if there is one",
        name="columnNameOfCorruptRecord",
        parse=_name,
        value="field",
    )
    date_format: str | None = text(
        None,
        "the pattern of DATE fields, such as dd.MM.yyyy",
        parse=check_pattern,
        default_text="as CAST reads dates",
        value="pattern",
    )
    timestamp_format: str | None = text(
        None,
        "the pattern of TIMESTAMP fields, such as yyyy-MM-dd HH:mm:ss[.SSS][XXX]",
        parse=check_pattern,
        default_text="as CAST reads timestamps",
        value="pattern",
    )
    timestamp_ntz_format: str | None = text(
        None,
        "the pattern of TIMESTAMP_NTZ fields",
        name="timestampNTZFormat",
        parse=check_pattern,
        default_text="as CAST reads timestamps",
        value="pattern",
    )
    time_zone: str = text(
        "UTC",
        "the zone of timestamps that name none, such as Europe/Paris or +02:00. A Python source does not get "
        "spark.sql.session.timeZone: set it here",
        parse=check_zone,
        value="zone",
    )


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The columns of the rows."""

    include_headers: bool = boolean(
        False, "whether to add the column headers; columns can name it, too", spark=True, group="Columns"
    )
    columns: tuple[str, ...] = text(
        default_columns(False),
        "the columns to read, in this order; the others are not even decoded. Names separated by commas, of "
        + ", ".join(ALL_COLUMNS),
        parse=_columns,
        default_text="all but headers",
        value="value,offset",
        group="Columns",
    )
    value_format: str = text(
        BINARY,
        "what the column value holds: the bytes as they are, or (json) a struct of typed fields, decoded in the "
        "worker as from_json does it",
        choices=(BINARY, JSON),
    )
    dead_letters: bool = boolean(
        False,
        f"whether to add the column {DEAD_LETTER}: null, or for a value that does not parse the record and the reason, "
        "as the sinks' option deadLetters takes it",
        name=_LETTERS,
    )
    json: JsonOptions | None = None
    select: Select | None = None
    """What makes rows of the decoded records, in a direct query with the option ``sql``."""

    def with_select(self, select: Select) -> RowOptions:
        """Return these options with a SELECT over such records, and without the columns and fields it does not read.

        As Spark does it for a field of ``from_json``, what is not read is not decoded, so it cannot fail; unless that
        would make a dead letter, drop the record, or stop the query.
        """
        if self.json is not None and not self._ignores_failures:
            read = {VALUE, *(path[0] for path in select.reads)}
            return replace(self, columns=tuple(name for name in self.columns if name in read), select=select)
        return replace(self._only(select.reads), select=select)

    @property
    def read_first(self) -> RowOptions | None:
        """What WHERE reads, where it is worth reading first: less of the values than the SELECT, and enough of them.

        A value that parses only partly counts as one that does not parse: what the other fields are then depends on
        what else is read. Base64 is such a field: where it fails, the next ones may fail, too (`jackson_parser`).
        """
        select, json = self.select, self.json
        if select is None or select.condition is None or json is None or not self._ignores_failures:
            return None
        first = self._only({path[:2] for path in select.condition.reads})  # fields of a struct may fail each other
        reads_all = first.json is not None and len(first.json.schema) == len(json.schema)
        return None if reads_all or _has_binary(json.schema) else first

    @property
    def _ignores_failures(self) -> bool:
        """Whether a value that does not parse makes a row like any other."""
        json = self.json
        return json is None or (
            not self.dead_letters and json.mode is ParseMode.PERMISSIVE and json.corrupt_column not in json.schema.names
        )

    def _only(self, paths: Set[tuple[str, ...]]) -> RowOptions:
        """Return these options with the columns, and the fields of values, that the paths lead to."""
        read, json = {path[0] for path in paths}, self.json
        if json is not None:
            of_value = {path[1:] for path in paths if path[0] == VALUE}
            json = replace(json, schema=_only(json.schema, of_value)) if of_value else None
        return replace(self, columns=tuple(name for name in self.columns if name in read) or (OFFSET,), json=json)

    def digest(self) -> str:
        """Return a digest of all that decides which rows and dead letters a record becomes: 16 hexadecimal digits.

        Settings at their defaults are left out, so that new ones change no digest.
        """
        json = () if self.json is None else fields(self.json)
        values = {each.name: getattr(self.json, each.name) for each in json}
        chosen = {each.name: f"{values[each.name]}" for each in json if values[each.name] != each.default}
        sql = "" if self.select is None else self.select.text
        text = repr([self.value_format, self.dead_letters, sorted(chosen.items()), sql])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def decoded(self) -> tuple[str, ...]:
        """The columns that must be read to make the rows; those that are only for dead letters come last."""
        more = [name for name in _LETTERS_NEED if name not in self.columns] if self.dead_letters else []
        can_fail = self.select is not None or (self.json is not None and self.json.mode is ParseMode.FAILFAST)
        if can_fail and OFFSET not in (*self.columns, *more):
            more.append(OFFSET)  # to identify the record
        return (*self.columns, *more)

    def record_schema(self) -> StructType:
        """Return the schema of the decoded records, without dead letters."""
        fields = list(spark_schema(self.columns).fields)
        if self.json is not None:
            fields[self.columns.index(VALUE)] = StructField(VALUE, self.json.schema)
        return StructType(fields)

    def spark_schema(self) -> StructType:
        """Return the schema of the rows."""
        fields = list((self.record_schema() if self.select is None else self.select.schema).fields)
        if self.dead_letters:
            fields.append(StructField(DEAD_LETTER, LETTER))
        return StructType(fields)


def _only(schema: StructType, paths: Set[tuple[str, ...]]) -> StructType:
    """Return a schema with the fields that the paths lead to; the empty path leads to all."""
    if () in paths:
        return schema
    fields = []
    for field in schema:
        below = {path[1:] for path in paths if path[0] == field.name}
        if below:
            kind = _only(field.dataType, below) if isinstance(field.dataType, StructType) else field.dataType
            fields.append(StructField(field.name, kind, field.nullable, field.metadata))
    return StructType(fields)


def _has_binary(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_binary(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_binary(kind.elementType)
    if isinstance(kind, MapType):
        return _has_binary(kind.valueType)
    return isinstance(kind, BinaryType)


_ROWS, _JSON = settings_of(RowOptions, camel_case, "Values"), settings_of(JsonOptions, camel_case, "Values")
ROW_SETTINGS = {**_ROWS, **_JSON}


def read_rows(table: SettingTable, given: Mapping[str, str], *, may_select: bool = False) -> RowOptions:
    """Read the options of the rows, whose names have been checked before.

    With ``may_select``, the sink may have the option ``sql``, which can fail for values that are not decoded, too.

    Raises:
        OptionError: for one that cannot be read, or options that contradict each other.
    """
    rows, named = RowOptions(**table.values(given, _ROWS)), {name.lower() for name in given}
    if "columns" not in named:
        rows = replace(rows, columns=default_columns(rows.include_headers))
    elif "includeheaders" in named and rows.include_headers != (HEADERS in rows.columns):
        columns = f"columns={','.join(rows.columns)}"
        raise OptionError(
            f"{table.format}: includeHeaders=true, but {columns} leaves headers out: add it to columns, or leave out "
            "includeHeaders"
            if rows.include_headers
            else f"{table.format}: includeHeaders=false, but {columns} names headers: remove it from columns, or leave "
            "out includeHeaders"
        )
    if rows.value_format == BINARY:
        useless = [name for name in (*_JSON, *(() if may_select else (_LETTERS,))) if name.lower() in named]
        if useless:
            raise OptionError(
                f'{table.format}: option {useless[0]} is for decoded values: set option("valueFormat", "json") too'
            )
        return rows
    if VALUE not in rows.columns:
        raise OptionError(
            f"{table.format}: valueFormat=json, but columns={','.join(rows.columns)} leaves value out: add it"
        )
    json = JsonOptions(**table.values(given, _JSON))
    _check_json(json, rows, table.format)
    return replace(rows, json=json)


def _check_json(json: JsonOptions, rows: RowOptions, name: str) -> None:
    if json.schema is None:
        raise OptionError(
            f"{name}: valueFormat=json needs the option valueSchema, the fields of the values: "
            'for example option("valueSchema", "id BIGINT, name STRING")'
        )
    corrupt = json.corrupt_column
    if corrupt in json.schema.names and json.schema[corrupt].dataType != StringType():
        raise OptionError(
            f"{name}: valueSchema has {corrupt} {json.schema[corrupt].dataType.simpleString()}: the field for corrupt "
            "records must be STRING; name another with columnNameOfCorruptRecord"
        )
    if rows.dead_letters and json.mode is not ParseMode.PERMISSIVE:
        raise OptionError(
            f"{name}: includeDeadLetters=true needs mode PERMISSIVE: with {json.mode} no row is left that could carry "
            "a dead letter"
        )
