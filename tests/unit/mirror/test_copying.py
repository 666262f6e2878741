"""Batches that are moved whole or packed anew: every wanted record comes back, as it was and in its order."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from sparkonce.connectors.kafka_sink.buffers import RowError
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.connectors.kafka_source.decode import CorruptBatchError, FetchedBatches, RecordDecoder
from sparkonce.connectors.kafka_source.ranges import ReadCount
from sparkonce.connectors.mirror import copying
from sparkonce.connectors.mirror.copying import BatchCopier
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.protocol import records as wire
from sparkonce.kafka.protocol.compression import Compression, compress
from sparkonce.kafka.protocol.fetch import AbortedTransaction
from sparkonce.kafka.protocol.records import Record, decode_records, encode_batch, validate
from tests.cases import each_case
from tests.chance import examples

NOW_MS = 1_700_000_000_000
DELETE_HORIZON = 0x40
APPENDED_MS = NOW_MS + 99
PARTITION = 2

records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=70) | st.integers(0, 400).map(lambda size: b"v" * size),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3).map(tuple),
    timestamp=st.sampled_from([NOW_MS, NOW_MS + 5, NOW_MS - 100_000, -1, 0]),
)


@dataclass(frozen=True)
class Stored:
    """A batch of a log: its records, which of them compaction has removed, and what its header says."""

    records: Sequence[Record]
    removed: frozenset[int] = frozenset()
    codec: int = 0
    attributes: int = 0

    def encoded(self, base_offset: int) -> bytes:
        body = bytearray()
        for delta, record in enumerate(self.records):
            if delta not in self.removed:
                wire._put_record(body, record, delta, record.timestamp - NOW_MS)
        packed = compress(self.codec, body)
        left = len(self.records) - len(self.removed)
        times = NOW_MS, APPENDED_MS if self.attributes & wire.LOG_APPEND_TIME else NOW_MS + 5
        header = wire.BatchHeader(
            base_offset, 0, 7, 2, 0, self.codec | self.attributes, len(self.records) - 1, *times, 31, 1, 44, left
        )
        batch = wire.pack_header(header, wire.HEADER_BYTES + len(packed)) + packed
        wire.write_crc(batch)
        return bytes(batch)

    def left(self, base_offset: int) -> list[tuple[int, Record]]:
        appended = self.attributes & wire.LOG_APPEND_TIME
        return [
            (base_offset + delta, replace(record, timestamp=APPENDED_MS) if appended else record)
            for delta, record in enumerate(self.records)
            if delta not in self.removed
        ]


@st.composite
def stored(draw: st.DrawFn) -> Stored:
    found = draw(st.lists(records, min_size=1, max_size=6))
    return Stored(
        found,
        draw(st.just(frozenset()) | st.frozensets(st.integers(0, len(found) - 1))),
        draw(st.sampled_from(list(Compression))),
        draw(st.sampled_from([0, 0, wire.LOG_APPEND_TIME, DELETE_HORIZON, 0x10])),
    )


def fetched(log: bytes, start: int, end: int, aborted: Sequence[AbortedTransaction] = ()) -> FetchedBatches:
    decoder = RecordDecoder("orders", PARTITION, columns=())
    data = np.frombuffer(bytearray(log), np.uint8)
    table = decoder.visible(data, decoder.scan(data, start), start, end, aborted)
    return FetchedBatches("orders", PARTITION, data, table, start, end, decoder, ReadCount())


def copier(partitions: int = 3, *, keep: bool = True, codec: Compression | None = None, **chosen: Any) -> BatchCopier:
    return BatchCopier(
        "copy",
        keep_partitions=keep,
        codec=codec,
        partition_count=lambda topic, at_least: partitions,
        settings=ProducerSettings(**chosen),
    )


def content(record: Record) -> tuple[Any, ...]:
    return record.key, record.value, record.headers, record.timestamp


def copied(batches: Iterable[EncodedBatch]) -> dict[int, list[Any]]:
    """Check each batch as a broker does, and return the records of each partition."""
    found = defaultdict(list)
    for batch in batches:
        batch.stamp(77, 5, 123, transactional=True)
        header = validate(batch.data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 123)
        assert (header.base_offset, header.partition_leader_epoch, header.size) == (0, -1, len(batch.data))
        assert header.attributes & ~0x17 == 0
        each = decode_records(batch.data)
        assert len(each) == batch.record_count == header.record_count == header.last_offset_delta + 1 > 0
        assert [record.offset for record in each] == list(range(len(each)))
        assert header.max_timestamp >= max(record.timestamp for record in each)
        assert batch.topic == "copy"
        found[batch.partition] += map(content, each)
    return dict(found)


@settings(max_examples=examples(150))
@given(
    log=st.lists(stored(), max_size=6),
    cut=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    pieces=st.integers(1, 3),
    least=st.sampled_from([0, 150, 1 << 20]),
    keep=st.booleans(),
    codec=st.none() | st.sampled_from(list(Compression)),
    batch_bytes=st.sampled_from([62, 100, 300, 1 << 18]),
)
def test_every_wanted_record_comes_back_as_it_was(
    log: list[Stored],
    cut: tuple[int, int],
    pieces: int,
    least: int,
    keep: bool,
    codec: Compression | None,
    batch_bytes: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "LEAST_PLAIN_BYTES", least)
        patch.setattr(copying, "LEAST_COMPRESSED_BYTES", least)
        chosen = copier(keep=keep, codec=codec, batch_bytes=batch_bytes)
        ends = np.cumsum([0, *(len(each.records) for each in log)]).tolist()
        start, end = cut[0], ends[-1] - cut[1]
        batches: list[EncodedBatch] = []
        for piece in range(pieces):
            own = range(piece * len(log) // pieces, (piece + 1) * len(log) // pieces)
            batches += chosen.encode(fetched(b"".join(log[at].encoded(ends[at]) for at in own), start, end))
        batches += chosen.finish()
    assert not list(chosen.finish())
    got = copied(batches)
    wanted = [record for base, each in zip(ends, log, strict=False) for offset, record in each.left(base)
              if start <= offset < end]  # fmt: skip
    if keep:
        assert got == ({PARTITION: list(map(content, wanted))} if wanted else {})
        return
    for partition, found in got.items():
        keyed = [each for each in found if each[0] is not None]
        assert keyed == [
            content(each)
            for each in wanted
            if each.key is not None and (murmur2(each.key) & 0x7FFFFFFF) % 3 == partition
        ]
    free = [each for found in got.values() for each in found if each[0] is None]
    assert sorted(free, key=repr) == sorted((content(each) for each in wanted if each.key is None), key=repr)


def plain(count: int, size: int = 100, key: bytes | None = None) -> list[Record]:
    return [Record(key, b"%06d" % number + b"x" * (size - 6), timestamp=NOW_MS) for number in range(count)]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_large_batch_is_moved_with_nothing_but_its_header_changed(codec: Compression) -> None:
    each = [Record(b"k", random.Random(number).randbytes(90), timestamp=NOW_MS) for number in range(2000)]
    batch = Stored(each, codec=codec).encoded(40)
    (got,) = copier().encode(fetched(batch, 40, 2040))
    assert got.data[61:] == batch[61:]
    assert copied([got]) == {PARTITION: list(map(content, each))}


@each_case(
    ("batch", "start", "end"),
    [
        (Stored(plain(2000)), 1, 2000),
        (Stored(plain(2000)), 0, 1999),
        (Stored(plain(2000), frozenset({500})), 0, 2000),
        (Stored(plain(2000), attributes=wire.LOG_APPEND_TIME), 0, 2000),
        (Stored(plain(2000), attributes=DELETE_HORIZON), 0, 2000),
        (Stored(plain(10)), 0, 10),
    ],
    ids=["begins in the middle", "ends in the middle", "gap", "broker's time", "delete horizon", "small"],
)
def test_records_are_packed_where_a_batch_cannot_be_moved(batch: Stored, start: int, end: int) -> None:
    data = batch.encoded(0)
    got = [*(chosen := copier(batch_bytes=20_000)).encode(fetched(data, start, end)), *chosen.finish()]
    assert all(each.data[61:] != data[61:] for each in got) or len(data) < 20_000
    expected = [content(record) for offset, record in batch.left(0) if start <= offset < end]
    assert copied(got) == {PARTITION: expected}


def test_small_batches_become_large_ones_of_the_same_codec() -> None:
    log = b"".join(Stored(plain(10), codec=Compression.ZSTD).encoded(10 * number) for number in range(50))
    (got,) = [*(chosen := copier()).encode(fetched(log, 0, 500)), *chosen.finish()]
    assert (got.record_count, validate_stamped(got).compression) == (500, Compression.ZSTD)


def validate_stamped(batch: EncodedBatch) -> wire.BatchHeader:
    batch.stamp(-1, -1, -1, transactional=False)
    return validate(batch.data)


def test_a_codec_that_is_set_is_used_for_all() -> None:
    log = Stored(plain(2000)).encoded(0) + Stored(plain(2000), codec=Compression.LZ4).encoded(2000)
    got = [*(chosen := copier(codec=Compression.GZIP)).encode(fetched(log, 0, 4000)), *chosen.finish()]
    assert {validate_stamped(each).compression for each in got} == {Compression.GZIP}
    assert sum(each.record_count for each in got) == 4000


def test_batches_without_keys_go_round_where_partitions_are_not_kept() -> None:
    log = b"".join(Stored(plain(2000)).encoded(2000 * number) for number in range(6))
    got = [*(chosen := copier(keep=False)).encode(fetched(log, 0, 12000)), *chosen.finish()]
    assert [each.partition for each in got] == [0, 1, 2, 0, 1, 2]
    assert {bytes(each.data[61:]) for each in got} == {Stored(plain(2000)).encoded(0)[61:]}


def test_nothing_is_moved_whole_once_a_broker_refused_a_size() -> None:
    log = Stored(plain(2000)).encoded(0)
    chosen = copier()
    chosen.limit("copy", 50_000)
    got = [*chosen.encode(fetched(log, 0, 2000)), *chosen.finish()]
    assert len(got) > 1
    assert all(len(each.data) <= 50_000 for each in got)
    assert len(copied(got)[PARTITION]) == 2000


def test_aborted_records_and_markers_are_left_out() -> None:
    aborted = encode_batch(plain(1000, key=b"a"), producer_id=7, transactional=True)
    marker = encode_batch(
        [Record(b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00")], base_offset=1000, producer_id=7, transactional=True,
        control=True,
    )  # fmt: skip
    visible = encode_batch(plain(1000, key=b"c"), base_offset=1001, producer_id=7, transactional=True)
    data = fetched(bytes(aborted + marker + visible), 0, 2001, [AbortedTransaction(7, 0)])
    got = [*(chosen := copier()).encode(data), *chosen.finish()]
    assert {each[0] for each in copied(got)[PARTITION]} == {b"c"}


def test_a_partition_that_the_target_lacks_is_refused() -> None:
    asked = []

    def partition_count(topic: str, at_least: int | None) -> int:
        asked.append((topic, at_least))
        return 2

    chosen = BatchCopier(
        None, keep_partitions=True, codec=None, partition_count=partition_count, settings=ProducerSettings()
    )
    with pytest.raises(RowError, match="topic orders has 2 partitions, numbered from 0: set the option keepPartitions"):
        list(chosen.encode(fetched(Stored(plain(1)).encoded(0), 0, 1)))
    assert asked == [("orders", None), ("orders", 2)]


@settings(max_examples=examples(300))
@given(
    each=st.lists(records, min_size=1, max_size=4),
    damage=st.lists(st.tuples(st.integers(61, 300), st.integers(0, 255)), min_size=1, max_size=4),
    keep=st.booleans(),
)
def test_damage_gives_records_or_an_error_never_a_wild_read(
    each: list[Record], damage: list[tuple[int, int]], keep: bool
) -> None:
    batch = encode_batch(each)
    for position, byte in damage:
        if position < len(batch):
            batch[position] = byte
    wire.write_crc(batch)
    with contextlib.suppress(CorruptBatchError):
        list((chosen := copier(keep=keep)).encode(fetched(bytes(batch), 0, 10)))
        list(chosen.finish())


def test_damage_behind_a_record_that_is_larger_than_a_batch_is_reported() -> None:
    batch = encode_batch([Record(None, b"v" * 100, timestamp=NOW_MS), Record(None, b"w", timestamp=NOW_MS)])
    batch[-8] = 126  # the length of the last record
    wire.write_crc(batch)
    with pytest.raises(CorruptBatchError, match="in the batch at offset 0"):
        list(copier(batch_bytes=62).encode(fetched(bytes(batch), 0, 2)))
