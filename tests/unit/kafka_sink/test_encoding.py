"""The compiled encoder against the protocol layer's decoder: every row comes back, in the order of its partition."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from sparkonce.connectors.kafka_sink import encoding
from sparkonce.connectors.kafka_sink.buffers import RowError
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch, split_batch
from sparkonce.connectors.kafka_sink.encoding import RowEncoder
from sparkonce.connectors.kafka_sink.kernel import STICKY_CHUNK_BYTES
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.records import Record, decode_records, read_header, validate
from tests.chance import examples

PARTITIONS = {"orders": 3, "clicks": 1, "ünïcode": 7}
LAYOUT = RowLayout(None, value=1, key=0, topic_column=2, partition=3, headers=4)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = dict[str, Any]

headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=10)}), max_size=3
)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    topic = draw(st.sampled_from(sorted(PARTITIONS)))
    return {
        "key": draw(st.none() | st.binary(max_size=20)),
        "value": draw(st.none() | st.binary(max_size=70) | st.integers(0, 400).map(lambda size: b"v" * size)),
        "topic": topic,
        "partition": draw(st.none() | st.integers(0, PARTITIONS[topic] - 1)),
        "headers": draw(headers),
    }


def arrow(found: list[Row], binary: pa.DataType = pa.binary(), string: pa.DataType = pa.string()) -> pa.RecordBatch:  # noqa: B008
    kinds = {"key": binary, "value": binary, "topic": string, "partition": pa.int32(), "headers": HEADERS}
    return pa.RecordBatch.from_arrays(
        [pa.array([row[name] for row in found], kind) for name, kind in kinds.items()], list(kinds)
    )


def encoder(layout: RowLayout = LAYOUT, start: int = 0, **chosen: Any) -> RowEncoder:
    return RowEncoder(
        layout, lambda topic, _: PARTITIONS[topic], ProducerSettings(**chosen), start, clock=lambda: 1_700_000_000_000
    )


def record_of(row: Row) -> tuple[Any, ...]:
    return row["key"], row["value"], tuple((each["key"], each["value"]) for each in row["headers"] or ())


def decoded(batches: Iterable[EncodedBatch], most_bytes: int = 1 << 30) -> dict[tuple[str, int], list[Any]]:
    """Check each batch, and give the records of each partition."""
    found = defaultdict(list)
    for batch in batches:
        batch.stamp(77, 5, 123, transactional=True)
        header = validate(batch.data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 123)
        assert header.is_transactional
        assert header.size == len(batch.data)
        records = decode_records(batch.data)
        assert len(records) == batch.record_count == header.record_count == header.last_offset_delta + 1
        assert [record.offset for record in records] == list(range(len(records)))
        if header.compression == 0 and len(records) > 1:
            assert header.size <= most_bytes
        found[batch.topic, batch.partition] += [(each.key, each.value, each.headers) for each in records]
    return dict(found)


@settings(max_examples=examples(150))
@given(
    found=st.lists(rows(), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    compression=st.sampled_from(list(Compression)),
    batch_bytes=st.sampled_from([62, 100, 300, 4096, 1 << 19]),
    start=st.integers(0, 10),
    kinds=st.sampled_from([(pa.binary(), pa.string()), (pa.large_binary(), pa.large_string())]),
)
def test_every_row_comes_back_in_the_order_of_its_partition(
    found: list[Row], cuts: list[int], compression: Compression, batch_bytes: int, start: int, kinds: tuple[Any, Any]
) -> None:
    # Rows that say nothing of a partition all go to one, for they are not enough to fill a chunk; a topic that comes
    # up later begins anew, and so do all: hence they are checked apart.
    expected = defaultdict(list)
    for row in found:
        partition = row["partition"]
        if partition is None and row["key"] is not None:
            partition = (murmur2(row["key"]) & 0x7FFFFFFF) % PARTITIONS[row["topic"]]
        if partition is not None:
            expected[row["topic"], partition].append(record_of(row))
    chosen = encoder(start=start, compression=compression, batch_bytes=batch_bytes)
    whole = arrow(found, *kinds)
    edges = sorted({0, len(found), *(cut for cut in cuts if cut < len(found))})
    batches: list[EncodedBatch] = []
    for begin, end in itertools.pairwise(edges):
        batches += chosen.encode(whole.slice(begin, end - begin))
    batches += chosen.finish()
    assert not list(chosen.finish())

    got = decoded(batches, batch_bytes)
    free = [record_of(row) for row in found if row["partition"] is None and row["key"] is None]
    for place, records in got.items():
        rest = list(expected.pop(place, []))
        for record in records:
            if rest and record == rest[0]:
                rest.pop(0)
            else:
                free.remove(record)
        assert not rest
    assert not expected
    assert not free


def values(count: int, size: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%06d" % number + b"x" * (size - 6) for number in range(count)]})


def test_rows_without_a_key_go_round_in_chunks_from_the_given_start() -> None:
    chosen = encoder(RowLayout("orders", value=0), start=2)
    got = decoded([*chosen.encode(values(3000, 100)), *chosen.finish()])
    sizes = {partition: len(records) * 100 for (_, partition), records in got.items()}
    assert sorted(sizes) == [0, 1, 2]
    assert max(sizes.values()) - min(sizes.values()) <= STICKY_CHUNK_BYTES
    firsts = {partition: records[0][1] for (_, partition), records in got.items()}
    assert firsts[2] < firsts[0] < firsts[1]
    assert all(records == sorted(records, key=lambda record: record[1]) for records in got.values())


def test_batches_grow_over_arrow_batches_up_to_the_size_that_is_set() -> None:
    chosen = encoder(RowLayout("clicks", value=0), batch_bytes=50_000)
    batches = [batch for _ in range(20) for batch in chosen.encode(values(50, 200))]
    batches += chosen.finish()
    sizes = [len(batch.data) for batch in batches]
    assert all(49_000 < size <= 50_000 for size in sizes[:-1])
    assert sum(batch.record_count for batch in batches) == 1000


def test_a_record_larger_than_a_batch_stands_alone_in_its_place() -> None:
    chosen = encoder(RowLayout("clicks", value=0), batch_bytes=1000)
    mixed = pa.RecordBatch.from_pydict({"value": [b"a" * 10, b"b" * 5000, b"c" * 10]})
    batches = [*chosen.encode(mixed), *chosen.finish()]
    assert [batch.record_count for batch in batches] == [1, 1, 1]
    assert [record[1][:1] for record in decoded(batches)["clicks", 0]] == [b"a", b"b", b"c"]


def test_many_partitions_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "BUFFERED_BYTES", 100_000)
    chosen = RowEncoder(RowLayout("t", value=0), lambda topic, _: 10, ProducerSettings())
    batches = [*chosen.encode(values(1000, 500)), *chosen.finish()]
    assert max(len(batch.data) for batch in batches) <= 10_000


def test_timestamps_never_go_back() -> None:
    times = iter([1000, 5000, 2000])
    chosen = RowEncoder(RowLayout("t", value=0), lambda topic, _: 1, ProducerSettings(), clock=lambda: next(times))
    batches = [batch for _ in range(3) for batch in chosen.encode(values(2, 10))]
    (batch,) = [*batches, *chosen.finish()]
    assert [record.timestamp for record in decode_records(batch.data)] == [1000, 1000, 5000, 5000, 5000, 5000]
    header = read_header(batch.data)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)


@pytest.mark.parametrize("partition", [-1, -(2**31)])
def test_refuses_a_negative_partition(partition: int) -> None:
    row = {"key": b"k", "value": b"v", "topic": "orders", "partition": partition, "headers": None}
    with pytest.raises(RowError, match=f"a row has {partition} in its column 'partition'"):
        list(encoder().encode(arrow([row])))


def test_asks_again_before_it_says_that_a_partition_does_not_exist() -> None:
    counts = iter([1, 2, 2])
    asked = []

    def partition_count(topic: str, at_least: int | None) -> int:
        asked.append((topic, at_least))
        return next(counts)

    row = {"key": None, "value": b"v", "topic": "orders", "partition": 0, "headers": None}
    chosen = RowEncoder(LAYOUT, partition_count, ProducerSettings())
    batches = list(chosen.encode(arrow([row, {**row, "partition": 1}])))
    with pytest.raises(RowError, match="topic orders has 2 partitions"):
        list(chosen.encode(arrow([{**row, "partition": 2}])))
    assert asked == [("orders", None), ("orders", 1), ("orders", 2)]
    assert [(batch.topic, batch.partition, batch.record_count) for batch in batches] == [("orders", 0, 1)]


def test_smaller_batches_once_a_broker_takes_no_larger_ones() -> None:
    chosen = encoder(RowLayout("clicks", value=0))
    chosen.limit("clicks", 10_000)
    chosen.limit("clicks", 20_000)
    assert max(len(batch.data) for batch in chosen.encode(values(1000, 100))) <= 10_000


@pytest.mark.parametrize("compression", list(Compression))
def test_halves_of_a_batch_hold_its_records(compression: Compression) -> None:
    chosen = encoder(RowLayout("clicks", value=0), compression=compression)
    (batch,) = [*chosen.encode(values(9, 100)), *chosen.finish()]
    parts, size = split_batch(batch)
    assert [part.record_count for part in parts] == [4, 5]
    assert all(read_header(part.data).compression == compression for part in parts)
    assert 500 < size < 700

    def whole(record: Record) -> tuple[Any, ...]:
        return record.key, record.value, record.timestamp

    assert [whole(each) for part in parts for each in decode_records(part.data)] == [
        whole(each) for each in decode_records(batch.data)
    ]
