"""Lines for a terminal: whatever a record holds, they are printable, and as many as they should be."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sparkonce.jobs.cli.peek.decoding import Decoder, guessed
from sparkonce.jobs.cli.peek.reading import FetchedRecord
from sparkonce.jobs.cli.peek.showing import as_json, block, one_line, raw, safe, table

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


@given(st.lists(RECORDS, max_size=4), st.none() | st.integers(10, 80))
def test_a_terminal_gets_printable_characters_only(records: list[FetchedRecord], width: int | None) -> None:
    decoded = Decoder(None).decode(records)
    lines = list(table(decoded, width))
    assert len(lines) == len(records) + 1
    assert width is None or all(len(line) <= width for line in lines)
    blocks = [line for each in decoded for line in block(each)]
    raws = [raw(each, terminal=True).decode().removesuffix("\n") for each in decoded]
    documents = [as_json(each, "t") for each in decoded]
    assert all(line.isprintable() for line in (*lines, *blocks, *raws, *documents))
    for record, document in zip(records, map(json.loads, documents), strict=True):
        assert document["offset"] == record.offset


@given(st.text())
def test_what_is_printable_stays(text: str) -> None:
    assert safe(text).isprintable()
    if text.isprintable():
        assert safe(text) == text


@given(CONTENT)
def test_bytes_go_through_a_pipe_unchanged(value: bytes | None) -> None:
    record = FetchedRecord(0, 0, 0, 0, None, value, ())
    (each,) = Decoder(None).decode([record])
    assert raw(each, terminal=False) == (value or b"") + b"\n"
    assert one_line(guessed(value)) or value == b""
