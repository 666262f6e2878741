"""The message of values, in an option: a descriptor set as text, which is sent with a query."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor

from sparkonce.connectors.values.protobuf.schema import (
    ProtobufSchemaError,
    compile_text,
    message_by_name,
    message_by_path,
    path_of,
    read_set,
)

PREFIX = "base64:"
"""The prefix of a descriptor set's text."""


def as_option(text: str, imports: Mapping[str, str] | None = None) -> str:
    """Return the descriptors of a .proto file, or of such a set, as text. Raises ProtobufSchemaError if neither."""
    if text.startswith(PREFIX):
        return text
    return from_bytes(compile_text(text, imports))


def from_bytes(descriptors: bytes) -> str:
    """Return a set of descriptors as text."""
    return PREFIX + base64.b64encode(descriptors).decode()


def of_file(content: bytes) -> str:
    """Return the descriptors, as text, of a .proto file or of such a set. Raises ProtobufSchemaError if neither."""
    try:
        return as_option(content.decode())
    except ValueError as error:
        try:
            read_set(content)
        except ProtobufSchemaError as other:
            raise (error if isinstance(error, ProtobufSchemaError) else other) from None
    return from_bytes(content)


def for_registry(content: str | bytes) -> str:
    """Convert a schema from an option or a file to the form that a registry accepts.

    That is the text of a .proto file, or the descriptor of one file in base64.

    Raises:
        ProtobufSchemaError: it is no schema, or imports files that only a registry's references contain.
    """
    if isinstance(content, bytes):
        whole = of_file(content)
        content = whole if whole == from_bytes(content) else content.decode()
    if not content.startswith(PREFIX):
        compile_text(content)
        return content
    made = descriptor_pb2.FileDescriptorProto()
    _file(content).CopyToProto(made)
    only = base64.b64encode(made.SerializeToString()).decode()
    try:
        compile_text(only)
    except ProtobufSchemaError as error:
        raise ProtobufSchemaError(
            f"{error}. A schema that imports others is registered with references to them: register it, leave it out "
            "of the options and set autoRegister=false"
        ) from None
    return only


def message_of(option: str, name: str | None) -> Descriptor:
    """Return the message of a name, or the first one. Raises ProtobufSchemaError if there is none."""
    file = _file(option)
    return message_by_path(file, (0,)) if name is None else message_by_name(file, name)


def _file(option: str) -> FileDescriptor:
    try:
        return read_set(base64.b64decode(as_option(option).removeprefix(PREFIX), validate=True))
    except binascii.Error as error:
        raise ProtobufSchemaError(f"what follows {PREFIX} is not base64: {error}") from None


def written_message(option: str, name: str | None) -> tuple[Descriptor, tuple[int, ...]]:
    """Return a named message, or the first, and its path. Raises ProtobufSchemaError if missing or imported."""
    found = message_of(option, name)
    if found.file.name != _file(option).name:
        raise ProtobufSchemaError(
            f"the message {found.full_name} is of {found.file.name}, which the schema imports; values can only name "
            "one of the schema itself"
        )
    return found, tuple(path_of(found))
