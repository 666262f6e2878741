"""Encodes a column as JSON for a JSON Schema by Arrow's kernels: columns become texts, a struct's are joined."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from sparkonce.connectors.values.json_schema import CONNECT_DECIMAL, Document, JsonSchemaError, Part, below, kinds_of
from sparkonce.connectors.values.unwritable import UnwritableRowError

_ROOT = "the value"
_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that JSON escapes in a text."""
_KINDS: dict[type[t.DataType], frozenset[str]] = {
    t.BooleanType: frozenset({"boolean"}),
    t.ByteType: frozenset({"integer", "number"}),
    t.ShortType: frozenset({"integer", "number"}),
    t.IntegerType: frozenset({"integer", "number"}),
    t.LongType: frozenset({"integer", "number"}),
    t.FloatType: frozenset({"number"}),
    t.DoubleType: frozenset({"number"}),
    t.DecimalType: frozenset({"number"}),
    t.StringType: frozenset({"string"}),
    t.BinaryType: frozenset({"string"}),
    t.DateType: frozenset({"string"}),
    t.TimestampType: frozenset({"string"}),
    t.TimestampNTZType: frozenset({"string"}),
    t.StructType: frozenset({"object"}),
    t.MapType: frozenset({"object"}),
    t.ArrayType: frozenset({"array"}),
}
"""By the column's type, the types of JSON Schema that can represent its values."""


class JsonSchemaEncoder:
    """Writes a column of one type with one schema."""

    def __init__(self, text: str, kind: t.DataType, frame: bytes = b"") -> None:
        """``frame`` is the prefix of each value. Raises JsonSchemaError if the schema cannot hold the column."""
        document = Document(text)
        self._frame = frame
        self._writer = _Compiler(document).writer(document.root, kind, _ROOT, ())

    def encode(self, column: pa.Array) -> pa.BinaryArray:
        """Return the values; null where the column is. Raises UnwritableRowError if a row does not fit the schema."""
        texts = self._writer.texts(column).cast(pa.binary())
        return pc.binary_join_element_wise(pa.scalar(self._frame, pa.binary()), texts, pa.scalar(b"", pa.binary()))


class _Writer(ABC):
    """Converts a column to texts, null where the column is."""

    def __init__(self, where: str) -> None:
        self._where = where

    @abstractmethod
    def texts(self, column: pa.Array) -> pa.StringArray:
        """Return the texts of JSON; raise UnwritableRowError for a value that JSON cannot represent."""


class _Plain(_Writer):
    """Numbers and booleans, as Arrow writes them."""

    def texts(self, column: pa.Array) -> pa.StringArray:
        if pa.types.is_floating(column.type) and pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise UnwritableRowError(f"{self._where}: NaN and infinity are no values of JSON")
        return column.cast(pa.string())


class _Text(_Writer):
    def texts(self, column: pa.Array) -> pa.StringArray:
        column = column.cast(pa.string())
        odd = pc.match_substring_regex(column, _ESCAPED).fill_null(False)
        if pc.any(odd).as_py():
            escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for text in column.filter(odd).to_pylist()]
            column = pc.replace_with_mask(column, odd, pa.array(escaped, pa.string()))
        return _joined('"', column, '"')


class _Moment(_Writer):
    """Dates and times, as RFC 3339 writes them."""

    def texts(self, column: pa.Array) -> pa.StringArray:
        zone = "Z" if pa.types.is_timestamp(column.type) and column.type.tz is not None else ""
        if zone:
            column = column.cast(pa.timestamp("us"))
        texts = column.cast(pa.string())
        return _joined('"', pc.replace_substring(texts, " ", "T"), f'{zone}"')


class _Bytes(_Writer):
    """Bytes in base64."""

    def texts(self, column: pa.Array) -> pa.StringArray:
        texts = [None if each is None else f'"{base64.b64encode(each).decode()}"' for each in column.to_pylist()]
        return pa.array(texts, pa.string())


