"""The protocol's primitive types, read with bounds checked and written by appending.

A `Reader` reads one buffer. It never reads past the end, whatever lengths the bytes claim: anything that does
not fit raises `ProtocolError`, and only that. Strings, bytes and arrays come in two forms: the old one with a fixed
size length, and the compact one of the flexible versions (KIP-482) whose length is an unsigned varint of length + 1.
The `flexible` argument selects one.
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache

from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.limits import MAX_ARRAY_ELEMENTS, MAX_STRING_BYTES, MAX_TAGGED_FIELDS

Buffer = bytes | bytearray | memoryview

ZERO_UUID = uuid.UUID(int=0)

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


@lru_cache(maxsize=4096)
def uuid_of(data: bytes) -> uuid.UUID:
    """Return the UUID of 16 bytes; cached, as few topic ids are in use and creating one costs more than a lookup."""
    return uuid.UUID(bytes=data)


class Reader:
    """A cursor over a buffer."""

    __slots__ = ("_end", "_view", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self._view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        self._end = len(self._view)
        self.position = position

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return self._end - self.position

    def finish(self) -> None:
        """Check that the message ends here. Raises ProtocolError if bytes are left."""
        if self.position != self._end:
            raise ProtocolError(f"{self._end - self.position} bytes left over after the message")

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read several fixed-size fields at once."""
        position = self.position
        self.position = position + layout.size
        if self.position > self._end:
            raise self._short(layout.size, position)
        return layout.unpack_from(self._view, position)

    def int8(self) -> int:
        """Read a signed byte."""
        return self.unpack(_INT8)[0]

    def int16(self) -> int:
        """Read a signed 16-bit number."""
        return self.unpack(_INT16)[0]

    def int32(self) -> int:
        """Read a signed 32-bit number."""
        return self.unpack(_INT32)[0]

    def int64(self) -> int:
        """Read a signed 64-bit number."""
        return self.unpack(_INT64)[0]

    def boolean(self) -> bool:
        """Read a byte as a truth value; any value but 0 is true, as in Kafka."""
        return self.int8() != 0

    def unsigned_varint(self) -> int:
        """Read an unsigned 32-bit varint."""
        position = self.position
        if position < self._end and (byte := self._view[position]) < 0x80:  # as nearly always
            self.position = position + 1
            return byte
        return self._unsigned(5, 0xFFFFFFFF)

    def varint(self) -> int:
        """Read a zigzag 32-bit varint."""
        value = self._unsigned(5, 0xFFFFFFFF)
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """Read a zigzag 64-bit varint."""
        value = self._unsigned(10, 0xFFFFFFFFFFFFFFFF)
        return (value >> 1) ^ -(value & 1)

    def _unsigned(self, most_bytes: int, largest: int) -> int:
        view, position, end = self._view, self.position, self._end
        value = shift = 0
        for _ in range(most_bytes):
            if position >= end:
                raise self._short(1, position)
            byte = view[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > largest:
                    raise ProtocolError(f"varint out of range at byte {self.position}")
                self.position = position
                return value
            shift += 7
        raise ProtocolError(f"varint longer than {most_bytes} bytes at byte {self.position}")

    def uuid(self) -> uuid.UUID:
        """Read 16 bytes as a UUID."""
        return uuid_of(bytes(self.take(16)))

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes, not copied."""
        position = self.position
        if size < 0:
            raise ProtocolError(f"negative size {size} at byte {position}")
        self.position = position + size
        if self.position > self._end:
            raise self._short(size, position)
        return self._view[position : self.position]

    def nullable_bytes(self, flexible: bool) -> memoryview | None:
        """Read bytes, not copied, or null."""
        size = self.unsigned_varint() - 1 if flexible else self.int32()
        if size == -1:
            return None
        return self.take(size)

    def bytes(self, flexible: bool) -> memoryview:
        """Read bytes, not copied; null is rejected."""
        value = self.nullable_bytes(flexible)
        if value is None:
            raise ProtocolError(f"null bytes before byte {self.position} in a field that has no null")
        return value

    def nullable_string(self, flexible: bool) -> str | None:
        """Read a string or null."""
        size = self.unsigned_varint() - 1 if flexible else self.int16()
        if size == -1:
            return None
        if size > MAX_STRING_BYTES:
            raise ProtocolError(f"string of {size} bytes before byte {self.position}; at most {MAX_STRING_BYTES}")
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"string before byte {self.position} is not UTF-8: {error.reason}") from None

    def string(self, flexible: bool) -> str:
        """Read a string; null is rejected."""
        value = self.nullable_string(flexible)
        if value is None:
            raise ProtocolError(f"null string before byte {self.position} in a field that has no null")
        return value

    def array_length(self, flexible: bool) -> int:
        """Read the length of an array; null counts as empty.

        Every element takes at least one byte, so a length beyond the remaining bytes is rejected before any loop.
        """
        count = self.unsigned_varint() - 1 if flexible else self.int32()
        if count > self._end - self.position or count > MAX_ARRAY_ELEMENTS or count < -1:
            raise ProtocolError(f"array of {count} elements before byte {self.position}, {self.remaining} bytes left")
        return max(count, 0)

    def tagged_fields(self) -> dict[int, memoryview]:
        """Read the tagged fields that end a structure of a flexible version, by tag."""
        if self.position < self._end and self._view[self.position] == 0:
            self.position += 1
            return {}
        count = self.unsigned_varint()
        if count > MAX_TAGGED_FIELDS:
            raise ProtocolError(f"{count} tagged fields; at most {MAX_TAGGED_FIELDS}")
        fields: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.unsigned_varint()
            if tag in fields:
                raise ProtocolError(f"tagged field {tag} comes twice")
            fields[tag] = self.take(self.unsigned_varint())
        return fields

    def _short(self, size: int, position: int) -> ProtocolError:
        return ProtocolError(f"message ends at byte {self._end}, but {size} bytes are needed at byte {position}")


def put_unsigned_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def put_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint of up to 64 bits."""
    put_unsigned_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def put_string(out: bytearray, value: str | None, flexible: bool) -> None:
    """Append a string or null. Raises ValueError if the string exceeds the protocol's limit."""
    data = None if value is None else value.encode()
    if data is not None and len(data) > MAX_STRING_BYTES:
        raise ValueError(f"string of {len(data)} bytes; the protocol carries at most {MAX_STRING_BYTES}")
    if flexible:
        put_unsigned_varint(out, 0 if data is None else len(data) + 1)
    else:
        out += _INT16.pack(-1 if data is None else len(data))
    if data:
        out += data


def put_bytes(out: bytearray, value: Buffer | None, flexible: bool) -> None:
    """Append bytes or null."""
    put_bytes_length(out, -1 if value is None else len(value), flexible)
    if value:
        out += value


def put_bytes_length(out: bytearray, size: int, flexible: bool) -> None:
    """Append the length of bytes that are sent separately; -1 is null."""
    if flexible:
        put_unsigned_varint(out, size + 1)
    else:
        out += _INT32.pack(size)


def put_array_length(out: bytearray, count: int, flexible: bool) -> None:
    """Append the length of an array."""
    put_bytes_length(out, count, flexible)


def put_tagged_fields(out: bytearray, fields: dict[int, bytes]) -> None:
    """Append the tagged fields that end a structure, in the order of their tags."""
    put_unsigned_varint(out, len(fields))
    for tag in sorted(fields):
        put_unsigned_varint(out, tag)
        put_unsigned_varint(out, len(fields[tag]))
        out += fields[tag]
