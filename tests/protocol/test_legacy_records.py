"""Message formats v0 and v1, against kafka-python's codec of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from sparkonce.kafka.protocol import legacy_records, records
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.records import LEGACY_HEADER_BYTES, BatchHeader, Record, read_header

CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
PEER_CODECS = (Compression.NONE, Compression.GZIP)  # it has the others only with more packages
FIELD = st.none() | st.binary(max_size=40)


@st.composite
def message_sets(draw: st.DrawFn, codecs: tuple[Compression, ...] = CODECS) -> tuple[int, Compression, list[Record]]:
    magic = draw(st.integers(0, 1))
    offset = draw(st.integers(0, 2**40))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        timestamp = draw(st.integers(0, 2**45)) if magic else -1
        found.append(Record(draw(FIELD), draw(FIELD), timestamp, (), offset))
        offset += draw(st.integers(1, 5))
    return magic, draw(st.sampled_from(codecs)), found


def validate_any(data: bytes | bytearray, position: int = 0) -> None:
    legacy_records.check_any(data, position, read_header(data, position))


def scan_any(data: bytes | bytearray) -> Iterator[tuple[int, BatchHeader]]:
    """Iterate over the whole batches, of whatever formats, as `records.scan` does over those of v2."""
    position = 0
    while len(data) - position >= LEGACY_HEADER_BYTES:
        try:
            header = read_header(data, position)
        except CorruptBatchError:
            return  # the beginning of a batch v2, cut off
        if header.size > len(data) - position:
            return
        yield position, header
        position += header.size


def decode_set(data: bytes | bytearray) -> list[Record]:
    found = []
    for position, header in scan_any(data):
        validate_any(data, position)
        found += legacy_records.decode_any(memoryview(data)[position : position + header.size])
    return found


@given(message_sets())
def test_what_is_encoded_is_decoded(case: tuple[int, Compression, list[Record]]) -> None:
    magic, codec, messages = case
    data = legacy_records.encode_message_set(messages, magic=magic, compression=codec)
    assert decode_set(data) == messages
    headers = [header for _, header in scan_any(data)]
    assert len(headers) == (1 if codec else len(messages))
    assert headers[-1].last_offset == messages[-1].offset
    assert headers[-1].next_offset == messages[-1].offset + 1
    assert max(header.max_timestamp for header in headers) == max(message.timestamp for message in messages)


@given(message_sets(PEER_CODECS))
def test_kafka_python_reads_what_is_encoded(case: tuple[int, Compression, list[Record]]) -> None:
    magic, codec, messages = case
    data = legacy_records.encode_message_set(messages, magic=magic, compression=codec)
    found = []
    for position, header in scan_any(data):
        batch = LegacyRecordBatch(memoryview(bytes(data[position : position + header.size])), magic)
        assert batch.validate_crc()
        found += [(each.offset, each.timestamp if magic else -1, each.key, each.value) for each in batch]
    assert found == [(each.offset, each.timestamp, each.key, each.value) for each in messages]


@given(message_sets(PEER_CODECS))
def test_what_kafka_python_writes_is_read(case: tuple[int, Compression, list[Record]]) -> None:
    magic, codec, messages = case
    builder = LegacyRecordBatchBuilder(magic, codec, 10**6)
    for index, message in enumerate(messages):
        builder.append(index, message.timestamp, message.key, message.value)
    data = builder.build()
    wanted = [Record(each.key, each.value, each.timestamp, (), index) for index, each in enumerate(messages)]
    found = decode_set(data)
    if codec and magic:  # a client's wrapper has offset 0: the broker was to set it
        assert [each.value for each in found] == [each.value for each in wanted]
    else:
        assert found == wanted


@given(message_sets(), st.data())
def test_a_damaged_message_is_told(case: tuple[int, Compression, list[Record]], data: st.DataObject) -> None:
    magic, codec, messages = case
    whole = legacy_records.encode_message_set(messages[:1], magic=magic, compression=codec)
    position = data.draw(st.integers(legacy_records.CRC_POSITION, len(whole) - 1))
    whole[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatchError):
        validate_any(whole)


@given(st.binary(max_size=120), st.integers(0, 1), st.integers(0, 4))
def test_garbage_gives_the_protocols_own_error(body: bytes, magic: int, codec: int) -> None:
    checked = bytes([magic, codec]) + body
    data = struct.pack(">qiI", 7, 4 + len(checked), zlib.crc32(checked)) + checked
    try:
        validate_any(data)
        for message in legacy_records.decode_any(data, 1 << 20):
            assert isinstance(message.offset, int)
    except CorruptBatchError:
        pass


def test_the_brokers_time_is_that_of_every_message_in_a_set() -> None:
    messages = [Record(b"k", b"v", 5, (), 10), Record(b"k", b"w", 6, (), 12)]
    for codec in CODECS:
        data = legacy_records.encode_message_set(messages, magic=1, compression=codec, log_append_time_ms=99)
        assert [(each.offset, each.timestamp) for each in decode_set(data)] == [(10, 99), (12, 99)]


def test_lz4_frames_of_format_v0_had_a_wrong_checksum() -> None:
    message = Record(b"k", b"v" * 50, -1, (), 3)
    data = legacy_records.encode_message_set([message], magic=0, compression=Compression.LZ4)
    start = data.index(b"\x04\x22\x4d\x18")
    header_end = start + (14 if data[start + 4] & 8 else 6)
    data[header_end] ^= 0xFF
    struct.pack_into(">I", data, legacy_records.CRC_POSITION, zlib.crc32(data[16:]))
    assert decode_set(data) == [message]


def test_a_set_may_be_followed_by_newer_batches_and_half_of_one() -> None:
    old = legacy_records.encode_message_set([Record(b"k", b"v", -1, (), 0)], magic=0)
    middle = legacy_records.encode_message_set([Record(None, None, 8, (), 1)], magic=1)
    new = records.encode_batch([Record(b"k", b"v", 9)], base_offset=2)
    for cut in range(1, len(new)):
        data = old + middle + new[:cut]
        assert [header.magic for _, header in scan_any(data)] == [0, 1]
    assert [record.offset for record in decode_set(old + middle + new)] == [0, 1, 2]


@pytest.mark.parametrize("size", [26, 27, 60])
def test_a_header_at_the_very_end(size: int) -> None:
    message = legacy_records.encode_message_set([Record(None, b"v" * (size - 26), -1, (), 4)], magic=0)
    assert len(message) == size
    assert records.read_header(message).last_offset == 4
    with pytest.raises(CorruptBatchError):
        records.read_header(records.encode_batch([Record(None, b"v" * 50)])[:size])


def test_what_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="at least one"):
        legacy_records.encode_message_set([], magic=1)
    with pytest.raises(ValueError, match="zstd"):
        legacy_records.encode_message_set([Record(None, None)], magic=1, compression=Compression.ZSTD)