class _Field(_Writer):
    """A part of a struct, list or map, that may be null or may not."""

    def __init__(self, writer: _Writer, where: str, null: str | None) -> None:
        super().__init__(where)
        self._writer, self._null = writer, null

    def texts(self, column: pa.Array) -> pa.StringArray:
        texts = self._writer.texts(column)
        if not texts.null_count:
            return texts
        if self._null is None:
            raise UnwritableRowError(f"{self._where}: it is null, which the schema does not take")
        return texts.fill_null(self._null)


class _Struct(_Writer):
    def __init__(self, where: str, fields: list[tuple[str, _Writer, str | None, bool]]) -> None:
        """``fields`` are their names, writers, replacements of null, and whether they may be absent."""
        super().__init__(where)
        self._fields = fields

    def texts(self, column: pa.StructArray) -> pa.StringArray:
        held, parts = _held(column), []
        for at, (name, writer, null, may_lack) in enumerate(self._fields):
            texts = writer.texts(held.field(at))
            if texts.null_count and null is None and not may_lack:
                raise UnwritableRowError(f"{below(self._where, name)}: it is null, which the schema does not take")
            given = texts if null is None else texts.fill_null(null)
            parts.append(_joined(f",{json.dumps(name, ensure_ascii=False)}:", given).fill_null(""))
        return _back(column, _joined("{", pc.utf8_slice_codeunits(_joined(*parts), 1), "}"))


class _Array(_Writer):
    def __init__(self, where: str, element: _Writer) -> None:
        super().__init__(where)
        self._element = element

    def texts(self, column: pa.ListArray) -> pa.StringArray:
        held = _held(column)
        return _back(column, _joined("[", _lists(held, self._element.texts(_below(held, held.values))), "]"))


class _Map(_Writer):
    def __init__(self, where: str, value: _Writer) -> None:
        super().__init__(where)
        self._key, self._value = _Text(where), value

    def texts(self, column: pa.MapArray) -> pa.StringArray:
        held = _held(column)
        keys, values = _below(held, held.keys), _below(held, held.items)
        entries = pc.binary_join_element_wise(self._key.texts(keys), self._value.texts(values), ":")
        return _back(column, _joined("{", _lists(held, entries), "}"))


def _held(column: pa.Array) -> pa.Array:
    """Return the values that are not null."""
    return column.filter(column.is_valid()) if column.null_count else column


def _back(column: pa.Array, texts: pa.StringArray) -> pa.StringArray:
    """Return the texts of `_held` values at their places."""
    if not column.null_count:
        return texts
    return pc.replace_with_mask(pa.nulls(len(column), pa.string()), column.is_valid(), texts)


