"""Pairs of schemas of Avro that are nearly the same; Java's and Python's readers as judges of what a reader reads."""

from __future__ import annotations

import base64
import copy
import io
import json
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyspark

from lab.peers import QUICK_JVM
from sparkonce.jobs.shared.jars import java_command
from tests.avro_documents import LOGICAL, PRIMITIVES, TEXTS, Json, Maker, bare, encode

NAMED = ("record", "enum", "fixed")
MAX_DEPTH = 8
JAVAS_FAULTS = (
    "a value: org.apache.avro.AvroRuntimeException: Not an array: [",
    "a value: org.apache.avro.AvroTypeException: Invalid default",
)
"""What Java's readers (1.12.1) say of schemas that are right: where the default of a union is an empty array, and where
a reader's alias renames a field of the writer's, within a record that has a default there."""
DEFAULTS: dict[str, Any] = {
    "null": None, "boolean": True, "int": 7, "long": 2**40, "float": 0.5, "double": 0.5, "bytes": "\u00ff",
    "string": "d",
}  # fmt: skip


class Pair(NamedTuple):
    """A writer's schema and a reader's, and what was done to the one to make the other."""

    seed: int
    writer: Json
    reader: Json
    changes: tuple[str, ...]

    def __str__(self) -> str:
        schemas = f"writer: {json.dumps(self.writer)}\nreader: {json.dumps(self.reader)}"
        return f"seed {self.seed}, changes {', '.join(self.changes)}\n{schemas}"


def pairs(seed: int, count: int) -> Iterator[Pair]:
    """Yield as many pairs; a change that makes no schema is drawn again."""
    while count:
        found = pair(seed)
        seed += 1
        if found is not None:
            yield found
            count -= 1


def pair(seed: int) -> Pair | None:
    """Return the pair of a seed; None if one of the two is no schema."""
    maker = Maker(seed)
    writer = maker.record()
    for _ in range(3):
        _change(writer, maker, (_name_again, _recurse, _set_namespace, _add_field))
    reader = copy.deepcopy(writer)
    drawn = range(maker.random.choice((1, 1, 1, 2, 3)))
    changes = tuple(_change(reader, maker, CHANGES) for _ in drawn)
    try:
        parsed(writer), parsed(reader)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, ValueError):
        return None
    return Pair(seed, writer, reader, changes)


def parsed(schema: Json) -> Any:
    return fastavro.parse_schema(copy.deepcopy(schema))


class Slot(NamedTuple):
    """A place that holds a schema, in the record or list of schemas around it."""

    around: Any
    key: Any

    @property
    def schema(self) -> Json:
        return self.around[self.key]

    @schema.setter
    def schema(self, made: Json) -> None:
        self.around[self.key] = made


def _slots(schema: Json) -> Iterator[Slot]:
    """Yield all places below a schema."""
    if isinstance(schema, list):
        below = [Slot(schema, at) for at in range(len(schema))]
    elif isinstance(schema, dict):
        below = [Slot(each, "type") for each in schema.get("fields", ())]
        below += [Slot(schema, key) for key in ("items", "values") if key in schema]
    else:
        return
    for each in below:
        yield each
        yield from _slots(each.schema)


def _all(schema: Json) -> list[Json]:
    return [schema, *(each.schema for each in _slots(schema))]


def _of_kind(schema: Json, *kinds: str) -> list[Any]:
    return [each for each in _all(schema) if isinstance(each, dict) and each["type"] in kinds]


Change = Callable[[Json, Maker], None]


def _change(schema: Json, maker: Maker, changes: tuple[Change, ...]) -> str:
    change = maker.random.choice(changes)
    change(schema, maker)
    return change.__name__.strip("_")


def _record(schema: Json, maker: Maker) -> Any:
    return maker.random.choice(_of_kind(schema, "record"))


def _field(schema: Json, maker: Maker) -> Any:
    found = [each for record in _of_kind(schema, "record") for each in record["fields"]]
    return maker.random.choice(found) if found else {"name": "none", "type": "null"}


def _default(schema: Json, maker: Maker) -> Any:
    """Return a default of a schema, now and then one that does not fit it."""
    if maker.random.random() < 0.15:
        return maker.random.choice((None, 3, "no", [], {}, 2**40, True, "\u0100"))
    return _fitting(schema, maker)


def _fitting(schema: Json, maker: Maker) -> Any:
    if isinstance(schema, list):
        return _fitting(schema[0], maker)
    if isinstance(schema, str):
        return DEFAULTS.get(schema, {})
    match schema["type"]:
        case "record":
            return {each["name"]: _fitting(each["type"], maker) for each in schema["fields"]}
        case "enum":
            return schema["symbols"][-1]
        case "fixed":
            return "\u0001" * schema["size"]
        case "array":
            return []
        case "map":
            return {}
    return DEFAULTS[schema["type"]]


