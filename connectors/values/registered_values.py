"""Decodes the values of records by the schemas that they name in a registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s
from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.schema_registry.client import (
    AVRO,
    JSON_SCHEMA,
    PROTOBUF,
    RegisteredSchema,
    Registry,
    UnknownSchemaError,
    Version,
    shared_registry,
)
from sparkonce.connectors.schema_registry.wire import FIRST, Framed, Path, SchemaName
from sparkonce.connectors.values import json_schema
from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro import types as avro_types
from sparkonce.connectors.values.avro.decoder import AvroDecoder
from sparkonce.connectors.values.avro.program import same_name
from sparkonce.connectors.values.columns import NULL, UNREADABLE, Problems, slices
from sparkonce.connectors.values.conforming import common, conformed
from sparkonce.connectors.values.evolution import (
    REMEDY,
    NewerThanBegunError,
    SchemaChangedError,
    UnknownWriterError,
)
from sparkonce.connectors.values.json_values import JsonDecoder
from sparkonce.connectors.values.options import AVRO as AVRO_FORMAT
from sparkonce.connectors.values.options import JSON_SCHEMA as JSON_FORMAT
from sparkonce.connectors.values.options import KEY, SchemaOptions
from sparkonce.connectors.values.options import PROTOBUF as PROTOBUF_FORMAT

MOST_UNKNOWN = 1000
"""The maximal number of unknown schemas in one task: each costs a request, and space in the commit."""
BARE = 0
"""Stands for the reader's schema, if values are bare."""


class Reading(ABC):
    """Reads values of one format with one reader's schema."""

    kind: str
    """The registry's name of the format."""
    has_paths = False
    """Whether a message's path follows the schema's id."""
    type: DataType
    """What `decode` makes."""

    @abstractmethod
    def add(self, schema: RegisteredSchema, path: Path) -> int:
        """Prepare to read a schema's values; return its number for `decode`. Raises ValueError if impossible."""

    @abstractmethod
    def add_reader(self) -> int:
        """Prepare to read values of the reader's schema."""

    @abstractmethod
    def decode(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s) -> tuple[pa.Array, Problems]:
        """See `AvroDecoder.decode`."""


class _Avro(Reading):
    kind = AVRO

    def __init__(self, options: SchemaOptions, wanted: DataType) -> None:
        self._reader = avro.parse(options.reader, recursive=True)
        self.type = common(avro_types.spark_type(self._reader, options.most_within), wanted)
        self._decoder = AvroDecoder(self._reader, self.type)

    def add(self, schema: RegisteredSchema, path: Path) -> int:  # noqa: ARG002
        references = [each.text for each in schema.references]
        writer, reader = avro.parse(schema.text, references, recursive=True), self._reader
        # Java reads records of any name at the root. Here a topic with several types of records would become rows of
        # one, with the fields that they have in common.
        if (
            isinstance(writer, avro.RecordSchema)
            and isinstance(reader, avro.RecordSchema)
            and not same_name(writer, reader)
        ):
            raise ValueError(
                f"it is of the record {writer.name}, and values are read as {reader.name}; if that is the same, "
                f"name {writer.name} among the aliases of a valueSchema"
            )
        return self._decoder.add(writer)

    def add_reader(self) -> int:
        return self._decoder.add(self._reader)

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s) -> tuple[pa.Array, Problems]:
        return self._decoder.decode(data, starts, ends, entries)


class _Protobuf(Reading):
    kind = PROTOBUF
    has_paths = True

    def __init__(self, options: SchemaOptions, wanted: DataType) -> None:
        from sparkonce.connectors.values.protobuf import reading, types
        from sparkonce.connectors.values.protobuf.decoder import ProtobufDecoder

        self._reader = reading.message_of(options.reader, options.message)
        kind = common(types.spark_type(self._reader, most_within=options.most_within), wanted)
        assert isinstance(kind, StructType)
        self.type = kind
        self._decoder = ProtobufDecoder(self._reader, kind)

    def add(self, schema: RegisteredSchema, path: Path) -> int:
        from sparkonce.connectors.values.protobuf.schema import (
            compile_text,
            message_by_path,
            name_without_package,
            read_set,
        )

        files = {each.name: each.text for each in schema.references}
        writer = message_by_path(read_set(compile_text(schema.text, files)), path)
        if name_without_package(writer) != name_without_package(
            self._reader
        ):  # for a topic with several types of messages
            raise ValueError(
                f"it is of the message {writer.full_name}, and values are read as {self._reader.full_name}"
            )
        return self._decoder.add(writer)

    def add_reader(self) -> int:
        return self._decoder.add(self._reader)

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s) -> tuple[pa.Array, Problems]:
        return self._decoder.decode(data, starts, ends, entries)


