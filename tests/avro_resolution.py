"""The rules of Avro's specification, "Schema Resolution", a case for each: what is read of what was written."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.avro_documents import Json


class Case(NamedTuple):
    """A value (of a union, the branch's number and its value), and what is read of it."""

    name: str
    writer: Json
    reader: Json
    value: Any
    expected: Any = None
    problem: str = ""
    """A part of the reason, where it cannot be read."""


def record(*fields: tuple[Any, ...], name: str = "R", **more: Any) -> Json:
    """Return the schema of a record: (name, type), (name, type, default), or (name, type, default, aliases)."""
    keys = ("name", "type", "default", "aliases")
    made = [{key: part for key, part in zip(keys, each, strict=False) if part is not ...} for each in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> Json:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> Json:
    return {"type": "fixed", "name": name, "size": size, **more}


def _of(w: Json, r: Json) -> tuple[Json, Json]:
    return record(("a", w)), record(("a", r))


def _field(name: str, w: Json, r: Json, value: Any, expected: Any = None, problem: str = "") -> Case:
    return Case(name, *_of(w, r), {"a": value}, {"a": expected}, problem)


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
CASES = (
    *(_field(f"{w} as {r}", w, r, 7, 7) for w, r in (("int", "int"), ("int", "long"), ("long", "long"))),
    *(_field(f"{w} as {r}", w, r, 7, 7.0) for w in ("int", "long") for r in ("float", "double")),
    _field("a long as float loses digits", "long", "float", 2**24 + 1, float(2**24)),
    _field("float as double", "float", "double", 0.5, 0.5),
    _field("string as bytes", "string", "bytes", "é", "é".encode()),
    _field("bytes as string", "bytes", "string", "é".encode(), "é"),
    _field("long as int", "long", "int", 7, problem="the writer's long cannot be read as the reader's int"),
    _field("double as float", "double", "float", 1.0, problem="cannot be read as the reader's float"),
    _field("int as string", "int", "string", 1, problem="cannot be read as the reader's string"),
    _field("boolean as int", "boolean", "int", True, problem="cannot be read as the reader's int"),
    # Records: fields by name, in any order.
    Case("another order", record(("a", "int"), ("b", "string")), record(("b", "string"), ("a", "int")),
         {"a": 1, "b": "x"}, {"b": "x", "a": 1}),
    Case("a field that the reader does not have", record(("a", "int"), ("b", "string"), ("c", "int")),
         record(("a", "int"), ("c", "int")), {"a": 1, "b": "x", "c": 2}, {"a": 1, "c": 2}),
    Case("a default", record(("a", "int")), record(("a", "int"), ("b", "string", "d")), {"a": 1}, {"a": 1, "b": "d"}),
    Case("no default", record(("a", "int")), record(("a", "int"), ("b", "string")), {"a": 1},
         problem="no field b, and the reader's no default"),
    Case("an alias of a field", record(("old", "int")), record(("new", "int", ..., ["old"])), {"old": 3}, {"new": 3}),
    Case("a record of another name at the root", record(("a", "int"), name="W"), record(("a", "int"), name="R"),
         {"a": 1}, {"a": 1}),
    Case("nested", record(("n", record(("x", "int"), ("y", "int"), name="N"))),
         record(("n", record(("y", "long"), ("z", "int", 9), name="N"))),
         {"n": {"x": 1, "y": 2}}, {"n": {"y": 2, "z": 9}}),
    # Defaults of every type.
    *(Case(f"a default of type {kind}", record(("a", "int")), record(("a", "int"), ("d", kind, default)), {"a": 1},
           {"a": 1, "d": expected})
      for kind, default, expected in (
          ("boolean", True, True), ("int", -5, -5), ("long", 2**40, 2**40), ("float", 0.25, 0.25),
          ("double", 1e300, 1e300), ("bytes", "\u00ff\u0000", b"\xff\0"), ("string", "é", "é"),
          (fixed(2), "\u0001\u00fe", b"\1\xfe"), (["null", "int"], None, None), (["int", "null"], 4, 4))),
    Case("a default of an enum", record(("a", "int")), record(("a", "int"), ("d", enum("A", "B"), "B")), {"a": 1},
         {"a": 1, "d": "B"}),
    Case("a default of an array", record(("a", "int")),
         record(("a", "int"), ("d", {"type": "array", "items": "long"}, [1, 2])), {"a": 1}, {"a": 1, "d": [1, 2]}),
    Case("an empty array as default", record(("a", "int")),
         record(("a", "int"), ("d", {"type": "array", "items": "long"}, [])), {"a": 1}, {"a": 1, "d": []}),
    Case("a default of a map", record(("a", "int")),
         record(("a", "int"), ("d", {"type": "map", "values": "int"}, {"k": 1})), {"a": 1},
         {"a": 1, "d": [("k", 1)]}),
    Case("a default of a record", record(("a", "int")),
         record(("a", "int"), ("d", record(("x", "int"), ("y", "string", "z"), name="D"), {"x": 1})), {"a": 1},
         {"a": 1, "d": {"x": 1, "y": "z"}}),
    # Enums, fixed: by name; symbols by name.
    _field("symbols in another order", enum("A", "B"), enum("B", "C", "A"), "B", "B"),
    _field("a symbol that the reader lacks", enum("A", "B"), enum("A"), "B", problem="none of the symbols B"),
    _field("a symbol that the reader lacks, not written", enum("A", "B"), enum("A"), "A", "A"),
    _field("the default of an enum", enum("A", "B"), enum("A", "X", default="X"), "B", "X"),
    _field("enums of other names", enum("A"), enum("A", name="Other"), "A", problem="cannot be read as"),
    _field("an alias of an enum", enum("A"), enum("A", name="New", aliases=["E"]), "A", "A"),
    _field("fixed", fixed(2), fixed(2), b"ab", b"ab"),
    _field("fixed of another size", fixed(2), fixed(3), b"ab", problem="cannot be read as"),
    _field("fixed of another name", fixed(2), fixed(2, name="G"), b"ab", problem="cannot be read as"),
    # Arrays and maps: their items.
    _field("items are promoted", {"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1, 2],
           [1.0, 2.0]),
    _field("values are promoted", {"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"k": 1},
           [("k", 1)]),
    _field("an array as map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, [1],
           problem="the writer's array cannot be read as the reader's map"),
    # Unions.
    _field("into a union", "int", ["null", "int"], 1, 1),
    _field("into a union, promoted", "int", ["null", "long"], 1, 1),
    _field("into a union, the same type first", "int", ["long", "int"], 1, 1),
    _field("into a union that lacks it", "string", ["null", "int"], "x", problem="no branch of the reader's union"),
    _field("out of a union", ["null", "int"], "int", (1, 5), 5),
    _field("out of a union, promoted", ["int", "string"], "double", (0, 5), 5.0),
    _field("null out of a union", ["null", "int"], "int", (0, None), problem="the writer's null cannot be read as"),
    _field("another branch out of a union", ["int", "string"], "int", (1, "x"), problem="string cannot be read as"),
    _field("between unions", ["int", "null"], ["null", "int"], (0, 5), 5),
    _field("null between unions", ["int", "null"], ["null", "int"], (1, None), None),
    _field("between unions, promoted", ["null", "int"], ["null", "double"], (1, 5), 5.0),
    _field("a record in a union, by name", ["null", record(("x", "int"), name="N")],
           ["null", record(("x", "long"), ("y", "int", 1), name="N")], (1, {"x": 2}), {"x": 2, "y": 1}),
    _field("null where the reader always has a value, not written", ["null", "string"], "string", (1, "x"), "x"),
)  # fmt: skip
"""What Java reads of each is compared in tests/spark/test_registry_values.py."""
OURS = (
    _field("milliseconds as microseconds: the same moment", MILLIS, MICROS, 1_700_000_000_123, 1_700_000_000_123_000),
    _field("milliseconds as a plain long", MILLIS, "long", 1_700, 1_700),
    _field("a plain long as milliseconds", "long", MILLIS, 1_700, 1_700_000),
    _field("decimals of another scale", DECIMAL, {**DECIMAL, "scale": 3}, b"\1",
           problem="has scale 2, and the reader's 3"),
    _field("milliseconds that no timestamp holds", MILLIS, MILLIS, 2**62, problem="too large"),
    _field("items that take no bytes", {"type": "array", "items": "null"}, {"type": "array", "items": "int"}, [],
           problem="items that take no bytes"),
)  # fmt: skip
"""Where the specification is silent, or Java returns another value in silence."""
