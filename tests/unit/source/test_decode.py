"""The compiled decoder against the protocol layer's encoder, kafka-python's builder, and damaged bytes."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from sparkonce.connectors.kafka_source import decode as decode_module
from sparkonce.connectors.kafka_source import kernel
from sparkonce.connectors.kafka_source.decode import CorruptBatchError, RecordDecoder
from sparkonce.connectors.values.options import ALL_COLUMNS, COLUMNS, arrow_schema
from sparkonce.kafka.protocol.fetch import AbortedTransaction
from sparkonce.kafka.protocol.records import Record, encode_batch, write_crc
from tests.cases import each_case
from tests.chance import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CODECS = [0, 1, 2, 3, 4]

headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=headers.map(tuple),
    timestamp=st.integers(-1, 4_000_000_000_000),
)


def decode(
    data: bytes | bytearray,
    start: int = 0,
    end: int = 1 << 40,
    aborted: tuple[AbortedTransaction, ...] = (),
    **options: Any,
) -> list[dict[str, Any]]:
    decoder = RecordDecoder("orders", 3, **{"columns": ALL_COLUMNS, **options})
    array = np.frombuffer(data, np.uint8)
    rows = []
    for batch in decoder.rows(array, decoder.scan(array, start), start, end, aborted):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(options.get("columns", ALL_COLUMNS)))
        rows += batch.to_pylist()
    return rows


def row(record: Record, offset: int) -> dict[str, Any]:
    found = [{"key": key, "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": 0,
        "headers": found or None,
    }


@settings(max_examples=examples(150), deadline=None)
@given(
    batches=st.lists(st.tuples(st.lists(records, min_size=1, max_size=8), st.sampled_from(CODECS)), max_size=6),
    gap=st.integers(0, 3),
    cut=st.integers(0, 70),
    window=st.tuples(st.integers(0, 50), st.integers(0, 50)),
    max_rows=st.sampled_from([1, 5, 65536]),
)
def test_decodes_what_was_encoded(
    batches: list[tuple[list[Record], int]], gap: int, cut: int, window: tuple[int, int], max_rows: int
) -> None:
    """Any records, any codec batch by batch, gaps between batches, half a batch at the end, any window of offsets."""
    data, expected, offset = bytearray(), [], 0
    for each, codec in batches:
        data += encode_batch(each, base_offset=offset, compression=codec)
        expected += [row(record, offset + index) for index, record in enumerate(each)]
        offset += len(each) + gap
    half = encode_batch([Record(None, b"x" * 10)], base_offset=offset)[:cut]
    start, end = sorted(window)
    found = decode(data + half, start, end, max_rows=max_rows)
    assert found == [each for each in expected if start <= each["offset"] < end]


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_reads_what_kafka_python_builds(codec: int) -> None:
    """All codecs but snappy, for which kafka-python needs a library more."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for index in range(300):
        builder.append(
            timestamp=1_700_000_000_000 + index,
            key=None if index % 3 else b"k%d" % index,
            value=None if index % 5 == 0 else b"v" * index,
            headers=[("a", b"1"), ("b", None)] if index % 2 else [],
        )
    builder.close()
    found = decode(bytes(builder.buffer()))
    assert [each["offset"] for each in found] == list(range(300))
    assert [each["key"] for each in found] == [None if index % 3 else b"k%d" % index for index in range(300)]
    assert [each["value"] for each in found] == [None if index % 5 == 0 else b"v" * index for index in range(300)]
    assert found[1]["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert found[299]["timestamp"] == EPOCH + timedelta(milliseconds=1_700_000_000_299)


def test_log_append_time_is_the_batch_s_largest_timestamp() -> None:
    batch = encode_batch([Record(None, b"a", timestamp=5), Record(None, b"b", timestamp=9)])
    (attributes,) = struct.unpack_from(">h", batch, 21)
    struct.pack_into(">h", batch, 21, attributes | 0x08)
    write_crc(batch)
    found = decode(batch)
    assert [each["timestamp"] for each in found] == [EPOCH + timedelta(milliseconds=9)] * 2
    assert [each["timestampType"] for each in found] == [1, 1]


def test_a_header_whose_key_is_no_text_is_read_as_kafkas_client_reads_it() -> None:
    batch = encode_batch([Record(None, b"a", headers=(("good", b"1"), ("b?d", b"2")))])
    batch[batch.index(b"b?d") + 1] = 0xFF
    write_crc(batch)
    (found,) = decode(batch)
    assert [header["key"] for header in found["headers"]] == ["good", "b\ufffdd"]


def test_without_headers_there_is_no_such_column() -> None:
    (found,) = decode(encode_batch([Record(None, b"a", headers=(("k", b"v"),))]), columns=COLUMNS)
    assert list(found) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_only_half_a_batch_has_no_next_offset() -> None:
    decoder = RecordDecoder("orders", 3)
    assert decoder.scan(np.frombuffer(encode_batch([Record(None, b"a")])[:-1], np.uint8), 0).next_offset is None


def marker(producer: int, offset: int, commit: bool) -> bytearray:
    key = struct.pack(">hh", 0, int(commit))
    return encode_batch(
        [Record(key, struct.pack(">hi", 0, 0))],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def in_transaction(producer: int, offset: int, *values: bytes) -> bytearray:
    return encode_batch(
        [Record(None, value) for value in values],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_read_committed_leaves_out_aborted_transactions_and_markers() -> None:
    """Producer 7 aborts, then commits; producer 8 commits in between; a plain record stands among them."""
    log = (
        in_transaction(7, 0, b"void", b"void")
        + in_transaction(8, 2, b"good")
        + encode_batch([Record(None, b"plain")], base_offset=3)
        + in_transaction(7, 4, b"void")
        + marker(7, 5, commit=False)
        + marker(8, 6, commit=True)
        + in_transaction(7, 7, b"later")
        + marker(7, 8, commit=True)
    )
    committed = decode(log, aborted=(AbortedTransaction(7, 0),))
    assert [(each["offset"], each["value"]) for each in committed] == [(2, b"good"), (3, b"plain"), (7, b"later")]
    assert [each["offset"] for each in decode(log)] == [0, 1, 2, 3, 4, 7]


def test_a_wrong_checksum_names_topic_partition_and_offset() -> None:
    good, bad = encode_batch([Record(None, b"a")]), encode_batch([Record(None, b"bcd")], base_offset=1)
    bad[-2] ^= 1
    with pytest.raises(CorruptBatchError, match=r"topic orders, partition 3, in the batch at offset 1: the checksum"):
        decode(good + bad)
    assert len(decode(good + bad, check_crcs=False)) == 2


def test_old_formats_are_refused_with_what_to_do() -> None:
    batch = encode_batch([Record(None, b"a")])
    batch[16] = 1
    with pytest.raises(CorruptBatchError, match="formats v0 and v1"):
        decode(batch)


def test_a_timestamp_beyond_spark_s_range_is_an_error_not_another_time() -> None:
    with pytest.raises(CorruptBatchError, match="which does not fit into Spark"):
        decode(encode_batch([Record(None, b"a", timestamp=1 << 62)]))


@each_case("codec", CODECS)
def test_offsets_that_go_back_or_come_twice_are_never_rows(codec: int) -> None:
    """Planted with right checksums: batches of a fetch, and records of a batch, each follow those before."""
    one = Record(b"", b"1", -1)
    first, second = encode_batch([one, one], compression=codec), encode_batch([one, one], compression=codec)
    for base in (0, 1):
        second[:8] = base.to_bytes(8, "big")
        with pytest.raises(CorruptBatchError, match=f"at offset {base}: offsets go back"):
            decode(first + second)
    second[:8] = (2).to_bytes(8, "big")
    assert [each["offset"] for each in decode(first + second)] == [0, 1, 2, 3]


def test_records_of_a_batch_whose_offsets_go_back_are_never_rows() -> None:
    batch = encode_batch([Record(None, b"1", 0), Record(None, b"2", 0)])
    second = len(batch) - (len(batch) - kernel.BATCH_HEADER_SIZE) // 2
    assert batch[second + 3] == 2, "its offset delta, 1 in zig-zag"
    batch[second + 3] = 0
    write_crc(batch)
    with pytest.raises(CorruptBatchError, match="at offset 0: offsets go back"):
        decode(batch)


def test_bytes_that_do_not_inflate_are_named() -> None:
    batch = encode_batch([Record(None, b"a" * 100)], compression=4)
    batch[61:65] = b"\xff\xff\xff\xff"
    write_crc(batch)
    with pytest.raises(CorruptBatchError, match="offset 0: its records do not inflate"):
        decode(batch)


@settings(max_examples=examples(400), deadline=None)
@given(
    each=st.lists(records, min_size=1, max_size=6),
    damage=st.lists(st.tuples(st.integers(17, 2000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_gives_rows_or_an_error_never_a_wild_read(each: list[Record], damage: list[tuple[int, int]]) -> None:
    """Without checksums, so that the damage reaches the kernel: Arrow's own validation then looks at what came out."""
    batch = encode_batch(each)
    for position, value in damage:
        batch[position % (len(batch) - 17) + 17] = value
    data = np.frombuffer(batch, np.uint8)
    decoder = RecordDecoder("orders", 3, columns=ALL_COLUMNS, check_crcs=False)
    with suppress(CorruptBatchError):
        for rows in decoder.rows(data, decoder.scan(data, 0), 0, 1 << 62):
            rows.validate(full=True)


def test_more_records_than_a_column_can_name_the_topic_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny records inflate well: millions of them, times the topic's name, would pass the reach of 32-bit offsets."""
    batch = encode_batch([Record(key=None, value=b"", headers=(), timestamp=0)] * 5)
    monkeypatch.setattr(decode_module, "MAX_BYTES_PER_ARROW_COLUMN", 5 * len("orders"))
    assert len(decode(batch)) == 5
    monkeypatch.setattr(decode_module, "MAX_BYTES_PER_ARROW_COLUMN", 5 * len("orders") - 1)
    with pytest.raises(CorruptBatchError, match="its 5 records are more than the column topic can hold"):
        decode(batch)


@given(st.lists(records, min_size=1, max_size=8), st.sets(st.sampled_from(ALL_COLUMNS), min_size=1), st.data())
def test_only_the_wanted_columns_are_made_in_the_wanted_order(
    some: list[Record], wanted: set[str], data: st.DataObject
) -> None:
    columns = tuple(data.draw(st.permutations(sorted(wanted))))
    batch = encode_batch(some, base_offset=5)
    found = decode(batch, columns=columns)
    assert [list(each) for each in found] == [list(columns)] * len(some)
    assert found == [{name: each[name] for name in columns} for each in decode(batch)]


def test_a_timestamp_beyond_spark_matters_only_to_who_reads_it() -> None:
    batch = encode_batch([Record(None, b"v", timestamp=1 << 61)])
    assert decode(batch, columns=("value",)) == [{"value": b"v"}]
    with pytest.raises(CorruptBatchError, match="microseconds"):
        decode(batch, columns=("value", "timestamp"))
