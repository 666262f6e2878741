"""The message of values, in an option: a set of descriptors as text, so that it travels with a query."""

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
"""What the text of a set of descriptors begins with."""


def as_option(text: str, imports: Mapping[str, str] | None = None) -> str:
    """Return the set of descriptors of a .proto file's text, or of one that is such a set already, as text.

    Raises:
        ProtobufSchemaError: it is no schema.
    """
    if text.startswith(PREFIX):
        return text
    return from_bytes(compile_text(text, imports))


def from_bytes(descriptors: bytes) -> str:
    """Return a set of descriptors as text."""
    return PREFIX + base64.b64encode(descriptors).decode()


def for_registry(content: str | bytes) -> str:
    """Return a schema, as an option or a file has it, as a registry takes it.

    That is the text of a .proto file, or the descriptor of one file in base64.

    Raises:
        ProtobufSchemaError: it is no schema, or imports files that only a registry's references bring.
    """
    text = content if isinstance(content, str) else _text_of(content)
    if text is not None and not text.startswith(PREFIX):
        compile_text(text)
        return text
    made = descriptor_pb2.FileDescriptorProto()
    _file(content if isinstance(content, bytes) and text is None else str(text)).CopyToProto(made)
    only = base64.b64encode(made.SerializeToString()).decode()
    try:
        compile_text(only)
    except ProtobufSchemaError as error:
        raise ProtobufSchemaError(
            f"{error}. A schema that imports others is registered with references to them: register it, leave it out "
            "of the options and set autoRegister=false"
        ) from None
    return only


def _text_of(content: bytes) -> str | None:
    """Return a file's content if it is text that the compiler takes."""
    try:
        text = content.decode()
        as_option(text)
    except ValueError:  # no text, or none of a .proto file
        return None
    return text


def message_of(option: str, name: str | None) -> Descriptor:
    """Return the message of a name, or the first one.

    Raises:
        ProtobufSchemaError: there is none.
    """
    file = _file(option)
    return message_by_path(file, (0,)) if name is None else message_by_name(file, name)


def _file(option: str | bytes) -> FileDescriptor:
    if isinstance(option, bytes):
        return read_set(option)
    try:
        return read_set(base64.b64decode(as_option(option).removeprefix(PREFIX), validate=True))
    except binascii.Error as error:
        raise ProtobufSchemaError(f"what follows {PREFIX} is not base64: {error}") from None


def written_message(option: str, name: str | None) -> tuple[Descriptor, tuple[int, ...]]:
    """Return the message of a name, or the first one, and the path that values name it by.

    Raises:
        ProtobufSchemaError: there is none, or it is of a file that the schema imports.
    """
    found = message_of(option, name)
    if found.file.name != _file(option).name:
        raise ProtobufSchemaError(
            f"the message {found.full_name} is of {found.file.name}, which the schema imports; values can only name "
            "one of the schema itself"
        )
    return found, tuple(path_of(found))
