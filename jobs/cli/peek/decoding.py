"""Decoding of keys and values: Avro, Protobuf or JSON by a registry's schema, JSON, text, or bytes."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.schema_registry.client import (
    AVRO,
    JSON_SCHEMA,
    PROTOBUF,
    RegisteredSchema,
    Registry,
    UnknownSchemaError,
)
from sparkonce.connectors.schema_registry.wire import KEY_HEADER, VALUE_HEADER, Framed, Path, SchemaName
from sparkonce.connectors.values.avro.decoder import AvroDecoder
from sparkonce.connectors.values.avro.schema import parse
from sparkonce.connectors.values.avro.types import spark_type
from sparkonce.jobs.cli.peek.reading import FetchedRecord
from sparkonce.kafka.protocol.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from sparkonce.connectors.values.protobuf.decoder import ProtobufDecoder

MOST_WITHIN = 3
"""The maximal nesting of a recursive type; deeper values are not shown."""
_TOO_LARGE = "too large to show"
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


class Form(StrEnum):
    """The form in which a key or value is shown."""

    NULL = "null"
    TREE = "tree"
    """Objects, arrays and scalars of JSON."""
    TEXT = "text"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Cell:
    """A key or a value."""

    form: Form
    content: Any = None
    """None, a value that `json` can encode, a text, or bytes."""
    schema: SchemaName | None = None
    """The schema that it refers to."""
    problem: str | None = None
    """Why it is shown as bytes though it names a schema, or may name one."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record, decoded."""

    record: FetchedRecord
    key: Cell
    value: Cell


class Parts(NamedTuple):
    """Decoded fields of some keys or values, by format."""

    plain: Framed
    with_paths: Framed
    """In Protobuf's form."""


Reader = Callable[[Parts, Sequence[int]], list[Cell]]
"""Decodes the payloads of some rows."""
_NO_ID = 0
"""Registries begin at 1: what seems to name the schema 0 is a number, such as a key of Java's LongSerializer."""
LIKELY_IDS = 1 << 24
"""Registries count up, from 1 or 100,001: what begins with 0 and a larger number is hardly of a schema, but UTF-16."""


class Decoder:
    """Decodes records; caches schemas."""

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._readers: dict[SchemaName, Reader] = {}

    def decode(self, records: Sequence[FetchedRecord]) -> list[Decoded]:
        """Return records with their keys and values decoded. Raises RegistryError if the registry does not answer."""
        headers = pa.array(
            [[{"key": key, "value": value} for key, value in each.headers] for each in records], _HEADERS
        )
        keys = self._cells([each.key for each in records], headers, KEY_HEADER)
        values = self._cells([each.value for each in records], headers, VALUE_HEADER)
        return [Decoded(*each) for each in zip(records, keys, values, strict=True)]

    def _cells(self, contents: Sequence[bytes | None], headers: pa.ListArray, header: str) -> list[Cell]:
        values = pa.array(contents, pa.binary())
        framed = wire.split(values, headers, header)
        parts = Parts(framed, wire.split(values, headers, header, paths=True))
        made: list[Cell] = [guessed(content) for content in contents]
        rows: dict[SchemaName, list[int]] = {}
        for row, content in enumerate(contents):
            name = framed.name(row)
            if name is not None and name != _NO_ID and content is not None:
                rows.setdefault(name, []).append(row)
        for name, here in rows.items():
            try:
                cells = self._reader(name)(parts, here)
            except UnknownSchemaError as error:
                for row in here:
                    made[row] = _unknown(made[row], name, error, framed, row)
                continue
            for row, cell in zip(here, cells, strict=True):
                made[row] = replace(cell, schema=name)
        return made

    def _reader(self, name: SchemaName) -> Reader:
        """Return a decoder for values of a schema. Raises UnknownSchemaError if the registry, if any, lacks it."""
        if self._registry is None:
            raise UnknownSchemaError("--registry decodes it")
        if name not in self._readers:
            self._readers[name] = _reader(self._registry, name)
        return self._readers[name]


def _unknown(cell: Cell, name: SchemaName, error: UnknownSchemaError, framed: Framed, row: int) -> Cell:
    """Return a cell that names a schema which nobody has: by a header, or perhaps by its first bytes."""
    if framed.by_header is not None and framed.by_header[row]:
        return replace(cell, schema=name, problem=str(error))
    is_likely = isinstance(name, int) and name < LIKELY_IDS and framed.starts[row] < framed.ends[row]
    return replace(cell, problem=f"may have schema {name}: {error}") if is_likely else cell


def guessed(content: bytes | None) -> Cell:
    """Guess the format of bytes without a schema."""
    if content is None:
        return Cell(Form.NULL)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Cell(Form.BYTES, content)
    tree = json_tree(text)
    if tree is not None:
        return Cell(Form.TREE, tree)
    return Cell(Form.BYTES, content) if "\0" in text else Cell(Form.TEXT, text)


