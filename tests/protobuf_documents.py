"""Random schemas of Protobuf, values of them, and bytes that say the same in unusual ways; what Google's parser reads.

`Maker` makes files of all three syntaxes. `rewrite` takes encoded values apart and puts them together again: fields in
another order, messages in parts, lists packed or not, fields that nobody knows.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FeatureSet, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message
from pyspark.sql import types as t

from sparkonce.connectors.values.protobuf.types import is_map

F = FieldDescriptorProto
SCALARS = (
    F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_INT32, F.TYPE_FIXED64, F.TYPE_FIXED32, F.TYPE_BOOL,
    F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_UINT32, F.TYPE_SFIXED32, F.TYPE_SFIXED64, F.TYPE_SINT32, F.TYPE_SINT64,
)  # fmt: skip
KEYS = tuple(each for each in SCALARS if each not in (F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_BYTES))
KNOWN = ("Timestamp", "Duration", "Int32Value", "StringValue", "BoolValue", "UInt64Value", "DoubleValue", "BytesValue")
FILES = {"Timestamp": "timestamp", "Duration": "duration"}
DEFAULTS = {
    F.TYPE_DOUBLE: "-inf", F.TYPE_FLOAT: "1.5", F.TYPE_BOOL: "true", F.TYPE_STRING: "Grüße", F.TYPE_BYTES: "\\001a",
}  # fmt: skip
TEXTS = ("", "a", "Grüße", "日本語", "🙂", "x" * 40, "\0")
MESSAGES = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)


class Maker:
    """Makes one file, whose first message has all others."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.syntax = self.random.choice(("proto2", "proto3", "editions"))
        self.file = FileDescriptorProto(name=f"f{seed}.proto", package="p", syntax=self.syntax)
        if self.syntax == "editions":
            self.file.edition = descriptor_pb2.EDITION_2023
        names = {f"google/protobuf/{FILES.get(each, 'wrappers')}.proto" for each in KNOWN}
        self.file.dependency.extend(sorted(names))
        self._closed: dict[str, bool] = {}
        for at in range(2):
            self._enum(f"E{at}")
        count = self.random.randint(1, 4)
        for at in range(count):
            self._message(self.file.message_type.add(name=f"M{at}"), [f"M{each}" for each in range(at + 1, count)])

    def _enum(self, name: str) -> None:
        enum = self.file.enum_type.add(name=name)
        closed = self.syntax == "proto2" or (self.syntax == "editions" and self.random.random() < 0.5)
        if self.syntax == "editions":
            enum.options.features.enum_type = FeatureSet.CLOSED if closed else FeatureSet.OPEN
        first = self.random.randint(-2, 2) if closed and name == "E1" else 0
        numbers = [first, *self.random.sample([each for each in range(-5, 40) if each != first], 3)]
        for number in numbers:
            enum.value.add(name=f"{name}_{'MINUS_' * (number < 0)}{abs(number)}", number=number)
        self._closed[name] = closed

    def _message(self, message: Any, others: list[str]) -> None:
        taken: set[int] = set()
        oneofs = [message.oneof_decl.add(name=f"o{at}").name for at in range(self.random.randint(0, 1))]
        for at in range(self.random.randint(1, 9)):
            number = self.random.choice((self.random.randint(1, 15), self.random.randint(1, 400), 536870911 - at))
            if number not in taken:
                taken.add(number)
                self._field(message, f"f{at}", number, others, len(oneofs))
        for each in message.field:  # a oneof without fields is not allowed, and those made for fields come last
            if oneofs and each.HasField("oneof_index") and not each.proto3_optional:
                break
        else:
            del message.oneof_decl[: len(oneofs)]
            for each in message.field:
                if each.proto3_optional:
                    each.oneof_index -= len(oneofs)

    def _field(self, message: Any, name: str, number: int, others: list[str], oneofs: int) -> None:
        pick = self.random.random()
        field = message.field.add(name=name, number=number, label=F.LABEL_OPTIONAL)
        if pick < 0.12:
            self._map(message, field, others)
            return
        self._type(field, others, group=message)
        if pick < 0.4:
            field.label = F.LABEL_REPEATED
            if field.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE, F.TYPE_GROUP):
                self._packed(field)
        elif oneofs and pick < 0.8:
            field.oneof_index = 0
        else:
            self._presence(message, field, oneofs)

    def _type(self, field: Any, others: list[str], group: Any = None) -> None:
        pick = self.random.random()
        if pick < 0.2 and others:
            field.type, field.type_name = F.TYPE_MESSAGE, f".p.{self.random.choice(others)}"
            if self.syntax == "editions" and group is not None and self.random.random() < 0.3:
                field.options.features.message_encoding = FeatureSet.DELIMITED
        elif pick < 0.3:
            field.type, field.type_name = F.TYPE_MESSAGE, f".google.protobuf.{self.random.choice(KNOWN)}"
        elif pick < 0.42:
            field.type, field.type_name = F.TYPE_ENUM, f".p.{self.random.choice(sorted(self._closed))}"
        elif pick < 0.5 and self.syntax == "proto2" and group is not None:
            made = group.nested_type.add(name=f"G{field.number}")
            made.field.add(name="g", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
            made.field.add(name="h", number=2, type=F.TYPE_STRING, label=F.LABEL_REPEATED)
            field.type, field.name, field.type_name = F.TYPE_GROUP, made.name.lower(), made.name
        else:
            field.type = self.random.choice(SCALARS)

    def _packed(self, field: Any) -> None:
        packed = self.random.random() < 0.5
        if self.syntax == "editions":
            field.options.features.repeated_field_encoding = FeatureSet.PACKED if packed else FeatureSet.EXPANDED
        else:
            field.options.packed = packed

    def _presence(self, message: Any, field: Any, oneofs: int) -> None:
        is_message = field.type in (F.TYPE_MESSAGE, F.TYPE_GROUP)
        if self.syntax == "proto3" and self.random.random() < 0.5 and not is_message:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
        elif self.syntax == "editions" and self.random.random() < 0.5 and not is_message:
            if not self._closed.get(field.type_name.rpartition(".")[2], False):
                field.options.features.field_presence = FeatureSet.IMPLICIT
        elif self.syntax == "proto2" and self.random.random() < 0.15:
            field.label = F.LABEL_REQUIRED
        elif self.syntax != "proto3" and self.random.random() < 0.3 and not is_message and field.type != F.TYPE_ENUM:
            field.default_value = DEFAULTS.get(field.type, "7")

    def _map(self, message: Any, field: Any, others: list[str]) -> None:
        entry = message.nested_type.add(name=f"{field.name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=self.random.choice(KEYS), label=F.LABEL_OPTIONAL)
        self._type(entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL), others)
        named = entry.field[1].type_name.rpartition(".")[2]
        first = next((each.value[0].number for each in self.file.enum_type if each.name == named), 0)
        if first != 0 or (self.syntax != "proto2" and self._closed.get(named, False)):
            entry.field[1].type = F.TYPE_INT64
            entry.field[1].ClearField("type_name")
        field.label, field.type, field.type_name = F.LABEL_REPEATED, F.TYPE_MESSAGE, f"{message.name}.{entry.name}"

    def value(self, message: Descriptor) -> Any:
        made = message_factory.GetMessageClass(message)()
        for field in message.fields:
            if field.is_required or self.random.random() < 0.7:
                self._set(made, field)
        return made

    def _set(self, made: Any, field: FieldDescriptor) -> None:
        if is_map(field):
            key, value = (field.message_type.fields_by_number[at] for at in (1, 2))
            for _ in range(self.random.choice((0, 1, 2, 20))):
                if value.type in MESSAGES:
                    getattr(made, field.name)[self._scalar(key)].CopyFrom(self.value(value.message_type))
                else:
                    getattr(made, field.name)[self._scalar(key)] = self._scalar(value)
        elif field.is_repeated:
            some = [self._single(field) for _ in range(self.random.choice((0, 1, 3)))]
            getattr(made, field.name).extend(some)
        elif field.type in MESSAGES:
            getattr(made, field.name).CopyFrom(self._single(field))
        else:
            setattr(made, field.name, self._scalar(field))

    def _single(self, field: FieldDescriptor) -> Any:
        return self.value(field.message_type) if field.type in MESSAGES else self._scalar(field)

    def _scalar(self, field: FieldDescriptor) -> Any:
        pick = self.random
        kind = field.cpp_type
        if kind == field.CPPTYPE_STRING:
            text = pick.choice(TEXTS)
            return text.encode() if field.type == field.TYPE_BYTES else text
        if kind == field.CPPTYPE_ENUM:
            numbers = [each.number for each in field.enum_type.values]
            return pick.choice(numbers if field.enum_type.is_closed else [*numbers, 99, -77])
        if kind == field.CPPTYPE_BOOL:
            return pick.random() < 0.5
        if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            return struct.unpack("f", struct.pack("f", pick.choice((0.0, -0.0, 1.5, float("inf"), pick.random()))))[0]
        bits = 64 if kind in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
        least, most = (
            (0, 2**bits) if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64) else (-(2 ** (bits - 1)),) * 2
        )
        most = most if least == 0 else 2 ** (bits - 1)
        if field.containing_type.file.package == "google.protobuf" and bits == 64 and field.name == "seconds":
            return pick.randint(-(10**10), 10**10)
        return pick.choice((0, 1, most - 1, least, pick.randrange(least, most), pick.randrange(0, 100)))


