"""Random recursive types, as schemas of Avro and of Protobuf, and values of them: one type has its twin in the other.

A type has numbers, texts and others of the same few types: one or none, a list, a map by texts.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from tests.avro_documents import number

DEEPEST = 7
"""Values within each other."""
KEYS = ("a", "b", "ü")


@dataclass(frozen=True)
class Types:
    """By name, the fields of each type: name, form (one, list or map) and kind; the first type is the root."""

    fields: dict[str, list[tuple[str, str, str]]]

    @property
    def avro(self) -> str:
        """The schema of Avro, each type defined where it is named first."""
        made: set[str] = set()

        def named(name: str) -> Any:
            if name in ("int", "string") or name in made:
                return name
            made.add(name)
            fields = [{"name": each, "type": formed(form, kind)} for each, form, kind in self.fields[name]]
            return {"type": "record", "name": name, "fields": fields}

        def formed(form: str, kind: str) -> Any:
            inner = named(kind)
            if form == "list":
                return {"type": "array", "items": inner}
            return {"type": "map", "values": inner} if form == "map" else ["null", inner]

        return json.dumps(named(next(iter(self.fields))))

    @property
    def protobuf(self) -> str:
        """The text of a .proto file."""
        lines = ['syntax = "proto3";']
        for name, fields in self.fields.items():
            lines.append(f"message {name} {{")
            for at, (each, form, kind) in enumerate(fields, 1):
                shown = "int32" if kind == "int" else kind
                form = {"one": "optional ", "list": "repeated ", "map": "map<string, "}[form]
                lines.append(f"  {form}{shown}{'>' if form[0] == 'm' else ''} {each} = {at};")
            lines.append("}")
        return "\n".join(lines)

    def value(self, chance: random.Random, kind: str | None = None, depth: int = 0) -> Any:
        """Make a value, of the root if no type is named."""
        kind = kind or next(iter(self.fields))
        if kind == "int":
            return chance.randrange(-1000, 1000)
        if kind == "string":
            return chance.choice(("", "x", "Zürich"))
        made: dict[str, Any] = {}
        for name, form, inner in self.fields[kind]:
            below = [self.value(chance, inner, depth + 1) for _ in range(chance.randrange(3) if depth < DEEPEST else 0)]
            if form == "one":
                made[name] = below[0] if below else None
            else:
                made[name] = below if form == "list" else dict(zip(KEYS, below, strict=False))
        return made

    def encoded(self, value: Any, kind: str | None = None) -> bytes:
        """Return a value as Avro writes it."""
        kind = kind or next(iter(self.fields))
        if kind == "int":
            return number(value)
        if kind == "string":
            return number(len(value.encode())) + value.encode()
        made = b""
        for name, form, inner in self.fields[kind]:
            given = value[name]
            if form == "one":
                made += number(0) if given is None else number(1) + self.encoded(given, inner)
                continue
            items = [self.encoded(each, inner) for each in given] if form == "list" else []
            if form == "map":
                items = [self.encoded(key, "string") + self.encoded(each, inner) for key, each in given.items()]
            made += (number(len(items)) + b"".join(items) if items else b"") + number(0)
        return made


def random_types(seed: int) -> Types:
    """Make one to three types, in which some lead to themselves."""
    chance = random.Random(seed)
    names = ["A", "B", "C"][: chance.randint(1, 3)]
    fields = {}
    for name in names:
        kinds = [chance.choice(["int", "string", *names, *names]) for _ in range(chance.randint(1, 4))]
        forms = [chance.choice(("one", "one", "list", "map")) for _ in kinds]
        fields[name] = [(f"f{at}", form, kind) for at, (form, kind) in enumerate(zip(forms, kinds, strict=True))]
    return Types(fields)
