"""Schemas of Protobuf: from descriptors, or .proto files' text (`protobuf_text`), to one message's description."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from sparkonce.connectors.schema_registry.protobuf_text import descriptor_set as compiled_set

_KNOWN = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip
"""The files of google/protobuf that every compiler has."""


class ProtobufSchemaError(ValueError):
    """A schema that is invalid, or that columns cannot represent."""


def compile_text(text: str, imports: Mapping[str, str] | None = None) -> bytes:
    """Return the FileDescriptorSet, as bytes, of a .proto file's text, or a descriptor in base64, and all it imports.

    ``imports`` are other files, likewise, by the names that they are imported by. The file itself comes last.

    Raises:
        ProtobufSchemaError: the compiler rejects it, with its message; or it is not installed.
    """
    try:
        return bytes(compiled_set(text, tuple((imports or {}).items())).SerializeToString())
    except (ValueError, ModuleNotFoundError) as error:
        raise ProtobufSchemaError(f"the schema is not valid: {error}") from None


def read_set(descriptors: bytes) -> FileDescriptor:
    """Return the last file of a FileDescriptorSet. Raises ProtobufSchemaError if it is none, or lacks an import."""
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    except DecodeError as error:
        raise ProtobufSchemaError(f"the schema is no FileDescriptorSet: {error}") from None
    return _loaded(found.file)


def read_files(main: bytes, imports: Sequence[bytes] = ()) -> FileDescriptor:
    """Return a FileDescriptorProto's file; ``imports`` in any order. Raises ProtobufSchemaError if one is wrong."""
    try:
        files = [descriptor_pb2.FileDescriptorProto.FromString(each) for each in (*imports, main)]
    except DecodeError as error:
        raise ProtobufSchemaError(f"the schema is no FileDescriptorProto: {error}") from None
    return _loaded(files)


def _loaded(files: Sequence[descriptor_pb2.FileDescriptorProto]) -> FileDescriptor:
    """Return the last file, in a pool of its own."""
    if not files or not any(each.message_type for each in files):
        raise ProtobufSchemaError("the schema has no message")
    pool = DescriptorPool()
    left = {each.name: each for each in files}
    main = files[-1].name
    for name in _well_known(left):
        left[name] = _well_known_file(name)

    def add(name: str, around: tuple[str, ...]) -> None:
        if name in around:
            raise ProtobufSchemaError(f"the file {name} imports itself")
        file = left.get(name)
        if file is None:
            raise ProtobufSchemaError(f"the schema imports {name}, which is not there")
        for each in file.dependency:
            if each not in added:
                add(each, (*around, name))
        added.add(name)
        pool.Add(file)

    added: set[str] = set()
    try:
        for each in files:
            if each.name not in added:
                add(each.name, ())
        return pool.FindFileByName(main)
    except (TypeError, ValueError, KeyError) as error:
        if isinstance(error, ProtobufSchemaError):
            raise
        raise ProtobufSchemaError(f"the schema is not valid: {error}") from None


def _well_known(files: Mapping[str, descriptor_pb2.FileDescriptorProto]) -> set[str]:
    """Return Google's own files that are not among some files, which may import them."""
    return {f"google/protobuf/{name}.proto" for name in _KNOWN} - set(files)


def _well_known_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    module = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    made = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(made)
    return made


def descriptor_set(file: FileDescriptor) -> bytes:
    """Return a file and all that it imports, for `read_set` in another process."""
    made = descriptor_pb2.FileDescriptorSet()
    names: set[str] = set()

    def add(each: FileDescriptor) -> None:
        for other in each.dependencies:
            if other.name not in names:
                add(other)
        names.add(each.name)
        each.CopyToProto(made.file.add())

    add(file)
    return bytes(made.SerializeToString())


def message_by_name(file: FileDescriptor, name: str) -> Descriptor:
    """Return the message of a full or unambiguous short name. Raises ProtobufSchemaError if none has it, or several."""
    try:
        return file.pool.FindMessageTypeByName(name)
    except KeyError:
        pass
    everything = messages_of(file)
    found = [each for each in everything if each.full_name.endswith(f".{name}")]
    if len(found) != 1:
        names = ", ".join(sorted(each.full_name for each in found or everything))
        raise ProtobufSchemaError(f"{'no' if not found else 'not one'} message is called {name!r}: there are {names}")
    return found[0]


def message_by_path(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    """Return the message at an index path, as in the wire format: a number a level. Raises ProtobufSchemaError."""
    siblings = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in path:
        if not 0 <= index < len(siblings):
            raise ProtobufSchemaError(f"{file.name} has no message at the path {list(path)}")
        found = siblings[index]
        siblings = list(found.nested_types)
    if found is None:
        raise ProtobufSchemaError("a path to a message has one number at least")
    return found


def name_without_package(message: Descriptor) -> str:
    """Return the name of a message with those of its enclosing messages: equal names in two messages differ then."""
    name: str = message.full_name
    return name.removeprefix(f"{message.file.package}.")


def path_of(message: Descriptor) -> list[int]:
    """Return the index path of a message."""
    path: list[int] = []
    here: Descriptor | None = message
    while here is not None:
        around = here.containing_type
        siblings = list(here.file.message_types_by_name.values()) if around is None else list(around.nested_types)
        path.insert(0, [each.name for each in siblings].index(here.name))
        here = around
    return path


def messages_of(file: FileDescriptor) -> list[Descriptor]:
    """Return a file's messages and those in them, without the entries of maps."""
    found: list[Descriptor] = []
    left = list(file.message_types_by_name.values())
    while left:
        here = left.pop(0)
        if not here.GetOptions().map_entry:
            found.append(here)
            left += here.nested_types
    return found