def number(bits: int) -> bytes:
    """Return a varint."""
    made = bytearray()
    bits &= 2**64 - 1
    while bits >= 0x80:
        made.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes((*made, bits))


def read_number(data: bytes, at: int) -> tuple[int, int]:
    bits = shift = 0
    while True:
        byte = data[at]
        at += 1
        bits |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return bits, at


Record = tuple[int, int, bytes]
"""Number, wire type, and payload: without its length, and without the end of a group."""


def records(data: bytes) -> list[Record]:
    """Take a message apart."""
    found, at = [], 0
    while at < len(data):
        tag, at = read_number(data, at)
        end = past(data, at, tag)
        start, last = at, end
        if tag & 7 == 2:
            _, start = read_number(data, at)
        elif tag & 7 == 3:
            last = end - len(number(tag + 1))
            while read_number(data, last)[0] & 0xFFFFFFFF != tag + 1:
                last -= 1  # an end's tag that is longer than it must be
        found.append((tag >> 3, tag & 7, data[start:last]))
        at = end
    return found


def past(data: bytes, at: int, tag: int) -> int:
    """Return where a field ends."""
    wire = tag & 7
    if wire == 0:
        return read_number(data, at)[1]
    if wire == 2:
        length, at = read_number(data, at)
        return at + length
    if wire == 3:
        while True:
            inner, at = read_number(data, at)
            if inner & 7 == 4:
                return at
            at = past(data, at, inner)
    return at + (8 if wire == 1 else 4)


