"""Schemas of Protobuf: compiled by Google's compiler, compared by the rules that Confluent documents.

What counts is the wire format: fields are identified by their numbers, and kinds of numbers that are written alike may
be exchanged. A difference is named as Confluent's registry names it, with the number of the field.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkonce.connectors.schema_registry.protobuf_text import descriptor_set

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES = range(1, 13)
_UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(13, 19)
_ALIKE = (
    {_INT32, _UINT32, _INT64, _UINT64, _BOOL, _ENUM},
    {_SINT32, _SINT64},
    {_FIXED32, _SFIXED32},
    {_FIXED64, _SFIXED64},
    {_STRING, _BYTES},
)
"""Kinds of which a reader of one reads what a writer of another wrote."""
_REQUIRED, _REPEATED = 2, 3
_LEGACY_REQUIRED = 3


def check(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text; raise ValueError if it is no schema."""
    descriptor_set(text, references)
    return text


def same(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return what is equal for schemas that mean the same: comments, spaces and base64 make no difference."""
    made = descriptor_set(text, references).file[-1]
    made.ClearField("name")
    return _base64(made)


def normal(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text: there is no other form of it."""
    return check(text, references)


def serialized(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the descriptor of a schema, a FileDescriptorProto in base64."""
    return _base64(descriptor_set(text, references).file[-1])


def _base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def incompatible(reader: tuple[str, Any], writer: tuple[str, Any]) -> list[str]:
    """Return why a reader cannot read all that a writer writes."""
    return _Comparison(_Types.of(*reader), _Types.of(*writer)).run()


@dataclass(frozen=True)
class _Types:
    """A schema's file, and the messages of all files by their full names."""

    main: FileDescriptorProto
    messages: Mapping[str, DescriptorProto]

    @classmethod
    def of(cls, text: str, references: Sequence[tuple[str, str]]) -> _Types:
        files = descriptor_set(text, references).file
        return cls(files[-1], {name: each for file in files for name, each in _messages(file)})


def _messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    waiting = [(f".{file.package}" if file.package else "", each) for each in file.message_type]
    while waiting:
        above, message = waiting.pop()
        name = f"{above}.{message.name}"
        yield name, message
        waiting += [(name, each) for each in message.nested_type]


@dataclass
class _Comparison:
    reader: _Types
    writer: _Types
    found: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of messages that are compared already."""

    def run(self) -> list[str]:
        if self.reader.main.package != self.writer.main.package:
            self._say("PACKAGE_CHANGED", "#/")
        ours = {name for name, each in _messages(self.reader.main) if not each.options.map_entry}
        for name, each in _messages(self.writer.main):
            if each.options.map_entry:
                continue
            if name in ours:
                self._messages(name, name)
            elif self.reader.main.package == self.writer.main.package:
                self._say("MESSAGE_REMOVED", f"#{name.replace('.', '/')}")
        return self.found

    def _say(self, what: str, at: str) -> None:
        self.found.append(f"{what} at {at}")

    def _messages(self, reader: str, writer: str) -> None:
        if (reader, writer) in self.seen:
            return
        self.seen.add((reader, writer))
        ours, theirs = self.reader.messages[reader], self.writer.messages[writer]
        our_fields = {each.number: each for each in ours.field}
        their_fields = {each.number: each for each in theirs.field}
        for number in sorted(our_fields.keys() | their_fields.keys()):
            at = f"#{reader.replace('.', '/')}/{number}"
            r, w = our_fields.get(number), their_fields.get(number)
            if r is None or w is None:
                self._one_sided(r, w, ours, theirs, at)
            else:
                self._fields(r, w, at)
        self._oneofs(ours, theirs, f"#{reader.replace('.', '/')}")

    def _one_sided(
        self,
        r: FieldDescriptorProto | None,
        w: FieldDescriptorProto | None,
        ours: DescriptorProto,
        theirs: DescriptorProto,
        at: str,
    ) -> None:
        """Compare a field that only one of two messages has."""
        if r is not None and _required(r):
            self._say("REQUIRED_FIELD_ADDED", at)
        if w is not None and _required(w):
            self._say("REQUIRED_FIELD_REMOVED", at)
        oneof = None if w is None else _oneof(w, theirs)
        if oneof is not None and oneof in _oneofs(ours):
            self._say("ONEOF_FIELD_REMOVED", at)

    def _fields(self, r: FieldDescriptorProto, w: FieldDescriptorProto, at: str) -> None:
        if _required(r) and not _required(w):
            self._say("REQUIRED_FIELD_ADDED", at)
        entries = [types.messages.get(each.type_name) for types, each in ((self.reader, r), (self.writer, w))]
        maps = [each is not None and each.options.map_entry for each in entries]
        if r.type != w.type and not any({r.type, w.type} <= kinds for kinds in _ALIKE):
            scalar = not {r.type, w.type} & {_MESSAGE, _GROUP, _ENUM}
            self._say("FIELD_SCALAR_KIND_CHANGED" if scalar else "FIELD_KIND_CHANGED", at)
        elif maps[0] != maps[1]:
            self._say("FIELD_KIND_CHANGED", at)
        elif (r.label == _REPEATED) != (w.label == _REPEATED) and r.type not in (_STRING, _BYTES, _MESSAGE):
            self._say("FIELD_NUMERIC_LABEL_CHANGED", at)
        elif r.type in (_MESSAGE, _GROUP):
            if r.type_name != w.type_name and not maps[0] and r.type != _GROUP:
                self._say("FIELD_NAMED_TYPE_CHANGED", at)
            else:
                self._messages(r.type_name, w.type_name)
        elif r.type == w.type == _ENUM and r.type_name != w.type_name:
            self._say("FIELD_NAMED_TYPE_CHANGED", at)

    def _oneofs(self, ours: DescriptorProto, theirs: DescriptorProto, at: str) -> None:
        """Compare where fields are that exclude each other: the reader keeps one of those that a writer wrote."""
        before = {each.number: _oneof(each, theirs) for each in theirs.field}
        known = _oneofs(theirs)
        moved: dict[str, list[int]] = {}
        for each in ours.field:
            oneof = _oneof(each, ours)
            if oneof is not None and each.number in before and before[each.number] is None:
                moved.setdefault(oneof, []).append(each.number)
        for oneof, numbers in sorted(moved.items()):
            if oneof in known:
                self._say("FIELD_MOVED_TO_EXISTING_ONEOF", f"{at}/{oneof}")
            elif len(numbers) > 1:
                self._say("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{at}/{oneof}")


def _required(found: FieldDescriptorProto) -> bool:
    return bool(found.label == _REQUIRED or found.options.features.field_presence == _LEGACY_REQUIRED)


def _oneof(found: FieldDescriptorProto, message: DescriptorProto) -> str | None:
    """Return the name of the oneof that a field is in; None for none, which those of ``optional`` count as."""
    if not found.HasField("oneof_index") or found.proto3_optional:
        return None
    return str(message.oneof_decl[found.oneof_index].name)


def _oneofs(message: DescriptorProto) -> set[str]:
    return {name for each in message.field if (name := _oneof(each, message)) is not None}
