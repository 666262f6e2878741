"""Types of columns for JSON Schemas, drafts 4 to 2020-12; only types count, as in Confluent's deserializers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.sql import types as t

Part = Any
"""A schema, or true or false."""
_ROOT = "the value"
_MOST_PARTS = 10_000
_DIGITS = 38
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_CONNECT: dict[tuple[str, str], t.DataType] = {
    ("integer", "int8"): t.ByteType(),
    ("integer", "int16"): t.ShortType(),
    ("integer", "int32"): t.IntegerType(),
    ("number", "float32"): t.FloatType(),
    ("string", "bytes"): t.BinaryType(),
}
"""By the type and the ``connect.type`` that Confluent's converters write beside it."""
_FORMATS: dict[str, t.DataType] = {"date": t.DateType(), "date-time": t.TimestampType()}
_SCALARS: dict[str, t.DataType] = {"boolean": t.BooleanType(), "integer": t.LongType(), "number": t.DoubleType()}
_ANY = ("string", "object")
"""The forms of a part with several alternatives."""
_TYPE_OF = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}


class JsonSchemaError(ValueError):
    """A text that is no JSON Schema, or one that no column can hold."""


def spark_type(text: str) -> t.StructType:
    """Return the type of a column that holds the values of a schema.

    Properties become fields; an object without any is a map. A part with several types is a STRING, of its JSON.

    Raises:
        JsonSchemaError: it is no schema, its values are not objects, or it is recursive.
    """
    document = Document(text)
    kind = _Types(document).of(document.root, _ROOT, ())
    if not isinstance(kind, t.StructType):
        raise JsonSchemaError(f"the values must be objects with properties, found {kind.simpleString()}")
    return kind


def load(text: str) -> Part:
    """Return a schema's document. Raises JsonSchemaError if it is none."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    try:
        root = json.loads(text)
        validator_for(root, default=Draft7Validator).check_schema(root)
    except (ValueError, RecursionError) as error:
        raise JsonSchemaError(f"it is not JSON: {error}") from None
    except SchemaError as error:
        raise JsonSchemaError(f"it is no JSON Schema: {error.message}, at {error.json_path}") from None
    return root


def inlined(text: str, references: Mapping[str, str]) -> str:
    """Return a schema with the definitions to which it refers among its own. Raises JsonSchemaError as `load`."""
    root = load(text)
    if not references or not isinstance(root, dict):
        return text
    parts = {name: load(reference) for name, reference in references.items()}
    paths = {name: f"#/$defs/{_escaped(name)}" for name in parts}
    found = _moved(root, "", paths)
    moved = {name: _moved(part, paths[name], paths) for name, part in parts.items()}
    return json.dumps({**found, "$defs": {**found.get("$defs", {}), **moved}})


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1").replace("%", "%25")


def _moved(part: Part, to: str, paths: Mapping[str, str]) -> Part:
    """Return a part with its references changed to the new positions of their documents; its own is at ``to``."""
    if isinstance(part, list):
        return [_moved(each, to, paths) for each in part]
    if not isinstance(part, dict):
        return part
    moved = {name: _moved(each, to, paths) for name, each in part.items()}
    reference = part.get("$ref")
    if isinstance(reference, str):
        document, _, path = reference.partition("#")
        start = paths.get(document) if document else (to or "#")
        if start is not None:
            moved["$ref"] = start + path
    return moved


class Document:
    """A schema with its definitions."""

    def __init__(self, text: str) -> None:
        """Raise JsonSchemaError if it is no schema."""
        self.root = load(text)

    def merged(self, part: Part, where: str, within: tuple[str, ...]) -> tuple[dict[str, Part], tuple[str, ...]]:
        """Return a part merged with its references, all parts of allOf, and the one branch that is not null."""
        here: list[str] = []
        own = self._merged(part, where, within, (), here)
        return own, (*within, *here)

    def _merged(
        self, part: Part, where: str, within: tuple[str, ...], above: tuple[str, ...], here: list[str]
    ) -> dict[str, Part]:
        """Merge as `merged`; ``above`` are the references that lead to this part, ``here`` those that are merged."""
        if not isinstance(part, dict):
            return {}
        own = dict(part)
        parts: list[Part] = []
        if isinstance(reference := own.pop("$ref", None), str):
            if reference in within or reference in above:
                raise JsonSchemaError(f"{where} is recursive: {reference} leads to itself, which no column can hold")
            above = (*above, reference)
            if reference not in here:  # another part of allOf says the same
                here.append(reference)
                parts.append(self._referred(reference, where))
        parts.extend(own.pop("allOf", ()))
        several = False
        for name in ("oneOf", "anyOf"):
            branches = [each for each in own.pop(name, ()) if not _is_null(each)]
            several |= len(branches) > 1
            parts.extend(branches if len(branches) == 1 else ())
        for each in reversed(parts):
            own = _both(self._merged(each, where, within, above, here), own)
        if several and not kinds_of(own):
            own["type"] = list(_ANY)
        return own

    def _referred(self, reference: str, where: str) -> Part:
        document, _, path = reference.partition("#")
        if document or (path and not path.startswith("/")):
            raise JsonSchemaError(f"{where} refers to {reference}, which is not in the schema or its references")
        found = self.root
        for step in path.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise JsonSchemaError(f"{where} refers to {reference}, which the schema does not have") from None
        return found

    def takes_null(self, part: Part, within: tuple[str, ...] = ()) -> bool:
        """Return whether a part has the value null."""
        if not isinstance(part, dict):
            return part is not False
        reference = part.get("$ref")
        if isinstance(reference, str):
            return reference not in within and self.takes_null(self._referred(reference, ""), (*within, reference))
        if "type" in part and "null" not in _listed(part["type"]):
            return False
        if part.get("const") is not None or None not in part.get("enum", [None]):
            return False
        one_of = [part[name] for name in ("oneOf", "anyOf") if name in part]
        return all(any(self.takes_null(each, within) for each in branches) for branches in one_of) and all(
            self.takes_null(each, within) for each in part.get("allOf", ())
        )


class _Types:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._parts = 0

    def of(self, part: Part, where: str, within: tuple[str, ...]) -> t.DataType:
        """Return the type for a part of the schema; ``within`` are the references that lead to it."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise JsonSchemaError(f"it has more than {_MOST_PARTS:,} fields, which no column can hold")
        plain, within = self._document.merged(part, where, within)
        kinds = kinds_of(plain)
        if len(kinds) != 1:
            return t.StringType()
        (kind,) = kinds
        if kind == "object":
            return self._object(plain, where, within)
        if kind == "array":
            items = plain.get("items", True)
            tuple_of = "prefixItems" in plain or isinstance(items, list)
            return t.ArrayType(self.of(True if tuple_of else items, below(where, "element"), within))
        return _scalar(plain, kind)

    def _object(self, part: Mapping[str, Part], where: str, within: tuple[str, ...]) -> t.DataType:
        properties = part.get("properties", {})
        if properties:
            return t.StructType(
                [t.StructField(name, self.of(each, below(where, name), within)) for name, each in properties.items()]
            )
        others = [*part.get("patternProperties", {}).values()]
        additional = part.get("additionalProperties", not others)
        if additional is not False:
            others.append(additional)
        values = [self.of(each, below(where, "value"), within) for each in others]
        alike = values and values.count(values[0]) == len(values)
        return t.MapType(t.StringType(), values[0] if alike else t.StringType())


