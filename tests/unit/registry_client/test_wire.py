"""The framing of values: single cases as documented, and random ones against a plain reader and Confluent's own."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.connectors.schema_registry import wire
from sparkonce.connectors.schema_registry.wire import NO_FRAME, NO_VALUE, VALUE_HEADER, Framed, Path, split
from tests.cases import each_case

GUID = "0123abcd-4567-89ab-cdef-0123456789ab"
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
Headers = list[tuple[str, bytes | None]] | None


def framed(
    values: list[bytes | None], headers: list[Headers] | None = None, *, paths: bool = False, cut: int = 0
) -> Framed:
    """Split values; ``cut`` leaves out as many at both ends, as slices of longer arrays do."""
    made = pa.array(values, pa.binary())
    lists = None
    if headers is not None:
        entries = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in headers]
        lists = pa.array(entries, HEADERS)
    kept = slice(cut, len(values) - cut)
    made = made[kept]
    return split(made, None if lists is None else lists[kept], VALUE_HEADER, paths=paths)


def payloads(found: Framed) -> list[bytes]:
    return [found.data[start:end].tobytes() for start, end in zip(found.starts, found.ends, strict=True)]


def test_ids_payloads_and_what_names_no_schema() -> None:
    values = [b"\0\0\0\1\2payload", None, b"", b"\0\0\0\0", b"\1\0\0\0\1x", b"\0\xff\xff\xff\xff", b"json"]
    found = framed(values)
    assert found.ids.tolist() == [258, NO_VALUE, NO_FRAME, NO_FRAME, NO_FRAME, 2**32 - 1, NO_FRAME]
    assert payloads(found) == [b"payload", b"", b"", b"\0\0\0\0", b"\1\0\0\0\1x", b"", b"json"]
    assert [found.problem(row, content) for row, content in enumerate(values)] == [
        None,
        None,
        "it has 0 bytes, and a schema's id takes 5",
        "it has 4 bytes, and a schema's id takes 5",
        "it begins with the byte 0x01, and not with 0x00 and a schema's id",
        None,
        "it has 4 bytes, and a schema's id takes 5",
    ]
    assert [found.name(row) for row in range(3)] == [258, None, None]


def test_no_values_at_all() -> None:
    assert framed([]).ids.tolist() == []
    assert framed([None]).ids.tolist() == [NO_VALUE]
    assert framed([], [], paths=True).ids.tolist() == []


def test_headers_count_more_than_the_value_and_the_last_of_several() -> None:
    other = str(uuid.UUID(int=7))
    headers: list[Headers] = [
        [(VALUE_HEADER, wire.header(other)), ("x", b"y"), (VALUE_HEADER, wire.header(GUID))],
        None,
        [("x", b"\1" * 17)],
        [(VALUE_HEADER, b"\0\0\0\0\5")],
        [(VALUE_HEADER, None)],
        [(VALUE_HEADER, b"?" * 17)],
        [(wire.KEY_HEADER, wire.header(GUID))],
        [(VALUE_HEADER, wire.header(GUID))],
    ]
    values: list[bytes | None] = [b"\0\0\0\0\1a", b"\0\0\0\0\2b", b"\0\0\0\0\3c", b"d", b"\0\0\0\0\4e", b"\0\0\0\0\6f"]
    found = framed([*values, b"\0\0\0\0\7g", None], headers)
    names = [found.name(row) for row in range(8)]
    assert names == [GUID, 2, 3, 5, None, None, 7, None]
    assert payloads(found)[:4] == [b"\0\0\0\0\1a", b"b", b"c", b"d"]
    assert found.ids[4:6].tolist() == [NO_FRAME, NO_FRAME]
    told = [found.problem(row, value) for row, value in enumerate(values)]
    assert told == [None] * 4 + ["its header is not the byte 0x00 and a schema's id, or 0x01 and a GUID"] * 2
    assert found.ids[7] == NO_VALUE


@each_case(
    ("content", "path", "rest"),
    [
        (b"\0rest", (0,), b"rest"),
        (b"\2\2rest", (1,), b"rest"),
        (b"\4\2\6rest", (1, 3), b"rest"),
        (b"\2\xd8\4rest", (300,), b"rest"),
        (b"\2\0rest", (0,), b"rest"),
        (b"", None, b""),
        (b"\1", None, b"\1"),
        (b"\2", None, b"\2"),
        (b"\2\1", None, b"\2\1"),
        (b"\x80", None, b"\x80"),
        (b"\xff\xff\xff\xff\xff\xff", None, b"\xff" * 6),
        (b"\xfe\xff\xff\xff\x0f", None, b"\xfe\xff\xff\xff\x0f"),
    ],
)
def test_paths_of_protobuf(content: bytes, path: Path | None, rest: bytes) -> None:
    found = framed([b"\0\0\0\0\1" + content, b"\0\0\0\0\1\0"], paths=True)
    assert found.paths is not None
    assert found.ids.tolist() == [1, 1]
    assert (None if found.paths[0] < 0 else found.known_paths[found.paths[0]]) == path
    assert payloads(found) == [rest, b""]
    assert (found.problem(0, content) is None) == (path is not None)


def test_more_paths_than_are_compared() -> None:
    count = wire.MAX_COMPARED + 20
    values: list[bytes | None] = [wire.frame(1, (row % count, 5)) + b"x" for row in range(2 * count)]
    found = framed(values, paths=True)
    assert found.paths is not None
    assert [found.known_paths[each] for each in found.paths] == [(row % count, 5) for row in range(2 * count)]
    assert set(payloads(found)) == {b"x"}


def test_more_guids_than_are_compared() -> None:
    count = wire.MAX_COMPARED + 20
    names = [str(uuid.UUID(int=row % count << 60)) for row in range(2 * count)]
    found = framed([b"x"] * len(names), [[(VALUE_HEADER, wire.header(name))] for name in names])
    assert [found.name(row) for row in range(len(names))] == names
    assert len(found.guids) == count


def test_a_path_that_cannot_be_written() -> None:
    for path in ((), (-1,), (1 << 31,), tuple(range(65))):
        with pytest.raises(ValueError, match="1 to 64 indexes"):
            wire.frame(1, path)


PATHS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4).map(tuple)
CONTENT = st.binary(max_size=20)
IDS = st.integers(0, 2**32 - 1)


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes | None, Headers, Any, Path | None, bytes]:
    """Return a value, its headers, and the schema, path and payload that it says."""
    payload, path = draw(CONTENT), draw(PATHS)
    kind = draw(st.sampled_from(["id", "guid", "header id", "null"]))
    if kind == "null":
        return None, draw(st.sampled_from([None, [(VALUE_HEADER, wire.header(GUID))]])), None, None, b""
    if kind == "id":
        number = draw(IDS)
        return (
            wire.frame(number, path) + payload,
            draw(st.sampled_from([None, [], [("a", b"b")]])),
            number,
            path,
            payload,
        )
    if kind == "guid":
        guid = str(draw(st.uuids()))
        return payload, [("a", None), (VALUE_HEADER, wire.header(guid, path))], guid, path, payload
    number = draw(IDS)
    return payload, [(VALUE_HEADER, wire.frame(number, path))], number, path, payload


@given(st.lists(records(), max_size=12), st.integers(0, 2))
def test_what_is_written_is_read(made: list[Any], cut: int) -> None:
    cut = min(cut, len(made) // 2)
    found = framed([each[0] for each in made], [each[1] for each in made], paths=True, cut=cut)
    assert found.paths is not None
    made = made[cut : len(made) - cut]
    assert [found.name(row) for row in range(len(made))] == [each[2] for each in made]
    for row, (value, _, _, path, payload) in enumerate(made):
        if value is not None:
            assert found.known_paths[found.paths[row]] == path
            assert payloads(found)[row] == payload


@given(IDS, st.uuids(), PATHS, CONTENT)
def test_as_confluents_own(number: int, guid: uuid.UUID, path: Path, payload: bytes) -> None:
    theirs = SchemaId("PROTOBUF", number, str(guid), [0] if path == (0,) else list(path))
    if path != (0,):  # theirs writes the short form elsewhere
        assert (theirs.id_to_bytes(), theirs.guid_to_bytes()) == (
            wire.frame(number, path),
            wire.header(str(guid), path),
        )
    read = SchemaId("PROTOBUF")
    rest = read.from_bytes(io.BytesIO(wire.frame(number, path) + payload))
    assert (read.id, tuple(read.message_indexes), rest.read()) == (number, path, payload)
    read.from_bytes(io.BytesIO(wire.header(str(guid), path)))
    assert (read.guid, tuple(read.message_indexes)) == (guid, path)


@given(st.lists(st.none() | CONTENT, max_size=8), st.lists(st.none() | CONTENT, max_size=8), st.booleans())
def test_any_bytes_are_read_or_refused(values: list[bytes | None], contents: list[bytes | None], paths: bool) -> None:
    count = min(len(values), len(contents))
    headers: list[Headers] = [None if each is None else [(VALUE_HEADER, each)] for each in contents[:count]]
    found = framed(values[:count], headers, paths=paths)
    for row, (value, header) in enumerate(zip(values, contents, strict=False)):
        expected = wire.parse_header(value[:5] if value else value) if header is None else wire.parse_header(header)
        if header is None and value is not None and value[:1] == b"\1":
            expected = None
        assert found.name(row) == (None if value is None else expected)
        assert 0 <= found.starts[row] <= found.ends[row]
