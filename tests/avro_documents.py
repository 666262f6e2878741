"""Random schemas of Avro, values of them, and those values' bytes; by a plain encoder that shares nothing with ours."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

Json = Any
"""A schema, or a part of one."""
PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-nanos"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
)
TEXTS = ("", "a", "Grüße", "日本語", "🙂", "x" * 40, "\0")
DEEPEST = 3


class Maker:
    """Makes schemas with names that are used once."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def record(self, depth: int = 0) -> Json:
        fields = [{"name": f"f{at}", "type": self.schema(depth + 1)} for at in range(self.random.randint(1, 5))]
        return {"type": "record", "name": self.name(), "fields": fields}

    def schema(self, depth: int) -> Json:
        kinds = ["primitive"] * 4 + ["logical"] * 2 + ["optional"] * 3 + ["enum", "fixed"]
        kinds += ["array", "map", "record", "union"] if depth < DEEPEST else []
        match self.random.choice(kinds):
            case "primitive":
                return self.random.choice(PRIMITIVES)
            case "logical":
                return dict(self.random.choice(LOGICAL))
            case "optional":
                return self.random.sample(["null", self._not_a_union(depth)], 2)
            case "enum":
                symbols = [f"S{at}" for at in range(self.random.randint(1, 5))]
                return {"type": "enum", "name": self.name(), "symbols": symbols}
            case "fixed":
                size = self.random.randint(1, 20)
                decimal = {"logicalType": "decimal", "precision": 2 * min(size, 16), "scale": 2}
                return {"type": "fixed", "name": self.name(), "size": size, **(decimal if size % 2 else {})}
            case "array":
                return {"type": "array", "items": self.schema(depth + 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth + 1)}
            case "record":
                return self.record(depth)
        named = [self.record(depth) if self.random.random() < 0.5 else self._enum()]
        some = self.random.sample(["null", *PRIMITIVES], self.random.randint(1, 4))
        return self.random.sample([*some, *named], len(some) + 1)

    def _enum(self) -> Json:
        return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}

    def _not_a_union(self, depth: int) -> Json:
        while True:
            made = self.schema(depth)
            if not isinstance(made, list):
                return made

    def value(self, schema: Json) -> Any:
        """Make a value; of a union, a pair of the branch's number and its value."""
        rnd = self.random
        if isinstance(schema, list):
            branch = rnd.randrange(len(schema))
            return branch, self.value(schema[branch])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return {each["name"]: self.value(each["type"]) for each in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(rnd.choice((0, 1, 2, 5)))]
        if kind == "map":
            return {f"k{at}": self.value(schema["values"]) for at in range(rnd.choice((0, 1, 3)))}
        if kind == "enum":
            return rnd.choice(schema["symbols"])
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
            size = schema.get("size")
            most = 10 ** schema["precision"] - 1
            number = rnd.choice((0, 1, -1, most, -most, rnd.randint(-most, most)))
            length = size or rnd.randint((abs(number).bit_length() + 8) // 8, 20)
            return number.to_bytes(length, "big", signed=True)
        if kind == "fixed":
            return rnd.randbytes(schema["size"])
        return self._primitive(kind)

    def _primitive(self, kind: str) -> Any:
        rnd = self.random
        match kind:
            case "null":
                return None
            case "boolean":
                return rnd.random() < 0.5
            case "int":
                return rnd.choice((0, -1, 63, 64, 2**31 - 1, -(2**31), rnd.randint(-(2**31), 2**31 - 1)))
            case "long":
                return rnd.choice((0, -1, 2**53, -(2**53), rnd.randint(-(2**53), 2**53)))
            case "float":
                return struct.unpack("<f", struct.pack("<f", rnd.choice((0.0, -0.0, 1.5, float("inf"), rnd.random()))))[
                    0
                ]
            case "double":
                return rnd.choice((0.0, -0.0, 1e300, float("nan"), float("-inf"), rnd.random()))
            case "bytes":
                return rnd.randbytes(rnd.choice((0, 1, 20)))
        return rnd.choice(TEXTS)


def encode(schema: Json, value: Any, rnd: random.Random) -> bytes:
    """Return the bytes of a value; blocks of arrays and maps are cut at random, with their sizes or without."""
    if isinstance(schema, list):
        branch, inner = value
        return number(branch) + encode(schema[branch], inner, rnd)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "record":
            return b"".join(encode(each["type"], value[each["name"]], rnd) for each in schema["fields"])
        case "array":
            return _blocks([encode(schema["items"], each, rnd) for each in value], rnd)
        case "map":
            return _blocks(
                [encode("string", key, rnd) + encode(schema["values"], value[key], rnd) for key in value], rnd
            )
        case "enum":
            return number(schema["symbols"].index(value))
        case "fixed":
            return bytes(value)
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return number(value)
        case "float" | "double":
            return struct.pack("<f" if kind == "float" else "<d", value)
    data = value.encode() if isinstance(value, str) else value
    return number(len(data)) + data


def number(value: int) -> bytes:
    """Return a number as Avro writes it."""
    bits = (value << 1) ^ (value >> 63)
    made = bytearray()
    while bits > 0x7F:
        made.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*made, bits])