def join(some: list[Record]) -> bytes:
    """Put a message together."""
    made = b""
    for field, wire, payload in some:
        made += number(field << 3 | wire)
        made += number(len(payload)) + payload if wire == 2 else payload
        made += number(field << 3 | 4) if wire == 3 else b""
    return made


SIZES = {0: 1, 1: 8, 5: 4}
WIRES = {
    **dict.fromkeys((F.TYPE_DOUBLE, F.TYPE_FIXED64, F.TYPE_SFIXED64), 1),
    **dict.fromkeys((F.TYPE_FLOAT, F.TYPE_FIXED32, F.TYPE_SFIXED32), 5),
    **dict.fromkeys((F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE), 2),
    F.TYPE_GROUP: 3,
}


def rewrite(data: bytes, message: Descriptor, some: random.Random) -> bytes:
    """Return bytes that are a value of the same message, but seldom the same value."""
    made: list[Record] = []
    in_entry = message.GetOptions().map_entry
    for field, wire, payload in records(data):
        known = message.fields_by_number.get(field)
        if known is None:
            made.append((field, wire, payload))
        elif known.type in MESSAGES:
            inner = rewrite(payload, known.message_type, some)
            parts = records(inner)
            cut = some.randint(0, len(parts))
            whole = known.is_repeated or some.random() < 0.5
            made += (
                [(field, wire, inner)]
                if whole
                else [(field, wire, join(parts[:cut])), (field, wire, join(parts[cut:]))]
            )
        elif known.is_repeated and WIRES.get(known.type, 0) != 2:
            made += repacked(known, wire, payload, some)
        else:
            if known.type == F.TYPE_ENUM and some.random() < 0.2:
                payload = number(some.choice((77, -9, 1 << 32)))
            made.append((field, wire, payload))
            if some.random() < 0.1:
                made.insert(some.randint(0, len(made)), some.choice(made))
    if some.random() < 0.5:
        some.shuffle(made)
    if some.random() < 0.3 and not in_entry:
        inner = join([(999, 0, b"\x05"), (998, 3, b"")])
        unknown = some.choice(
            [(777, 0, number(some.getrandbits(64))), (777, 2, b"xyz"), (777, 3, inner), (777, 5, b"abcd")]
        )
        made.insert(some.randint(0, len(made)), unknown)
    return join(made)


