"""One partition's log: appends, reads, rolling, look-ups by time, and recovery after a loss of power."""

from __future__ import annotations

import errno
import random
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.sim.disk import SimulatedDisk, SimulatedFile
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.log.steps import finish
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record
from tests.chance import examples

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
TIMESTAMPS = st.integers(NOW - 1000, NOW + 1000)
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=200)


def open_log(storage: SimulatedDisk, config: LogConfig = SMALL, **options: Any) -> PartitionLog:
    return PartitionLog.open(storage, DIRECTORY, config, NOW, **options)


def batch(*timestamps: int, size: int = 20, **options: Any) -> bytearray:
    values = timestamps or (NOW,)
    return records.encode_batch([Record(None, b"v" * size, at) for at in values], **options)


def contents(log: PartitionLog, max_bytes: int = 1_000_000) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, min_one_batch=True).read()
        got = list(records.decode_all(data))
        assert got, f"nothing at offset {offset}"
        found += got
        offset = got[-1].offset + 1
    return found


def refused(log: PartitionLog, data: bytearray) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.append(data, 0, NOW)
    assert log.log_end_offset == end
    return caught.value.code


def test_append_writes_offset_and_epoch_in_place() -> None:
    log = open_log(SimulatedDisk())
    assert log.append(batch(NOW, NOW), 3, NOW) == (0, 1, -1, 0)
    second = batch(NOW)
    assert log.append(memoryview(second), 4, NOW) == (2, 2, -1, 0)
    header = records.validate(second)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 4)
    assert log.append(memoryview(bytes(batch())), 4, NOW).base_offset == 3
    assert [record.offset for record in contents(log)] == [0, 1, 2, 3]
    assert log.leader_epochs.entries == [(3, 0), (4, 2)]
    assert log.leader_epochs.end_offset(3, log.log_end_offset) == (3, 2)
    assert log.leader_epochs.end_offset(4, log.log_end_offset) == (4, 4)
    assert log.leader_epochs.end_offset(9, log.log_end_offset) is None
    assert log.leader_epochs.end_offset(2, log.log_end_offset) == (2, 0)
    assert log.high_watermark == log.log_end_offset == 4


