"""Compaction: the latest of each key stays, offsets never change, and a crash at any moment loses nothing."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.sim.disk import CutShort, SimulatedDisk
from sparkonce.broker_lite.log.batch_filter import ENTRY_BYTES, OffsetMap
from sparkonce.broker_lite.log.cleaner import OffsetMapFullError, assess, clean, group_segments
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.log.recovery import recover_segment
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.legacy_records import decode_any, encode_message_set
from sparkonce.kafka.protocol.records import Record
from tests.chance import examples

NOW = 1_700_000_000_000
DAY_MS = 24 * 3600 * 1000
DIRECTORY = "/data/t-0"
COMPACT = LogConfig(
    cleanup_policy=("compact",), segment_bytes=600, index_interval_bytes=150, file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
)  # fmt: skip
MAP_BYTES = 1 << 20

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"k" * 40])
VALUES = st.none() | st.binary(max_size=30)
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4), st.sampled_from([0, 1, 2, 3, 4])),
    min_size=1,
    max_size=40,
)


def open_log(storage: SimulatedDisk, config: LogConfig = COMPACT, **options: Any) -> PartitionLog:
    return PartitionLog.open(storage, DIRECTORY, config, NOW, **options)


def append(log: PartitionLog, *pairs: tuple[bytes, bytes | None], codec: int = 0, at: int = NOW) -> int:
    batch = records.encode_batch([Record(key, value, at) for key, value in pairs], compression=codec)
    return log.append(batch, 0, at).base_offset


def end_segment(log: PartitionLog, now_ms: int = NOW) -> None:
    """Roll, and bring everything onto the disk: then all but the active segment may be compacted."""
    log.roll(now_ms)
    log.flush(now_ms)


def compact(log: PartitionLog, now_ms: int = NOW, map_bytes: int = MAP_BYTES) -> int:
    """Run one round; returns the number of steps it took."""
    steps = 0
    work = clean(assess(log, now_ms), OffsetMap(map_bytes), now_ms)
    try:
        for step in work:
            if step is not None:
                step.result()
            steps += 1
    except CutShort:
        with contextlib.suppress(CutShort):
            work.close()
        raise
    return steps


def contents(log: PartitionLog) -> dict[int, Record]:
    found: dict[int, Record] = {}
    for segment in log.segments:
        for position, header in segment.batches(0):
            if not header.is_control:
                for record in decode_any(segment.file.pread(header.size, position)):
                    assert record.offset not in found
                    assert record.offset <= header.last_offset
                    found[record.offset] = record
    assert list(found) == sorted(found)
    return found


def latest(found: Iterable[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in found}


def living(found: Iterable[Record]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in latest(found).items() if value is not None}


def check_whole(log: PartitionLog) -> None:
    """Check what holds for every log: offsets rise, indexes lead to the right place, and every offset can be read."""
    for segment in log.segments:
        last = segment.base_offset - 1
        for position, header in segment.batches(0):
            assert header.base_offset > last
            last = header.last_offset
            found = segment.find(header.base_offset)
            assert found is not None
            assert found.position == position
    for offset in range(log.log_start_offset, log.log_end_offset):
        data = log.read(offset, 10_000, min_one_batch=True).read()
        headers = [header for _, header in records.scan(data)]
        if headers:
            assert headers[0].last_offset >= offset
            assert len(headers) == 1 or headers[1].base_offset > offset


def no_leftovers(storage: SimulatedDisk) -> None:
    assert not [name for name in storage.files if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_the_latest_of_each_key_stays_at_its_offset() -> None:
    log = open_log(SimulatedDisk())
    for index in range(30):
        append(log, (b"a", b"%d" % index), (b"b", b"%d" % index))
    end_segment(log)
    append(log, (b"a", b"dirty"))
    before = contents(log)
    compact(log)
    after = contents(log)
    assert list(after) == [58, 59, 60]
    assert {offset: before[offset] for offset in after} == after
    assert log.cleaned_offset == 60
    check_whole(log)
    assert assess(log, NOW).cleanable_bytes == 0
    assert not assess(log, NOW).due
    assert len(log.segments) > 2
    end_segment(log)
    compact(log)  # puts together what the first round has made small
    assert len(log.segments) == 2


@settings(max_examples=examples(50), deadline=None)
@given(BATCHES, st.data())
def test_any_log_keeps_its_latest_values_over_any_rounds(
    batches: list[tuple[list[tuple[bytes, bytes | None]], int]], data: st.DataObject
) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    now = NOW
    original: dict[int, Record] = {}
    for pairs, codec in batches:
        first = append(log, *pairs, codec=codec, at=now)
        original |= {first + index: Record(*pair, now, (), first + index) for index, pair in enumerate(pairs)}
        now += data.draw(st.sampled_from([0, 1, DAY_MS]))
        if data.draw(st.integers(0, 4)) == 0:
            end_segment(log, now)
            if assess(log, now).cleanable_bytes:
                compact(log, now)
    end_segment(log, now)
    if assess(log, now).cleanable_bytes:
        compact(log, now)
    found = contents(log)
    assert found == {offset: original[offset] for offset in found}
    assert living(found.values()) == living(original.values())
    assert log.log_end_offset == len(original)
    check_whole(log)
    no_leftovers(storage)
    keys = [record.key for offset, record in found.items() if offset < (log.cleaned_offset or 0)]
    assert len(keys) == len(set(keys))


def test_tombstones_stay_until_their_horizon() -> None:
    log = open_log(SimulatedDisk(), replace(COMPACT, delete_retention_ms=1000))
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", None))
    end_segment(log)
    compact(log, NOW)
    (position, header) = list(log.segments[0].batches(0))[1]
    assert header.delete_horizon_ms == NOW + 1000
    (tombstone,) = decode_any(log.segments[0].file.pread(header.size, position))
    assert tombstone == Record(b"a", None, NOW, (), 2)
    log.cleaned_offset = 0
    compact(log, NOW + 999)
    assert list(contents(log)) == [1, 2]
    append(log, (b"c", b"1"))
    end_segment(log)
    log.cleaned_offset = 0
    compact(log, NOW + 1000)
    assert list(contents(log)) == [1, 3]


def test_records_without_a_key_go() -> None:
    log = open_log(SimulatedDisk(), replace(COMPACT, cleanup_policy=("delete",)))
    log.append(records.encode_batch([Record(None, b"v", NOW)]), 0, NOW)
    append(log, (b"a", b"1"))
    end_segment(log)
    compact(log)
    assert list(contents(log)) == [1]


def test_the_last_batch_of_a_round_stays_as_a_header() -> None:
    log = open_log(SimulatedDisk(), replace(COMPACT, delete_retention_ms=0))
    append(log, (b"a", b"1"))
    append(log, (b"a", None))
    end_segment(log)
    compact(log, NOW)
    log.cleaned_offset = 0
    compact(log, NOW + 1)
    (only,) = log.segments[0].batches(0)
    assert (only.header.record_count, only.header.base_offset, only.header.last_offset) == (0, 1, 1)
    assert only.header.delete_horizon_ms is None
    assert log.segments[0].next_offset() == 2


def test_an_active_producers_last_sequence_stays() -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    for sequence in range(3):
        batch = records.encode_batch([Record(b"a", b"v", NOW)], producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append(batch, 0, NOW)
    append(log, (b"a", b"other"))
    end_segment(log)
    compact(log)
    headers = [header for _, header in log.segments[0].batches(0)]
    assert [(each.base_offset, each.record_count, each.base_sequence) for each in headers] == [(2, 0, 2), (3, 1, -1)]
    for name in [name for name in storage.files if name.endswith(".snapshot")]:
        del storage.files[name]
    log.abandon()
    again = open_log(storage, recovery_point=4)
    known = again.producers.get(7)
    assert known is not None
    assert known.last_sequence == 2
    again.producers.expire(NOW + DAY_MS, DAY_MS)
    again.cleaned_offset = 0
    end_segment(again)
    compact(again)
    assert [header.base_offset for _, header in again.segments[0].batches(0)] == [3]


def transactional(log: PartitionLog, producer: int, sequence: int, key: bytes, epoch: int = 0) -> None:
    batch = records.encode_batch(
        [Record(key, b"v%d" % sequence, NOW)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(batch, 0, NOW, log.producers.begin_verification(producer, epoch, has_epochs=False))


def end_transaction(log: PartitionLog, producer: int, *, committed: bool) -> None:
    log.append_marker(Marker(producer, 0, committed, 0, 0), 0, NOW)


def test_aborted_data_goes_and_its_marker_follows_after_the_retention_time() -> None:
    log = open_log(SimulatedDisk(), replace(COMPACT, delete_retention_ms=1000))
    transactional(log, 1, 0, b"a")  # 0
    end_transaction(log, 1, committed=True)  # 1
    transactional(log, 2, 0, b"a")  # 2
    transactional(log, 2, 1, b"b")  # 3
    end_transaction(log, 2, committed=False)  # 4
    append(log, (b"z", b"1"))  # 5
    end_segment(log)
    assert len(log.aborted_transactions(0, 6)) == 1
    compact(log)
    assert latest(contents(log).values()) == {b"a": b"v0", b"z": b"1"}
    # Producer 2's last batch stays as a header, so its transaction still has data, and its marker counts.
    assert [header.base_offset for _, header in log.segments[0].batches(0)] == [0, 1, 3, 4, 5]
    assert [each.first_offset for each in log.aborted_transactions(0, 6)] == [2]
    log.producers.expire(NOW + DAY_MS, 1)
    for now_ms, left in ((NOW, [0, 1, 4, 5]), (NOW + 1, [0, 1, 4, 5]), (NOW + 1001, [0, 1, 5])):
        log.cleaned_offset = 0
        compact(log, now_ms)
        assert [header.base_offset for _, header in log.segments[0].batches(0)] == left
    assert log.aborted_transactions(0, 6) == []
    check_whole(log)


def test_a_transaction_over_several_segments_is_aborted_in_all_of_them() -> None:
    log = open_log(SimulatedDisk(), replace(COMPACT, segment_bytes=10_000))
    append(log, (b"a", b"kept"))
    for sequence in range(6):
        transactional(log, 2, sequence, b"a")
        end_segment(log)
    end_transaction(log, 2, committed=False)
    assert log.last_stable_offset == log.log_end_offset
    end_segment(log)
    compact(log)
    assert latest(contents(log).values()) == {b"a": b"kept"}
    assert len(log.segments) == 2


def test_an_open_transaction_is_not_compacted() -> None:
    log = open_log(SimulatedDisk())
    append(log, (b"a", b"1"))
    append(log, (b"a", b"2"))
    end_segment(log)
    transactional(log, 2, 0, b"a")
    end_segment(log)
    append(log, (b"a", b"3"))
    end_segment(log)
    assert assess(log, NOW).first_uncleanable_offset == 2
    compact(log)
    assert list(contents(log)) == [1, 2, 3]
    end_transaction(log, 2, committed=True)
    assert assess(log, NOW).first_uncleanable_offset == 4


def test_lags_and_ratio_decide_when_a_log_is_due() -> None:
    config = replace(COMPACT, segment_bytes=10_000, min_cleanable_dirty_ratio=0.5)
    log = open_log(SimulatedDisk(), config)
    append(log, (b"a", b"1" * 100))
    end_segment(log)
    assert assess(log, NOW).due
    log.config = replace(config, min_compaction_lag_ms=1000)
    assert assess(log, NOW + 999).cleanable_bytes == 0
    assert assess(log, NOW + 1000).due
    log.config = config
    compact(log)
    append(log, (b"b", b"1"))
    end_segment(log)
    assert 0 < assess(log, NOW).ratio < 0.5
    assert not assess(log, NOW).due
    log.config = replace(config, max_compaction_lag_ms=5000)
    assert not assess(log, NOW + 5000).due
    assert assess(log, NOW + 5001).due


def test_a_full_map_leaves_the_rest_to_the_next_round() -> None:
    log = open_log(SimulatedDisk(), replace(COMPACT, segment_bytes=100_000))
    for index in range(20):
        append(log, (b"%d" % (index % 10), b"%d" % index))
    end_segment(log)
    rounds = 0
    while assess(log, NOW).cleanable_bytes and (log.cleaned_offset or 0) < 20:
        compact(log, map_bytes=4 * ENTRY_BYTES)
        rounds += 1
    assert rounds == 5
    assert list(contents(log)) == list(range(10, 20))
    log.cleaned_offset = None
    append(log, *((b"x%d" % index, b"") for index in range(5)))
    log = open_log(SimulatedDisk())
    append(log, *((b"x%d" % index, b"") for index in range(5)))
    end_segment(log)
    with pytest.raises(OffsetMapFullError, match="dedupe"):
        compact(log, map_bytes=4 * ENTRY_BYTES)


def test_neighbours_are_put_together_up_to_a_segments_size() -> None:
    log = open_log(SimulatedDisk(), replace(COMPACT, segment_bytes=200))
    for index in range(12):
        append(log, (b"%02d" % index, b"v" * 20))
    end_segment(log)
    sizes = [segment.size for segment in log.segments[:-1]]
    groups = group_segments(log, log.segments[:-1], log.log_end_offset)
    assert [len(group) for group in groups] == [1] * len(sizes)
    log.config = replace(log.config, segment_bytes=2 * sizes[0])
    groups = group_segments(log, log.segments[:-1], log.log_end_offset)
    assert [len(group) for group in groups] == [2] * (len(sizes) // 2)
    log.config = replace(log.config, segment_bytes=100_000, segment_index_bytes=8)
    assert [segment for group in groups for segment in group] == list(log.segments[:-1])


def test_work_is_done_in_many_steps() -> None:
    log = open_log(SimulatedDisk(), LogConfig(cleanup_policy=("compact",)))
    append(log, *((b"%d" % index, b"v") for index in range(3000)), codec=Compression.ZSTD)
    append(log, (b"1", b"w"))
    end_segment(log)
    assert compact(log) > 20


def test_a_round_that_is_given_up_leaves_the_log_as_it_was() -> None:
    storage = SimulatedDisk()
    log = open_log(storage, replace(COMPACT, segment_bytes=10_000))
    for index in range(20):
        append(log, (b"a", b"%d" % index))
    end_segment(log)
    before = contents(log)
    for stop in range(1, 60, 7):
        work = clean(assess(log, NOW), OffsetMap(MAP_BYTES), NOW)
        for _ in range(stop):
            next(work)
        work.close()
        no_leftovers(storage)
        assert contents(log) == before


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_messages_of_old_formats_are_compacted_in_their_format(magic: int, codec: Compression) -> None:
    storage = SimulatedDisk()
    stamps = NOW if magic else -1
    old = [Record(b"%d" % (index % 3), b"%d" % index, stamps, (), index) for index in range(9)]
    sets = b"".join(
        bytes(encode_message_set(old[start : start + 3], magic=magic, compression=codec)) for start in (0, 3, 6)
    )
    storage.write(f"{DIRECTORY}/{0:020d}.log", sets, durable=True)
    log = open_log(storage)
    assert log.log_end_offset == 9
    assert contents(log) == {record.offset: record for record in old}
    append(log, (b"0", None))
    end_segment(log)
    compact(log)
    found = contents(log)
    assert found == {7: old[7], 8: old[8], 9: Record(b"0", None, NOW, (), 9)}
    assert next(header.magic for _, header in log.segments[0].batches(0)) == magic
    data = log.read(7, 10_000, min_one_batch=True).read()
    assert decode_any(data)[-1].value == (b"8" if codec else b"7")


def script(log: PartitionLog, rng: random.Random) -> dict[int, Record]:
    """Fill a log with keys, tombstones, transactions and codecs; returns what it holds for read_committed readers."""
    original: dict[int, Record] = {}
    sequence = 0
    for index in range(60):
        pairs = [(b"%d" % rng.randint(0, 8), rng.choice([None, b"%d" % index])) for _ in range(rng.randint(1, 3))]
        first = append(log, *pairs, codec=rng.randrange(5))
        original |= {first + at: Record(*pair, NOW, (), first + at) for at, pair in enumerate(pairs)}
        if rng.random() < 0.1:
            committed = rng.random() < 0.5
            offset = log.log_end_offset
            transactional(log, 5, sequence, b"t")
            if committed:
                original[offset] = Record(b"t", b"v%d" % sequence, NOW, (), offset)
            sequence += 1
            end_transaction(log, 5, committed=committed)
    end_segment(log)
    return original


def prepared(seed: int) -> tuple[SimulatedDisk, PartitionLog, dict[int, Record]]:
    storage = SimulatedDisk()
    log = open_log(storage, replace(COMPACT, delete_retention_ms=0, segment_bytes=900))
    original = script(log, random.Random(seed))
    compact(log, NOW)
    for index in range(6):
        offset = append(log, (b"%d" % index, b"newer"))
        original[offset] = Record(b"%d" % index, b"newer", NOW, (), offset)
    end_segment(log, NOW)
    return storage, log, original


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))])
def test_a_crash_at_any_moment_of_a_compaction_loses_nothing(seed: int) -> None:
    storage, log, _ = prepared(seed)
    storage.fuse = 10_000
    compact(log, NOW + 1)
    operations = 10_000 - storage.fuse
    assert operations > 20
    for moment in range(operations):
        storage, log, original = prepared(seed)
        end, recovery_point = log.log_end_offset, log.recovery_point
        storage.fuse = moment
        with pytest.raises(CutShort):
            compact(log, NOW + 1)
        storage.lose_power(random.Random(moment))
        log = open_log(storage, log.config, recovery_point=recovery_point)
        no_leftovers(storage)
        assert log.log_end_offset == end
        check_whole(log)
        committed = {offset: record for offset, record in contents(log).items() if offset in original}
        assert committed == {offset: original[offset] for offset in committed}
        assert living(committed.values()) == living(original.values())
        assert compact(log, NOW + 2)
        found = {offset: record for offset, record in contents(log).items() if offset in original}
        assert living(found.values()) == living(original.values())
        for segment in log.segments:
            sizes = segment.size
            recover_segment(segment, lambda header: None)
            assert segment.size == sizes


@settings(max_examples=examples(30), deadline=None)
@given(BATCHES, st.randoms(use_true_random=False))
def test_a_crash_somewhere_in_a_compaction_of_any_log_loses_nothing(
    batches: list[tuple[list[tuple[bytes, bytes | None]], int]], rng: random.Random
) -> None:
    storage = SimulatedDisk()
    log = open_log(storage, replace(COMPACT, delete_retention_ms=0, segment_bytes=400))
    original: dict[int, Record] = {}
    for index, (pairs, codec) in enumerate(batches):
        first = append(log, *pairs, codec=codec)
        original |= {first + at: Record(*pair, NOW, (), first + at) for at, pair in enumerate(pairs)}
        if index == len(batches) // 2:
            end_segment(log)
            compact(log)
    end_segment(log)
    log.cleaned_offset = 0
    recovery_point = log.recovery_point
    storage.fuse = rng.randrange(60)
    with contextlib.suppress(CutShort):
        compact(log, NOW + 1)
    storage.lose_power(rng)
    log = open_log(storage, log.config, recovery_point=recovery_point)
    found = contents(log)
    assert found == {offset: original[offset] for offset in found}
    assert living(found.values()) == living(original.values())
    assert log.log_end_offset == len(original)
    no_leftovers(storage)
    check_whole(log)


def test_a_crash_after_the_recovery_point_was_noted_does_not_take_a_hole_for_the_end() -> None:
    storage = SimulatedDisk()
    log = open_log(storage, replace(COMPACT, segment_bytes=200))
    for index in range(20):
        append(log, (b"a", b"%d" % index))
    log.roll(NOW)
    assert assess(log, NOW).cleanable_bytes == 0  # nothing is known to be on the disk yet
    log.flush(NOW)
    compact(log)
    append(log, (b"a", b"last"))
    log.abandon()
    again = open_log(storage, recovery_point=20)
    assert living(contents(again).values()) == {b"a": b"last"}


def test_holes_end_a_log_only_where_a_segment_may_have_been_cut() -> None:
    for holes_allowed, left in ((True, [19, 20]), (False, [])):
        storage = SimulatedDisk()
        log = open_log(storage, replace(COMPACT, segment_bytes=200))
        for index in range(20):
            append(log, (b"a", b"%d" % index))
        end_segment(log)
        compact(log)
        append(log, (b"b", b"last"))
        log.abandon()
        again = open_log(storage, recovery_point=0, holes_allowed=holes_allowed)
        assert list(contents(again)) == left
