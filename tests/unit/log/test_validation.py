"""Which batches are refused, with which error, and in which form the others are kept."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.validation import InvalidRecordsError, check_batch
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.compression import Compression, compress, decompress
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.legacy_records import encode_message_set
from sparkonce.kafka.protocol.records import Record
from tests.cases import each_case

NOW = 1_700_000_000_000
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TEXT = b"the same again and again, " * 40


def refused(config: LogConfig, batch: bytearray | bytes) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        check_batch(config, bytearray(batch), NOW, by_coordinator=False)
    return caught.value


def with_attributes(batch: bytearray, attributes: int) -> bytearray:
    struct.pack_into(">h", batch, records.ATTRIBUTES_POSITION, attributes)
    records.write_crc(batch)
    return batch


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused(magic: int) -> None:
    found = encode_message_set([Record(b"k", b"v" * 100, NOW)], magic=magic)
    assert refused(LogConfig(), found).code is ErrorCode.INVALID_RECORD


def test_a_producers_batch_begins_at_offset_zero() -> None:
    assert refused(LogConfig(), records.encode_batch([Record(b"k", b"v", NOW)], base_offset=1)).code is (
        ErrorCode.INVALID_RECORD
    )


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    batch = with_attributes(records.encode_batch([Record(b"k", b"v", NOW)]), codec)
    assert refused(LogConfig(), batch).code is ErrorCode.INVALID_RECORD


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    config = LogConfig(cleanup_policy=("compact", "delete"))
    for codec in Compression:
        batch = records.encode_batch([Record(key, b"v", NOW) for key in (b"a", None, b"", None)], compression=codec)
        error = refused(config, batch)
        assert error.code is ErrorCode.INVALID_RECORD
        assert isinstance(error, InvalidRecordsError)
        assert [index for index, _ in error.record_errors] == [1, 3]
    check_batch(config, records.encode_batch([Record(b"", None, NOW)]), NOW, by_coordinator=False)


def test_records_that_are_not_what_the_header_says_are_refused_where_they_are_looked_at() -> None:
    config = LogConfig(cleanup_policy=("compact",))
    batch = records.encode_batch([Record(b"a", b"v", NOW), Record(b"b", b"v", NOW)])
    for position, value in ((57, 3), (57, 1)):
        wrong = bytearray(batch)
        struct.pack_into(">i", wrong, position, value)
        struct.pack_into(">i", wrong, 23, value - 1)
        records.write_crc(wrong)
        assert refused(config, wrong).code is ErrorCode.CORRUPT_MESSAGE


def test_timestamps_too_far_off() -> None:
    late = records.encode_batch([Record(b"k", b"v", NOW), Record(b"k", b"v", NOW + 3_600_001)])
    assert refused(LogConfig(), late).code is ErrorCode.INVALID_TIMESTAMP
    config = LogConfig(message_timestamp_before_max_ms=1000)
    early = records.encode_batch([Record(b"k", b"v", NOW), Record(b"k", b"v", NOW - 1001), Record(b"k", b"v", -1)])
    error = refused(config, early)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecordsError)
    assert [index for index, _ in error.record_errors] == [1]
    fine = records.encode_batch([Record(b"k", b"v", NOW), Record(b"k", b"v", NOW - 1000)])
    check_batch(config, fine, NOW, by_coordinator=False)
    config = replace(config, message_timestamp_type="LogAppendTime")
    check_batch(config, early, NOW, by_coordinator=False)
    check_batch(config, late, NOW, by_coordinator=False)


def test_only_the_broker_sets_its_time() -> None:
    marked = with_attributes(records.encode_batch([Record(b"k", b"v", NOW)]), records.LOG_APPEND_TIME)
    assert refused(LogConfig(message_timestamp_type="LogAppendTime"), marked).code is ErrorCode.INVALID_TIMESTAMP
    batch, header = check_batch(LogConfig(), memoryview(bytes(marked)), NOW, by_coordinator=False)
    assert not header.is_log_append_time
    assert records.validate(batch)._replace(crc=0) == header._replace(crc=0)
    timeless = with_attributes(records.encode_batch([Record(b"k", b"v", -1)]), records.LOG_APPEND_TIME)
    assert refused(LogConfig(), timeless).code is ErrorCode.INVALID_TIMESTAMP


@each_case("append_time", [False, True])
@each_case("wanted", CODECS)
@each_case("came", list(Compression))
def test_batches_are_kept_in_the_topics_compression(came: Compression, wanted: str, append_time: bool) -> None:
    kind = "LogAppendTime" if append_time else "CreateTime"
    config = LogConfig(compression_type=wanted, message_timestamp_type=kind)
    log = PartitionLog.open(SimulatedDisk(), "/data/t-0", config, NOW)
    sent = [Record(b"k%d" % index, TEXT, NOW - index, (("h", b"x"),)) for index in range(3)]
    batch = records.encode_batch(sent, compression=came, producer_id=4, producer_epoch=1, base_sequence=8)
    original = bytes(batch)
    log.append(batch, 3, NOW + 5)
    log.append(records.encode_batch(sent, compression=came), 3, NOW + 5)
    data = log.read(0, 10**6, min_one_batch=True).read()
    position, header = next(iter(records.scan(data)))
    records.validate(data, position)
    assert header.compression == CODECS[wanted]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 8)
    assert (header.partition_leader_epoch, header.base_offset, header.record_count) == (3, 0, 3)
    assert header.max_timestamp == (NOW + 5 if append_time else NOW)
    found = records.decode_records(data)
    assert [(each.key, each.value, each.headers) for each in found] == [
        (each.key, each.value, each.headers) for each in sent
    ]
    assert [each.timestamp for each in found] == [NOW + 5 if append_time else each.timestamp for each in sent]
    if came == CODECS[wanted]:
        assert data[records.HEADER_BYTES : header.size] == original[records.HEADER_BYTES :]


def test_the_producers_compression_is_left_alone() -> None:
    batch = records.encode_batch([Record(b"k", TEXT, NOW)], compression=Compression.GZIP)
    kept, header = check_batch(LogConfig(), batch, NOW, by_coordinator=False)
    assert kept is batch
    assert header.compression == Compression.GZIP


def test_the_size_is_judged_before_and_after_compressing_anew() -> None:
    small = records.encode_batch([Record(b"k", TEXT, NOW)], compression=Compression.GZIP)
    large = records.encode_batch([Record(b"k", TEXT, NOW)])
    assert len(small) < 500 < len(large)
    config = LogConfig(max_message_bytes=500, compression_type="uncompressed")
    assert refused(config, small).code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(replace(config, compression_type="gzip"), large).code is ErrorCode.MESSAGE_TOO_LARGE
    check_batch(replace(config, compression_type="producer"), small, NOW, by_coordinator=False)
    config = LogConfig(segment_bytes=500, compression_type="uncompressed")
    assert refused(config, small).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_levels() -> None:
    rough = bytes(range(256)) * 40 + b"".join(b"%d," % (index * index) for index in range(3000))
    for setting, codec, fast, thorough in (
        ("compression_gzip_level", "gzip", 1, 9),
        ("compression_lz4_level", "lz4", 9, 17),
        ("compression_zstd_level", "zstd", -7, 19),
    ):
        sizes = []
        for level in (fast, thorough):
            config = replace(LogConfig(compression_type=codec), **{setting: level})  # type: ignore[arg-type]
            batch, _ = check_batch(config, records.encode_batch([Record(b"k", rough, NOW)]), NOW, by_coordinator=False)
            assert records.decode_records(batch)[0].value == rough
            sizes.append(len(batch))
        assert sizes[1] < sizes[0]


@given(st.binary(max_size=300), st.sampled_from([None, -1, 1, 5, 9]))
def test_gzip_levels_are_read_by_others(data: bytes, level: int | None) -> None:
    packed = bytes(compress(Compression.GZIP, data, level))
    assert gzip.decompress(packed) == data == zlib.decompress(packed, 31)
    for codec in (Compression.LZ4, Compression.ZSTD, Compression.SNAPPY):
        assert bytes(decompress(codec, compress(codec, data, level))) == data