def test_bad_batches_are_refused_and_leave_no_trace() -> None:
    log = open_log(SimulatedDisk(), replace(SMALL, max_message_bytes=1_000, segment_bytes=900))
    corrupt = batch()
    corrupt[-1] ^= 1
    assert refused(log, corrupt) is ErrorCode.CORRUPT_MESSAGE
    assert refused(log, batch()[:40]) is ErrorCode.CORRUPT_MESSAGE
    assert refused(log, bytearray()) is ErrorCode.CORRUPT_MESSAGE
    assert refused(log, batch() + batch()) is ErrorCode.INVALID_RECORD
    assert refused(log, batch(size=2_000)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, batch(size=850)) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert refused(log, batch(NOW + 4_000_000)) is ErrorCode.INVALID_TIMESTAMP
    control = records.encode_batch([Record(struct.pack(">hh", 0, 1), b"", NOW)], control=True)
    assert refused(log, control) is ErrorCode.INVALID_RECORD
    assert refused(log, batch(producer_id=5)) is ErrorCode.INVALID_RECORD
    transactional = records.encode_batch(
        [Record(None, b"v", NOW)], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    assert refused(log, transactional) is ErrorCode.INVALID_TXN_STATE
    for count, delta in ((2, 0), (0, -1), (1, 5)):
        wrong = batch()
        struct.pack_into(">i", wrong, 23, delta)
        struct.pack_into(">i", wrong, 57, count)
        records.write_crc(wrong)
        assert refused(log, wrong) is ErrorCode.INVALID_RECORD
    assert log.size == 0


def test_idempotent_producers() -> None:
    log = open_log(SimulatedDisk())
    for sequence in range(7):
        log.append(batch(producer_id=9, producer_epoch=0, base_sequence=sequence), 0, NOW)
    for sequence in range(2, 7):
        again = batch(producer_id=9, producer_epoch=0, base_sequence=sequence)
        assert log.append(again, 0, NOW)[:2] == (sequence, sequence)
    assert log.log_end_offset == 7
    assert (
        refused(log, batch(producer_id=9, producer_epoch=0, base_sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert (
        refused(log, batch(producer_id=9, producer_epoch=0, base_sequence=8)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    log.append(batch(producer_id=9, producer_epoch=1, base_sequence=0), 0, NOW)
    assert refused(log, batch(producer_id=9, producer_epoch=0, base_sequence=7)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_log_append_time_replaces_the_producers_timestamps() -> None:
    storage = SimulatedDisk()
    log = open_log(storage, replace(SMALL, message_timestamp_type="LogAppendTime"))
    assert log.append(batch(5, NOW + 10**9), 0, NOW) == (0, 1, NOW, 0)
    assert log.append(memoryview(bytes(batch(1))), 0, NOW + 7) == (2, 2, NOW + 7, 0)
    assert [record.timestamp for record in contents(log)] == [NOW, NOW, NOW + 7]
    assert finish(log.offset_for_timestamp(NOW + 1)) == (NOW + 7, 2)
    assert open_log(storage).log_end_offset == 3


def test_a_file_that_does_not_hold_what_it_should_is_an_error_of_the_read() -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    log.append(batch(), 0, NOW)
    log.append(batch(), 0, NOW)
    storage.files[f"{DIRECTORY}/{0:020d}.log"].data[8:12] = b"\xff" * 4
    for read in (lambda: log.read(1, 100, min_one_batch=True), lambda: finish(log.offset_for_timestamp(NOW))):
        with pytest.raises(KafkaError) as caught:
            read()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    log.append(batch(), 0, NOW)
    size = log.size
    storage.room = 30
    assert refused(log, batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.size == size == storage.size(f"{DIRECTORY}/{0:020d}.log")
    storage.room = None
    assert log.append(batch(), 0, NOW).base_offset == 1
    assert [record.offset for record in contents(log)] == [0, 1]


@pytest.mark.parametrize("suffix", ["leader-epoch-checkpoint", ".index", ".snapshot"])
def test_a_disk_that_fills_up_while_rolling_leaves_the_log_as_it_was(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SimulatedDisk()
    log = open_log(storage, replace(SMALL, segment_bytes=200))
    for _ in range(2):
        log.append(batch(), 0, NOW)
    write = storage.write

    def failing(path: str, data: bytes, *, durable: bool) -> None:
        if path.endswith(suffix):
            raise OSError(28, "No space left on device")
        write(path, data, durable=durable)

    monkeypatch.setattr(storage, "write", failing)
    with pytest.raises(KafkaError) as caught:
        log.append(batch(), 1, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 2
    monkeypatch.undo()
    assert log.failure is None, "a full disk passes"
    assert log.append(batch(), 1, NOW).base_offset == 2
    assert log.leader_epochs.entries == [(0, 0), (1, 2)]
    assert [record.offset for record in contents(open_log(storage))] == [0, 1, 2]


def test_a_disk_that_does_not_write_for_another_reason_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(SimulatedDisk())

    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SimulatedFile, "append", failing)
    with pytest.raises(KafkaError):
        log.append(batch(), 0, NOW)
    assert log.failure is not None
    assert log.failure.errno == 5


@pytest.mark.parametrize(
    "number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EDQUOT, None]
)
def test_what_a_process_has_too_little_of_passes(number: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SimulatedDisk()
    log = open_log(storage, replace(SMALL, segment_bytes=200))
    for _ in range(2):
        log.append(batch(), 0, NOW)

    def failing(*_: object) -> None:
        raise OSError("?") if number is None else OSError(number, "?")

    monkeypatch.setattr(SimulatedDisk, "open", failing)
    with pytest.raises(KafkaError) as caught:
        log.append(batch(), 0, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert log.failure is None
    assert log.append(batch(), 0, NOW).base_offset == 2


@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.EROFS, True), (errno.ENFILE, False)])
def test_a_disk_that_does_not_read_has_failed(number: int, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(SimulatedDisk())
    log.append(batch(), 0, NOW)

    def failing(*_: object) -> None:
        raise OSError(number, "?")

    monkeypatch.setattr(SimulatedFile, "pread", failing)
    for read in (lambda: log.read(0, 1000, min_one_batch=True), lambda: finish(log.offset_for_timestamp(NOW))):
        with pytest.raises(KafkaError) as caught:
            read()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.failure is not None) == fails


def test_reads_begin_at_the_batch_that_holds_the_offset() -> None:
    log = open_log(SimulatedDisk(), LogConfig())
    for _ in range(100):
        log.append(batch(*[NOW] * 10), 0, NOW)
    one = log.size // 100
    for offset in range(1000):
        piece = log.read(offset, one, min_one_batch=False)
        assert records.read_header(piece.read()).base_offset == offset // 10 * 10
        assert piece.size == one
    assert log.read(1000, 100, min_one_batch=True).size == 0
    for offset in (-1, 1001):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, min_one_batch=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_five_batches_of_a_kilobyte_and_a_limit_of_3500_bytes() -> None:
    log = open_log(SimulatedDisk(), LogConfig())
    for _ in range(5):
        log.append(batch(size=1024), 0, NOW)
    data = log.read(0, 3500, min_one_batch=True).read()
    assert len(data) == 3500
    assert [header.base_offset for _, header in records.scan(data)] == [0, 1, 2]
    data = log.read(3, 3500, min_one_batch=True).read()
    assert [header.base_offset for _, header in records.scan(data)] == [3, 4]
    assert len(log.read(0, 10, min_one_batch=True).read()) == log.size // 5
    assert len(log.read(0, 10, min_one_batch=False).read()) == 10


def test_segments_roll_by_size_time_and_index() -> None:
    log = open_log(SimulatedDisk(), replace(SMALL, segment_bytes=200))
    for _ in range(4):
        log.append(batch(), 0, NOW)
    assert log._bases == [0, 2]
    log = open_log(SimulatedDisk(), LogConfig(segment_ms=1000))
    log.append(batch(NOW - 5000), 0, NOW)
    log.append(batch(NOW - 4000), 0, NOW)
    log.append(batch(NOW - 3999), 0, NOW)
    assert log._bases == [0, 2]
    log = open_log(SimulatedDisk(), LogConfig(segment_index_bytes=24, index_interval_bytes=1))
    for i in range(6):
        log.append(batch(NOW + i), 0, NOW)
    assert log._bases == [0, 2, 4]
    assert log.roll(NOW).base_offset == 6
    assert log.roll(NOW).base_offset == 6


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.integers(NOW - 1000, NOW + 1000), min_size=1, max_size=5), min_size=1, max_size=80), st.data()
)
def test_look_ups_by_timestamp_are_those_of_a_walk_over_all_records(runs: list[list[int]], data: st.DataObject) -> None:
    log = open_log(SimulatedDisk())
    for run in runs:
        log.append(batch(*run, compression=data.draw(st.sampled_from([0, Compression.GZIP]))), 0, NOW)
    everything = contents(log)
    for wanted in [data.draw(st.integers(NOW - 1100, NOW + 1100)) for _ in range(10)]:
        expected = next(((r.timestamp, r.offset) for r in everything if r.timestamp >= wanted), None)
        assert finish(log.offset_for_timestamp(wanted)) == expected
    latest = max(r.timestamp for r in everything)
    assert finish(log.max_timestamp_offset()) == next(
        (r.timestamp, r.offset) for r in everything if r.timestamp == latest
    )


def test_look_up_in_an_empty_log() -> None:
    log = open_log(SimulatedDisk())
    assert finish(log.offset_for_timestamp(0)) is None
    assert finish(log.max_timestamp_offset()) is None


def test_flush_by_messages_and_by_time() -> None:
    log = open_log(SimulatedDisk(), replace(SMALL, flush_messages=3))
    points = []
    for _ in range(4):
        log.append(batch(), 0, NOW)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3]
    log = open_log(SimulatedDisk(), replace(SMALL, flush_ms=100))
    log.append(batch(), 0, NOW)
    log.flush_if_due(NOW + 99)
    assert log.recovery_point == 0
    log.flush_if_due(NOW + 100)
    assert log.recovery_point == 1


def test_a_rolled_segment_counts_as_flushed_only_when_its_flush_has_ended() -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    log.append(batch(), 0, NOW)
    log.roll(NOW)
    assert log.recovery_point == 0
    storage.close()
    assert log.recovery_point == 1


@pytest.mark.parametrize("asked", ["recovery point", "flush", "flush.ms", "roll", "flush.messages", "append"])
def test_nothing_passes_over_a_flush_that_has_failed(asked: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    log.append(batch(), 0, NOW)
    log.flush(NOW)
    log.append(batch(), 0, NOW)
    storage.settle()
    storage.flush_errors = [OSError(5, "fsync failed")]
    if asked == "roll":  # which waits for the indexes of a segment that is on the disk to its end
        log.flush_if_due(NOW)
        log._flushes.start_at(log.log_end_offset)
        with pytest.raises(OSError, match="fsync failed"):
            log.roll(NOW)
        log._flushes.start_at(1)
    elif asked == "flush.messages":
        log.config = replace(SMALL, flush_messages=1)
        with pytest.raises(KafkaError):
            log.append(batch(), 0, NOW)
    else:
        log.roll(NOW)
        storage.close()
    if asked == "append":
        assert log.append(batch(), 0, NOW).base_offset == 2  # nobody has checked the flush yet
    if asked == "flush.ms":
        log.flush_if_due(NOW)  # as every second
        assert refused(log, batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(2):
        if asked == "flush":
            with pytest.raises(OSError, match="fsync failed"):
                log.flush(NOW)
        assert log.recovery_point == 1
    end = log.log_end_offset
    assert refused(log, batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.append_marker(Marker(1, 0, committed=True, coordinator_epoch=0, transaction_version=0), 0, NOW)
    log.roll(NOW)
    storage.close()
    assert (log.recovery_point, log.log_end_offset, len(contents(log))) == (1, end, end)
    log.flush_if_due(NOW + 1_000_000_000_000)
    assert caplog.text.count("a flush has failed") == 1
    with pytest.raises(OSError, match="fsync failed"):
        log.close(NOW)
    log.abandon()


@pytest.mark.parametrize("how", ["close", "abandon", "forget"])
def test_a_closed_log_takes_nothing(how: str) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    log.append(batch(), 0, NOW)
    log.close(NOW) if how == "close" else getattr(log, how)()
    before = {name: storage.read(name) for name in storage.files}
    assert refused(log, batch()) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.append_marker(Marker(1, 0, committed=True, coordinator_epoch=0, transaction_version=0), 0, NOW)
    assert {name: storage.read(name) for name in storage.files} == before


def fill(log: PartitionLog, rng: random.Random, count: int) -> None:
    sequences: dict[int, int] = {}
    for _ in range(count):
        producer, size = rng.choice([-1, 1, 2]), rng.randint(1, 4)
        stamps = [NOW + rng.randint(-1000, 1000) for _ in range(size)]
        options = {}
        if producer > 0:
            known = log.producers.get(producer)
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": known.last_sequence + 1 if known else sequences.get(producer, 0),
            }
            sequences[producer] = options["base_sequence"] + size
        log.append(batch(*stamps, size=rng.randint(0, 100), compression=rng.choice([0, 0, 1, 3]), **options), 0, NOW)
        if rng.random() < 0.02:
            log.flush(NOW)
        if rng.random() < 0.1:
            log._storage.close()  # what was flushed in the background has reached the disk


def producers_of(log: PartitionLog) -> dict[int, tuple[int, int]]:
    return {each.producer_id: (each.epoch, each.last_sequence) for each in log.producers.entries()}


def expected_producers(log: PartitionLog) -> dict[int, tuple[int, int]]:
    found = {}
    for segment in log._segments:
        for _, header in segment.batches(0):
            if header.has_producer_id:
                found[header.producer_id] = (header.producer_epoch, header.last_sequence)
    return found


def index_files(storage: SimulatedDisk) -> dict[str, bytes]:
    return {name: storage.read(name) for name in storage.files if name.endswith(("index", ".log"))}


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_a_clean_restart_finds_everything_as_it_was(seed: int, count: int) -> None:
    rng = random.Random(seed)
    storage = SimulatedDisk()
    log = open_log(storage)
    fill(log, rng, count)
    before, producers, bases = contents(log), producers_of(log), log._bases
    log.close(NOW)
    files = index_files(storage)
    log = open_log(storage, clean=True)
    assert contents(log, 700) == before
    assert (producers_of(log), log._bases, log.recovery_point) == (producers, bases, log.log_end_offset)
    log.close(NOW)
    assert index_files(storage) == files
    log = open_log(storage)  # and recovery, where nothing is damaged, builds the very same files
    assert contents(log) == before
    log.close(NOW)
    assert index_files(storage) == files


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_a_loss_of_power_costs_only_a_tail_that_was_not_flushed(seed: int, count: int) -> None:
    lose_power_and_check(seed, count)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, 20_000, 1000))
def test_many_losses_of_power(start: int) -> None:
    for seed in range(start, start + 1000):
        lose_power_and_check(seed, random.Random(seed).randint(1, 120))


def lose_power_and_check(seed: int, count: int) -> None:
    rng = random.Random(seed)
    storage = SimulatedDisk()
    log = open_log(storage)
    fill(log, rng, count)
    before, recovery_point = contents(log), log.recovery_point
    storage.lose_power(rng)
    log = open_log(storage, recovery_point=recovery_point)
    assert log.log_end_offset >= recovery_point
    after = contents(log)
    assert after == before[: len(after)]
    assert producers_of(log) == expected_producers(log)
    latest = max((r.timestamp for r in after), default=None)
    expected = next(((r.timestamp, r.offset) for r in after if r.timestamp == latest), None)
    assert finish(log.max_timestamp_offset()) == expected
    fill(log, rng, 20)
    assert contents(log)[: len(after)] == after


def test_a_flush_just_before_a_roll_leaves_no_index_behind() -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    for i in range(10):
        log.append(batch(NOW + 10 - i), 0, NOW)
    log.flush(NOW)
    log.roll(NOW)
    for suffix in ("index", "timeindex", "log"):
        content = storage.files[f"{DIRECTORY}/{0:020d}.{suffix}"]
        assert content.durable_size == len(content.data) > 0


@pytest.mark.parametrize("damage", ["flip", "cut", "garbage", "zeros"])
def test_recovery_cuts_a_torn_tail(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    log = open_log(storage, LogConfig())
    for _ in range(10):
        log.append(batch(), 0, NOW)
    path = f"{DIRECTORY}/{0:020d}.log"
    data = storage.files[path].data
    whole = len(data)
    if damage == "flip":
        data[whole - 1] ^= 1
    elif damage == "cut":
        del data[-1:]
    else:
        data += bytes(500) if damage == "zeros" else b"\xff" * 500
    log = open_log(storage, LogConfig(), recovery_point=5)
    kept = 9 if damage in ("flip", "cut") else 10
    assert log.log_end_offset == kept
    assert storage.size(path) == whole // 10 * kept
    assert "cutting" in caplog.text


def test_segments_behind_a_damaged_one_are_removed() -> None:
    storage = SimulatedDisk()
    log = open_log(storage, replace(SMALL, segment_bytes=200))
    for _ in range(9):
        log.append(batch(producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset), 0, NOW)
    assert log._bases == [0, 2, 4, 6, 8]
    storage.files[f"{DIRECTORY}/{4:020d}.log"].data[-1] ^= 1
    log = open_log(storage, replace(SMALL, segment_bytes=200), recovery_point=2)
    assert (log._bases, log.log_end_offset) == ([0, 2, 4], 5)
    assert producers_of(log) == {1: (0, 4)}
    names = storage.list_directory(DIRECTORY)
    assert not [name for name in names if name[:20] in (f"{6:020d}", f"{8:020d}")]


def test_a_hole_between_segments_ends_the_log() -> None:
    storage = SimulatedDisk()
    config = replace(SMALL, segment_bytes=200)
    log = open_log(storage, config)
    for _ in range(6):
        log.append(batch(), 0, NOW)
    data = storage.files[f"{DIRECTORY}/{2:020d}.log"].data
    del data[len(data) // 2 :]
    log = open_log(storage, config)
    assert (log._bases, log.log_end_offset) == ([0, 2], 3)
    assert [record.offset for record in contents(log)] == [0, 1, 2]


def test_missing_or_damaged_indexes_of_a_clean_log_are_built_again(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    fill(log, random.Random(1), 100)
    before = contents(log)
    log.close(NOW)
    files = index_files(storage)
    storage.remove(f"{DIRECTORY}/{0:020d}.index")
    storage.files[f"{DIRECTORY}/{log._bases[1]:020d}.index"].data[-8:] = b"\xff" * 8
    storage.files[f"{DIRECTORY}/{log._bases[2]:020d}.timeindex"].data[:] = b"123"
    log = open_log(storage, clean=True)
    assert contents(log) == before
    for wanted in (NOW - 500, NOW, NOW + 500):
        assert finish(log.offset_for_timestamp(wanted)) == next(
            (r.timestamp, r.offset) for r in before if r.timestamp >= wanted
        )
    log.close(NOW)
    assert index_files(storage) == files
    assert caplog.text.count("building the indexes again") == 3


def test_a_damaged_snapshot_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    fill(log, random.Random(2), 150)
    producers = producers_of(log)
    log.close(NOW)
    storage.files[f"{DIRECTORY}/{log.log_end_offset:020d}.snapshot"].data[-1] ^= 1
    log = open_log(storage, clean=True)
    assert producers_of(log) == producers
    assert "the checksum is wrong" in caplog.text


def test_stray_snapshots_are_removed() -> None:
    storage = SimulatedDisk()
    for _ in range(3):
        log = open_log(storage, LogConfig(), clean=True)
        log.append(batch(), 0, NOW)
        log.close(NOW)
    open_log(storage, LogConfig(), clean=True)
    assert [name for name in storage.list_directory(DIRECTORY) if "snapshot" in name] == [f"{3:020d}.snapshot"]
