"""How a value names the schema that it was written with.

Source: Confluent's documentation of its wire format. A value begins with the byte 0, the schema's id in four bytes, and
then the payload; newer serializers leave the payload bare, and put the byte 1 and a GUID of 16 bytes, or the byte 0 and
the id, into a header. With Protobuf the path to the message follows the id or the GUID: its length, and an index for
each level, all as zigzag varints; or one byte 0 for the first message. Everything here is about many values at once.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MAGIC, MAGIC_GUID = 0, 1
FRAME_BYTES = 5
GUID_BYTES = 17
VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
NO_VALUE, NO_FRAME = -1, -2
"""Instead of an id: the value is null, and names no schema."""
MAX_DEPTH = 64
"""Levels of messages in a path."""
MAX_PATH_BYTES = 5 * (MAX_DEPTH + 1)
MAX_COMPARED = 256
"""The number of paths, or GUIDs, for which all values are searched at once."""
SchemaName = int | str
"""An id, or a GUID."""
Path = tuple[int, ...]
"""The index of a message among those of a file, then among those in that message, and so on."""
FIRST: Path = (0,)
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Framed:
    """Where the payloads of values are, and which schemas they name."""

    data: NDArray[np.uint8]
    starts: Int64s
    ends: Int64s
    ids: Int64s
    """An id, `NO_VALUE` or `NO_FRAME`; of a value whose header has a GUID, what `guids` has it by: -3 and below."""
    guids: dict[int, str]
    paths: NDArray[np.int32] | None = None
    """With Protobuf: the index of each value's path in `known_paths`; -1 if it has none that can be read."""
    known_paths: Sequence[Path] = ()
    by_header: NDArray[np.bool_] | None = None
    """Which values have a header that should name the schema; None if none may."""

    def name(self, row: int) -> SchemaName | None:
        """Return the id or the GUID that a value names; None if it names none."""
        found = int(self.ids[row])
        return self.guids.get(found) if found < 0 else found

    def problem(self, row: int, content: bytes | None) -> str | None:
        """Return why a value, whose bytes are ``content``, names no schema; None if it names one, or is null."""
        if self.ids[row] != NO_FRAME:
            no_path = self.paths is not None and self.ids[row] != NO_VALUE and self.paths[row] < 0
            return "the path to its message cannot be read" if no_path else None
        if self.by_header is not None and self.by_header[row]:
            return "its header is not the byte 0x00 and a schema's id, or 0x01 and a GUID"
        content = content or b""
        if len(content) < FRAME_BYTES:
            return f"it has {len(content)} bytes, and a schema's id takes {FRAME_BYTES}"
        return f"it begins with the byte {content[0]:#04x}, and not with 0x00 and a schema's id"


def bounds(values: pa.BinaryArray) -> tuple[NDArray[np.uint8], Int64s, Int64s]:
    """Return the bytes of values, and the start and end of each."""
    _, offsets, content = values.buffers()
    data = np.frombuffer(content if content is not None and content.size else b"\0", np.uint8)
    if not len(values):
        return data, np.zeros(0, np.int64), np.zeros(0, np.int64)
    found = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return data, found[:-1].copy(), found[1:].copy()


def split(values: pa.BinaryArray, headers: pa.ListArray | None, header: str, *, paths: bool = False) -> Framed:
    """Return the parts of values; ``headers`` are the records', of which the last named ``header`` counts.

    With ``paths`` the values are of Protobuf: their paths are read, too.
    """
    data, starts, ends = bounds(values)
    ids = np.full(len(values), NO_FRAME, np.int64)
    framed = _framed(data, starts, ends)
    ids[framed] = _numbers(data, starts[framed])
    starts[framed] += FRAME_BYTES
    guids: dict[int, str] = {}
    found = _Paths(len(values)) if paths else None
    rows = np.zeros(len(values), np.bool_)
    if headers is not None:
        named, contents = _last_named(headers, header)
        rows[named] = True
        starts[rows & (ids >= 0)] -= FRAME_BYTES
        ids[rows] = NO_FRAME
        tails = _from_headers(contents, named, ids, guids)
        if found is not None:
            found.read(*tails, np.flatnonzero(rows & (ids != NO_FRAME)))
    if values.null_count:
        ids[np.asarray(values.is_null())] = NO_VALUE
    if found is None:
        return Framed(data, starts, ends, ids, guids, by_header=rows)
    inside = np.flatnonzero(~rows & (ids >= 0))
    starts[inside] = found.read(data, starts[inside], ends[inside], inside)
    return Framed(data, starts, ends, ids, guids, found.numbers, found.known, rows)


