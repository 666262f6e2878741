"""Compression: what is packed comes out again, what other libraries pack does too, and bombs are refused."""

from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.kafka.protocol.compression import Compression, compress, decompress
from sparkonce.kafka.protocol.errors import CorruptBatchError
from tests.chance import examples

REAL = [codec for codec in Compression if codec is not Compression.NONE]


@given(st.sampled_from(Compression), st.binary(max_size=100_000))
def test_what_is_packed_comes_out_again(codec: Compression, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_is_refused_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, bytes(10_000_000))
    assert len(decompress(codec, packed, 10_000_000)) == 10_000_000
    with pytest.raises(CorruptBatchError, match="more than 9999999"):
        decompress(codec, packed, 9_999_999)


@settings(max_examples=examples(300))
@given(st.sampled_from(REAL), st.binary(max_size=200), st.data())
def test_damage_raises_nothing_but_corrupt_batch(codec: Compression, content: bytes, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, content * 20))
    position = data.draw(st.integers(0, max(len(packed) - 1, 0)))
    if packed:
        packed[position] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(packed)))
    for damaged in (bytes(packed), bytes(packed[:cut]), data.draw(st.binary(max_size=100))):
        try:
            decompress(codec, damaged, 1_000_000)
        except CorruptBatchError:
            continue


def test_forms_that_other_clients_write() -> None:
    data = b"sparkonce " * 10_000
    assert decompress(Compression.GZIP, gzip.compress(data[:50]) + gzip.compress(data[50:])) == data
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress(Compression.LZ4, lz4.frame.compress(data, block_linked=True, content_checksum=True)) == data
    no_size = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert decompress(Compression.ZSTD, no_size) == data


def test_an_unknown_codec_is_refused_on_both_sides() -> None:
    with pytest.raises(CorruptBatchError, match="unknown compression codec 5"):
        decompress(5, b"")
    with pytest.raises(ValueError, match="unknown compression codec 5"):
        compress(5, b"")
