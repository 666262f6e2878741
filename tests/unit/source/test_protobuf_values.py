"""The compiled decoder of Protobuf against Google's parser: random schemas, unusual encodings, and broken bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from sparkonce.connectors.values.columns import Problems
from sparkonce.connectors.values.protobuf import schema
from sparkonce.connectors.values.protobuf.decoder import ProtobufDecoder
from sparkonce.connectors.values.protobuf.types import Choices, spark_type
from tests.cases import each_case
from tests.chance import examples
from tests.json_documents import plain
from tests.protobuf_documents import Maker, expected, rewrite, without_extras

OURS_ONLY = ("the text is not UTF-8", "the field is required, and not there", "the number is too large for its type")
"""What Google's parser for Python accepts, at first."""


def decode(
    reader: Descriptor,
    values: Sequence[bytes],
    writers: Sequence[Descriptor] = (),
    kind: t.StructType | None = None,
    **options: Any,
) -> tuple[pa.Array, Problems]:
    """Decode values with a writer's message for each, or one for all; the reader's if none is named."""
    decoder = ProtobufDecoder(reader, spark_type(reader) if kind is None else kind, **options)
    entries = [decoder.add(each) for each in writers or [reader]]
    data = np.frombuffer(b"".join(values) or b"\0", np.uint8)
    ends = np.cumsum([len(each) for each in values]).astype(np.int64)
    starts = ends - np.array([len(each) for each in values], np.int64)
    numbers = entries if len(entries) == len(values) else entries * len(values)
    array, problems = decoder.decode(data, starts, ends, np.array(numbers, np.int32))
    array.validate(full=True)
    return array, problems


def flat(found: Any, kind: t.DataType) -> Any:
    """Return maps as dictionaries, of keys that are all different."""
    if isinstance(kind, t.StructType) and found is not None:
        return {each.name: flat(found[each.name], each.dataType) for each in kind}
    if isinstance(kind, t.ArrayType) and found is not None:
        return [flat(each, kind.elementType) for each in found]
    if isinstance(kind, t.MapType) and found is not None:
        made = {flat(key, kind.keyType): flat(value, kind.valueType) for key, value in found}
        assert len(made) == len(found)
        return dict(sorted(made.items()))
    return int(found) if isinstance(found, Decimal) else found


def in_order(found: Any) -> Any:
    if isinstance(found, dict):
        keys = sorted(found) if not all(isinstance(each, str) and each[:1] in "fgh" for each in found) else list(found)
        return {each: in_order(found[each]) for each in keys}
    return [in_order(each) for each in found] if isinstance(found, list) else found


def message_of(maker: Maker) -> Descriptor:
    return schema.message_by_path(schema.read_files(maker.file.SerializeToString()), [0])


def compare(message: Descriptor, values: list[bytes], choices: Choices | None = None) -> int:
    """Decode both ways; return how many values neither of them reads."""
    kind = spark_type(message, choices)
    array, problems = decode(message, values, kind=kind)
    google = message_factory.GetMessageClass(message)
    broken = 0
    for row, (found, data) in enumerate(zip(plain(array), values, strict=True)):
        problem = problems.get(row)
        try:
            theirs = google.FromString(data)
        except DecodeError:
            assert problem is not None, data
            broken += 1
            continue
        if problem is not None:
            assert problem.endswith(OURS_ONLY), (problem, data)
            in_map = ".value" in problem  # where Google's parser forgets all entries of a key but the last
            assert not problem.endswith(OURS_ONLY[1]) or in_map or not theirs.IsInitialized()
            assert all(each is None for each in found.values())
            continue
        wanted = expected(google.FromString(without_extras(data, message)), kind)
        assert repr(in_order(flat(found, kind))) == repr(in_order(wanted)), (message.file.serialized_pb, data)
    return broken


def check(seed: int, count: int = 6) -> None:
    maker = Maker(seed)
    message = message_of(maker)
    usual = [maker.value(message).SerializeToString() for _ in range(count)]
    merged = [one + other for one, other in zip(usual, usual[::-1], strict=True)]
    unusual = [rewrite(each, message, maker.random) for each in usual + merged]
    choices = Choices(maker.random.random() < 0.5, maker.random.random() < 0.5, maker.random.random() < 0.5)
    assert compare(message, usual + unusual, choices) == 0


@each_case("seed", range(80))
def test_random_values_of_random_schemas_in_unusual_encodings(seed: int) -> None:
    check(seed)


@pytest.mark.soak
def test_many_random_schemas() -> None:
    for seed in range(1000, 11000):
        check(seed, 2)


BREAKS = st.tuples(st.binary(max_size=40), st.integers(0, 1000), st.integers(0, 4))
"""What is put into a value's bytes, where, and how many bytes it replaces."""


@given(st.integers(0, 10_000), st.lists(BREAKS, min_size=4, max_size=4))
@settings(max_examples=examples(100))
def test_broken_bytes_are_broken_for_google_too_and_harm_no_other_value(
    seed: int, breaks: list[tuple[bytes, int, int]]
) -> None:
    maker = Maker(seed)
    message = message_of(maker)
    some = [maker.value(message).SerializeToString() for _ in range(2)]
    good = rewrite(b"".join(some), message, maker.random)
    values = [good]
    for junk, place, cut in breaks:
        at = place % (len(good) + 1)
        values += [good[:at] + junk + good[at + cut :], good[:at], junk, good]
    compare(message, values)


@pytest.mark.soak
def test_many_broken_values() -> None:
    for seed in range(20_000, 30_000):
        some = random.Random(seed)
        maker = Maker(seed)
        message = message_of(maker)
        values = []
        for _ in range(5):
            value = bytearray(rewrite(maker.value(message).SerializeToString(), message, some))
            for _ in range(some.randint(1, 3)):
                at = some.randint(0, len(value))
                value[at : at + some.randint(0, 2)] = some.randbytes(some.randint(0, 2))
            values.append(bytes(value))
        compare(message, values)
