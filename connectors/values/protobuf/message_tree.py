"""The columns of a reader's message: a tree of messages with the columns of their fields.

The type of a column says how its field is read: 32 unsigned bits as INT or BIGINT, an enum as its name or number, a
wrapper as a struct or its content. Fields that the type lacks are not read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as t

from sparkonce.connectors.values.columns import Column, Layout
from sparkonce.connectors.values.protobuf.machine import AS_IT_IS, ENTRY_OF_ENUM, MICROS
from sparkonce.connectors.values.protobuf.schema import ProtobufSchemaError
from sparkonce.connectors.values.protobuf.types import DURATION, TIMESTAMP, UNSIGNED_LONG, WRAPPERS, is_map

F = FieldDescriptor
_SECONDS: dict[str, type[t.DataType]] = {TIMESTAMP: t.TimestampType, DURATION: t.LongType}
MESSAGES = (F.TYPE_MESSAGE, F.TYPE_GROUP)


@dataclass(slots=True)
class Target:
    """The target of a field."""

    field: FieldDescriptor
    at: int = -1
    """The number of the column of its values, those in a list included; -1 if it is not read."""
    kind: t.DataType = field(default_factory=t.NullType)
    """The content of that column."""
    listed: Column | None = None
    """The list, if it is repeated."""
    content: MessageNode | None = None
    """Its content, if it is a message."""
    oneof: int = -1
    """The column that holds which field of its oneof is set."""
    clears: list[int] = field(default_factory=list)
    """The columns that another field of the oneof clears, lists before their contents."""


@dataclass(slots=True)
class MessageNode:
    """A message at one position in the columns."""

    message: Descriptor
    targets: dict[int, Target] = field(default_factory=dict)
    """By the numbers of its fields."""
    close: int = AS_IT_IS
    first: int = 0
    second: int = 0
    into: int = 0
    required: list[tuple[int, int, str]] = field(default_factory=list)
    """Of a row that begins with this message: struct, or -1, and column of each required field, and its path."""


@dataclass(frozen=True, slots=True)
class Default:
    """A column whose cells are filled if a field is absent."""

    at: int
    parent: int
    """The column of the message; -1 if it is in every row."""
    default: object = 0
    kind: t.DataType = field(default_factory=t.NullType)


class MessageTree:
    """The positions of a reader's message."""

    def __init__(self, reader: Descriptor, layout: Layout, emit_defaults: bool) -> None:
        self._layout = layout
        self._emit_defaults = emit_defaults
        self.filled: list[Default] = []
        """Those of messages before those of their contents."""
        self.enums: list[tuple[int, FieldDescriptor]] = []
        """The columns of names that hold numbers until the end."""
        self.maps: list[Column] = []
        self.lists: list[Column] = []
        self._required: list[tuple[int, int, str]] = []
        self.root = self._node_of(reader, layout.root, -1, "")
        self.root.required = self._required

    def _node_of(self, message: Descriptor, column: Column, struct: int, where: str) -> MessageNode:
        """Return the node of a message that is a struct."""
        assert isinstance(column.kind, t.StructType)
        made = MessageNode(message)
        unknown = set(column.kind.names) - set(message.fields_by_name)
        if unknown:
            raise ProtobufSchemaError(f"{where or message.full_name} has no field {min(unknown)}")
        for each in message.fields:
            below = column.field(each.name)
            if below is not None:
                path = f"{where}.{each.name}" if where else each.name
                made.targets[each.number] = self._target(each, below, column.at, path)
                if each.is_required:
                    self._required.append((struct, below.at, path))
        self._join_oneofs(message, made, column)
        return made

    def _join_oneofs(self, message: Descriptor, made: MessageNode, column: Column) -> None:
        """Link the fields of a oneof, including those that are not read."""
        for oneof in message.oneofs:
            if len(oneof.fields) > 1 and any(each.number in made.targets for each in oneof.fields):
                note = self._layout.spare(column.level)
                for each in oneof.fields:
                    target = made.targets.setdefault(each.number, Target(each))
                    target.oneof = note
                    below = column.field(each.name)
                    target.clears = [] if below is None else [*_within(below), *_notes(target)]

    def _target(self, each: FieldDescriptor, column: Column, parent: int, where: str) -> Target:
        if each.is_repeated:
            self.lists.append(column)
            self.filled.append(Default(column.at, parent, None))
            if is_map(each):
                return self._map(each, column, where)
            element = column.children[0] if isinstance(column.kind, t.ArrayType) else column
            if element is column:
                raise _mismatch(each, column.kind, where)
            outer, self._required = self._required, []
            made = self._single(each, element, where)
            made.listed = column
            if made.content is not None:
                made.content.required = self._required
            self._required = outer
            return made
        self._fill(each, column, parent)
        return self._single(each, column, where)

    def _map(self, each: FieldDescriptor, column: Column, where: str) -> Target:
        if not isinstance(column.kind, t.MapType):
            raise _mismatch(each, column.kind, where)
        self.maps.append(column)
        entry = MessageNode(each.message_type)
        outer, self._required = self._required, []
        for number, below in zip((1, 2), column.children, strict=True):
            inner = each.message_type.fields_by_number[number]
            default = 0 if inner.type in MESSAGES else inner.default_value
            self.filled.append(Default(below.at, -1, default, below.kind))
            entry.targets[number] = self._single(inner, below, f"{where}.{inner.name}")
        value = entry.targets[2].field
        if value.type == F.TYPE_ENUM and value.enum_type.is_closed:
            entry.close, entry.into = ENTRY_OF_ENUM, self._layout.spare(column.below)
            entry.first, entry.second = column.children[0].at, column.children[1].at
        entry.required, self._required = self._required, outer
        return Target(each, -1, t.NullType(), column, entry)

    def _single(self, each: FieldDescriptor, column: Column, where: str) -> Target:
        """Return the target of one value of a field."""
        made = Target(each, column.at, column.kind)
        if each.type in MESSAGES:
            name = each.message_type.full_name
            if isinstance(column.kind, t.StructType):
                made.content = self._node_of(each.message_type, column, column.at, where)
            elif isinstance(column.kind, _SECONDS.get(name, ())):
                made.content = self._seconds(each.message_type, column)
            elif name in WRAPPERS:
                inner = each.message_type.fields_by_number[1]
                made.content = MessageNode(each.message_type, {1: self._single(inner, column, where)})
            else:
                raise _mismatch(each, column.kind, where)
        elif each.type == F.TYPE_ENUM and isinstance(column.kind, t.StringType):
            self.enums.append((column.at, each))
        elif not _holds(each, column.kind):
            raise _mismatch(each, column.kind, where)
        return made

    def _seconds(self, message: Descriptor, column: Column) -> MessageNode:
        """Return the node of seconds and nanoseconds, which become microseconds."""
        notes = [self._layout.spare(column.level) for _ in range(2)]
        targets = {
            number: Target(message.fields_by_number[number], note, kind)
            for number, note, kind in ((1, notes[0], t.LongType()), (2, notes[1], t.IntegerType()))
        }
        return MessageNode(message, targets, MICROS, notes[0], notes[1], column.at)

    def _fill(self, each: FieldDescriptor, column: Column, parent: int) -> None:
        """Note the default of an absent field, if it has one."""
        if each.type in MESSAGES or each.containing_oneof is not None:
            return
        if each.has_default_value or (self._emit_defaults and not each.has_presence):
            self.filled.append(Default(column.at, parent, each.default_value, column.kind))


