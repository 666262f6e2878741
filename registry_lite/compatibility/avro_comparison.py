"""Whether an Avro reader schema reads all data of a writer schema.

Source: the specification of Avro 1.12, "Schema Resolution" and "Aliases", and where it is ambiguous, the behaviour of
Java's readers: an enum or fixed in a union that changes keeps its full name, and a field that takes over another's
name by an alias must leave that one without a field of its own.

Two types with logical types are compatible only if these are the same: readers use the number unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkonce.registry_lite.compatibility.avro_names import NAMED, definition, is_default, kind_of

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""For each primitive type, the types that it can be read as."""


class Schema(NamedTuple):
    """A schema with full names, and its named types."""

    whole: Any
    defined: Mapping[str, Any]


class Comparison:
    """Compares two schemas."""

    def __init__(self, reader: Schema, writer: Schema) -> None:
        self._reader, self._writer = reader, writer
        self._bad: dict[tuple[str, str], str] = {}
        """The problems found, by pairs of named types."""
        self._seen: set[tuple[str, str]] = set()

    def problem(self) -> str | None:
        """Return the first problem; None if there is none.

        Recursive types count as compatible until a problem is found; then everything is compared again.
        """
        if self._reader == self._writer:
            return None  # aliases do not apply
        while True:
            known = len(self._bad)
            self._seen.clear()
            found = self._compare(self._reader.whole, self._writer.whole, "")
            if len(self._bad) == known:
                return found

    def _compare(self, r: Any, w: Any, at: str) -> str | None:
        r, w = definition(r, self._reader.defined), definition(w, self._writer.defined)
        if kind_of(w) == "union":
            return self._branches(r, w, at)
        if kind_of(r) == "union":
            return self._among(r, w, at, by_full_name=True)
        if kind_of(r) != kind_of(w):
            if kind_of(r) in _PROMOTED.get(kind_of(w), ()):
                return _logical(r, w, at)
            return _said("type_mismatch", at, f"the writer's {_shown(w)} cannot be read as the reader's {_shown(r)}")
        match kind_of(r):
            case kind if kind in NAMED:
                return self._named(r, w, at)
            case "array":
                return self._compare(r["items"], w["items"], f"{at}/items")
            case "map":
                return self._compare(r["values"], w["values"], f"{at}/values")
        return _logical(r, w, at)

    def _branches(self, r: Any, w: Any, at: str) -> str | None:
        """Compare with each of the writer's branches."""
        theirs = [definition(each, self._writer.defined) for each in w]
        if kind_of(r) != "union":
            return next((found for each in theirs if (found := self._compare(r, each, at))), None)
        changes = [*map(_form, theirs)] != [_form(definition(each, self._reader.defined)) for each in r]
        return next((found for each in theirs if (found := self._among(r, each, at, by_full_name=changes))), None)

    def _among(self, branches: Any, w: Any, at: str, *, by_full_name: bool) -> str | None:
        """Find a branch of the reader that reads a type of the writer."""
        problems: dict[str, str] = {}
        for each in (definition(branch, self._reader.defined) for branch in branches):
            found = self._compare(each, w, at)
            if found is None and by_full_name and kind_of(w) in ("enum", "fixed") and not _have_one_name(each, w):
                found = _other_name(each, w, at)
            if found is None:
                return None
            problems.setdefault(kind_of(each), found)
        missing = _said("missing_union_branch", at, f"the reader has no branch for the writer's {_shown(w)}")
        return problems.get(kind_of(w), missing)

    def _named(self, r: Any, w: Any, at: str) -> str | None:
        pair = r["name"], w["name"]
        if pair not in self._seen and pair not in self._bad:
            self._seen.add(pair)
            found = self._of_names(r, w, at) or self._of_kind(r, w, at)
            if found is not None:
                self._bad[pair] = found
        return self._bad.get(pair)

    @staticmethod
    def _of_names(r: Any, w: Any, at: str) -> str | None:
        short = r["name"].rpartition(".")[2] == w["name"].rpartition(".")[2]
        return None if short or _have_one_name(r, w) else _other_name(r, w, at)

    def _of_kind(self, r: Any, w: Any, at: str) -> str | None:
        if kind_of(r) == "fixed":
            if r["size"] != w["size"]:
                return _said(
                    "fixed_size_mismatch", at, f"{r['name']} has {w['size']} bytes, and {r['size']} for the reader"
                )
            return _logical(r, w, at)
        if kind_of(r) == "enum":
            missing = [each for each in w["symbols"] if each not in r["symbols"]]
            if missing and r.get("default") not in r["symbols"]:
                return _said("missing_enum_symbols", f"{at}/symbols", ", ".join(missing))
            return None
        return self._fields(r, w, at)

    def _fields(self, r: Any, w: Any, at: str) -> str | None:
        theirs = {each["name"]: each for each in w["fields"]}
        names = [each["name"] for each in r["fields"]]
        taken: set[str] = set()
        for each in r["fields"]:
            here = f"{at}/{each['name']}"
            aliases = [alias for alias in each.get("aliases", ()) if alias in theirs and alias != each["name"]]
            aliases = aliases if _have_one_name(r, w) else []
            if any(alias in names or alias in taken for alias in aliases) or (aliases and each["name"] in theirs):
                return _said("name_mismatch", here, f"its alias {aliases[0]} is another field's name")
            taken.update(aliases)
            found = theirs.get(each["name"]) or next((theirs[alias] for alias in aliases), None)
            if found is not None:
                problem = self._compare(each["type"], found["type"], here)
            elif "default" not in each:
                problem = _said("reader_field_missing_default_value", here, "the writer has no such field")
            elif not is_default(each["type"], each["default"], self._reader.defined, in_java=True):
                why = "readers cannot tell of which branch its default is; put that branch first"
                problem = _said("reader_field_missing_default_value", here, why)
            else:
                problem = None
            if problem is not None:
                return problem
        return None


def _form(schema: Any) -> Any:
    """Return a key that is equal for branches that Java identifies by their numbers; unique for others."""
    kind = kind_of(schema)
    if kind in ("record", "error", "array", "map"):
        return object()
    return (kind, schema.get("symbols"), schema.get("size")) if kind in NAMED else kind


def _other_name(r: Any, w: Any, at: str) -> str:
    return _said("name_mismatch", at, f"the writer's {w['name']} is neither {r['name']} nor an alias of it")


def _have_one_name(r: Any, w: Any) -> bool:
    return r["name"] == w["name"] or w["name"] in r.get("aliases", ())


def _logical(r: Any, w: Any, at: str) -> str | None:
    """Compare the logical types of two types, if both have one."""
    ours, theirs = (each.get("logicalType") if isinstance(each, dict) else None for each in (r, w))
    if ours is None or theirs is None:
        return None
    same = ours == theirs
    if same and ours == "decimal":
        same = r.get("scale", 0) == w.get("scale", 0) and r.get("precision", 0) >= w.get("precision", 0)
    return None if same else _said("type_mismatch", at, f"the writer's {_shown(w)} is not the reader's {_shown(r)}")


def _shown(schema: Any) -> str:
    kind = kind_of(schema)
    if kind in NAMED:
        return f"{kind} {schema['name']}"
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    digits = f"({schema.get('precision')}, {schema.get('scale', 0)})" if logical == "decimal" else ""
    return f"{kind} ({logical}{digits})" if logical else kind


def _said(what: str, at: str, why: str) -> str:
    return f"{what} at {at or '/'}: {why}"
