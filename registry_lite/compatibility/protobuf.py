"""Protobuf schemas: compiled by Google's compiler, compared by how its parser reads the wire format.

Fields are identified by their numbers. A reader is compatible if it reads every value that a writer may have set in a
field that both have. That is stricter than Confluent's registry, which also accepts values that are truncated
(``int64`` read as ``int32``), dropped (a list read as one value, a constant that a closed enum lacks) or not text
(``bytes`` read as ``string``). Differences have the names of Confluent's registry, with the number of the field.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparkonce.connectors.schema_registry.protobuf_text import descriptor_set

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES = range(1, 13)
_UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(13, 19)
_HELD_BY = {
    _BOOL: {_INT32, _UINT32, _INT64, _UINT64, _ENUM},
    _INT32: {_INT64, _ENUM},
    _UINT32: {_INT64, _UINT64},
    _ENUM: {_INT32, _INT64},
    _SINT32: {_SINT64},
    _STRING: {_BYTES},
}
"""For each kind the others with the same encoding that hold all its values; for enums, the open ones."""


def check(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text; raise ValueError if the schema is invalid."""
    descriptor_set(text, references)
    return text


def same(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return a key that is equal for equal schemas, whatever the comments, spaces and base64."""
    made = descriptor_set(text, references).file[-1]
    made.ClearField("name")
    return _base64(made)


def normal(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the text unchanged: there is no normalized form."""
    return check(text, references)


def serialized(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the descriptor of a schema, a FileDescriptorProto in base64."""
    return _base64(descriptor_set(text, references).file[-1])


def _base64(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def incompatible(reader: tuple[str, Any], writer: tuple[str, Any]) -> list[str]:
    """Return why a reader cannot read all data of a writer."""
    return differences(descriptor_set(*reader), descriptor_set(*writer))


def differences(reader: FileDescriptorSet, writer: FileDescriptorSet) -> list[str]:
    """Return the differences between compiled schemas by which a reader loses data of a writer."""
    try:
        schemas = _Schema(reader), _Schema(writer)
    except TypeError as error:  # the compiler may accept what the runtime does not
        return [f"the schemas cannot be compared: {error}"]
    return _Comparison(*schemas).run()


class _Schema:
    """A schema's last file, with the messages of all its files; features of editions are resolved."""

    def __init__(self, files: FileDescriptorSet) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._pool = DescriptorPool()
        for each in files.file:
            self._pool.AddSerializedFile(each.SerializeToString())
        self._editions = {each.name for each in files.file if each.syntax == "editions"}
        self.package: str = files.file[-1].package
        self._main = self._pool.FindFileByName(files.file[-1].name)

    @cached_property
    def messages(self) -> Mapping[str, Descriptor]:
        """The messages of the file by their full names, including nested ones, without map entries."""
        waiting = list(self._main.message_types_by_name.values())
        for message in waiting:
            waiting += message.nested_types
        return {each.full_name: each for each in waiting if not each.GetOptions().map_entry}

    def fields(self, message: Descriptor) -> Mapping[int, FieldDescriptor]:
        """Return the fields of a message by number, including extensions."""
        return {each.number: each for each in (*message.fields, *self._pool.FindAllExtensions(message))}

    def takes_any_bytes(self, found: FieldDescriptor) -> bool:
        """Return whether an edition's schema allows text that is not UTF-8. In proto2 it must be, unverified."""
        return found.file.name in self._editions and not _verifies(found)


@dataclass
class _Comparison:
    reader: _Schema
    writer: _Schema
    found: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of messages that have been compared."""

    def run(self) -> list[str]:
        same_package = self.reader.package == self.writer.package
        if not same_package:
            self._say("PACKAGE_CHANGED", "#/")
        for name, each in self.writer.messages.items():
            ours = self.reader.messages.get(name)
            if ours is not None:
                self._messages(ours, each)
            elif same_package:
                self._say("MESSAGE_REMOVED", _place(each))
        return self.found

    def _say(self, what: str, at: str) -> None:
        self.found.append(f"{what} at {at}")

    def _messages(self, reader: Descriptor, writer: Descriptor) -> None:
        names = reader.full_name, writer.full_name
        if names in self.seen:
            return
        self.seen.add(names)
        ours, theirs = self.reader.fields(reader), self.writer.fields(writer)
        for number in sorted(ours.keys() | theirs.keys()):
            at = f"{_place(reader)}/{number}"
            r, w = ours.get(number), theirs.get(number)
            if r is not None and r.is_required and not (w is not None and w.is_required):
                self._say("REQUIRED_FIELD_ADDED", at)
            if r is None and w is not None:
                self._removed(w, ours, at)
            elif r is not None and w is not None:
                self._fields(r, w, at)
        for oneof in reader.oneofs:
            self._oneof(oneof, theirs, f"{_place(reader)}/{oneof.name}")

    def _removed(self, w: FieldDescriptor, ours: Mapping[int, FieldDescriptor], at: str) -> None:
        """Compare a field that the reader lacks: if it has its oneof, it would not know which field was set."""
        if w.is_required:
            self._say("REQUIRED_FIELD_REMOVED", at)
        if w.containing_oneof is not None and any(each.number in ours for each in w.containing_oneof.fields):
            self._say("ONEOF_FIELD_REMOVED", at)

    def _fields(self, r: FieldDescriptor, w: FieldDescriptor, at: str) -> None:
        if r.type != w.type and not _holds(r, w):
            scalar = not {r.type, w.type} & {_MESSAGE, _GROUP, _ENUM}
            self._say("FIELD_SCALAR_KIND_CHANGED" if scalar else "FIELD_KIND_CHANGED", at)
        elif r.type == w.type == _STRING and self.writer.takes_any_bytes(w) and _verifies(r):
            self._say("FIELD_UTF8_VALIDATION_ADDED", at)
        elif _is_map(r) != _is_map(w):
            self._say("FIELD_KIND_CHANGED", at)
        elif r.is_repeated != w.is_repeated and (w.is_repeated or r.type not in (_STRING, _BYTES, _MESSAGE)):
            texts = r.type in (_STRING, _BYTES)
            self._say(f"FIELD_{'STRING_OR_BYTES' if texts else 'NUMERIC'}_LABEL_CHANGED", at)
        elif r.type in (_MESSAGE, _GROUP):
            if r.type == _MESSAGE and not _is_map(r) and r.message_type.full_name != w.message_type.full_name:
                self._say("FIELD_NAMED_TYPE_CHANGED", at)
            else:
                self._messages(r.message_type, w.message_type)
        elif r.type == w.type == _ENUM:
            self._enums(r, w, at)
        if not w.has_presence and r.has_presence and not r.is_repeated and r.type != _MESSAGE and r.default_value:
            self._say("FIELD_DEFAULT_CHANGED", at)  # the writer omits a zero

    def _enums(self, r: FieldDescriptor, w: FieldDescriptor, at: str) -> None:
        if r.enum_type.full_name != w.enum_type.full_name:
            self._say("FIELD_NAMED_TYPE_CHANGED", at)
        elif r.enum_type.is_closed and not (w.enum_type.is_closed and _numbers(w) <= _numbers(r)):
            self._say("ENUM_CONST_REMOVED", at)

    def _oneof(self, oneof: OneofDescriptor, theirs: Mapping[int, FieldDescriptor], at: str) -> None:
        """Compare fields that exclude each other for the reader: they must have done so for the writer.

        Names are ignored. What is compared is the writer's oneof, or its single field.
        """
        before = [theirs[each.number] for each in oneof.fields if each.number in theirs]
        alone = [each for each in before if each.containing_oneof is None]
        groups = {each.containing_oneof.index if each.containing_oneof is not None else -each.number for each in before}
        if len(groups) > 1:
            several = len(alone) > 1
            self._say("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF", at)


def _place(message: Descriptor) -> str:
    return f"#/{message.full_name.replace('.', '/')}"


def _holds(r: FieldDescriptor, w: FieldDescriptor) -> bool:
    closed = r.type == _ENUM and r.enum_type.is_closed
    return not closed and r.type in _HELD_BY.get(w.type, ())


def _is_map(found: FieldDescriptor) -> bool:
    return found.message_type is not None and bool(found.message_type.GetOptions().map_entry)


def _verifies(found: FieldDescriptor) -> bool:
    """Return whether a parser rejects a text that is not UTF-8; also for proto2 and proto3."""
    features = found._GetFeatures()  # there is no public function
    return bool(features.utf8_validation == features.VERIFY)


def _numbers(found: FieldDescriptor) -> set[int]:
    return set(found.enum_type.values_by_number)
