"""Reads and checks the options about columns, values and keys together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from sparkonce.connectors.schema_registry.settings import REGISTRY_SETTINGS, RegistrySettings, read_registry
from sparkonce.connectors.values import json_schema
from sparkonce.connectors.values.avro.schema import parse
from sparkonce.connectors.values.avro.types import spark_type
from sparkonce.connectors.values.options import (
    ADD_COLUMNS,
    AVRO,
    BINARY,
    HEADERS,
    JSON,
    JSON_SCHEMA,
    KEY,
    PROTOBUF,
    STAY,
    STRING,
    VALUE,
    JsonOptions,
    KeyDecoding,
    KeyOptions,
    ParseMode,
    RowOptions,
    SchemaOptions,
    TextOptions,
    ValueOptions,
    default_columns,
)
from sparkonce.options import OptionError, SettingTable
from sparkonce.settings import camel_case, settings_of

LETTERS, EVOLUTION, CORRUPT = "includeDeadLetters", "schemaEvolution", "columnNameOfCorruptRecord"
DEPTH, MAX_PROTOBUF_DEPTH = "recursiveFieldMaxDepth", 10
_ROWS, _JSON = settings_of(RowOptions, camel_case, "Values"), settings_of(JsonOptions, camel_case, "Values")
_KEYS = settings_of(KeyOptions, camel_case, "Keys")
_OF_DOCUMENTS = {name: each for name, each in _JSON.items() if name not in ("valueSchema", CORRUPT)}
_ANY_VALUES = 'set option("valueFormat", "json"), or avro, protobuf or json-schema, too'
_VALUES_OF_SCHEMAS = 'set option("valueFormat", "avro"), or protobuf or json-schema, too'
_KEYS_OF_SCHEMAS = 'set option("keyFormat", "avro"), or protobuf or json-schema, too'
_NOT_PLAIN_JSON = (
    "valueFormat=json reads documents without a registry. For those of Confluent's serializers set "
    'option("valueFormat", "json-schema"); for keys with a schema set keyFormat, too'
)
"""The remedy for an option without effect."""
Options = TypeVar("Options", bound=ValueOptions | KeyDecoding | None)
ROW_SETTINGS = {**_ROWS, **_JSON, **_KEYS, **REGISTRY_SETTINGS}


@dataclass(frozen=True, slots=True)
class Part:
    """The options of values or keys: their names begin with the column's."""

    column: str
    format: str
    schema_id: int | None
    subject: str | None
    message: str | None

    def name(self, what: str) -> str:
        """Return the name of one of its options."""
        return f"{self.column}{what}"

    @property
    def of_schemas(self) -> tuple[str, ...]:
        """The names of its options about a registry's schemas."""
        return tuple(map(self.name, ("Message", "SchemaId", "Subject")))


def read_rows(table: SettingTable, given: Mapping[str, str], *, may_select: bool = False) -> RowOptions:
    """Read the options of the rows, whose names have been checked before.

    With ``may_select``, the sink may have the option ``sql``, which can fail also for undecoded values.

    Raises:
        OptionError: for one that cannot be read, or options that contradict each other.
    """
    rows, named = RowOptions(**table.values(given, _ROWS)), {name.lower() for name in given}
    rows = replace(rows, columns=_columns(table, rows, named))
    keys = KeyOptions(**table.values(given, _KEYS))
    value = Part(VALUE, rows.value_format, rows.value_schema_id, rows.value_subject, rows.value_message)
    key = Part(KEY, keys.key_format, keys.key_schema_id, keys.key_subject, keys.key_message)
    _check_used(table, (value, key), named, may_select=may_select)
    for part in (value, key):
        if part.format != BINARY and part.column not in rows.columns:
            raise OptionError(
                f"{table.format}: {part.name('Format')}={part.format}, but columns={','.join(rows.columns)} leaves "
                f"{part.column} out: add it"
            )
    registry = read_registry(table, given)
    rows = replace(
        rows,
        decoding=_stopping(_of_values(table, given, named, registry, value, rows), rows),
        key_decoding=_stopping(_of_keys(table, given, named, registry, key), rows),
    )
    if rows.dead_letters and rows.mode not in (None, ParseMode.PERMISSIVE):
        raise OptionError(
            f"{table.format}: includeDeadLetters=true needs mode PERMISSIVE: with {rows.mode} no row is left that "
            "could carry a dead letter"
        )
    return rows


