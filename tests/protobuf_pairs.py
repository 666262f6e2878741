"""Pairs of schemas of Protobuf that are nearly the same, and Google's parser as the judge of what a reader loses."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FeatureSet, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.duration_pb2 import DESCRIPTOR as DURATION
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP
from google.protobuf.wrappers_pb2 import DESCRIPTOR as WRAPPERS

from sparkonce.connectors.values.protobuf.types import is_map
from tests.protobuf_documents import KEYS, MESSAGES, SCALARS, F, Maker

KNOWN_FILES = tuple(FileDescriptorProto.FromString(each.serialized_pb) for each in (DURATION, TIMESTAMP, WRAPPERS))
MAIN = "schema.proto"
MAX_DEPTH = 6
ALIKE = (
    (F.TYPE_INT32, F.TYPE_UINT32, F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_BOOL),
    (F.TYPE_SINT32, F.TYPE_SINT64),
    (F.TYPE_FIXED32, F.TYPE_SFIXED32),
    (F.TYPE_FIXED64, F.TYPE_SFIXED64),
    (F.TYPE_STRING, F.TYPE_BYTES),
)


class Pair(NamedTuple):
    """A writer's schema and a reader's, and what was done to the one to make the other."""

    seed: int
    writer: FileDescriptorSet
    reader: FileDescriptorSet
    changes: tuple[str, ...]

    def __str__(self) -> str:
        files = (f"{name}: {part.file[-1]}" for name, part in (("writer", self.writer), ("reader", self.reader)))
        return f"seed {self.seed}, changes {', '.join(self.changes)}\n" + "\n".join(files)


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
    first = FileDescriptorProto.FromString(maker.file.SerializeToString())
    first.name = MAIN
    for _ in range(3):
        _change(first, maker.random, (_new_oneof, _into_oneof, _add))
    second = FileDescriptorProto.FromString(first.SerializeToString())
    drawn = range(maker.random.choice((1, 1, 1, 2, 3)))
    changes = tuple(_change(second, maker.random, CHANGES) for _ in drawn)
    imports = maker.random.random() < 0.3
    files = ([each] if not imports else _apart(each) for each in (first, second))
    writer, reader = (FileDescriptorSet(file=(*KNOWN_FILES, *each)) for each in files)
    try:
        for each in (writer, reader):
            pool_of(each)
    except TypeError:
        return None
    return Pair(seed, writer, reader, changes)


def _apart(file: FileDescriptorProto) -> list[FileDescriptorProto]:
    """Return a file with the first message only, and before it one that it imports, with all others."""
    below, main = (FileDescriptorProto.FromString(file.SerializeToString()) for _ in range(2))
    below.name = "below.proto"
    main.dependency.append(below.name)
    main.ClearField("enum_type")
    for part, is_main in ((main, True), (below, False)):
        kept = [each for each in file.message_type if (each.name == "M0") == is_main]
        del part.message_type[:]
        part.message_type.extend(kept)
    return [below, main]


def pool_of(files: FileDescriptorSet) -> DescriptorPool:
    pool = DescriptorPool()
    for each in files.file:
        pool.AddSerializedFile(each.SerializeToString())
    return pool


Change = Callable[[DescriptorProto, FileDescriptorProto, random.Random], None]


def _change(file: FileDescriptorProto, some: random.Random, changes: tuple[Change, ...]) -> str:
    change = some.choice(changes)
    messages = list(file.message_type)
    for each in messages:
        messages += each.nested_type
    # An entry of a map is a key and a value; nothing but their types can change.
    suitable = [each for each in messages if change is _retype or not each.options.map_entry]
    change(some.choice(suitable), file, some)
    _tidy(messages)
    return change.__name__.strip("_")


def _tidy(messages: list[DescriptorProto]) -> None:
    """Remove oneofs that no field is in: a schema cannot have them. Those made for one field come last."""
    for message in messages:
        fields = [each for each in message.field if each.HasField("oneof_index")]
        made = {each.oneof_index: each.proto3_optional for each in fields}
        order = sorted(made, key=lambda at: (made[at], at))
        names = [message.oneof_decl[at].name for at in order]
        del message.oneof_decl[:]
        for name in names:
            message.oneof_decl.add(name=name)
        for each in fields:
            each.oneof_index = order.index(each.oneof_index)


def _any(message: DescriptorProto, some: random.Random) -> Any:
    return some.choice(message.field) if message.field else message.field.add(name="only", number=1, type=F.TYPE_INT32)


def _single(message: DescriptorProto, some: random.Random) -> list[Any]:
    """Return the fields that may be in a oneof, in random order."""
    found = [each for each in message.field if each.label == F.LABEL_OPTIONAL and not each.proto3_optional]
    return some.sample(found, len(found))


def _remove(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    message.field.remove(_any(message, some))


def _add(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    number = some.choice((some.randint(1, 12), some.randint(1, 500)))
    if all(each.number != number for each in message.field):
        label = some.choice((F.LABEL_OPTIONAL, F.LABEL_OPTIONAL, F.LABEL_REPEATED))
        message.field.add(name=f"added{number}", number=number, type=some.choice(SCALARS), label=label)


def _renumber(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    _any(message, some).number = some.randint(1, 20)


def _swap_numbers(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    one, other = _any(message, some), _any(message, some)
    one.number, other.number = other.number, one.number


def _rename(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    field = _any(message, some)
    if field.type != F.TYPE_GROUP:
        field.name = f"{field.name}x"
        field.ClearField("json_name")


def _reorder(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    for parts in (message.field, file.message_type):
        shuffled = some.sample(list(parts), len(parts))
        copies = [type(each).FromString(each.SerializeToString()) for each in shuffled]
        del parts[:]
        parts.extend(copies)


def _retype(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    """Change a field's type, mostly to one that is written alike."""
    field = _any(message, some)
    alike = [kinds for kinds in ALIKE if field.type in kinds]
    pick = some.random()
    field.ClearField("default_value")
    if message.options.map_entry and field.number == 1:
        field.type = some.choice(KEYS)
    elif alike and pick < 0.6:
        field.type = some.choice(alike[0])
    elif pick < 0.8:
        enums = [each.name for each in file.enum_type]
        field.type, field.type_name = F.TYPE_ENUM, f".{file.package}.{some.choice(enums)}"
        return
    else:
        field.type = some.choice(SCALARS)
    field.ClearField("type_name")