def _blocks(items: list[bytes], rnd: random.Random) -> bytes:
    made = b""
    while items:
        count = rnd.randint(1, len(items))
        block, items = b"".join(items[:count]), items[count:]
        made += number(-count) + number(len(block)) + block if rnd.random() < 0.3 else number(count) + block
    return made + number(0)


def bare(schema: Json) -> Json:
    """Return a schema without its logical types, so that others return what is written."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: [{**each, "type": bare(each["type"])} for each in part] if key == "fields" else bare(part)
        for key, part in schema.items()
        if key not in ("logicalType", "precision", "scale")
    }


def chosen(schema: Json, value: Any) -> Any:
    """Return a value of `Maker` without the numbers of branches."""
    if isinstance(schema, list):
        return chosen(schema[value[0]], value[1])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {each["name"]: chosen(each["type"], value[each["name"]]) for each in schema["fields"]}
    if kind == "array":
        return [chosen(schema["items"], each) for each in value]
    if kind == "map":
        return {key: chosen(schema["values"], each) for key, each in value.items()}
    return value


def ours(schema: Json, value: Any) -> Any:
    """Return what the column has for a value, as `tests.json_documents.plain` shows it; unions as their values.

    A value of a union must say its branch: `Maker`'s do.
    """
    if isinstance(schema, list):
        branch, inner = value
        wide = {"int": int, "long": int, "float": float, "double": float}.get(str(schema[branch]))
        made = ours(schema[branch], inner)
        return wide(made) if wide is not None else made
    kind = schema if isinstance(schema, str) else schema["type"]
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if kind == "record":
        return {each["name"]: ours(each["type"], value[each["name"]]) for each in schema["fields"]}
    if kind == "array":
        return [ours(schema["items"], each) for each in value]
    if kind == "map":
        return [(key, ours(schema["values"], each)) for key, each in value.items()]
    if logical == "decimal":
        return Decimal(f"{int.from_bytes(value, 'big', signed=True)}E-{schema['scale']}")
    if "timestamp-millis" in logical:
        return value * 1000
    if "timestamp-nanos" in logical:
        return value // 1000
    return value


def flat(schema: Json, column: Any) -> Any:
    """Return what a column has with unions as their values, not as structs of members."""
    if column is None:
        return None
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        names = {str(each) for each in branches}
        if len(branches) == 1 or names in ({"int", "long"}, {"float", "double"}):
            return flat(branches[0], column)
        found = [(each, column[f"member{at}"]) for at, each in enumerate(branches) if column[f"member{at}"] is not None]
        assert len(found) <= 1
        return flat(*found[0]) if found else None
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {each["name"]: flat(each["type"], column[each["name"]]) for each in schema["fields"]}
    if kind == "array":
        return [flat(schema["items"], each) for each in column]
    if kind == "map":
        return [(key, flat(schema["values"], each)) for key, each in column]
    return column