def _framed(data: NDArray[np.uint8], starts: Int64s, ends: Int64s) -> Int64s:
    """Return which of some bytes begin with the byte 0 and an id."""
    found: Int64s = np.flatnonzero((ends - starts) >= FRAME_BYTES)
    framed: Int64s = found[data[starts[found]] == MAGIC]
    return framed


def _numbers(data: NDArray[np.uint8], starts: Int64s) -> Int64s:
    """Return the ids of frames."""
    found = np.zeros(starts.shape[0], np.int64)
    for place in range(1, FRAME_BYTES):
        found = (found << 8) | data[starts + place]
    return found


def _last_named(headers: pa.ListArray, header: str) -> tuple[Int64s, pa.BinaryArray]:
    """Return which records have a header of this name, and its value: of several the last."""
    entries = headers.values
    at = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(entries.field(0), header), False)))
    rows = np.searchsorted(headers.offsets.to_numpy(), at, "right") - 1
    here = (rows >= 0) & (rows < len(headers))
    if headers.null_count:
        here[here] &= np.asarray(headers.is_valid())[rows[here]]
    at, rows = at[here], rows[here]
    last = np.append(rows[1:] != rows[:-1], True) if rows.size else np.zeros(0, np.bool_)
    return rows[last], entries.field(1).take(pa.array(at[last]))


def _from_headers(
    contents: pa.BinaryArray, rows: Int64s, ids: Int64s, guids: dict[int, str]
) -> tuple[NDArray[np.uint8], Int64s, Int64s]:
    """Put the ids of headers, or numbers for their GUIDs, at ``rows``; return what follows in those with one.

    A GUID ends its header unless it is followed by a path, which `_Paths` reads.
    """
    data, starts, ends = bounds(contents)
    framed = _framed(data, starts, ends)
    ids[rows[framed]] = _numbers(data, starts[framed])
    named = np.flatnonzero(ends - starts >= GUID_BYTES)
    named = named[data[starts[named]] == MAGIC_GUID]
    if named.size:
        raw = np.ascontiguousarray(data[starts[named][:, None] + np.arange(1, GUID_BYTES)])
        which, different = _numbered(raw.view(np.uint64))
        ids[rows[named]] = NO_FRAME - 1 - which
        guids.update((NO_FRAME - 1 - at, str(uuid.UUID(bytes=each))) for at, each in enumerate(different))
    starts[framed] += FRAME_BYTES
    starts[named] += GUID_BYTES
    read = np.sort(np.concatenate([framed, named]))
    return data, starts[read], ends[read]


def _numbered(pairs: NDArray[np.uint64]) -> tuple[Int64s, list[bytes]]:
    """Return numbers for pairs, equal for equal ones, from 0, and the bytes of each numbered pair."""
    which: Int64s = np.full(pairs.shape[0], -1, np.int64)
    different: list[bytes] = []
    left = np.arange(pairs.shape[0])
    while left.size and len(different) < MAX_COMPARED:
        first = pairs[left[0]]
        same = (pairs[left, 0] == first[0]) & (pairs[left, 1] == first[1])
        which[left[same]] = len(different)
        different.append(first.tobytes())
        left = left[~same]
    if left.size:
        others, numbers = np.unique(pairs[left], axis=0, return_inverse=True)
        which[left] = len(different) + numbers.reshape(-1)
        different += [each.tobytes() for each in others]
    return which, different