def json_tree(text: str) -> Any:
    """Return a JSON object or array; None for anything else, also for JSON that cannot be shown unchanged."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return _loaded(text)
    except (ValueError, RecursionError):
        return None


def _loaded(text: str | bytes) -> Any:
    """Return a JSON document; raise ValueError for one that would be shown differently."""
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is there twice: shown as text, with both")
    return made


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise ValueError(f"{digits} is larger than any double")
    return found


def _reader(registry: Registry, name: SchemaName) -> Reader:
    schema = registry.schema(name) if isinstance(name, int) else registry.schema_by_guid(name)
    try:
        if schema.kind == AVRO:
            return _AvroReader(schema)
        if schema.kind == PROTOBUF:
            return _ProtobufReader(schema)
    except ValueError as error:  # it is not a schema, or not one that columns can represent
        problem = str(error)
        return lambda parts, rows: [_undecoded(parts.plain, row, problem) for row in rows]
    if schema.kind == JSON_SCHEMA:
        return lambda parts, rows: [_json(parts.plain, row) for row in rows]
    return lambda parts, rows: [_undecoded(parts.plain, row, f"a schema of {schema.kind}") for row in rows]


class _AvroReader:
    """Decodes Avro with the writer's schema."""

    def __init__(self, schema: RegisteredSchema) -> None:
        tree = parse(schema.text, [each.text for each in schema.references], recursive=True)
        self._decoder = AvroDecoder(tree, spark_type(tree, MOST_WITHIN, _TOO_LARGE))
        self._entry = self._decoder.add(tree)

    def __call__(self, parts: Parts, rows: Sequence[int]) -> list[Cell]:
        return _decoded(self._decoder, self._entry, parts.plain, rows)


class _ProtobufReader:
    """Decodes Protobuf with the messages of the writer's schema."""

    def __init__(self, schema: RegisteredSchema) -> None:
        from sparkonce.connectors.values.protobuf.schema import compile_text, read_set  # of the extra `registry`

        self._file = read_set(compile_text(schema.text, {each.name: each.text for each in schema.references}))
        self._decoders: dict[Path, tuple[ProtobufDecoder, int]] = {}

    def __call__(self, parts: Parts, rows: Sequence[int]) -> list[Cell]:
        framed = parts.with_paths
        assert framed.paths is not None, "they were read"
        made = {row: _undecoded(framed, row, "the path to its message cannot be read") for row in rows}
        for number, path in enumerate(framed.known_paths):
            here = [row for row in rows if framed.paths[row] == number]
            if not here:
                continue
            try:
                cells = _decoded(*self._decoder(path), framed, here)
            except ValueError as error:
                cells = [_undecoded(framed, row, str(error)) for row in here]
            made |= zip(here, cells, strict=True)
        return [made[row] for row in rows]

    def _decoder(self, path: Path) -> tuple[ProtobufDecoder, int]:
        from sparkonce.connectors.values.protobuf.decoder import ProtobufDecoder
        from sparkonce.connectors.values.protobuf.schema import message_by_path
        from sparkonce.connectors.values.protobuf.types import spark_type

        if path not in self._decoders:
            message = message_by_path(self._file, path)
            decoder = ProtobufDecoder(message, spark_type(message, most_within=MOST_WITHIN, too_large=_TOO_LARGE))
            self._decoders[path] = decoder, decoder.add(message)
        return self._decoders[path]


def _decoded(decoder: AvroDecoder | ProtobufDecoder, entry: int, framed: Framed, rows: Sequence[int]) -> list[Cell]:
    at = np.array(rows)
    entries = np.full(len(rows), entry, np.int32)
    array, problems = decoder.decode(framed.data, framed.starts[at], framed.ends[at], entries)
    made = []
    for number, row in enumerate(rows):
        if number in problems:
            made.append(_undecoded(framed, row, problems[number]))
            continue
        try:
            made.append(Cell(Form.TREE, plain(array[number], array.type)))
        except (ValueError, OverflowError, ArithmeticError) as error:  # a time that Python cannot represent
            made.append(_undecoded(framed, row, str(error)))
    return made


def _undecoded(framed: Framed, row: int, problem: str) -> Cell:
    return Cell(Form.BYTES, _payload(framed, row), problem=problem)


def plain(value: pa.Scalar, kind: pa.DataType) -> Any:
    """Return an Arrow value as JSON: times in ISO form, bytes in base64, decimals as text."""
    if not value.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: plain(value[at], field.type) for at, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return {entry["key"].as_py(): plain(entry["value"], kind.item_type) for entry in value.values}
    if pa.types.is_list(kind):
        return [plain(each, kind.value_type) for each in value.values]
    found = value.as_py()
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    if isinstance(found, datetime.datetime | datetime.date | datetime.time):
        return found.isoformat()
    if isinstance(found, Decimal) or (isinstance(found, float) and not math.isfinite(found)):
        return str(found)
    return found


def _json(framed: Framed, row: int) -> Cell:
    try:
        return Cell(Form.TREE, _loaded(_payload(framed, row)))
    except (ValueError, RecursionError) as error:
        return _undecoded(framed, row, f"it is not JSON: {error}")


def _payload(framed: Framed, row: int) -> bytes:
    return framed.data[framed.starts[row] : framed.ends[row]].tobytes()


def document(decoded: Decoded, topic: str) -> Mapping[str, Any]:
    """Return a record as a JSON document; bytes are in base64, in a field named accordingly."""
    record = decoded.record
    made: dict[str, Any] = {"topic": topic, "partition": record.partition, "offset": record.offset}
    made |= {"timestamp": iso(record.timestamp_ms), "timestampType": record.timestamp_type}
    for name, cell in (("key", decoded.key), ("value", decoded.value)):
        made |= _named(name, cell)
        made |= {} if cell.schema is None else {f"{name}SchemaId": cell.schema}
        made |= {} if cell.problem is None else {f"{name}Problem": cell.problem}
    made["headers"] = [{"key": key, **_named("value", guessed(value))} for key, value in record.headers]
    return made


def _named(name: str, cell: Cell) -> dict[str, Any]:
    if cell.form is Form.BYTES:
        return {f"{name}Base64": base64.b64encode(cell.content).decode()}
    return {name: cell.content}


def iso(timestamp_ms: int) -> str | None:
    """Return a time in ISO 8601, in UTC with milliseconds; the number if the year is out of range, None for -1."""
    if timestamp_ms == NO_TIMESTAMP:
        return None
    try:
        found = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return found.isoformat(timespec="milliseconds") + "Z"
