"""Schemas of Avro, checked and compared by Apache's own package ``avro``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkonce.registry_lite.compatibility.strict_json import strict_json

if TYPE_CHECKING:
    from avro.name import Names
    from avro.schema import Schema as AvroSchema


_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
_ORDER = ("name", "type", "doc", "fields", "symbols", "items", "values", "size", "logicalType", "default", "aliases")


def _parse(text: str, references: Sequence[tuple[str, str]]) -> AvroSchema:
    from avro.errors import AvroException, IgnoredLogicalType
    from avro.name import Names

    names = Names()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IgnoredLogicalType)  # logical types that the package does not know
            return _parsed(text, references, names)
    except (AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _parsed(text: str, references: Sequence[tuple[str, str]], names: Names) -> AvroSchema:
    from avro.schema import make_avsc_object

    for _, reference in references:
        make_avsc_object(_load(reference), names)
    return make_avsc_object(_load(text), names)


def _load(text: str) -> Any:
    return text.strip() if text.strip() in _PRIMITIVE else strict_json(text)  # some write these without quotes


def check(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text without spaces; raise ValueError if it is no schema."""
    _parse(text, references)
    return _dump(_load(text))


def same(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return what is equal for equal schemas: the order of attributes makes no difference."""
    _parse(text, references)
    return _dump(_load(text), sort=True)


def normal(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text with full names, attributes in one order, and types by their names where nothing else is said."""
    _parse(text, references)
    return _dump(_normal(_load(text), ""))


def _dump(schema: Any, *, sort: bool = False) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def _normal(schema: Any, namespace: str) -> Any:
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVE else _full_name(schema, namespace)
    if isinstance(schema, list):
        return [_normal(each, namespace) for each in schema]
    made = dict(schema)
    if "name" in made and made.get("type") in _NAMED:
        made["name"] = _full_name(made["name"], made.pop("namespace", namespace))
        namespace = made["name"].rpartition(".")[0]
    if made.get("type") not in _NAMED:
        made["type"] = _normal(made["type"], namespace) if made["type"] not in ("array", "map") else made["type"]
    for name in ("items", "values"):
        if name in made:
            made[name] = _normal(made[name], namespace)
    if "fields" in made:
        made["fields"] = [{**each, "type": _normal(each["type"], namespace)} for each in made["fields"]]
        made["fields"] = [_in_order(each) for each in made["fields"]]
    return made["type"] if made.keys() == {"type"} and isinstance(made["type"], str) else _in_order(made)


def _in_order(attributes: dict[str, Any]) -> dict[str, Any]:
    places = {name: place for place, name in enumerate(_ORDER)}
    return {name: attributes[name] for name in sorted(attributes, key=lambda name: (places.get(name, 99), name))}


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_full_aliases(text: str, references: Sequence[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """Return a schema whose types have aliases with namespaces: Apache's package compares them as they are written."""
    named = [(name, _dump(_full_aliases(_load(each), ""))) for name, each in references]
    return _dump(_full_aliases(_load(text), "")), named


def _full_aliases(schema: Any, namespace: str) -> Any:
    if isinstance(schema, list):
        return [_full_aliases(each, namespace) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    if made.get("type") in _NAMED:
        namespace = _full_name(made["name"], made.get("namespace", namespace) or "").rpartition(".")[0]
        if "aliases" in made:
            made["aliases"] = [_full_name(each, namespace) for each in made["aliases"]]
    for name in ("type", "items", "values"):
        if name in made:
            made[name] = _full_aliases(made[name], namespace)
    if "fields" in made:
        made["fields"] = [{**each, "type": _full_aliases(each["type"], namespace)} for each in made["fields"]]
    return made


def incompatible(reader: tuple[str, Any], writer: tuple[str, Any]) -> list[str]:
    """Return why a reader cannot read all that a writer writes."""
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    checker: Any = ReaderWriterCompatibilityChecker
    found = checker().get_compatibility(_parse(*_with_full_aliases(*reader)), _parse(*writer))
    if found.compatibility is SchemaCompatibilityType.compatible:
        return []
    kinds = [kind.name for kind in found.incompatibilities] or ["incompatible"]
    places = sorted(found.locations) or ["/"]
    texts = sorted(found.messages) or [""]
    return [f"{kind} at {', '.join(places)}: {'; '.join(texts)}" for kind in kinds[:1]]
