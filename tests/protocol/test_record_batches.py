"""Record batches: what is written is read, Kafka's other clients agree, and damaged bytes are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.records import Record
from tests.chance import examples

TIMESTAMPS = st.integers(0, 2**45)
NULLABLE = st.none() | st.binary(max_size=50)
RECORDS = st.lists(
    st.builds(
        Record,
        key=NULLABLE,
        value=NULLABLE,
        timestamp=TIMESTAMPS,
        headers=st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)

WITHOUT_SNAPPY = [codec for codec in Compression if codec is not Compression.SNAPPY]
"""kafka-python knows snappy only through a library that we do not install."""


def with_offsets(given_records: list[Record], base: int) -> list[Record]:
    return [Record(r.key, r.value, r.timestamp, r.headers, base + i) for i, r in enumerate(given_records)]


@given(RECORDS, st.sampled_from(Compression), st.integers(0, 2**40))
def test_records_come_back_as_they_were(batch_records: list[Record], codec: Compression, base: int) -> None:
    batch = records.encode_batch(batch_records, compression=codec, base_offset=base)
    header = records.validate(batch)
    assert records.decode_records(batch) == with_offsets(batch_records, base)
    assert header.size == len(batch)
    assert (header.base_offset, header.next_offset) == (base, base + len(batch_records))
    assert header.max_timestamp == max(r.timestamp for r in batch_records)
    assert header.compression == codec


@given(RECORDS, st.sampled_from(WITHOUT_SNAPPY))
def test_kafka_python_reads_our_batches(batch_records: list[Record], codec: Compression) -> None:
    batch = records.encode_batch(batch_records, compression=codec, base_offset=5)
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    found = [Record(r.key, r.value, r.timestamp, tuple(r.headers), r.offset) for r in theirs]
    assert found == with_offsets(batch_records, 5)


@pytest.mark.parametrize("codec", WITHOUT_SNAPPY)
def test_we_read_kafka_pythons_batches(codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 20,
    )
    for i in range(100):
        builder.append(i, 1000 + i, b"k%d" % i, b"v" * 50, [("h", b"x")])
    batch = bytes(builder.build())
    header = records.validate(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 1, 3, 102)
    assert header.compression == codec
    decoded = records.decode_records(batch)
    assert decoded[99] == Record(b"k99", b"v" * 50, 1099, (("h", b"x"),), 99)


@settings(max_examples=examples(150))
@given(RECORDS, st.sampled_from(Compression), st.data())
def test_a_changed_byte_is_noticed_or_lies_outside_the_checksum(
    batch_records: list[Record], codec: Compression, data: st.DataObject
) -> None:
    batch = records.encode_batch(batch_records, compression=codec)
    position = data.draw(st.integers(0, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    outside = position < 8 or 12 <= position < 16  # base offset, leader epoch
    if outside:
        records.validate(batch)
    else:
        with pytest.raises(CorruptBatchError):
            records.validate(batch)


@settings(max_examples=examples(250))
@given(RECORDS, st.sampled_from(Compression), st.data())
def test_damaged_records_raise_nothing_but_corrupt_batch(
    batch_records: list[Record], codec: Compression, data: st.DataObject
) -> None:
    batch = records.encode_batch(batch_records, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(batch)))
    for damaged in (batch, batch[:cut]):
        try:
            records.decode_records(damaged, inflated_limit=100_000)
        except CorruptBatchError:
            continue


def test_offset_and_epoch_are_written_in_place_and_keep_the_checksum() -> None:
    buffer = bytearray(b"\xff" * 3) + records.encode_batch([Record(None, b"v", 1)])
    records.set_base_offset(buffer, 12345, 3)
    records.set_partition_leader_epoch(buffer, 17, 3)
    header = records.validate(buffer, 3)
    assert (header.base_offset, header.partition_leader_epoch) == (12345, 17)
    assert buffer[:3] == b"\xff" * 3


def test_scan_leaves_the_half_batch_at_the_end() -> None:
    batches = [records.encode_batch([Record(None, b"x" * i, i)], base_offset=i) for i in (1, 2, 3)]
    whole = b"".join(batches)
    for cut in range(1, len(batches[2]) + 1):
        found = list(records.scan(whole[: len(whole) - cut]))
        assert [header.base_offset for _, header in found] == [1, 2]
        assert [position for position, _ in found] == [0, len(batches[0])]
    assert len(list(records.scan(whole))) == 3


@pytest.mark.parametrize(("position", "layout", "value"), [(16, ">b", 1), (8, ">i", -1), (8, ">i", 48)])
def test_scan_refuses_what_cannot_be_a_batch(position: int, layout: str, value: int) -> None:
    batch = records.encode_batch([Record(None, b"v", 1)])
    struct.pack_into(layout, batch, position, value)
    with pytest.raises(CorruptBatchError):
        list(records.scan(batch))


def test_sequence_numbers_wrap() -> None:
    batch = records.encode_batch([Record(None, b"v", 1)] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert records.read_header(batch).last_sequence == 0


@pytest.mark.parametrize(("kind", "said"), [(0, records.ControlType.ABORT), (1, records.ControlType.COMMIT), (2, None)])
def test_control_batches_are_recognised(kind: int, said: records.ControlType | None) -> None:
    marker = Record(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), 1)
    batch = records.encode_batch([marker], control=True, transactional=True, producer_id=1, producer_epoch=0)
    header = records.validate(batch)
    assert header.is_control
    assert header.is_transactional
    assert records.control_type(records.decode_records(batch)[0]) is said
    assert list(records.decode_all(batch)) == []


def test_log_append_time_counts_for_every_record() -> None:
    batch = records.encode_batch([Record(None, b"a", 5), Record(None, b"b", 9)])
    batch[22] |= 0x08
    records.write_crc(batch)
    assert records.validate(batch).is_log_append_time
    assert [record.timestamp for record in records.decode_records(batch)] == [9, 9]