class _JsonSchema(Reading):
    """The contents of a writer's schema are not needed to read JSON, but it must be a JSON Schema."""

    kind = JSON_SCHEMA

    def __init__(self, options: SchemaOptions, wanted: DataType) -> None:
        assert options.json is not None, "the options are checked"
        kind = common(json_schema.spark_type(options.reader), wanted)
        assert isinstance(kind, StructType)
        self.type = kind
        # No field of the schema is the one for corrupt values, whatever its name: that is added afterwards.
        self._decoder = JsonDecoder(replace(options.json, schema=kind, corrupt_column=None))

    def add(self, schema: RegisteredSchema, path: Path) -> int:  # noqa: ARG002
        return 0

    def add_reader(self) -> int:
        return 0

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s, entries: Int32s) -> tuple[pa.Array, Problems]:
        array, problems = self._decoder.decode(slices(data, starts, ends, entries >= 0))
        missing = np.asarray(array.is_null())
        for row in np.flatnonzero(missing & (entries >= 0)).tolist():
            problems.setdefault(row, "it is empty")
        if not problems and not (missing & (entries != NULL)).any():
            return array, problems
        # as in other formats, a value that does not parse is a struct of nulls
        return pa.StructArray.from_arrays(
            array.flatten(), fields=list(array.type), mask=pa.array(entries == NULL)
        ), problems


_READINGS: dict[str, Callable[[SchemaOptions, DataType], Reading]] = {
    AVRO_FORMAT: _Avro,
    PROTOBUF_FORMAT: _Protobuf,
    JSON_FORMAT: _JsonSchema,
}


def _hint(value: bytes | None) -> str:
    """Return another possible problem of a value that was read without a registry and does not parse."""
    number = wire.parse_header((value or b"")[: wire.FRAME_BYTES])
    if not isinstance(number, int):
        return ""
    return f"; its first five bytes may name schema id {number} of a registry: set schemaRegistry.url"