def _within(column: Column) -> list[int]:
    """Return a column and all below it."""
    return [column.at, *(at for child in column.children for at in _within(child))]


def _notes(target: Target) -> list[int]:
    """Return the columns of notes in a field."""
    if target.content is None:
        return []
    found = [target.content.first, target.content.second] if target.content.close == MICROS else []
    for each in target.content.targets.values():
        found += [each.oneof] if each.oneof >= 0 else []
        found += _notes(each)
    return found


def _holds(each: FieldDescriptor, kind: t.DataType) -> bool:
    """Return whether a column can represent the values of a field that is no message."""
    if each.type in (F.TYPE_UINT32, F.TYPE_FIXED32) and isinstance(kind, t.LongType):
        return True
    if each.type in (F.TYPE_UINT64, F.TYPE_FIXED64) and kind == UNSIGNED_LONG:
        return True
    if each.type == F.TYPE_BYTES:
        return isinstance(kind, t.BinaryType)
    return isinstance(kind, _KINDS[each.cpp_type])


_KINDS: dict[int, type[t.DataType]] = {
    F.CPPTYPE_INT32: t.IntegerType,
    F.CPPTYPE_UINT32: t.IntegerType,
    F.CPPTYPE_INT64: t.LongType,
    F.CPPTYPE_UINT64: t.LongType,
    F.CPPTYPE_BOOL: t.BooleanType,
    F.CPPTYPE_FLOAT: t.FloatType,
    F.CPPTYPE_DOUBLE: t.DoubleType,
    F.CPPTYPE_ENUM: t.IntegerType,
    F.CPPTYPE_STRING: t.StringType,
}


def _mismatch(each: FieldDescriptor, kind: t.DataType, where: str) -> ProtobufSchemaError:
    return ProtobufSchemaError(f"{where}: a column of {kind.simpleString()} cannot hold {describe(each)}")


_NAMES = {getattr(F, name): name.removeprefix("TYPE_").lower() for name in dir(F) if name.startswith("TYPE_")}


def describe(each: FieldDescriptor) -> str:
    """Return the type of a field as in a .proto file."""
    if is_map(each):
        key, value = (describe(each.message_type.fields_by_number[at]) for at in (1, 2))
        return f"map<{key}, {value}>"
    named = each.message_type or each.enum_type
    name = _NAMES[each.type] if named is None else named.full_name
    return f"repeated {name}" if each.is_repeated else name
