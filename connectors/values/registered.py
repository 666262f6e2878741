"""Replaces the schema names in options of values and keys by the schemas.

The schema of a query's values is looked up once, when the query begins, and sent with its options to every process: a
registry may have another version a moment later.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparkonce.connectors.schema_registry import client
from sparkonce.connectors.schema_registry.client import (
    RegisteredSchema,
    RegistryError,
    UnknownSchemaError,
    UnreachableRegistryError,
    shared_registry,
)
from sparkonce.connectors.schema_registry.settings import RegistrySettings, read_registry
from sparkonce.connectors.values import json_schema
from sparkonce.connectors.values.avro.schema import inlined
from sparkonce.connectors.values.evolution import NoSchemaYetError
from sparkonce.connectors.values.options import ADD_COLUMNS, AVRO, JSON_SCHEMA, KEY, PROTOBUF, VALUE
from sparkonce.connectors.values.read_options import ROW_SETTINGS
from sparkonce.options import OptionError, SettingTable

FILE = "file:"
ISOLATE_TABLES = "isolatetables"

KINDS = {AVRO: client.AVRO, PROTOBUF: client.PROTOBUF, JSON_SCHEMA: client.JSON_SCHEMA}
"""A registry's names of the formats."""


def resolved(table: SettingTable, given: Mapping[str, str]) -> dict[str, str]:
    """Return options whose valueSchema and keySchema are texts; unchanged if `is_by_topic`.

    Raises:
        OptionError: if a schema cannot be read; the registry's own error says why.
    """
    return dict(given) if is_by_topic(given) else _both_resolved(table, given)


def is_by_topic(given: Mapping[str, str]) -> bool:
    """Whether each topic is read as the latest schemas of its own, which are looked up when its table is written."""
    isolates = any(name.lower() == ISOLATE_TABLES and text.strip().lower() == "true" for name, text in given.items())
    return isolates and bool(columns_of_latest(given))


def subjects(given: Mapping[str, str], topic: str) -> dict[str, str]:
    """Return the options that name the subjects of a topic, of which `resolved` chooses the latest versions."""
    named = {name.lower() for name in given}
    missing = (column for column in columns_of_latest(given) if f"{column}subject" not in named)
    return {f"{column}Subject": f"{topic}-{column}" for column in missing}


def resolved_of(table: SettingTable, given: Mapping[str, str], topic: str) -> dict[str, str]:
    """Return options that are by topic as those of one of the topics. Raises OptionError as `resolved`."""
    others = _without(given, "subscribe", "subscribePattern")
    return _both_resolved(table, {**others, **subjects(given, topic), "subscribe": topic})


def without_values(given: Mapping[str, str]) -> dict[str, str]:
    """Return options that are by topic without those of values and keys, for who plans and decodes nothing."""
    return _without(given, *ROW_SETTINGS)


def _both_resolved(table: SettingTable, given: Mapping[str, str]) -> dict[str, str]:
    return _resolved(table, _resolved(table, dict(given), VALUE), KEY)


def _resolved(table: SettingTable, given: dict[str, str], column: str) -> dict[str, str]:
    named = {name.lower(): text for name, text in given.items()}
    form, option = named.get(f"{column}format", ""), f"{column}Schema"
    if form not in KINDS:
        return given
    text = named.get(option.lower())
    if text is None:
        return _with_registered(table, given, named, column)
    if f"{column}schemaid" in named:
        raise OptionError(
            f"{table.format}: options {option} and {column}SchemaId both say what {column}s are read as: leave one out"
        )
    try:
        text = self_contained(form, text)
    except (OSError, ValueError) as error:
        shown = text if text.startswith(FILE) else "…"
        raise OptionError(f"{table.format}: option {option}={shown}: it cannot be read: {error}") from None
    return {**_without(given, option), option: text}


def _without(given: Mapping[str, str], *options: str) -> dict[str, str]:
    left_out = {option.lower() for option in options}
    return {name: value for name, value in given.items() if name.lower() not in left_out}