class RegisteredValues:
    """Decodes values of one task; a `connectors.values.rows.Decoder`."""

    def __init__(self, options: SchemaOptions) -> None:
        self._options = options
        self._header = wire.KEY_HEADER if options.column == KEY else wire.VALUE_HEADER
        schema = options.schema
        if options.corrupt_column is not None and isinstance(schema, StructType):
            schema = StructType([each for each in schema if each.name != options.corrupt_column])
        self._reading = _READINGS[options.format](options, schema)
        self._conform = None if self._reading.type == schema else to_arrow_type(schema, timezone="UTC")
        self._registry = None if options.registry is None else shared_registry(options.registry)
        self._entries: dict[tuple[SchemaName, Path], int] = {}
        self._reasons: dict[tuple[SchemaName, Path], str] = {}
        self._bare = self._reading.add_reader() if self._registry is None else UNREADABLE
        self.unknown: set[str] = set()
        """The schemas so far that the registry lacks: ``v`` for values or ``k`` for keys, and the name."""

    def decode(self, values: pa.BinaryArray, headers: pa.ListArray | None = None) -> tuple[pa.Array, Problems]:
        """See `Decoder`.

        Raises:
            RegistryError: if the registry does not answer, and its answer is not cached.
            SchemaChangedError: if the query must be started again.
            NewerThanBegunError: if that would not help.
        """
        framed, entries, problems = self._schemas(values, headers)
        array, malformed = self._reading.decode(framed.data, framed.starts, framed.ends, entries)
        problems |= malformed
        for row, reason in problems.items():
            name = framed.name(row)
            if self._registry is None:
                problems[row] = reason + _hint(values[row].as_py())
            elif name is not None:
                problems[row] = f"schema {f'id {name}' if isinstance(name, int) else name}: {reason}"
        if self._conform is not None:
            array = conformed(array, self._conform)
        if self._options.corrupt_column is not None:
            array = self._with_corrupt(array, values, problems)
        return array, problems

    def _schemas(self, values: pa.BinaryArray, headers: pa.ListArray | None) -> tuple[Framed, Int32s, Problems]:
        """Return the payloads, the program that reads each, and why some have none."""
        problems: Problems = {}
        if self._registry is None:
            data, starts, ends = wire.bounds(values)
            entries = np.where(np.asarray(values.is_null()), NULL, self._bare).astype(np.int32)
            return Framed(data, starts, ends, np.full(len(values), BARE, np.int64), {}), entries, problems
        framed = wire.split(values, headers, self._header, paths=self._reading.has_paths)
        entries = np.full(len(values), UNREADABLE, np.int32)
        entries[framed.ids == wire.NO_VALUE] = NULL
        paths = np.zeros(len(values), np.int32) if framed.paths is None else framed.paths
        known: Sequence[Path] = (FIRST,) if framed.paths is None else framed.known_paths
        named = np.flatnonzero((framed.ids != wire.NO_VALUE) & (framed.ids != wire.NO_FRAME) & (paths >= 0))
        pairs, which = np.unique(np.stack([framed.ids[named], paths[named]]), axis=1, return_inverse=True)
        for at, (number, path) in enumerate(pairs.T.tolist()):
            rows = named[which.reshape(-1) == at]
            key = framed.guids.get(number, number), known[path]
            try:
                entries[rows] = self._entry(key)
            except UnknownSchemaError as error:
                raise UnknownWriterError(int(rows[0]), str(error)) from None
            if key in self._reasons:
                problems.update(dict.fromkeys(rows.tolist(), self._reasons[key]))
        for row in np.flatnonzero(entries == UNREADABLE).tolist():
            if row not in problems:
                problems[row] = framed.problem(row, values[row].as_py()) or ""
        return framed, entries, problems

    def _entry(self, key: tuple[SchemaName, Path]) -> int:
        """Return a schema's program, or `UNREADABLE`. Raises UnknownSchemaError if a missing one stops the query."""
        if key not in self._entries:
            assert self._registry is not None
            name, path = key
            if name == self._options.reader_id and not self._reading.has_paths:
                self._entries[key] = self._reading.add_reader()  # known, also where the registry is down
                return self._entries[key]
            try:
                if self._noted(name) in (self._options.unknown or ()):
                    raise UnknownSchemaError("the registry did not have it when the batch was begun")
                self._check_newer(self._registry, name)
                found = self._registry.schema(name) if isinstance(name, int) else self._registry.schema_by_guid(name)
                if found.kind != self._reading.kind:
                    raise ValueError(f"it is a schema of {found.kind}, and values are read as {self._reading.kind}")
                self._entries[key] = self._reading.add(found, path)
            except ValueError as error:
                self._entries[key], self._reasons[key] = UNREADABLE, str(error)
            except UnknownSchemaError as error:
                self._note_unknown(name, error)
                self._entries[key], self._reasons[key] = UNREADABLE, str(error)
        return self._entries[key]

    def _note_unknown(self, name: SchemaName, error: UnknownSchemaError) -> None:
        """Note a schema that the registry lacks.

        Raises:
            UnknownSchemaError: that should stop the query; it says what to do.
        """
        noted, of_batch = self._noted(name), self._options.unknown
        if self._options.unknown_stops:
            raise UnknownSchemaError(
                f"{error}. If the registry has lost none, use includeDeadLetters=true, columnNameOfCorruptRecord or "
                "mode DROPMALFORMED"
            )
        if of_batch is not None and noted not in of_batch:
            raise UnknownSchemaError(
                f"{error}. It was there when the dead letters of this batch were found: register it again, or let the "
                "registry answer that had it, to complete the batch"
            )
        self.unknown.add(noted)
        if len(self.unknown) > MOST_UNKNOWN:
            raise UnknownSchemaError(
                f"{error}, nor those of {MOST_UNKNOWN} records before: these are hardly values of this registry. Check "
                "the format and schemaRegistry.url, or read less at once with maxOffsetsPerTrigger"
            )

    def _noted(self, name: SchemaName) -> str:
        return f"{self._options.column[0]}{name}"

    def _check_newer(self, registry: Registry, name: SchemaName) -> None:
        """Stop for a value of a newer version of the subject, if the query is to be started again then.

        A value of an older one, or of another subject, is read by resolution.

        Raises:
            SchemaChangedError, NewerThanBegunError: it has.
        """
        subject, ours = self._options.stop_for, self._options.reader_id
        if subject is None or ours is None or name == ours:
            return
        latest, read_as = registry.latest(subject), self._options.version_of
        if read_as is None and latest.id != ours:
            read_as = _version_of(registry, subject, ours)
        newest = f"{latest.version} (id {latest.id})"
        if latest.id == ours or (read_as is not None and not _is_newer(registry, name, read_as, latest)):
            # That answer may come from a lagging replica, and the schema from another one.
            unseen = _unseen_version(registry, name, latest, latest.version if read_as is None else read_as[1])
            if unseen is None:
                return
            newest = f"{unseen} (id {name})"
        if self._options.is_begun:
            raise NewerThanBegunError(
                f"kafka_once: dead letters of this batch were found with values read as id {ours} of subject {subject} "
                f"and a value came with the schema {name}, which is newer: the batch reaches beyond the one that a "
                "crash has left, as after its checkpoint was deleted. Nothing more of it is written. Set "
                "schemaEvolution=none until it is complete: it is then read without the new fields"
            )
        raise SchemaChangedError(
            f"kafka_once: subject {subject} has version {newest} by now, and this query reads values as id {ours}; a "
            f"value came with the schema {name}. Nothing of this batch is written. {REMEDY}"
        )

    def _with_corrupt(self, array: pa.StructArray, values: pa.BinaryArray, problems: Problems) -> pa.StructArray:
        """Add the field for the bytes of values that do not parse."""
        malformed = np.zeros(len(values), np.bool_)
        malformed[list(problems)] = True
        fields = [array.field(at) for at in range(array.type.num_fields)]
        fields.append(
            pa.array([values[row].as_py() if bad else None for row, bad in enumerate(malformed)], pa.binary())
        )
        names = [*array.type.names, self._options.corrupt_column]
        return pa.StructArray.from_arrays(fields, names=names, mask=array.is_null() if array.null_count else None)