def repacked(field: FieldDescriptor, wire: int, payload: bytes, some: random.Random) -> list[Record]:
    """Return elements in runs that are packed or not."""
    single = WIRES.get(field.type, 0)
    elements, at = [], 0
    while at < len(payload):
        end = past(payload, at, single)
        unknown = field.type == F.TYPE_ENUM and some.random() < 0.2
        elements.append(number(77) if unknown else payload[at:end])
        at = end
    made: list[Record] = []
    while elements:
        count = some.randint(0, len(elements))
        run, elements = elements[:count], elements[count:]
        if some.random() < 0.5:
            made.append((field.number, 2, b"".join(run)))
        else:
            made += [(field.number, single, each) for each in run]
    return made


def without_extras(data: bytes, message: Descriptor) -> bytes:
    """Return bytes whose maps' entries have no fields that nobody knows: Google's parser in C drops those entries."""
    made = []
    for field, wire, payload in records(data):
        known = message.fields_by_number.get(field)
        if known is not None and known.type in MESSAGES and wire == WIRES[known.type]:
            made.append((field, wire, without_extras(payload, known.message_type)))
        elif not message.GetOptions().map_entry or (known is not None and wire == WIRES.get(known.type, 0)):
            made.append((field, wire, payload))
    return join(made)


def expected(value: Message, kind: t.StructType) -> dict[str, Any]:
    """Return what the columns have for a value that Google's parser has read."""
    return {each.name: _field(value, value.DESCRIPTOR.fields_by_name[each.name], each.dataType) for each in kind}


def _field(value: Any, field: FieldDescriptor, kind: t.DataType) -> Any:
    found = getattr(value, field.name)
    if is_map(field):
        assert isinstance(kind, t.MapType)
        key, below = (field.message_type.fields_by_number[at] for at in (1, 2))
        return {_single(each, key, kind.keyType): _single(found[each], below, kind.valueType) for each in found}
    if field.is_repeated:
        assert isinstance(kind, t.ArrayType)
        return [_single(each, field, kind.elementType) for each in found]
    there = value.HasField(field.name) if field.has_presence else True
    if there or (field.has_default_value and field.containing_oneof is None):
        return _single(found, field, kind)
    return None


def _single(found: Any, field: FieldDescriptor, kind: t.DataType) -> Any:
    if field.type in MESSAGES:
        if isinstance(kind, t.StructType):
            return expected(found, kind)
        if field.message_type.name in ("Timestamp", "Duration"):
            return found.seconds * 1_000_000 + int(found.nanos / 1000)
        return _single(found.value, field.message_type.fields_by_number[1], kind)
    if field.type == field.TYPE_ENUM and isinstance(kind, t.StringType):
        names = [each.name for each in field.enum_type.values if each.number == found]
        return names[0] if names else f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{found}"
    if isinstance(kind, t.IntegerType):
        return (found + 2**31) % 2**32 - 2**31
    if isinstance(kind, t.LongType):
        return (found + 2**63) % 2**64 - 2**63
    if isinstance(kind, t.DecimalType):
        return int(found)
    return found