def _retarget(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    """Have a field be of another message or another enum of the file, or of one that has just been copied."""
    for field in _single(message, some):
        parts = {F.TYPE_MESSAGE: file.message_type, F.TYPE_ENUM: file.enum_type}.get(field.type, [])
        if parts:
            field.type_name = f".{file.package}.{some.choice(parts).name}"
            return


def _copy_type(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    """Have a field be of a message that is equal, but for its name."""
    name = f"Copy{some.randint(0, 99)}"
    for field in _single(message, some):
        named = [each for each in file.message_type if field.type_name == f".{file.package}.{each.name}"]
        if named and not named[0].nested_type and name not in {each.name for each in file.message_type}:
            made = file.message_type.add()
            made.CopyFrom(named[0])
            made.name, field.type_name = name, f".{file.package}.{name}"
            return


def _relabel(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    field = _any(message, some)
    labels = [F.LABEL_OPTIONAL, F.LABEL_REPEATED] + [F.LABEL_REQUIRED] * (file.syntax == "proto2")
    if not field.HasField("oneof_index") and not field.type_name.endswith("Entry"):
        field.label = some.choice(labels)
        field.ClearField("options")
        field.ClearField("default_value")


def _presence(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    field = _any(message, some)
    if file.syntax == "editions" and not field.HasField("oneof_index"):
        kinds = FeatureSet.EXPLICIT, FeatureSet.IMPLICIT, FeatureSet.LEGACY_REQUIRED
        field.options.features.field_presence = some.choice(kinds)
        field.ClearField("default_value")


def _pack(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    for field in some.sample(list(message.field), len(message.field)):
        if field.label == F.LABEL_REPEATED and field.type in SCALARS[:8]:
            if file.syntax == "editions":
                kinds = FeatureSet.PACKED, FeatureSet.EXPANDED
                field.options.features.repeated_field_encoding = some.choice(kinds)
            else:
                field.options.packed = not field.options.packed
            return


def _encode(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    """Change what is around a message: a length before it, or an end behind it; of one field or of all."""
    kinds = FeatureSet.DELIMITED, FeatureSet.LENGTH_PREFIXED
    messages = [each for each in message.field if each.type == F.TYPE_MESSAGE]
    if file.syntax == "editions":
        for options in [file.options, *(each.options for each in messages)][: some.randint(1, 3)]:
            options.features.message_encoding = some.choice(kinds)
    for field in message.field:
        if field.type == F.TYPE_GROUP and some.random() < 0.5:
            field.type = F.TYPE_MESSAGE


def _default(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    for field in _single(message, some):
        if file.syntax != "proto3" and field.type in (F.TYPE_INT32, F.TYPE_UINT64, F.TYPE_DOUBLE, F.TYPE_STRING):
            field.default_value = str(some.randint(0, 3))
            return


def _new_oneof(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    """Put some fields, out of a oneof or another one, into a new one."""
    members = _single(message, some)[: some.randint(1, 4)]
    if members:
        at = len(message.oneof_decl)
        message.oneof_decl.add(name=f"new{some.randint(0, 999)}")
        for each in members:
            each.oneof_index = at
            each.ClearField("options")
            each.ClearField("default_value")


def _into_oneof(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    """Put a field into a oneof that is there."""
    there = [each.oneof_index for each in _single(message, some) if each.HasField("oneof_index")]
    outside = [each for each in _single(message, some) if there and each.oneof_index != there[0]]
    for each in (outside or _single(message, some))[:1]:
        if there:
            each.oneof_index = there[0]
            each.ClearField("options")
            each.ClearField("default_value")


def _out_of_oneof(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    for each in [each for each in _single(message, some) if each.HasField("oneof_index")][:1]:
        each.ClearField("oneof_index")


def _merge_oneofs(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    members = [each for each in _single(message, some) if each.HasField("oneof_index")]
    for each in members:
        each.oneof_index = members[0].oneof_index


def _rename_oneof(message: DescriptorProto, _: FileDescriptorProto, some: random.Random) -> None:
    """Rename a oneof, and perhaps drop one of its fields."""
    members = [each for each in _single(message, some) if each.HasField("oneof_index")]
    if members:
        message.oneof_decl[members[0].oneof_index].name = f"renamed{some.randint(0, 999)}"
        if some.random() < 0.5:
            message.field.remove(members[0])


def _change_enum(_: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    enum = some.choice(file.enum_type)
    pick = some.random()
    if pick < 0.4 and len(enum.value) > 1:
        enum.value.remove(some.choice(enum.value[1:]))
    elif pick < 0.7:
        enum.value.add(name=f"{enum.name}_ADDED", number=some.randint(41, 60))
    elif pick < 0.85:
        enum.value[-1].name = f"{enum.name}_RENAMED"
    elif file.syntax == "editions":
        enum.options.features.enum_type = some.choice((FeatureSet.OPEN, FeatureSet.CLOSED))


def _change_message(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    """Add, rename or remove a whole message, reserve a number, or move all to another package."""
    pick = some.random()
    if pick < 0.4:
        file.message_type.add(name=f"Added{some.randint(0, 99)}")
    elif pick < 0.6:
        some.choice(file.message_type).name = "Renamed"
    elif pick < 0.8:
        message.reserved_range.add(start=2000, end=2001)
    elif pick < 0.9 and len(file.message_type) > 1:
        file.message_type.remove(some.choice(file.message_type))
    else:
        file.package = "q"


def _change_syntax(message: DescriptorProto, file: FileDescriptorProto, some: random.Random) -> None:
    """Have the file be of the other of the older syntaxes."""
    if file.syntax in ("proto2", "proto3"):
        file.syntax = "proto3" if file.syntax == "proto2" else "proto2"


CHANGES: tuple[Change, ...] = (
    _remove, _add, _renumber, _swap_numbers, _rename, _reorder, _retype, _retype, _retarget, _copy_type, _relabel,
    _presence, _pack, _encode, _default, _new_oneof, _into_oneof, _out_of_oneof, _merge_oneofs, _rename_oneof,
    _change_enum, _change_enum, _change_message, _change_syntax,
)  # fmt: skip


class Values(Maker):
    """Random values of any schema; messages in messages end at a depth."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._depth = 0

    def value(self, message: Descriptor) -> Any:
        made = GetMessageClass(message)()
        self._depth += 1
        for field in message.fields:
            below = field.type in MESSAGES and self._depth >= MAX_DEPTH
            if field.is_required or (self.random.random() < 0.7 and not below):
                self._set(made, field)
        self._depth -= 1
        return made

    def _scalar(self, field: FieldDescriptor) -> Any:
        binary = field.type == field.TYPE_BYTES and self.random.random() < 0.3
        return b"\xff\xfe" if binary else super()._scalar(field)


def losses(pair: Pair, values: int = 4) -> Iterator[str]:
    """Yield what is lost where the reader parses random values of all of the writer's messages."""
    writers, readers = pool_of(pair.writer), pool_of(pair.reader)
    made = Values(pair.seed)
    ours = readers.FindFileByName(MAIN).message_types_by_name
    for name, message in writers.FindFileByName(MAIN).message_types_by_name.items():
        for _ in range(values if name in ours else 0):
            try:
                written = made.value(message)
            except RecursionError:  # a message that requires itself has no values
                break
            try:
                found = GetMessageClass(ours[name]).FromString(written.SerializeToString())
            except DecodeError as error:
                yield f"{name}: {error} of {written}"
            else:
                yield from (f"{name}{each}" for each in _lost(written, found))


def _lost(written: Message, found: Message) -> Iterator[str]:
    ours = found.DESCRIPTOR.fields_by_number
    for w in written.DESCRIPTOR.fields:
        r = ours.get(w.number)
        if r is not None and not _same(written, w, found, r):
            yield f".{w.name}: written {getattr(written, w.name)!r:.200}, read {getattr(found, r.name)!r:.200}"


def _same(written: Message, w: FieldDescriptor, found: Message, r: FieldDescriptor) -> bool:
    """Return whether the reader has the value of a field."""
    before, after = getattr(written, w.name), getattr(found, r.name)
    if is_map(w) and is_map(r):
        read = {key: after[key] for key in after}
        return len(before) == len(read) and all(key in read and _equal(before[key], read[key]) for key in before)
    if is_map(w) or is_map(r) or (w.is_repeated and not r.is_repeated):
        return not before
    if w.is_repeated:
        return len(before) == len(after) and all(map(_equal, before, after))
    if w.has_presence and not written.HasField(w.name):
        return True
    if r.is_repeated:
        return (len(after) == 1 and _equal(before, after[0])) or (not after and not w.has_presence and not before)
    return _equal(before, after)


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, Message) or isinstance(after, Message):
        both = isinstance(before, Message) and isinstance(after, Message)
        return both and not any(_lost(before, after))
    if isinstance(before, str) and isinstance(after, bytes):
        return before.encode() == after
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=0) or (math.isnan(before) and math.isnan(after))
    return bool(before == after)
