"""Avro schemas with full names, and checks of JSON defaults.

Source: the specification of Avro 1.12, "Names" and "Complex Types". As in Java, a name that is unknown in the enclosing
namespace is looked up among the types without a namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "error", "enum", "fixed")
_WHOLE = {"int": 31, "long": 63}


class Names:
    """The types that schemas define, in order."""

    def __init__(self, root: str = "") -> None:
        """``root`` is the namespace of types without one."""
        self.defined: dict[str, Any] = {}
        self._root = root

    def resolve(self, schema: Any, space: str = "") -> Any:
        """Return a schema with full names, invalid parts unchanged. Raises ValueError for a primitive's name."""
        if isinstance(schema, str):
            return schema if schema in PRIMITIVE else self._known(schema, space)
        if isinstance(schema, list):
            return [self.resolve(each, space) for each in schema]
        if not isinstance(schema, dict):
            return schema
        made, kind = dict(schema), schema.get("type")
        if kind in NAMED:
            space = self._define(made, space)
        elif kind not in ("array", "map"):
            made["type"] = self.resolve(kind, space)
        for part in ("items", "values"):
            if part in made:
                made[part] = self.resolve(made[part], space)
        if isinstance(fields := made.get("fields"), list):
            made["fields"] = [
                {**each, "type": self.resolve(each.get("type"), space)} if isinstance(each, dict) else each
                for each in fields
            ]
        return made

    def _define(self, made: dict[str, Any], space: str) -> str:
        """Give a named type its full name; return the namespace within it."""
        name, given = made.get("name"), made.get("namespace")
        if not isinstance(name, str) or not isinstance(given, str | None):
            return space
        full = full_name(name, space if given is None else given)
        if full in PRIMITIVE:
            raise ValueError(f"{full} is the name of a primitive type")
        made.pop("namespace", None)
        made["name"] = self._shown(full)
        self.defined.setdefault(full, made)
        space = namespace_of(full)
        if isinstance(aliases := made.get("aliases"), list):
            made["aliases"] = [self._shown(full_name(each, space)) for each in aliases if isinstance(each, str)]
        return space

    def _known(self, name: str, space: str) -> str:
        full = full_name(name, space)
        return self._shown(full if full in self.defined or name not in self.defined else name)

    def _shown(self, full: str) -> str:
        return full_name(full, self._root)


def full_name(name: str, space: str) -> str:
    """Return a name with its namespace."""
    return name if "." in name or not space else f"{space}.{name}"


def namespace_of(full: str) -> str:
    """Return the namespace of a full name."""
    return full.rpartition(".")[0]


def kind_of(schema: Any) -> str:
    """Return the type of a schema that is not a name; that of a list is ``union``."""
    if isinstance(schema, list):
        return "union"
    return str(schema) if isinstance(schema, str) else str(schema["type"])


def definition(schema: Any, defined: Mapping[str, Any]) -> Any:
    """Return the definition of a schema: names are replaced by their types, and wrappers by the type inside."""
    while True:
        if isinstance(schema, str) and schema in defined:
            schema = defined[schema]
        elif isinstance(schema, dict) and (not isinstance(schema["type"], str) or schema["type"] in defined):
            schema = schema["type"]
        else:
            return schema


def is_default(schema: Any, value: Any, defined: Mapping[str, Any], *, in_java: bool = False) -> bool:
    """Return whether a JSON value can be a default of a schema; for a union, of any branch.

    With ``in_java`` only if Java's readers find the branch: they use the first record or enum for any value.
    """

    def fits(below: Any, part: Any) -> bool:
        return is_default(below, part, defined, in_java=in_java)

    schema = definition(schema, defined)
    match kind := kind_of(schema):
        case "union":
            found = next((at for at, each in enumerate(schema) if fits(each, value)), None)
            return found is not None and not (in_java and any(_is_complex(each, defined) for each in schema[:found]))
        case "record" | "error":
            return isinstance(value, dict) and all(
                fits(each["type"], value[each["name"]]) if each["name"] in value else "default" in each
                for each in schema["fields"]
            )
        case "array":
            return isinstance(value, list) and all(fits(schema["items"], each) for each in value)
        case "map":
            return isinstance(value, dict) and all(fits(schema["values"], each) for each in value.values())
        case "enum":
            return value in schema["symbols"]
        case "fixed":
            return isinstance(value, str) and len(value) == schema["size"] and _are_bytes(value)
    return _is_primitive(kind, value)


def _is_complex(schema: Any, defined: Mapping[str, Any]) -> bool:
    return kind_of(definition(schema, defined)) not in PRIMITIVE


def _is_primitive(kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            return _is_number(value, int) and -(2 ** _WHOLE[kind]) <= value < 2 ** _WHOLE[kind]
        case "float" | "double":
            return _is_number(value, int | float)
    return isinstance(value, str) and (kind == "string" or _are_bytes(value))


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _are_bytes(value: str) -> bool:
    return all(ord(each) < 256 for each in value)
