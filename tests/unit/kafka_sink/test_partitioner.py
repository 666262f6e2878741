"""The hash that chooses a record's partition: Java's, or records of one key end up in two places."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from sparkonce.connectors.kafka_sink.kernel import murmur2
from tests.cases import each_case

# From Kafka's own tests (UtilsTest), where they are signed.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def hashed(data: bytes, before: bytes = b"") -> int:
    return int(murmur2(np.frombuffer(before + data, np.uint8), len(before), len(data)))


@each_case(("data", "expected"), VECTORS.items())
def test_known_hashes(data: bytes, expected: int) -> None:
    assert hashed(data) == expected & 0xFFFFFFFF


@given(st.binary(max_size=100), st.binary(max_size=9))
def test_agrees_with_kafka_python_wherever_the_key_lies(data: bytes, before: bytes) -> None:
    assert hashed(data, before) == murmur2_of_kafka_python(data) & 0xFFFFFFFF