def _below(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Return those of the values that are in the lists."""
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return values.slice(first, last - first)


def _lists(lists: pa.Array, texts: pa.StringArray) -> pa.StringArray:
    """Return the texts of each list in one, with commas between them."""
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")


def _joined(*parts: Any) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


class _Compiler:
    def __init__(self, document: Document) -> None:
        self._document = document

    def writer(self, part: Part, kind: t.DataType, where: str, within: tuple[str, ...]) -> _Writer:
        """Return what writes values of a type for a part of the schema. Raises JsonSchemaError if it cannot."""
        if part is False:
            raise JsonSchemaError(f"{where}: the schema takes no value there")
        plain, within = self._document.merged(part, where, within)
        takes, can = kinds_of(plain), _KINDS.get(type(kind), frozenset())
        if isinstance(kind, t.DecimalType) and kind.scale == 0:
            can = can | {"integer"}
        if not can or (takes and not takes & can):
            wanted = " or ".join(sorted(takes)) or "value"
            raise JsonSchemaError(f"{where}: {kind.simpleString()} cannot be written as the schema's {wanted}")
        if isinstance(kind, t.StructType):
            return self._struct(plain, kind, where, within)
        if isinstance(kind, t.ArrayType):
            items = plain.get("items", True)
            if isinstance(items, list) or "prefixItems" in plain:
                raise JsonSchemaError(f"{where}: an array cannot be written as the schema's tuple")
            return _Array(where, self._part(items, kind.elementType, below(where, "element"), within))
        if isinstance(kind, t.MapType):
            return self._map(plain, kind, where, within)
        return _leaf(kind, where)

    def _part(self, part: Part, kind: t.DataType, where: str, within: tuple[str, ...]) -> _Writer:
        null = "null" if self._document.takes_null(part) else None
        return _Field(self.writer(part, kind, where, within), where, null)

    def _map(self, plain: dict[str, Part], kind: t.MapType, where: str, within: tuple[str, ...]) -> _Writer:
        if not isinstance(kind.keyType, t.StringType):
            raise JsonSchemaError(f"{where}: a map's keys must be STRING, found {kind.keyType.simpleString()}")
        if plain.get("properties") or plain.get("patternProperties") or plain.get("required"):
            raise JsonSchemaError(f"{where}: a map cannot be written as the schema's object with properties")
        return _Map(
            where, self._part(plain.get("additionalProperties", True), kind.valueType, below(where, "value"), within)
        )

    def _struct(self, plain: dict[str, Part], kind: t.StructType, where: str, within: tuple[str, ...]) -> _Writer:
        properties, required = plain.get("properties", {}), set(plain.get("required", ()))
        lacking = sorted(required - set(kind.names))
        if lacking:
            raise JsonSchemaError(
                f"{below(where, lacking[0])}: the schema requires it, and the column has no such field"
            )
        fields = []
        for each in kind:
            path = below(where, each.name)
            part = properties.get(each.name, plain.get("additionalProperties", True))
            if each.name not in properties and (part is False or plain.get("patternProperties")):
                raise JsonSchemaError(f"{path}: the schema has no such property")
            null = "null" if self._document.takes_null(part) and each.name in required else None
            writer = self.writer(part, each.dataType, path, within)
            fields.append((each.name, writer, null, each.name not in required))
        return _Struct(where, fields)


def _leaf(kind: t.DataType, where: str) -> _Writer:
    if isinstance(kind, t.StringType):
        return _Text(where)
    if isinstance(kind, t.BinaryType):
        return _Bytes(where)
    return (_Moment if isinstance(kind, t.DateType | t.TimestampType | t.TimestampNTZType) else _Plain)(where)


def schema_for(kind: t.DataType) -> str:
    """Return a schema for a column, as text: every property may be absent or null, and no others are allowed.

    As Confluent's serializers derive it for classes, so that a later column is compatible. Type details that JSON
    Schema lacks are beside it, as Connect's converter writes them.

    Raises:
        JsonSchemaError: if no schema can hold it.
    """
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **_schema_for(kind, _ROOT)})


def _schema_for(kind: t.DataType, where: str) -> dict[str, Part]:
    if type(kind) in _SCHEMAS:
        return _SCHEMAS[type(kind)]
    if isinstance(kind, t.DecimalType):
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        return {"type": "number", "title": CONNECT_DECIMAL, "connect.type": "bytes", "connect.parameters": parameters}
    if isinstance(kind, t.ArrayType):
        return {"type": "array", "items": _nullable(kind.elementType, below(where, "element"))}
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return {"type": "object", "additionalProperties": _nullable(kind.valueType, below(where, "value"))}
    if not isinstance(kind, t.StructType):
        raise JsonSchemaError(f"{where}: {kind.simpleString()} has no JSON Schema")
    properties = {each.name: _nullable(each.dataType, below(where, each.name)) for each in kind}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _nullable(kind: t.DataType, where: str) -> Part:
    return {"oneOf": [{"type": "null"}, _schema_for(kind, where)]}


_SCHEMAS: dict[type[t.DataType], dict[str, Part]] = {
    t.BooleanType: {"type": "boolean"},
    t.ByteType: {"type": "integer", "connect.type": "int8"},
    t.ShortType: {"type": "integer", "connect.type": "int16"},
    t.IntegerType: {"type": "integer", "connect.type": "int32"},
    t.LongType: {"type": "integer", "connect.type": "int64"},
    t.FloatType: {"type": "number", "connect.type": "float32"},
    t.DoubleType: {"type": "number", "connect.type": "float64"},
    t.StringType: {"type": "string"},
    t.BinaryType: {"type": "string", "connect.type": "bytes"},
    t.DateType: {"type": "string", "format": "date"},
    t.TimestampType: {"type": "string", "format": "date-time"},
    t.TimestampNTZType: {"type": "string"},
}