def _stopping(options: Options, rows: RowOptions) -> Options:
    """Let an unknown schema stop the query where a record would only become a row of nulls."""
    if not isinstance(options, SchemaOptions) or rows.dead_letters or options.corrupt_column is not None:
        return options
    return replace(options, unknown_stops=options.mode is ParseMode.PERMISSIVE)


def _columns(table: SettingTable, rows: RowOptions, named: Set[str]) -> tuple[str, ...]:
    if "columns" not in named:
        return default_columns(rows.include_headers)
    if "includeheaders" in named and rows.include_headers != (HEADERS in rows.columns):
        columns = f"columns={','.join(rows.columns)}"
        raise OptionError(
            f"{table.format}: includeHeaders=true, but {columns} leaves headers out: add it to columns, or leave out "
            "includeHeaders"
            if rows.include_headers
            else f"{table.format}: includeHeaders=false, but {columns} names headers: remove it from columns, or leave "
            "out includeHeaders"
        )
    return rows.columns


def _check_used(table: SettingTable, parts: tuple[Part, Part], named: Set[str], *, may_select: bool) -> None:
    """Reject options without effect."""
    value, key = parts
    idle: list[tuple[str, str]] = []
    if value.format == BINARY:
        idle += [(name, _ANY_VALUES) for name in _JSON if name != "mode"]
        idle += [(name, _VALUES_OF_SCHEMAS) for name in (*value.of_schemas, EVOLUTION)]
    if key.format in (BINARY, STRING):
        idle += [(name, _KEYS_OF_SCHEMAS) for name in (key.name("Schema"), *key.of_schemas)]
    if not {value.format, key.format} & {AVRO, PROTOBUF}:
        idle.append((DEPTH, 'set option("valueFormat", "avro"), or protobuf'))
    if (value.format, key.format) == (BINARY, BINARY):
        idle += [(name, _ANY_VALUES) for name in ("mode", *(() if may_select else (LETTERS,)))]
    if value.format == BINARY and key.format in (BINARY, STRING):
        idle += [(name, _VALUES_OF_SCHEMAS) for name in REGISTRY_SETTINGS]
    if value.format == JSON and key.format in (BINARY, STRING):
        idle += [(name, _NOT_PLAIN_JSON) for name in REGISTRY_SETTINGS]
    wrong = next(((name, instead) for name, instead in idle if name.lower() in named), None)
    if wrong is not None:
        raise OptionError(f"{table.format}: option {wrong[0]} is for decoded values: {wrong[1]}")


def _of_values(
    table: SettingTable,
    given: Mapping[str, str],
    named: Set[str],
    registry: RegistrySettings | None,
    part: Part,
    rows: RowOptions,
) -> ValueOptions | None:
    if part.format == BINARY:
        return None
    if part.format == JSON:
        return _json(table, given, part, named)
    known = _JSON if part.format == JSON_SCHEMA else ("valueSchema", "mode", CORRUPT)
    useless = [name for name in _JSON if name not in known and name.lower() in named]
    if useless:
        raise OptionError(
            f"{table.format}: option {useless[0]} has no effect with valueFormat={part.format}: leave it out"
        )
    made = _by_schema(table, given, named, registry, part)
    if CORRUPT.lower() in named:
        made = _with_corrupt(table, made, table.values(given, {CORRUPT: _JSON[CORRUPT]})["corrupt_column"])
    if rows.schema_evolution == STAY:
        return made
    if part.subject is None or part.schema_id is None or made.registry is None:
        instead = (
            ""
            if rows.schema_evolution == ADD_COLUMNS
            else (", or set valueSubject and valueSchemaId, the version to read values as")
        )
        raise OptionError(
            f"{table.format}: schemaEvolution={rows.schema_evolution} follows a subject of schemaRegistry.url: leave "
            f"valueSchema out{instead}"
        )
    return replace(made, stop_for=part.subject)


def _of_keys(
    table: SettingTable, given: Mapping[str, str], named: Set[str], registry: RegistrySettings | None, part: Part
) -> KeyDecoding | None:
    if part.format == BINARY:
        return None
    if part.format == STRING:
        return TextOptions(table.values(given, {"mode": _JSON["mode"]})["mode"])
    return _by_schema(table, given, named, registry, part)


