"""The columns of a Kafka record, as Spark's own Kafka connector names and types them, and the options about them.

The options select the columns of ``kafka_once``, and define how its value is decoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

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

from sparkonce.connectors.schema_registry.settings import RegistrySettings
from sparkonce.connectors.values.datetimes import check_pattern, check_zone
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.letters import COLUMN as DEAD_LETTER
from sparkonce.connectors.values.letters import LETTER
from sparkonce.settings import boolean, integer, text

if TYPE_CHECKING:
    from sparkonce.connectors.sql.select import Select

KEY, VALUE, TOPIC, PARTITION = "key", "value", "topic", "partition"
OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = "offset", "timestamp", "timestampType", "headers"
RAW_TIMESTAMP = "timestampMs"
"""Instead of `TIMESTAMP`, where any number must be accepted: milliseconds as in Kafka. Users cannot request it."""

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
ALL_COLUMNS = tuple(_SPARK)
_SPARK[RAW_TIMESTAMP] = LongType()
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
    RAW_TIMESTAMP: pa.int64(),
}

BINARY, STRING, JSON = "binary", "string", "json"
AVRO, PROTOBUF, JSON_SCHEMA = "avro", "protobuf", "json-schema"
STAY, RESTART, ADD_COLUMNS = "none", "restart", "add-columns"
_LETTERS = "includeDeadLetters"
_LETTERS_NEED = (KEY, VALUE, OFFSET, RAW_TIMESTAMP)
"""The columns of a dead letter besides topic and partition, which every task knows."""


_DECIDES_NOTHING = ("registry", "stop_for", "json", "version_of", "is_begun", "unknown_stops", "unknown")
"""Fields of `SchemaOptions` that do not affect the result of a record."""


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
        "what values are read as. With valueFormat=json their fields: DDL as from_json takes it, or Spark's JSON of a "
        "StructType. With the other formats the reader's schema (JSON as Avro or JSON Schema has it, or the text of a "
        ".proto file), or file:PATH; by default the latest version that schemaRegistry.url has of the subject",
        name="valueSchema",
        parse=parse_schema,
        value="id BIGINT, name STRING",
    )
    """With the field for the text of corrupt records, if the user has one."""
    mode: ParseMode = text(
        ParseMode.PERMISSIVE,
        "the handling of a value that does not parse: a row with the fields that do and null for the others "
        "(PERMISSIVE), no row (DROPMALFORMED), or an error that stops the query (FAILFAST)",
        parse=_mode,
        value="|".join(ParseMode),
    )
    corrupt_column: str | None = text(
        "_corrupt_record",
        "the field that gets a value that does not parse: with json its text, if valueSchema has this field, a STRING; "
        "else its bytes, a field that is added if this option is set",
        name="columnNameOfCorruptRecord",
        parse=_name,
        value="field",
    )
    """None if no field is for such values, whatever its name."""
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
class SchemaOptions:
    """How values with a schema are decoded: from Avro, Protobuf or JSON."""

    schema: DataType
    """The type of the column, with the field for corrupt values, where the user wants one."""
    reader: str
    """The reader's schema, without references; of Protobuf, as `protobuf.reading` has it."""
    mode: ParseMode = ParseMode.PERMISSIVE
    corrupt_column: str | None = None
    registry: RegistrySettings | None = None
    """The source of the writers' schemas; None if values are bare and were written with the reader's schema."""
    reader_id: int | None = None
    """The id of the reader's schema in the registry, if it is from there."""
    format: str = AVRO
    message: str | None = None
    """The name of the reader's message of Protobuf; None for the first."""
    stop_for: str | None = None
    """The subject of which a newer version must not go unnoticed; None if it may."""
    version_of: tuple[str, int] | None = None
    """The subject and version of the reader's schema, if a query follows a subject."""
    is_begun: bool = False
    """Whether dead letters of the batch were found with this version already, so that no other may replace it."""
    unknown_stops: bool = False
    """Whether an id that the registry lacks stops the query, since no row would show it: the registry may have
    lost a schema, as one that was restored from a backup."""
    unknown: Set[str] | None = None
    """For a batch that is completed: the schemas that the registry lacked, by `RegisteredValues.unknown`."""
    column: str = VALUE
    most_within: int = 0
    """The maximal nesting of a recursive type, the outermost counted; 0 for schemas that are not recursive."""
    json: JsonOptions | None = None
    """How JSON values are decoded; the fields are those of ``schema``."""


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Keys that are text."""

    mode: ParseMode
    schema: DataType = StringType()  # noqa: RUF009 - it has no state
    corrupt_column: str | None = None


ValueOptions = JsonOptions | SchemaOptions
KeyDecoding = TextOptions | SchemaOptions


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """How keys are decoded."""

    key_format: str = text(
        BINARY,
        "what the column key holds: the bytes as they are, text (string), or as valueFormat (avro, "
        "protobuf, json-schema)",
        choices=(BINARY, STRING, AVRO, PROTOBUF, JSON_SCHEMA),
    )
    key_schema: str | None = text(
        None, "as valueSchema, for keys", default_text="the latest of the subject", value="schema"
    )
    key_message: str | None = text(
        None, "as valueMessage, for keys", default_text="the first one of the schema", value="message"
    )
    key_schema_id: int | None = integer(None, "as valueSchemaId, for keys", least=1, default_text="that of the latest")
    key_subject: str | None = text(
        None, "as valueSubject, for keys", default_text="TOPIC-key, where subscribe names one topic", value="subject"
    )


class RowCheck(Protocol):
    """What a table asks of rows. Sent to the tasks."""

    def broken(self, rows: pa.RecordBatch) -> Mapping[int, str]:
        """Return which rows cannot be in the table, by their numbers, and why."""


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
        "what the column value holds: the bytes as they are, or typed columns, decoded in the worker: a struct of "
        "fields as from_json makes it (json), or what from_avro and from_protobuf make of the reader's schema (avro, "
        "protobuf), or documents of JSON with a registry's schema (json-schema)",
        choices=(BINARY, JSON, AVRO, PROTOBUF, JSON_SCHEMA),
    )
    value_message: str | None = text(
        None,
        "with protobuf, the name of the message that values are read as",
        default_text="the first one of the schema",
        value="message",
    )
    value_schema_id: int | None = integer(
        None,
        "the id of the registry's schema that values are read as, in place of the latest one of a subject",
        least=1,
        default_text="that of the latest",
    )
    value_subject: str | None = text(
        None,
        "the subject of the registry whose latest version is the reader's schema, where valueSchema is not set",
        default_text="TOPIC-value, where subscribe names one topic",
        value="subject",
    )
    recursive_field_max_depth: int | None = integer(
        None,
        "with avro and protobuf, how many times a type may be within itself, itself counted: 1 leaves the fields out "
        "that make a type recursive, and so on. As from_avro's option of this name, and from_protobuf's "
        "recursive.fields.max.depth, which is at most 10",
        least=1,
        most=15,
        default_text="recursive schemas are refused",
    )
    schema_evolution: str = text(
        STAY,
        "what happens when values come with a newer version of the subject's schema than values are read as: they are "
        "read as that all the same, without their new fields (none); the query stops before it writes them, and "
        "reads all as the newer one when it is started again (restart); or, with handOver=ranges and mergeSchema=true "
        "on delta_once, each batch is read as the latest version, and new columns are added to the table while the "
        "query runs (add-columns)",
        choices=(STAY, RESTART, ADD_COLUMNS),
    )
    dead_letters: bool = boolean(
        False,
        f"whether to add the column {DEAD_LETTER}: null, or for a value that does not parse the record and the reason, "
        "as the sinks' option deadLetters takes it",
        name=_LETTERS,
    )
    decoding: ValueOptions | None = None
    """How values are decoded; None for bytes."""
    key_decoding: KeyDecoding | None = None
    """How keys are decoded."""
    select: Select | None = None
    """The SELECT over the decoded records, in a direct query with the option ``sql``."""
    partitioned: tuple[str, ...] = ()
    """Columns of dates and times, in a direct query, by which the table is partitioned that the rows go into."""
    check: RowCheck | None = None
    """What that table asks of rows; None if nothing."""

    def with_select(self, select: Select) -> RowOptions:
        """Return these options with a SELECT over such records, and without the columns and fields it does not read.

        As Spark does for a field of ``from_json``, an unread column is not decoded, so it cannot fail; unless that
        would make a dead letter, drop the record, or stop the query.
        """
        if not self._ignores_failures:
            decoded = ((VALUE, self.decoding), (KEY, self.key_decoding))
            read = {*(name for name, how in decoded if how is not None), *(path[0] for path in select.reads)}
            return replace(self, columns=tuple(name for name in self.columns if name in read), select=select)
        return replace(self._only(select.reads), select=select)

    @property
    def read_first(self) -> RowOptions | None:
        """The options for reading only what WHERE needs; None if reading that first saves nothing or may fail.

        A value that parses only partly counts as one that does not parse: what the other fields are then depends on
        what else is read. Base64 is such a field: where it fails, the next ones may fail, too (`jackson_parser`).
        """
        select, json = self.select, self.decoding
        if select is None or select.condition is None or not self._ignores_failures:
            return None
        if not isinstance(json, JsonOptions) or self.key_decoding is not None:
            return None
        first = self._only({path[:2] for path in select.condition.reads})  # fields of a struct may fail each other
        reads_all = isinstance(first.decoding, JsonOptions) and len(first.decoding.schema) == len(json.schema)
        return None if reads_all or _has_binary(json.schema) else first

    @property
    def _ignores_failures(self) -> bool:
        """Whether a value or key that does not parse makes a row like any other."""
        if self.mode is None:
            return True
        keeps = self.decoding is not None and self.decoding.corrupt_column in _names(self.decoding.schema)
        return not self.dead_letters and self.mode is ParseMode.PERMISSIVE and not keeps

    @property
    def mode(self) -> ParseMode | None:
        """The handling of records that do not parse; None if nothing is decoded."""
        decoding = self.decoding or self.key_decoding
        return None if decoding is None else decoding.mode

    def _only(self, paths: Set[tuple[str, ...]]) -> RowOptions:
        """Return these options with the columns, and the fields of values, that the paths lead to."""
        read, decoding = {path[0] for path in paths}, self.decoding
        if decoding is not None:
            of_value = {path[1:] for path in paths if path[0] == VALUE}
            decoding = _narrowed(decoding, of_value) if of_value else None
        columns = tuple(name for name in self.columns if name in read) or (OFFSET,)
        key_decoding = self.key_decoding if KEY in columns else None
        return replace(self, columns=columns, decoding=decoding, key_decoding=key_decoding)

    def digest(self, *, any_time: bool = True) -> str:
        """Return a digest of everything that determines a record's rows and dead letters: 16 hexadecimal digits.

        Without ``any_time``, as recorded by versions that stopped at each record time that is no timestamp.

        The reader's schema is not included if the registry has it: its id identifies it.
        Settings at their defaults are left out, so that new ones change no digest.
        """
        chosen = _chosen(self.decoding)
        if isinstance(self.decoding, SchemaOptions) and self.decoding.reader_id is not None:
            chosen = {name: each for name, each in chosen.items() if name not in ("schema", "reader", "reader_id")}
        sql = "" if self.select is None else self.select.text
        of_keys = [] if self.key_decoding is None else [sorted(_chosen(self.key_decoding).items())]
        limits: list[object] = []
        if self.dead_letters:  # other causes of dead letters
            limits += [self.partitioned] if self.partitioned else []
            limits += ["any time"] if any_time and self.select is None and TIMESTAMP not in self.columns else []
        text = repr([self.value_format, self.dead_letters, sorted(chosen.items()), sql, *of_keys, *limits])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def decoded(self) -> tuple[str, ...]:
        """The columns that must be read to make the rows; those only for dead letters come last."""
        columns = self.columns
        if self.dead_letters:  # a time that is no timestamp makes a dead letter, or is in one
            columns = tuple(RAW_TIMESTAMP if name == TIMESTAMP else name for name in columns)
        more = [name for name in _LETTERS_NEED if name not in columns] if self.dead_letters else []
        by_schema = [each for each in (self.decoding, self.key_decoding) if isinstance(each, SchemaOptions)]
        if any(each.registry is not None for each in by_schema) and HEADERS not in self.columns:
            more.append(HEADERS)  # they may name the schema
        can_fail = self.select is not None or self.mode is ParseMode.FAILFAST or bool(self.partitioned or self.check)
        if can_fail and OFFSET not in (*self.columns, *more):
            more.append(OFFSET)  # to identify the record
        return (*columns, *more)

    def record_schema(self) -> StructType:
        """Return the schema of the decoded records, without dead letters."""
        fields = list(spark_schema(self.columns).fields)
        if self.decoding is not None:
            fields[self.columns.index(VALUE)] = StructField(VALUE, self.decoding.schema)
        if self.key_decoding is not None:
            fields[self.columns.index(KEY)] = StructField(KEY, self.key_decoding.schema)
        return StructType(fields)

    def spark_schema(self) -> StructType:
        """Return the schema of the rows."""
        fields = list((self.record_schema() if self.select is None else self.select.schema).fields)
        if self.dead_letters:
            fields.append(StructField(DEAD_LETTER, LETTER))
        return StructType(fields)


def _chosen(decoding: ValueOptions | KeyDecoding | None) -> dict[str, str]:
    """Return, by name, the relevant settings that differ from their defaults."""
    if decoding is None:
        return {}
    values = {each: getattr(decoding, each.name) for each in fields(decoding) if each.name not in _DECIDES_NOTHING}
    chosen = {each.name: f"{value}" for each, value in values.items() if value != each.default}
    if isinstance(decoding, SchemaOptions) and decoding.json is not None:
        of_json = _chosen(replace(decoding.json, schema=StructType()))
        chosen |= {f"json.{name}": value for name, value in of_json.items() if name != "schema"}
    return chosen


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


def _narrowed(decoding: ValueOptions, paths: Set[tuple[str, ...]]) -> ValueOptions:
    if not isinstance(decoding.schema, StructType):
        return decoding
    return replace(decoding, schema=_only(decoding.schema, paths))


def _names(kind: DataType) -> Sequence[str]:
    return kind.names if isinstance(kind, StructType) else ()


def _has_binary(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_binary(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_binary(kind.elementType)
    if isinstance(kind, MapType):
        return _has_binary(kind.valueType)
    return isinstance(kind, BinaryType)
