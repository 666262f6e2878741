"""The options that select the columns of ``kafka_once``, and how its value is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyspark.sql.types import StringType, StructField, StructType

from sparkonce.connectors.settings.options import Option, OptionError, OptionSet, boolean, one_of
from sparkonce.connectors.sinks.dead_letters import COLUMN as DEAD_LETTER
from sparkonce.connectors.sinks.dead_letters import LETTER
from sparkonce.connectors.values.datetimes import check_pattern, check_zone
from sparkonce.connectors.values.ddl import parse_schema
from sparkonce.connectors.values.record_schema import (
    ALL_COLUMNS,
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    VALUE,
    default_columns,
    spark_schema,
)

BINARY, JSON = "binary", "json"
_COLUMNS, _VALUES = "Columns", "Values"
_LETTERS_NEED = (KEY, VALUE, OFFSET, TIMESTAMP)
"""What a dead letter is made of, beside topic and partition, which every task knows."""


class ParseMode(StrEnum):
    """What becomes of a record whose value does not parse; the names are Spark's."""

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


ROW_OPTIONS = (
    Option(
        "includeHeaders",
        "whether to add the column headers; columns can name it, too",
        boolean,
        False,
        spark=True,
        group=_COLUMNS,
    ),
    Option(
        "columns",
        "the columns to read, in this order; the others are not even decoded. Names separated by commas, of "
        + ", ".join(ALL_COLUMNS),
        _columns,
        default_text="all but headers",
        value="value,offset",
        group=_COLUMNS,
    ),
    Option(
        "valueFormat",
        "what the column value holds: the bytes as they are, or (json) a struct of typed fields, decoded in the "
        "worker as from_json does it",
        one_of(BINARY, JSON),
        BINARY,
        group=_VALUES,
    ),
    Option(
        "valueSchema",
        "the fields of the values, with valueFormat=json: DDL as from_json takes it, or Spark's JSON of a StructType",
        parse_schema,
        value="id BIGINT, name STRING",
        group=_VALUES,
    ),
    Option(
        "mode",
        "what becomes of a value that does not parse: a row with the fields that do and null for the others "
        "(PERMISSIVE), no row (DROPMALFORMED), or the end of the query (FAILFAST)",
        _mode,
        ParseMode.PERMISSIVE,
        value="|".join(ParseMode),
        group=_VALUES,
    ),
    Option(
        "columnNameOfCorruptRecord",
        "the field of valueSchema, a STRING, that gets the text of a value that does not parse; if there is one",
        _name,
        "_corrupt_record",
        value="field",
        group=_VALUES,
    ),
    Option(
        "includeDeadLetters",
        f"whether to add the column {DEAD_LETTER}: null, or for a value that does not parse the record and the reason, "
        "as the sinks' option deadLetters takes it",
        boolean,
        False,
        group=_VALUES,
    ),
    Option(
        "dateFormat",
        "the pattern of DATE fields, such as dd.MM.yyyy",
        check_pattern,
        default_text="as CAST reads dates",
        value="pattern",
        group=_VALUES,
    ),
    Option(
        "timestampFormat",
        "the pattern of TIMESTAMP fields, such as yyyy-MM-dd HH:mm:ss[.SSS][XXX]",
        check_pattern,
        default_text="as CAST reads timestamps",
        value="pattern",
        group=_VALUES,
    ),
    Option(
        "timestampNTZFormat",
        "the pattern of TIMESTAMP_NTZ fields",
        check_pattern,
        default_text="as CAST reads timestamps",
        value="pattern",
        group=_VALUES,
    ),
    Option(
        "timeZone",
        "the zone of timestamps that name none, such as Europe/Paris or +02:00. A Python source is not told "
        "spark.sql.session.timeZone: give it here",
        check_zone,
        "UTC",
        value="zone",
        group=_VALUES,
    ),
)
_FOR_JSON = (
    "valueSchema",
    "mode",
    "columnNameOfCorruptRecord",
    "includeDeadLetters",
    "dateFormat",
    "timestampFormat",
    "timestampNTZFormat",
    "timeZone",
)


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """How values are decoded from JSON."""

    schema: StructType
    """With the field for the text of corrupt records, where the user has one."""
    mode: ParseMode = ParseMode.PERMISSIVE
    corrupt_column: str = "_corrupt_record"
    date_format: str | None = None
    timestamp_format: str | None = None
    timestamp_ntz_format: str | None = None
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The columns of the rows."""

    columns: tuple[str, ...] = default_columns(False)
    json: JsonOptions | None = None
    dead_letters: bool = False

    @property
    def decoded(self) -> tuple[str, ...]:
        """The columns that must be read to make the rows; those that are only for dead letters come last."""
        more = [name for name in _LETTERS_NEED if name not in self.columns] if self.dead_letters else []
        if self.json is not None and self.json.mode is ParseMode.FAILFAST and OFFSET not in self.columns:
            more.append(OFFSET)  # to say which record it was
        return (*self.columns, *more)

    def spark_schema(self) -> StructType:
        """Return the schema of the rows."""
        fields = list(spark_schema(self.columns).fields)
        if self.json is not None:
            fields[self.columns.index(VALUE)] = StructField(VALUE, self.json.schema)
        if self.dead_letters:
            fields.append(StructField(DEAD_LETTER, LETTER))
        return StructType(fields)


def read_rows(values: Mapping[str, Any], options: OptionSet, given: Mapping[str, str]) -> RowOptions:
    """Make sense of the options together.

    Raises:
        OptionError: for options that contradict each other.
    """
    columns: tuple[str, ...] | None = values["columns"]
    if columns is not None and values["includeHeaders"] and HEADERS not in columns:
        raise OptionError(
            f"{options.format}: includeHeaders=true, but columns={','.join(columns)} leaves headers out: add it to "
            "columns, or leave out includeHeaders"
        )
    names = {key.lower() for key in given}
    if columns is not None and HEADERS in columns and "includeheaders" in names and not values["includeHeaders"]:
        raise OptionError(
            f"{options.format}: includeHeaders=false, but columns={','.join(columns)} names headers: take it out of "
            "columns, or leave out includeHeaders"
        )
    if columns is None:
        columns = default_columns(values["includeHeaders"])
    if values["valueFormat"] == BINARY:
        useless = [name for name in _FOR_JSON if name.lower() in names]
        if useless:
            raise OptionError(
                f'{options.format}: option {useless[0]} is for decoded values: give option("valueFormat", "json") too'
            )
        return RowOptions(columns)
    if VALUE not in columns:
        raise OptionError(
            f"{options.format}: valueFormat=json, but columns={','.join(columns)} leaves value out: add it"
        )
    return RowOptions(columns, _read_json(values, options.format), values["includeDeadLetters"])


def _read_json(values: Mapping[str, Any], name: str) -> JsonOptions:
    schema: StructType | None = values["valueSchema"]
    if schema is None:
        raise OptionError(
            f"{name}: valueFormat=json needs the option valueSchema, the fields of the values: "
            'for example option("valueSchema", "id BIGINT, name STRING")'
        )
    corrupt = values["columnNameOfCorruptRecord"]
    if corrupt in schema.names and schema[corrupt].dataType != StringType():
        raise OptionError(
            f"{name}: valueSchema has {corrupt} {schema[corrupt].dataType.simpleString()}: the field for corrupt "
            "records must be STRING; name another with columnNameOfCorruptRecord"
        )
    mode: ParseMode = values["mode"]
    if values["includeDeadLetters"] and mode is not ParseMode.PERMISSIVE:
        raise OptionError(
            f"{name}: includeDeadLetters=true needs mode PERMISSIVE: with {mode} no row is left that could carry a "
            "dead letter"
        )
    return JsonOptions(
        schema,
        mode,
        corrupt,
        values["dateFormat"],
        values["timestampFormat"],
        values["timestampNTZFormat"],
        values["timeZone"],
    )
