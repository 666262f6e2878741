"""Avro schemas: checked by Apache's package ``avro``; names and defaults are checked here."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

from sparkonce.registry_lite.compatibility.avro_comparison import Comparison, Schema
from sparkonce.registry_lite.compatibility.avro_names import NAMED, PRIMITIVE, Names, is_default, namespace_of
from sparkonce.registry_lite.compatibility.strict_json import strict_json

References = Sequence[tuple[str, str]]
_ORDER = (
    "name", "namespace", "type", "doc", "fields", "symbols", "items", "values", "size", "logicalType", "default",
    "aliases",
)  # fmt: skip
_ROOT = "without_namespace"
"""The namespace for types without one: Apache's package interprets "" as that of the enclosing type."""


def _load(text: str) -> Any:
    return text.strip() if text.strip() in PRIMITIVE else strict_json(text)  # some write these without quotes


def _schema(text: str, references: References, root: str = "") -> Schema:
    """Return a schema with full names; raise ValueError if it is invalid or not JSON."""
    names = Names(root)
    for _, reference in references:
        names.resolve(_load(reference))
    return Schema(names.resolve(_load(text)), names.defined)


def _check(text: str, references: References) -> None:
    from avro.errors import AvroException, IgnoredLogicalType

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IgnoredLogicalType)  # logical types that the package does not know
            _parse(text, references)
        _check_defaults(_schema(text, references))
    except (AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}".replace(f"{_ROOT}.", "")) from None


def _parse(text: str, references: References) -> None:
    from avro.name import Names as ApachesNames
    from avro.schema import make_avsc_object

    known, names = ApachesNames(), Names(_ROOT)
    for each in (*(reference for _, reference in references), text):
        make_avsc_object(names.resolve(_load(each)), known)


def _check_defaults(schema: Schema) -> None:
    """Raise ValueError for a default that does not match its type: Java rejects such a schema."""
    waiting = [schema.whole]
    for each in waiting:
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            waiting += [each.get("items"), each.get("values"), each["type"] if each["type"] not in NAMED else None]
            waiting += [field["type"] for field in each.get("fields", ())]
            for field in each.get("fields", ()):
                if "default" in field and not is_default(field["type"], field["default"], schema.defined):
                    told = f"{json.dumps(field['default'])} is no value of the type of {each['name']}.{field['name']}"
                    raise ValueError(f"the default {told}")
            if each["type"] == "enum" and each.get("default", each["symbols"][0]) not in each["symbols"]:
                raise ValueError(f"the default {each['default']!r} of {each['name']} is none of its symbols")


def check(text: str, references: References) -> str:
    """Return the text without spaces; raise ValueError if the schema is invalid."""
    _check(text, references)
    return _dump(_load(text))


def same(text: str, references: References) -> str:
    """Return a text that is equal for equal schemas, whatever the order of attributes."""
    _check(text, references)
    return _dump(_load(text), sort=True)


def normal(text: str, references: References) -> str:
    """Return the text with full names, attributes in a fixed order, and types without attributes by name only."""
    _check(text, references)
    return _dump(_normal(_schema(text, references).whole, ""))


def _dump(schema: Any, *, sort: bool = False) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def _normal(schema: Any, space: str) -> Any:
    """Return the normalized form of a schema with full names; ``space`` is the enclosing namespace."""
    if isinstance(schema, list):
        return [_normal(each, space) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    if made["type"] in NAMED:
        within = namespace_of(made["name"])
        made |= {"namespace": ""} if space and not within else {}
        space = within
    else:
        made["type"] = _normal(made["type"], space)
    for name in ("items", "values"):
        if name in made:
            made[name] = _normal(made[name], space)
    if "fields" in made:
        made["fields"] = [_in_order({**each, "type": _normal(each["type"], space)}) for each in made["fields"]]
    return made["type"] if made.keys() == {"type"} and isinstance(made["type"], str) else _in_order(made)


def _in_order(attributes: dict[str, Any]) -> dict[str, Any]:
    places = {name: place for place, name in enumerate(_ORDER)}
    return {name: attributes[name] for name in sorted(attributes, key=lambda name: (places.get(name, 99), name))}


def incompatible(reader: tuple[str, References], writer: tuple[str, References]) -> list[str]:
    """Return why a reader cannot read all data of a writer."""
    try:
        found = Comparison(_schema(*reader), _schema(*writer)).problem()
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # raised by a schema that another registry wrote
        found = f"the schemas cannot be compared: {type(error).__name__}: {error}"
    return [] if found is None else [found]
