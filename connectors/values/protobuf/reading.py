"""The message that values are read as, in an option: a set of descriptors as text, so that it travels with a query."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from google.protobuf.descriptor import Descriptor

from sparkonce.connectors.values.protobuf.schema import (
    ProtobufSchemaError,
    compile_text,
    message_by_name,
    message_by_path,
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


def message_of(option: str, name: str | None) -> Descriptor:
    """Return the message of a name, or the first one.

    Raises:
        ProtobufSchemaError: there is none.
    """
    try:
        content = base64.b64decode(as_option(option).removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ProtobufSchemaError(f"what follows {PREFIX} is not base64: {error}") from None
    file = read_set(content)
    return message_by_path(file, (0,)) if name is None else message_by_name(file, name)