class _Paths:
    """The paths of values, as numbers; few are different, so each is parsed once and then compared."""

    def __init__(self, count: int) -> None:
        self.numbers: NDArray[np.int32] = np.full(count, -1, np.int32)
        self._numbers: dict[Path, int] = {}

    @property
    def known(self) -> Sequence[Path]:
        """The paths, by their numbers."""
        return tuple(self._numbers)

    def read(self, data: NDArray[np.uint8], starts: Int64s, ends: Int64s, rows: Int64s) -> Int64s:
        """Read the paths at ``starts`` for ``rows``; return their ends: their starts, if there is none."""
        after = starts.copy()
        left = np.flatnonzero(starts < ends)
        while left.size:
            first = int(left[0])
            found = _read_path(data[starts[first] : min(ends[first], starts[first] + MAX_PATH_BYTES)].tobytes())
            if found is None:
                left = left[1:]
                continue
            path, size = found
            number = self._numbers.setdefault(path, len(self._numbers))
            if number >= MAX_COMPARED:
                self.numbers[rows[first]], after[first] = number, starts[first] + size
                left = left[1:]
                continue
            same = ends[left] - starts[left] >= size
            for place in range(size):
                byte = data[starts[first] + place]
                same[same] = data[starts[left[same]] + place] == byte
            alike = left[same]
            self.numbers[rows[alike]] = number
            after[alike] = starts[alike] + size
            left = left[~same]
        return after


def _read_path(content: bytes) -> tuple[Path, int] | None:
    """Return the path at the beginning of some bytes, and its length; None if it cannot be read."""
    count, at = _varint(content, 0)
    if count == 0:
        return FIRST, at
    if not 0 < count <= MAX_DEPTH:
        return None
    path = []
    for _ in range(count):
        index, at = _varint(content, at)
        if index < 0:
            return None
        path.append(index)
    return tuple(path), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint of 32 bits and the position after it; -1 if there is none, as no index is negative."""
    found = 0
    for shift in range(0, 35, 7):
        if at >= len(content):
            return -1, at
        byte = content[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (-1 if found > 0xFFFFFFFF else (found >> 1) ^ -(found & 1)), at
    return -1, at


def parse_header(content: bytes | None) -> SchemaName | None:
    """Return the id or GUID that a header names; None if it names none."""
    if content is not None and len(content) >= GUID_BYTES and content[0] == MAGIC_GUID:
        return str(uuid.UUID(bytes=content[1:GUID_BYTES]))
    if content is not None and len(content) >= FRAME_BYTES and content[0] == MAGIC:
        return int(struct.unpack(">I", content[1:FRAME_BYTES])[0])
    return None


def frame(number: int, path: Path | None = None) -> bytes:
    """Return the prefix of a value with this schema id; with Protobuf ``path`` leads to its message."""
    return struct.pack(">bI", MAGIC, number) + (b"" if path is None else path_bytes(path))


def header(guid: str, path: Path | None = None) -> bytes:
    """Return the value of the header that names a schema by its GUID; with Protobuf ``path`` leads to the message."""
    return bytes([MAGIC_GUID]) + uuid.UUID(guid).bytes + (b"" if path is None else path_bytes(path))


def path_bytes(path: Path) -> bytes:
    """Return a path's bytes, after an id or a GUID. Raises ValueError if empty, too long, or an index is negative."""
    if not 0 < len(path) <= MAX_DEPTH or min(path) < 0 or max(path) >= 1 << 31:
        raise ValueError(f"a path to a message has 1 to {MAX_DEPTH} indexes of 0 and above, found {path}")
    if path == FIRST:
        return b"\0"
    return b"".join(_zigzag(each) for each in (len(path), *path))


def _zigzag(number: int) -> bytes:
    left, made = number << 1, bytearray()
    while left >= 0x80:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)
