"""Lines for a terminal: whatever a record holds, they are printable, and as many as they should be."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkonce.jobs.cli.peek.decoding import Decoder, guessed
from sparkonce.jobs.cli.peek.reading import FetchedRecord
from sparkonce.jobs.cli.peek.showing import as_json, block, indented, one_line, raw, safe, table
from tests.cases import each_case

CONTENT = st.none() | st.binary(max_size=30) | st.text(max_size=30).map(str.encode)
JSON = st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(), max_size=3)
VALUES = CONTENT | JSON.map(lambda each: json.dumps(each, ensure_ascii=False).encode())
RECORDS = st.builds(
    FetchedRecord,
    st.integers(0, 9),
    st.integers(0, 99),
    st.integers(-1, 2**60),
    st.just(0),
    CONTENT,
    VALUES,
    st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=2).map(tuple),
)


LOOKING_ALIKE = st.none() | st.sampled_from([b"null", b"\0", b"\xff"]) | st.text('" nul0x', max_size=8).map(str.encode)


def test_nested_lists_are_indented_only_as_far_as_they_are_shown() -> None:
    nested: list[object] = [1] * 10_000
    for _ in range(500):
        nested = [nested]
    assert len(indented(nested, 20_000)) < 25_000
    assert json.loads(indented({"a": [1, {}]}, 100)) == {"a": [1, {}]}


def printable(text: str) -> bool:
    return text.replace("\u200c", "").replace("\u200d", "").isprintable()


def of_value(value: bytes | None) -> FetchedRecord:
    return FetchedRecord(0, 0, 0, 0, None, value, ())


@given(st.lists(RECORDS, max_size=4), st.none() | st.integers(10, 80))
def test_a_terminal_gets_printable_characters_only(records: list[FetchedRecord], width: int | None) -> None:
    decoded = Decoder(None).decode(records)
    lines = list(table(decoded, width))
    assert len(lines) == len(records) + 1
    assert width is None or all(len(line) <= width for line in lines)
    blocks = [line for each in decoded for line in block(each)]
    raws = [raw(each, terminal=True).decode().removesuffix("\n") for each in decoded]
    documents = [as_json(each, "t") for each in decoded]
    assert all(printable(line) for line in (*lines, *blocks, *raws, *documents))
    for record, document in zip(records, map(json.loads, documents), strict=True):
        assert document["offset"] == record.offset


@given(st.text())
def test_what_is_printable_stays(text: str) -> None:
    assert printable(safe(text))
    if text.isprintable():
        assert safe(text) == text


@given(CONTENT)
def test_bytes_go_through_a_pipe_unchanged(value: bytes | None) -> None:
    (each,) = Decoder(None).decode([of_value(value)])
    assert raw(each, terminal=False) == (value or b"") + b"\n"
    assert one_line(guessed(value))


@given(LOOKING_ALIKE, LOOKING_ALIKE)
def test_what_differs_looks_different(one: bytes | None, other: bytes | None) -> None:
    assert (one_line(guessed(one)) == one_line(guessed(other))) == (one == other)
    blocks = ["\n".join(block(each)) for each in Decoder(None).decode([of_value(one), of_value(other)])]
    assert (blocks[0] == blocks[1]) == (one == other)


def test_joiners_stay_where_they_join() -> None:
    for text in ("\N{WOMAN}\u200d\N{PERSONAL COMPUTER}", "\u0646\u0645\u06cc\u200c\u062f\u0627\u0646\u0645"):
        assert safe(f"\x1b{text}") == f"\\x1b{text}"
    assert safe("pay\u200dpal\N{WOMAN}\u200d\u200d") == "pay\\u200dpal\N{WOMAN}\u200d\\u200d"


def test_the_value_stays_where_keys_and_headers_are_long() -> None:
    headers = (("h" * 50, b"x"),)
    rows = [replace(of_value(b"v" * 90), offset=10**7, key=b"k" * 90, headers=each) for each in ((), headers)]
    for shown in (rows[:1], rows):
        head, *lines = table(Decoder(None).decode(shown), 80)
        at = head.index("VALUE")
        assert all(line[at:].startswith("v" * 8) for line in lines), lines
        assert all(len(line) == 80 for line in lines), "nothing is left over"
    (line,) = table(Decoder(None).decode([of_value(b"v")]), 80, heading=False)
    assert line.endswith("null  v")


@each_case(
    "content, may",
    [
        (b"\0\0\0\0\7avro", True),
        (b"\0\0\1\x8b\xcf\xe5\x68\0", True),  # a time as a long: who knows
        (b"\0\0\0\0\7", False),
        (b"\0\0\0\0\0\0\0\7", False),
        ("utf-16".encode("utf-16-be"), False),
        (b"\0\xff\xff\xff\xffx", False),
        (b"\1\0\0\0\7avro", False),
    ],
)
def test_only_what_may_have_a_schema_is_said_to(content: bytes, may: bool) -> None:
    (each,) = Decoder(None).decode([of_value(content)])
    assert each.value.schema is None
    assert ("[may have schema " in one_line(each.value)) == may
