"""The schema for values: the latest of a registry, or one inferred from JSON samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.schema_registry.client import Registry, UnknownSchemaError
from sparkonce.connectors.values.options import AVRO
from sparkonce.connectors.values.registered import KINDS, text_of
from sparkonce.jobs.cli.peek.decoding import Form, guessed
from sparkonce.jobs.cli.peek.inference import ddl
from sparkonce.jobs.cli.peek.reading import FetchedRecord, PeekError
from sparkonce.words import counted


@dataclass(frozen=True, slots=True)
class FoundSchema:
    """A schema, and a line about it."""

    text: str
    about: str


def registered(registry: Registry, subject: str) -> FoundSchema:
    """Return a subject's latest schema, references inlined, for valueSchema. Raises RegistryError or PeekError."""
    try:
        found = registry.latest(subject)
    except UnknownSchemaError as error:
        raise PeekError(
            f"{error}. Name another with --subject; without a registry, --schema is made from samples of JSON"
        ) from None
    schema, about = found.schema, f"version {found.version} of subject {subject}, id {found.id}"
    form = next((each for each, kind in KINDS.items() if kind == schema.kind), None)
    if form is None:
        return FoundSchema(schema.text, f"{schema.kind}: {about}")
    try:
        text = text_of(schema, form) if schema.references or form == AVRO else schema.text
    except ValueError as error:
        raise PeekError(f"{about}: {error}") from None
    return FoundSchema(text, f"valueFormat={form}: {about}. With schemaRegistry.url set, valueSchema may be left out")


def inferred(topic: str, records: Sequence[FetchedRecord]) -> FoundSchema:
    """Return DDL for the values of records that are JSON objects. Raises PeekError if no value is one."""
    values = [each.value for each in records if each.value is not None]
    trees = [cell.content for cell in map(guessed, values) if cell.form is Form.TREE and isinstance(cell.content, dict)]
    if not trees:
        named = any(wire.parse_header(value[:5]) for value in values) or any(
            key == wire.VALUE_HEADER for each in records for key, _ in each.headers
        )
        why = "they name schemas of a registry: give --registry" if named else "valueSchema is for valueFormat=json"
        raise PeekError(f"of {counted(len(values), 'value')} of topic {topic}, none is an object of JSON; {why}")
    others = len(values) - len(trees)
    more = f"; {counted(others, 'other')} will not parse" if others else ""
    return FoundSchema(ddl(trees), f"valueFormat=json: from {counted(len(trees), 'value')} of topic {topic}{more}")