def _add_field(schema: Json, maker: Maker) -> None:
    made: dict[str, Any] = {"name": f"a{maker.name()}", "type": maker.schema(2)}
    if maker.random.random() < 0.7:
        made["default"] = _default(made["type"], maker)
    fields = _record(schema, maker)["fields"]
    fields.insert(maker.random.randint(0, len(fields)), made)


def _remove_field(schema: Json, maker: Maker) -> None:
    fields = _record(schema, maker)["fields"]
    if len(fields) > 1:
        fields.remove(maker.random.choice(fields))


def _rename_field(schema: Json, maker: Maker) -> None:
    field = _field(schema, maker)
    old, field["name"] = field["name"], f"r{maker.name()}"
    if maker.random.random() < 0.6:
        field["aliases"] = maker.random.sample([old, "other"], maker.random.randint(1, 2))


def _alias_of_another(schema: Json, maker: Maker) -> None:
    """Have a field claim another one's name, which is still there or not."""
    fields = _record(schema, maker)["fields"]
    one, other = maker.random.choice(fields), maker.random.choice(fields)
    one["aliases"] = [other["name"]]
    if maker.random.random() < 0.5:
        one["default"] = _default(one["type"], maker)
    if maker.random.random() < 0.3 and one is not other:
        one["name"], other["name"] = other["name"], one["name"]


def _reorder(schema: Json, maker: Maker) -> None:
    maker.random.shuffle(_record(schema, maker)["fields"])


def _set_default(schema: Json, maker: Maker) -> None:
    field = _field(schema, maker)
    field["default"] = _default(field["type"], maker)


def _drop_default(schema: Json, maker: Maker) -> None:
    _field(schema, maker).pop("default", None)


def _retype(schema: Json, maker: Maker) -> None:
    """Change a type, mostly to one that numbers and texts can be promoted to."""
    slots = [each for each in _slots(schema) if isinstance(each.schema, str) and each.schema in PRIMITIVES]
    if not slots or maker.random.random() < 0.2:
        maker.random.choice([*_slots(schema)]).schema = maker.schema(2)
        return
    slot = maker.random.choice(slots)
    near = [kinds for kinds in (("int", "long", "float", "double"), ("string", "bytes")) if slot.schema in kinds]
    slot.schema = maker.random.choice(near[0] if near else PRIMITIVES)


def _relogical(schema: Json, maker: Maker) -> None:
    """Change, add or remove a logical type, or the digits of a decimal."""
    slots = [each for each in _slots(schema) if isinstance(each.schema, dict) and "logicalType" in each.schema]
    for slot in maker.random.sample(slots, min(1, len(slots))):
        kind = slot.schema["type"]
        if slot.schema["logicalType"] == "decimal" and maker.random.random() < 0.7:
            slot.schema = {
                **slot.schema,
                "precision": maker.random.choice((6, 12, 14)),
                "scale": maker.random.choice((0, 3)),
            }
        elif kind in PRIMITIVES:
            slot.schema = dict(
                maker.random.choice([each for each in LOGICAL if each["type"] == kind] + [{"type": kind}])
            )


def _make_union(schema: Json, maker: Maker) -> None:
    slot = maker.random.choice([*_slots(schema)])
    if not isinstance(slot.schema, list) and not isinstance(slot.around, list) and slot.schema != "null":
        branches = ["null", slot.schema] if maker.random.random() < 0.7 else [slot.schema, "boolean"]
        slot.schema = maker.random.sample(branches, 2)


def _change_union(schema: Json, maker: Maker) -> None:
    """Add, remove or reorder branches, or leave one alone."""
    unions = [each for each in _slots(schema) if isinstance(each.schema, list)]
    for slot in maker.random.sample(unions, min(1, len(unions))):
        match maker.random.randint(0, 3):
            case 0:
                slot.schema.insert(maker.random.randint(0, 2), maker.random.choice(("null", *PRIMITIVES)))
            case 1 if len(slot.schema) > 1:
                slot.schema.remove(maker.random.choice(slot.schema))
            case 2:
                slot.schema = maker.random.choice(slot.schema)
            case _:
                maker.random.shuffle(slot.schema)


def _change_enum(schema: Json, maker: Maker) -> None:
    for enum in maker.random.sample(found := _of_kind(schema, "enum"), min(1, len(found))):
        symbols = enum["symbols"]
        match maker.random.randint(0, 3):
            case 0:
                symbols.insert(maker.random.randint(0, len(symbols)), maker.name())
            case 1 if len(symbols) > 1:
                symbols.remove(maker.random.choice(symbols))
            case 2:
                maker.random.shuffle(symbols)
        if maker.random.random() < 0.4:
            enum["default"] = maker.random.choice(symbols)


def _change_fixed(schema: Json, maker: Maker) -> None:
    for fixed in maker.random.sample(found := _of_kind(schema, "fixed"), min(1, len(found))):
        fixed["size"] = maker.random.randint(10, 20)


