"""Columns of any type as values and keys: encoded with a schema that a registry has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from sparkonce.connectors.kafka_sink.buffers import RowError
from sparkonce.connectors.kafka_sink.options import FORMAT, EncodedColumn, KafkaBatchOptions
from sparkonce.connectors.schema_registry.client import (
    RegisteredSchema,
    Registry,
    RegistryError,
    UnknownSchemaError,
    shared_registry,
)
from sparkonce.connectors.values.encoding import Encoder, make_encoder, schema_for
from sparkonce.connectors.values.options import PROTOBUF
from sparkonce.connectors.values.registered import KINDS, for_registry, self_contained, text_of
from sparkonce.connectors.values.unwritable import UnwritableRowError
from sparkonce.options import OptionError


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a column becomes bytes. Travels to the tasks."""

    column: str
    form: str
    kind: DataType
    schema: str
    """Without references."""
    number: int
    """The schema's id."""
    message: str | None = None
    """The name of the message of Protobuf; None for the first."""

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Return the column's values as bytes. Raises RowError if the schema does not take one."""
        try:
            return _encoder(self.form, self.schema, self.kind, self.number, self.message).encode(values)
        except UnwritableRowError as error:
            raise RowError(
                f"kafka_once: a row's column '{self.column}' cannot be written with the schema of id {self.number}: "
                f"{error}. Filter such rows out, or change the schema"
            ) from None


@lru_cache(maxsize=32)
def _encoder(form: str, schema: str, kind: DataType, number: int, message: str | None) -> Encoder:
    return make_encoder(form, schema, kind, number, message)


def encodings(options: KafkaBatchOptions, schema: StructType) -> dict[str, Encoding]:
    """Return options' encodings, after registering or looking up schemas. Raises OptionError for a wrong one."""
    return {
        each.column: _encoding(options, each, schema[each.column].dataType)
        for each in options.encoded
        if each.column in schema.names
    }


def _encoding(options: KafkaBatchOptions, given: EncodedColumn, kind: DataType) -> Encoding:
    assert options.registry is not None, "the options are checked"
    subject = given.subject or (f"{options.topic}-{given.column}" if options.topic is not None else None)
    if subject is None:
        raise OptionError(
            f"{FORMAT}: {given.column}Format={given.form} with a column topic needs the option "
            f"{given.column}Subject, the schema's subject in the registry"
        )
    try:
        found = _registered(shared_registry(options.registry), subject, given, kind, register=options.auto_register)
        number, text = found
        make_encoder(given.form, text, kind, number, given.message)
        return Encoding(given.column, given.form, kind, text, number, given.message)
    except (RegistryError, ValueError) as error:
        raise OptionError(
            f"{FORMAT}: the column '{given.column}' as {given.form}, subject {subject}: {error}"
        ) from None
    except ImportError as error:
        raise OptionError(
            f"{FORMAT}: {given.column}Format={given.form} needs pip install 'sparkonce[registry]' ({error})"
        ) from None


def _registered(
    registry: Registry, subject: str, given: EncodedColumn, kind: DataType, *, register: bool
) -> tuple[int, str]:
    """Return the id of the schema to write with, and its text, without references."""
    if given.schema is None and not register:
        latest = registry.latest(subject)
        return latest.id, text_of(latest.schema, given.form)
    text = _made(registry, subject, given, kind) if given.schema is None else _given(given)
    whole = self_contained(given.form, text)
    make_encoder(given.form, whole, kind, message=given.message)
    wanted = RegisteredSchema(KINDS[given.form], text)
    return (registry.register(subject, wanted) if register else registry.lookup(subject, wanted).id), whole


def _made(registry: Registry, subject: str, given: EncodedColumn, kind: DataType) -> str:
    """Return a schema for a column."""
    if given.form != PROTOBUF:
        return schema_for(given.form, kind)
    from sparkonce.connectors.values.protobuf.column_schema import check_numbers, message_name
    from sparkonce.connectors.values.protobuf.reading import message_of

    text = schema_for(given.form, kind, given.message or message_name(subject))
    try:
        before = registry.latest(subject).schema
    except UnknownSchemaError:
        return text
    if before.kind == KINDS[PROTOBUF]:
        check_numbers(message_of(text_of(before, PROTOBUF), None), message_of(text, None))
    return text


def _given(given: EncodedColumn) -> str:
    """Return the schema in the option, or in the file that it names, in the registry's form."""
    assert given.schema is not None
    try:
        return for_registry(given.form, given.schema)
    except OSError as error:
        raise ValueError(f"option {given.column}Schema={given.schema}: the file cannot be read: {error}") from None