def _both(first: Mapping[str, Part], second: Mapping[str, Part]) -> dict[str, Part]:
    """Return the conjunction of both, as far as types are concerned."""
    both = {**first, **second}
    for name in ("properties", "patternProperties"):
        if name in first and name in second:
            one, other = first[name], second[name]
            shared = {each: {"allOf": [one[each], other[each]]} for each in one if each in other}
            both[name] = {**one, **other, **shared}
    if "type" in first and "type" in second:
        both["type"] = [each for each in _listed(first["type"]) if each in _listed(second["type"])] or first["type"]
    return both


def _listed(types: Any) -> Sequence[Any]:
    return types if isinstance(types, list) else [types]


def kinds_of(part: Mapping[str, Part]) -> set[str]:
    """Return the types of a merged part's values, except null; none if there are any."""
    if "type" in part:
        kinds = {each for each in _listed(part["type"]) if each != "null"}
        return kinds - {"integer"} if "number" in kinds else kinds
    values = part.get("enum", [part["const"]] if "const" in part else [])
    if values:
        return {_TYPE_OF[type(each)] for each in values if each is not None}
    if "properties" in part:
        return {"object"}
    return {"array"} if "items" in part or "prefixItems" in part else set()


def _is_null(part: Part) -> bool:
    return isinstance(part, dict) and (part.get("type") in ("null", ["null"]) or part.get("const", 0) is None)


def _scalar(part: Mapping[str, Part], kind: str) -> t.DataType:
    if kind == "number" and part.get("title") == CONNECT_DECIMAL:
        return _decimal(part)
    connect = part.get("connect.type")
    if isinstance(connect, str) and (kind, connect) in _CONNECT:
        return _CONNECT[kind, connect]
    if kind == "string":
        return _FORMATS.get(part.get("format", ""), t.StringType())
    return _SCALARS.get(kind, t.StringType())


def _decimal(part: Mapping[str, Part]) -> t.DecimalType:
    parameters = part.get("connect.parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    precision, scale = (
        int(text) if (text := str(parameters.get(name, default))).isdigit() else default
        for name, default in (("connect.decimal.precision", _DIGITS), ("scale", 0))
    )
    return (
        t.DecimalType(precision, scale) if 0 < precision <= _DIGITS and scale <= precision else t.DecimalType(_DIGITS)
    )


def below(where: str, name: str) -> str:
    """Return the path of a field."""
    return name if where == _ROOT else f"{where}.{name}"