def _rename_type(schema: Json, maker: Maker) -> None:
    """Give a type another name, perhaps with its old one as an alias; what names it elsewhere follows."""
    named = maker.random.choice(_of_kind(schema, *NAMED))
    old, named["name"] = named["name"], f"T{maker.name()}"
    for slot in _slots(schema):
        if slot.schema == old:
            slot.schema = named["name"]
    if maker.random.random() < 0.6:
        named["aliases"] = [maker.random.choice((old, f"x.{old}", f"y.{old}"))]


def _set_namespace(schema: Json, maker: Maker) -> None:
    named = maker.random.choice(_of_kind(schema, *NAMED))
    named["namespace"] = maker.random.choice(("x", "y.z", ""))


def _name_again(schema: Json, maker: Maker) -> None:
    """Have another field be of a type that is defined before it."""
    record = _record(schema, maker)
    below = [each for field in record["fields"] for each in _of_kind(field["type"], *NAMED)]
    if below:
        record["fields"].append({"name": f"again{maker.name()}", "type": maker.random.choice(below)["name"]})


def _recurse(schema: Json, maker: Maker) -> None:
    record = _record(schema, maker)
    holder = maker.random.choice((["null", record["name"]], {"type": "array", "items": record["name"]}))
    record["fields"].append(
        {"name": f"deep{maker.name()}", "type": holder, "default": None if isinstance(holder, list) else []}
    )


CHANGES: tuple[Change, ...] = (
    _add_field, _add_field, _remove_field, _rename_field, _rename_field, _alias_of_another, _reorder, _set_default,
    _drop_default, _retype, _retype, _relogical, _make_union, _change_union, _change_union, _change_enum, _change_enum,
    _change_fixed, _rename_type, _rename_type, _set_namespace, _name_again, _recurse,
)  # fmt: skip


class Values(Maker):
    """Random values, and their bytes, of schemas that name their types."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._depth = 0

    def bytes_of(self, schema: Json) -> bytes:
        named: dict[str, Any] = {}
        whole = fastavro.parse_schema(copy.deepcopy(schema), named_schemas=named)
        self._named = named
        return self._bytes(whole)

    def _primitive(self, kind: str) -> Any:
        """As a text, bytes are read only if they are UTF-8."""
        return self.random.choice(TEXTS).encode() if kind == "bytes" else super()._primitive(kind)

    def _bytes(self, schema: Json) -> bytes:
        """Make a value of a schema and write it; recursion ends at a depth."""
        if isinstance(schema, str) and schema in self._named:
            return self._bytes(self._named[schema])
        if isinstance(schema, list):
            ends = self._depth >= MAX_DEPTH and "null" in schema
            branch = schema.index("null") if ends else self.random.randrange(len(schema))
            return _number(branch) + self._bytes(schema[branch])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind not in ("record", "array", "map"):
            return encode(schema, self._primitive(kind) if kind == "bytes" else self.value(schema), self.random)
        self._depth += 1
        try:
            if kind == "record":
                return b"".join(self._bytes(each["type"]) for each in schema["fields"])
            count = 0 if self._depth > MAX_DEPTH else self.random.choice((0, 1, 2))
            below = schema["items"] if kind == "array" else schema["values"]
            keys = [b"" if kind == "array" else encode("string", f"k{at}", self.random) for at in range(count)]
            block = b"".join(key + self._bytes(below) for key in keys)
            return (_number(count) + block if count else b"") + _number(0)
        finally:
            self._depth -= 1


def _number(value: int) -> bytes:
    return encode("long", value, random.Random(0))


def losses(some: Sequence[Pair], values: int = 4) -> list[str]:
    """Return for each pair what a judge cannot read of random values, "" if all can read all."""
    data = [[Values(each.seed).bytes_of(each.writer) for _ in range(values)] for each in some]
    lines = [
        json.dumps(
            {
                "writer": json.dumps(pair.writer),
                "reader": json.dumps(pair.reader),
                "values": [base64.b64encode(each).decode() for each in each_data],
            }
        )
        for pair, each_data in zip(some, data, strict=True)
    ]
    folder = Path(pyspark.__file__).parent / "jars"
    command = [java_command(), *QUICK_JVM, "-cp", f"{folder}/*", str(Path(__file__).with_name("AvroReads.java"))]
    java = subprocess.run(
        command, input="\n".join(lines), text=True, encoding="utf-8", capture_output=True, timeout=600
    )
    assert java.returncode == 0, java.stderr
    told = java.stdout.split("\n")[: len(some)]
    return [
        f"Java: {theirs}" if theirs and not theirs.startswith(JAVAS_FAULTS) else _fastavros(pair, each_data)
        for pair, each_data, theirs in zip(some, data, told, strict=True)
    ]


def _fastavros(pair: Pair, data: Sequence[bytes]) -> str:
    writer, reader = parsed(bare(pair.writer)), parsed(bare(pair.reader))
    for each in data:
        try:
            fastavro.schemaless_reader(io.BytesIO(each), writer, reader)
        except Exception as error:
            return f"fastavro: {type(error).__name__}: {error} at {each!r}"
    return ""
