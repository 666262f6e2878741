"""From a writer's message and the reader's to the tables that `machine` runs.

Fields are matched by their numbers, and read as the reader's message has them, as Protobuf does. The writer's message
says what Protobuf cannot know: that its numbers are not of the reader's type. Google's parsers skip those, or read
them as other numbers; here a value that has one does not parse.
"""

from __future__ import annotations

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as t

from sparkonce.connectors.values.columns import Layout
from sparkonce.connectors.values.protobuf import machine
from sparkonce.connectors.values.protobuf.machine import FIELD_WIDTH, NODE_WIDTH, PROBLEM_BITS, Code
from sparkonce.connectors.values.protobuf.message_tree import MESSAGES, MessageNode, MessageTree, Target, describe

F = FieldDescriptor
MOST_DENSE = 256
"""Fields with numbers below this are in a table by number, others are searched for."""
_MEANING = {
    machine.ENDS_EARLY: "the value ends too early",
    machine.NOT_A_NUMBER: "a number has too many bytes",
    machine.NOT_A_TAG: "the tag of a field is not valid",
    machine.NO_SUCH_WIRE_TYPE: "a field has a wire type that does not exist",
    machine.WRONG_LENGTH: "a length is not valid",
    machine.NOT_UTF8: "the text is not UTF-8",
    machine.OUT_OF_RANGE: "the number is too large for its type",
    machine.NO_SUCH_GROUP: "a group ends that did not begin",
    machine.OPEN_GROUP: "a group does not end",
    machine.TOO_DEEP: f"more than {machine.DEEPEST} messages are in each other",
    machine.MISSING: "the field is required, and not there",
    machine.CROSSES_END: "packed elements end in the midst of one",
}
WIRES = {
    **dict.fromkeys((F.TYPE_DOUBLE, F.TYPE_FIXED64, F.TYPE_SFIXED64), machine.FIXED64),
    **dict.fromkeys((F.TYPE_FLOAT, F.TYPE_FIXED32, F.TYPE_SFIXED32), machine.FIXED32),
    **dict.fromkeys((F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE), machine.LENGTH),
    F.TYPE_GROUP: machine.START_GROUP,
}
"""By type; `machine.VARINT` for others."""
_OPS = {
    **dict.fromkeys((F.TYPE_INT32, F.TYPE_UINT32, F.TYPE_ENUM), machine.INT32),
    **dict.fromkeys((F.TYPE_INT64, F.TYPE_UINT64), machine.INT64),
    **dict.fromkeys((F.TYPE_FIXED32, F.TYPE_SFIXED32, F.TYPE_FLOAT), machine.WORD32),
    **dict.fromkeys((F.TYPE_FIXED64, F.TYPE_SFIXED64, F.TYPE_DOUBLE), machine.WORD64),
    F.TYPE_BOOL: machine.BOOLEAN,
    F.TYPE_SINT32: machine.SINT32,
    F.TYPE_SINT64: machine.SINT64,
    F.TYPE_BYTES: machine.BYTES,
    F.TYPE_STRING: machine.STRING,
    F.TYPE_MESSAGE: machine.MESSAGE,
    F.TYPE_GROUP: machine.MESSAGE,
}
_UNSIGNED = {F.TYPE_UINT32: machine.UINT32, F.TYPE_FIXED32: machine.UNSIGNED32}
_WIDE = {F.TYPE_UINT64: machine.WIDE, F.TYPE_FIXED64: machine.WIDE_WORD64}
_NARROW = (F.TYPE_INT32, F.TYPE_UINT32, F.TYPE_SINT32)
_LARGE = (F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_SINT64)
_ALIKE = (
    (*_NARROW[:2], *_LARGE[:2], F.TYPE_BOOL, F.TYPE_ENUM),
    (F.TYPE_SINT32, F.TYPE_SINT64),
    (F.TYPE_FIXED32, F.TYPE_SFIXED32),
    (F.TYPE_FIXED64, F.TYPE_SFIXED64),
    (F.TYPE_STRING, F.TYPE_BYTES),
    (F.TYPE_BYTES, F.TYPE_MESSAGE),
    MESSAGES,
)
"""Types whose values may be read as each other's."""