def columns_of_latest(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return for which of value and key `resolved` chooses a schema that is the latest when the query begins."""
    named = {name.lower(): text for name, text in given.items()}
    return tuple(
        column
        for column in (VALUE, KEY)
        if named.get(f"{column}format") in KINDS and not {f"{column}schema", f"{column}schemaid"} & named.keys()
    )


def self_contained(form: str, text: str) -> str:
    """Return an option's schema without files that are elsewhere. Raises OSError or ValueError if unreadable."""
    content = _content(text)
    if form != PROTOBUF:
        return content if isinstance(content, str) else content.decode()
    from sparkonce.connectors.values.protobuf import reading

    return reading.as_option(content) if isinstance(content, str) else reading.of_file(content)


def for_registry(form: str, text: str) -> str:
    """Return the schema of an option as a registry takes it. Raises OSError or ValueError if it cannot be read."""
    if form != PROTOBUF:
        return self_contained(form, text)
    from sparkonce.connectors.values.protobuf import reading

    return reading.for_registry(_content(text))


def _content(text: str) -> str | bytes:
    """Return an option's text, or the bytes of the file that it names."""
    return Path(text.removeprefix(FILE)).read_bytes() if text.startswith(FILE) else text


def reader_schema(settings: RegistrySettings, number: int, form: str) -> str:
    """Return the schema with an id, without references. Raises RegistryError or ValueError if there is none."""
    return text_of(shared_registry(settings).schema(number), form)


def _with_registered(
    table: SettingTable, given: dict[str, str], named: Mapping[str, str], column: str
) -> dict[str, str]:
    """Return options with the schema that an id or a subject names; unchanged if no registry is named."""
    settings = read_registry(table, given)
    if settings is None:
        return given
    settings = settings.within(named.get(f"{column}subject"))
    if column == VALUE and "valueschemaid" in named and named.get("schemaevolution") == ADD_COLUMNS:
        raise OptionError(
            f"{table.format}: schemaEvolution={ADD_COLUMNS} reads each batch as the latest version of a subject, so "
            "valueSchemaId has no effect: leave it out, or set schemaEvolution=none, which keeps that schema"
        )
    form, of_id = named[f"{column}format"], f"{column}SchemaId"
    (number,) = table.values(given, {of_id: table.settings[of_id]}).values()
    subject = _subject(table, named, column) if number is None else ""
    what = f"the schema of subject {subject}" if number is None else f"the schema of id {number}"
    try:
        if number is not None:
            return {**given, f"{column}Schema": reader_schema(settings, number, form)}
        found = shared_registry(settings).latest(subject)
        option = f"{column}Subject"
        chosen = {f"{column}Schema": text_of(found.schema, form), of_id: str(found.id), option: subject}
        return {**_without(given, option), **chosen}
    except UnknownSchemaError as error:
        told = f"{table.format}: {what}: {error}."
        if number is not None:
            raise OptionError(f"{told} Check {column}SchemaId and schemaRegistry.url") from None
        raise NoSchemaYetError(
            f"{told} Check the topic's name and schemaRegistry.url, write a first {column} with a schema, or set "
            f"{column}Subject or {column}Schema"
        ) from None
    except UnreachableRegistryError as error:  # the cause tells an ingestion that it may pass
        raise OptionError(f"{table.format}: {what}: {error}") from error
    except (RegistryError, ValueError) as error:
        raise OptionError(f"{table.format}: {what}: {error}") from None


def text_of(schema: RegisteredSchema, form: str) -> str:
    """Return a schema without references. Raises ValueError if it is none of the format."""
    if schema.kind != KINDS[form]:
        fitting = next((each for each, kind in KINDS.items() if kind == schema.kind), None)
        told = "no format reads that" if fitting is None else f"that is the format {fitting}"
        raise ValueError(f"the registry has it as {schema.kind}: {told}, and not {form}")
    references = {each.name: each.text for each in schema.references}
    if form == JSON_SCHEMA:
        return json_schema.inlined(schema.text, references)
    if form == PROTOBUF:
        from sparkonce.connectors.values.protobuf import reading

        return reading.as_option(schema.text, references)
    return inlined(schema.text, [each.text for each in schema.references])


def _subject(table: SettingTable, named: Mapping[str, str], column: str) -> str:
    topics = [each.strip() for each in named.get("subscribe", "").split(",") if each.strip()]
    subject = named.get(f"{column}subject") or (f"{topics[0]}-{column}" if len(topics) == 1 else None)
    if subject is None:
        raise OptionError(
            f"{table.format}: which of the registry's schemas are {column}s read as? Set {column}Subject (such as "
            f"flights-{column}), since subscribe does not name one topic; or {column}Schema"
        )
    return subject