def _version_of(registry: Registry, subject: str, schema_id: int) -> tuple[str, int] | None:
    """Return the subject and which version of it a schema is; None if that was deleted for good."""
    try:
        return subject, registry.version_number(subject, schema_id)
    except UnknownSchemaError:
        return None


def _is_newer(registry: Registry, name: SchemaName, read_as: tuple[str, int], latest: Version) -> bool:
    """Whether a schema is of a version of the subject that is newer than the reader's.

    Older ones are no reason to stop, also where the latest was registered since the batch began.
    """
    subject, version = read_as
    for number in range(version + 1, latest.version + 1):
        try:
            found = latest if number == latest.version else registry.version(subject, number, deleted=True)
        except UnknownSchemaError:
            continue  # deleted for good
        if name in (found.id, found.guid):
            return True
    return False


def _unseen_version(registry: Registry, name: SchemaName, latest: Version, read_as: int) -> int | None:
    """Return the version of a schema, if that is newer than the registry's latest one.

    A deleted version does not count: without it, the latest is the latest.
    """
    if not isinstance(name, int):
        return None  # for a GUID, a registry does not return the subjects that use it
    try:
        version = registry.version_number(latest.subject, name)
    except UnknownSchemaError:
        return None  # it is not of the subject
    if version <= max(read_as, latest.version) or registry.is_deleted(latest.subject, version):
        return None
    return version