class Programs:
    """The tables that read values of many writers' messages into the columns of one reader's."""

    def __init__(self, reader: Descriptor, layout: Layout, emit_defaults: bool = True) -> None:
        self._reader, self._layout = reader, layout
        self.tree = MessageTree(reader, layout, emit_defaults)
        self._nodes: list[list[int]] = []
        self._fields: list[list[int]] = []
        self._where: list[str] = []
        self._reasons: dict[int, str] = {}
        """By field, why it is not read."""
        self._tables: list[int] = []
        self._code: Code | None = None
        self._field("", machine.UNREAD)

    def add(self, writer: Descriptor) -> int:
        """Make the tables of a writer's message; return its first node."""
        self._code = None
        return self._node(writer, self.tree.root, "")

    @property
    def code(self) -> Code:
        """All tables."""
        if self._code is None:
            below = [0] * len(self._layout.level_of)
            for column in self.tree.lists:
                below[column.at] = column.below
            self._code = Code(
                np.array(self._nodes, np.int32).reshape(-1, NODE_WIDTH),
                np.array(self._fields, np.int32).reshape(-1, FIELD_WIDTH),
                np.array(self._tables or [0], np.int32),
                np.array(below, np.int32),
            )
        return self._code

    def explain(self, problem: int) -> str:
        """Return a value's problem, and its field."""
        at = problem >> PROBLEM_BITS
        meaning = self._reasons.get(at) or _MEANING[problem & ((1 << PROBLEM_BITS) - 1)]
        return f"{self._where[at]}: {meaning}" if self._where[at] else meaning

    def _node(self, writer: Descriptor | None, reader: MessageNode, where: str) -> int:
        """Make the table of a message, and those of its contents; without a writer, it is the reader's."""
        node = [0] * NODE_WIDTH
        self._nodes.append(node)
        number = len(self._nodes) - 1
        node[machine.SELF] = self._field(where, machine.UNREAD)
        node[machine.CLOSE], node[machine.INTO] = reader.close, reader.into
        node[machine.FIRST], node[machine.SECOND] = reader.first, reader.second
        fields = {}
        for each in reader.targets:
            theirs = None if writer is None else writer.fields_by_number.get(each)
            fields[each] = self._target(theirs, reader.targets[each], where)
        node[machine.TABLE] = len(self._tables)
        node[machine.DENSE] = max((each + 1 for each in fields if each < MOST_DENSE), default=0)
        self._tables += [fields.get(each, 0) for each in range(node[machine.DENSE])]
        for each in sorted(each for each in fields if each >= MOST_DENSE):
            node[machine.SPARSE] += 1
            self._tables += [each, fields[each]]
        node[machine.REQUIRED], node[machine.REQUIRED_COUNT] = len(self._tables), len(reader.required)
        for struct, column, path in reader.required:
            self._tables += [struct, column, self._field(path, machine.UNREAD)]
        return number

    def _target(self, theirs: FieldDescriptor | None, target: Target, where: str) -> int:
        """Make the row of a field; ``theirs`` is the writer's, None if it has none."""
        ours = target.field
        path = f"{where}.{ours.name}" if where else ours.name
        theirs = ours if theirs is None else theirs
        if target.at < 0 and target.content is None:
            at = self._field(path, machine.UNREAD)
            self._fields[at][machine.WIRE] = WIRES.get(ours.type, machine.VARINT)
        elif not readable(theirs, ours):
            at = self._field(path, machine.REFUSED)
            self._reasons[at] = f"the writer's {describe(theirs)} cannot be read as the reader's {describe(ours)}"
        else:
            at = self._field(path, _operation(target))
            self._describe(self._fields[at], theirs, target)
            if target.content is not None:
                below = theirs.message_type  # None where the writer has bytes
                self._fields[at][machine.CHILD] = self._node(below, target.content, path)
        self._fields[at][machine.ONEOF] = target.oneof
        self._fields[at][machine.CLEAR], self._fields[at][machine.CLEAR_COUNT] = len(self._tables), len(target.clears)
        self._tables += target.clears
        return at

    def _describe(self, row: list[int], theirs: FieldDescriptor, target: Target) -> None:
        ours = target.field
        grouped = theirs.type if ours.type in MESSAGES else ours.type
        row[machine.WIRE] = WIRES.get(grouped, machine.VARINT)
        row[machine.COLUMN] = target.at
        row[machine.LIST] = -1 if target.listed is None else target.listed.at
        row[machine.PACKABLE] = int(ours.is_repeated and row[machine.WIRE] not in (machine.LENGTH, machine.START_GROUP))
        row[machine.CHECKED] = int(ours.type in _NARROW and theirs.type in _LARGE)
        if ours.type in MESSAGES:
            row[machine.COUNT] = int(isinstance(target.kind, t.DecimalType))
        elif ours.type == F.TYPE_ENUM and ours.enum_type.is_closed:
            numbers = sorted({each.number for each in ours.enum_type.values})
            row[machine.CHILD], row[machine.COUNT] = len(self._tables), len(numbers)
            self._tables += numbers

    def _field(self, where: str, op: int) -> int:
        row = [0] * FIELD_WIDTH
        row[machine.OP] = op
        row[machine.COLUMN] = row[machine.LIST] = row[machine.ONEOF] = -1
        self._fields.append(row)
        self._where.append(where)
        return len(self._fields) - 1


def _operation(target: Target) -> int:
    kind, ours = target.field.type, target.field
    if kind == F.TYPE_ENUM and ours.enum_type.is_closed:
        return machine.CLOSED_ENUM
    if kind in _UNSIGNED and isinstance(target.kind, t.LongType):
        return _UNSIGNED[kind]
    if kind in _WIDE and isinstance(target.kind, t.DecimalType):
        return _WIDE[kind]
    return _OPS[kind]


def readable(theirs: FieldDescriptor, ours: FieldDescriptor) -> bool:
    """Return whether the values of a writer's field may be read as the reader's."""
    if theirs.type != ours.type and not any(theirs.type in each and ours.type in each for each in _ALIKE):
        return False
    may_be_packed = theirs.is_repeated and WIRES.get(theirs.type) not in (machine.LENGTH, machine.START_GROUP)
    return ours.is_repeated or not may_be_packed
