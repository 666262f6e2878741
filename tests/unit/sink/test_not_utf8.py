"""Texts that are not UTF-8, as Spark's ``CAST(value AS STRING)`` makes them of any bytes: found wherever they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from sparkonce.connectors.delta_sink.schema import SchemaError
from sparkonce.connectors.values.utf8 import rows_not_utf8
from tests.cases import each_case
from tests.unit.sink.query_by_hand import Query, make_table, table_actions

TEXT = pa.string()
KINDS: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "string": (TEXT, lambda text: text),
    "large_string": (pa.large_string(), lambda text: text),
    "struct": (pa.struct([("n", pa.int64()), ("s", TEXT)]), lambda text: {"n": 1, "s": text}),
    "list": (pa.list_(TEXT), lambda text: ["x", text, None]),
    "keys": (pa.map_(TEXT, pa.int64()), lambda text: [("k", 1), (text, 2)]),
    "items": (pa.map_(TEXT, TEXT), lambda text: [("k", text)]),
    "deep": (pa.list_(pa.struct([("m", pa.map_(TEXT, pa.list_(TEXT)))])), lambda text: [{"m": [("k", ["é", text])]}]),
}
PIECES = [bytes([byte]) for byte in (0x00, 0x41, 0x7F, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xED, 0xEF)]
PIECES += [bytes([byte]) for byte in (0xF0, 0xF4, 0xF5, 0xFF)] + [each.encode() for each in ("é", "漢", "😀", "plain")]
"""The bytes at which the rules of UTF-8 change, and some whole characters."""


def is_utf8(value: bytes) -> bool:
    try:
        return bool(value.decode() or True)
    except UnicodeDecodeError:
        return False


def of_bytes(kind: pa.DataType, shape: Callable[[str], Any], values: list[bytes | None]) -> pa.Array:
    """Return an array with these bytes where texts are: Arrow lets no other way lead there from Python."""
    marks = {f"<{number:04}>".encode(): value for number, value in enumerate(values) if value is not None}
    texts = [None if value is None else f"<{number:04}>" for number, value in enumerate(values)]
    made = pa.array([None if text is None else shape(text) for text in texts], kind)
    return replaced(made, marks)


def replaced(array: pa.Array, marks: dict[bytes, bytes]) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        binary = pa.binary() if pa.types.is_string(kind) else pa.large_binary()
        raw = pa.array([marks.get(each, each) for each in array.cast(binary).to_pylist()], binary)
        return pa.Array.from_buffers(kind, len(raw), raw.buffers())
    if pa.types.is_struct(kind):
        children = [replaced(array.field(index), marks) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=kind.fields, mask=array.is_null())
    if pa.types.is_map(kind):
        keys, items = replaced(array.keys, marks), replaced(array.items, marks)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=array.is_null())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, replaced(array.values, marks), type=kind, mask=array.is_null())
    return array


@each_case("name", KINDS)
def test_rows_are_found_as_python_decodes_their_texts(name: str) -> None:
    rng = random.Random(8)
    kind, shape = KINDS[name]
    values = [b"".join(rng.choices(PIECES, k=rng.randint(0, 4))) for _ in range(600)]
    given = [value if rng.random() < 0.9 else None for value in values]
    column = of_bytes(kind, shape, given)
    wrong = [row for row, value in enumerate(given) if value is not None and not is_utf8(value)]
    assert len(wrong) > 200
    assert rows_not_utf8(column).tolist() == wrong
    for start, end in ((0, 0), (5, 6), (17, 400), (599, 600)):
        mine = [row - start for row in wrong if start <= row < end]
        assert rows_not_utf8(column.slice(start, end - start)).tolist() == mine
    fine = of_bytes(kind, shape, [value if value is None or is_utf8(value) else b"\xc3\xa9" for value in given])
    assert not rows_not_utf8(fine).size


def test_what_a_null_hides_is_no_text() -> None:
    texts = of_bytes(TEXT, lambda text: text, [b"\xff", b"ok"])
    hidden = pa.StructArray.from_arrays([texts], ["s"], mask=pa.array([True, False]))
    assert not rows_not_utf8(hidden).size
    assert not rows_not_utf8(
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts, mask=hidden.is_null())
    ).size


def test_other_columns_and_none_at_all_are_passed() -> None:
    for column in (pa.array([b"\xff"]), pa.nulls(3, TEXT), pa.array([], TEXT), pa.nulls(2), pa.array([""])):
        assert not rows_not_utf8(column).size


def batch(value: bytes) -> pa.RecordBatch:
    texts = of_bytes(TEXT, lambda text: text, [b"ok", value])
    return pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int64()), texts], names=["v", "s"])


@each_case(
    "value, partition_columns, configuration",
    [
        (b"\xff\xfe", [], {}),
        (b"\xff" * 5000, [], {}),
        (b"\xff", ["s"], {}),
        (b"\xff", [], {"delta.constraints.c": "length(s) < 100"}),
        ("ab漢".encode()[:-1], [], {}),
    ],
)
def test_a_row_is_refused_by_column_and_record(
    tmp_path_factory: pytest.TempPathFactory,
    value: bytes,
    partition_columns: list[str],
    configuration: dict[str, str],
) -> None:
    schema = t.StructType([t.StructField("v", t.LongType()), t.StructField("s", t.StringType())])
    query = Query(tmp_path_factory.mktemp("text"), schema=schema)
    actions = table_actions(schema, versions=(1, 3), configuration=configuration, partition_columns=partition_columns)
    make_table(query.table, *actions)
    query.log(0, 10)
    told = r"column s has a text that is not UTF-8.* make_valid_utf8 .*row 2 of 2 .*with v 2.* Correct what writes it"
    with pytest.raises(SchemaError, match=told):
        query.tasks_with([[batch(value)]])
    assert query.files() == 0
    query.commit(0, query.tasks_with([[batch("漢😀é".encode())]]))
    assert query.rows() == 2


def test_the_record_is_told_by_its_coordinates(tmp_path: Path) -> None:
    schema = t.StructType([t.StructField("topic", t.StringType()), t.StructField("partition", t.IntegerType())])
    schema.add("offset", t.LongType()).add("text", t.StringType())
    query = Query(tmp_path, schema=schema)
    query.log(0, 10)
    text = of_bytes(TEXT, lambda text: text, [b"\xff"])
    arrays = [pa.array(["t"]), pa.array([3], pa.int32()), pa.array([7], pa.int64()), text]
    with pytest.raises(SchemaError, match=r"column text .*the record of topic t, partition 3, at offset 7"):
        query.tasks_with([[pa.RecordBatch.from_arrays(arrays, names=schema.names)]])