def _json(table: SettingTable, given: Mapping[str, str], part: Part, named: Set[str]) -> JsonOptions:
    useless = [name for name in (*part.of_schemas, EVOLUTION) if name.lower() in named]
    if useless:
        raise OptionError(f"{table.format}: option {useless[0]} has no effect with valueFormat=json: leave it out")
    made = JsonOptions(**table.values(given, _JSON))
    if made.schema is None:
        raise OptionError(
            f"{table.format}: valueFormat=json needs the option valueSchema, the fields of the values: "
            'for example option("valueSchema", "id BIGINT, name STRING")'
        )
    corrupt = made.corrupt_column
    if corrupt in made.schema.names and made.schema[corrupt].dataType != StringType():
        raise OptionError(
            f"{table.format}: valueSchema has {corrupt} {made.schema[corrupt].dataType.simpleString()}: the field for "
            "corrupt records must be STRING; name another with columnNameOfCorruptRecord"
        )
    return made


def _by_schema(
    table: SettingTable, given: Mapping[str, str], named: Set[str], registry: RegistrySettings | None, part: Part
) -> SchemaOptions:
    option = part.name("Schema")
    reader = next((text for name, text in given.items() if name.lower() == option.lower()), None)
    if reader is None:
        raise OptionError(
            f"{table.format}: {part.name('Format')}={part.format} needs the option {option} (a schema, or file:PATH), "
            "or schemaRegistry.url, whose latest version of the topic's subject it is then"
        )
    unneeded = [name for name in (part.name("SchemaId"), part.name("Subject"), EVOLUTION) if name.lower() in named]
    if registry is None and unneeded:
        raise OptionError(f"{table.format}: option {unneeded[0]} needs schemaRegistry.url, which has the schema")
    try:
        depth = _depth(table, given, part)
        schema = _column_type(part, reader, depth)
    except ValueError as error:
        hint = "" if part.format == PROTOBUF or _is_json(reader) else f". Of a schema in a file, set {option}=file:PATH"
        raise OptionError(f"{table.format}: the schema that {part.column}s are read as: {error}{hint}") from None
    documents = (
        JsonOptions(**{**table.values(given, _OF_DOCUMENTS), "schema": schema}) if part.format == JSON_SCHEMA else None
    )
    return SchemaOptions(
        schema,
        reader,
        table.values(given, {"mode": _JSON["mode"]})["mode"],
        json=documents,
        registry=registry and registry.within(part.subject),
        reader_id=part.schema_id,
        format=part.format,
        message=part.message,
        column=part.column,
        most_within=depth,
    )


def _depth(table: SettingTable, given: Mapping[str, str], part: Part) -> int:
    """Return how deep a recursive type may nest, 0 if not at all. Raises ValueError if the format does not allow it."""
    depth: int = table.values(given, {DEPTH: _ROWS[DEPTH]})["recursive_field_max_depth"] or 0
    if part.format == PROTOBUF and depth > MAX_PROTOBUF_DEPTH:
        raise ValueError(f"{DEPTH}={depth}: with {PROTOBUF} it is at most {MAX_PROTOBUF_DEPTH}")
    return depth


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _with_corrupt(table: SettingTable, options: SchemaOptions, corrupt: str) -> SchemaOptions:
    """Add the field for the bytes of values that do not parse."""
    schema = options.schema
    if not isinstance(schema, StructType) or corrupt in schema.names:
        raise OptionError(
            f"{table.format}: columnNameOfCorruptRecord={corrupt}: the values must be records without such a field"
        )
    wider = StructType([*schema.fields, StructField(corrupt, BinaryType())])
    return replace(options, schema=wider, corrupt_column=corrupt)


def _column_type(part: Part, reader: str, depth: int) -> DataType:
    """Return the column's type for a reader's schema. Raises ValueError if invalid, or no column can hold it."""
    if part.format != PROTOBUF and part.message is not None:
        raise ValueError(f"option {part.name('Message')} is for {part.name('Format')}=protobuf: leave it out")
    if part.format == AVRO:
        return spark_type(parse(reader, recursive=True), depth)
    try:
        if part.format == JSON_SCHEMA:
            return json_schema.spark_type(reader)
        from sparkonce.connectors.values.protobuf import reading, types
    except ImportError as error:
        raise ValueError(
            f"{part.name('Format')}={part.format} needs pip install 'sparkonce[registry]' ({error})"
        ) from None
    return types.spark_type(reading.message_of(reader, part.message), most_within=depth)
