"""Compaction leaves the same bytes as Apache Kafka's own cleaner, and Kafka's DumpLogSegments has no complaint."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from lab import peers
from sparkonce.broker_lite.log.batch_filter import OffsetMap
from sparkonce.broker_lite.log.cleaner import assess, clean
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.housekeeping import delete_old_segments
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.jobs.shared.jars import java_command
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.legacy_records import decode_any, encode_message_set
from sparkonce.kafka.protocol.records import Record
from tests.kafka_files import assert_kafka_finds_nothing_wrong

pytestmark = pytest.mark.java

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # the least that Kafka 4 takes
    "index.interval.bytes": "500",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "0",
}
PROGRAM = Path(__file__).parent / "kafka_cleaner" / "CleanLog.java"


@pytest.fixture(autouse=True)
def kafka() -> None:
    reason = peers.missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)


def fill(log: PartitionLog, rng: random.Random, now_ms: int, codecs: list[int]) -> None:
    """Write keys again and again, with tombstones, idempotent producers, transactions and rolls."""
    sequences = dict.fromkeys(range(1, 6), 0)
    for index in range(400):
        at = now_ms - 10_000 + index
        pairs = [
            Record(b"%d" % rng.randint(0, 60), rng.choice([None, b"v%d" % index, b"x" * 200]), at, (("h", b"1"),))
            for _ in range(rng.randint(1, 6))
        ]
        producer = rng.choice([-1, -1, 1, 2, 3, 4, 5])
        if producer < 0:
            log.append(records.encode_batch(pairs, compression=rng.choice(codecs)), 0, now_ms)
        else:
            transactional = producer > 2
            batch = records.encode_batch(
                pairs,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                transactional=transactional,
                compression=rng.choice(codecs),
            )
            log.append(batch, 0, now_ms, log.producers.begin_verification(producer, 0, has_epochs=False))
            sequences[producer] += len(pairs)
            if transactional and rng.random() < 0.4:
                log.append_marker(Marker(producer, 0, rng.random() < 0.5, 0, 0), 0, at)
        if rng.random() < 0.03:
            log.roll(now_ms)
    for producer in (3, 4, 5):
        log.append_marker(Marker(producer, 0, producer == 4, 0, 0), 0, now_ms)
    log.roll(now_ms)
    log.flush(now_ms)


def compact(log: PartitionLog, now_ms: int) -> None:
    log.cleaned_offset = 0
    for step in clean(assess(log, now_ms), OffsetMap(1 << 20), now_ms):
        if step is not None:
            step.result()


def filled(directory: Path, seed: int, codecs: list[int]) -> tuple[PartitionLog, int]:
    now_ms = int(time.time() * 1000)  # Kafka forgets producers by its own clock
    config = LogConfig().with_topic_settings(SETTINGS)
    log = PartitionLog.open(DiskStorage(), str(directory / "ours" / "t-0"), config, now_ms)
    fill(log, random.Random(seed), now_ms, codecs)
    return log, now_ms


def files(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in suffixes}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_kafka_would_leave_the_same_bytes(tmp_path: Path, seed: int) -> None:
    codecs = [0] if seed < 2 else [0, 1, 2, 3, 4]
    log, now_ms = filled(tmp_path, seed, codecs)
    log.close(now_ms)
    theirs = tmp_path / "theirs" / "t-0"
    shutil.copytree(tmp_path / "ours" / "t-0", theirs)
    times = [now_ms, now_ms + 500, now_ms + 1000, now_ms + 5000]
    log = PartitionLog.open(DiskStorage(), log.directory, log.config, now_ms, clean=True)
    uncleanable = assess(log, now_ms).first_uncleanable_offset
    for each in times:
        compact(log, each)
    log.close(now_ms)
    command = [java_command(), "-Xmx256m", "-cp", peers.kafka_classpath(), str(PROGRAM), str(theirs)]
    settings = ",".join(f"{name}={value}" for name, value in SETTINGS.items())
    result = subprocess.run(
        [*command, str(uncleanable), settings, *map(str, times)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    ours = tmp_path / "ours" / "t-0"
    assert sum(map(len, files(ours, ".log").values())) > 1000
    if codecs == [0]:
        for suffix in (".log", ".txnindex", ".index", ".timeindex"):
            assert files(ours, suffix) == files(theirs, suffix)
    else:  # the same records and headers, compressed by another library
        for name, data in files(ours, ".log").items():
            assert inside(data) == inside((theirs / name).read_bytes())
        assert files(ours, ".txnindex") == files(theirs, ".txnindex")
    assert_kafka_finds_nothing_wrong([ours], compacted=True)


def inside(data: bytes) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for position, header in records.scan(data):
        content = records.decode_records(data[position : position + header.size])
        found.append((header._replace(crc=0, batch_length=0), tuple(content)))
    return found


def test_kafka_finds_nothing_wrong_after_compaction_and_retention(tmp_path: Path) -> None:
    log, now_ms = filled(tmp_path, 9, [0, 1, 2, 3, 4])
    compact(log, now_ms)
    log.delete_records(log.segments[1].base_offset)
    delete_old_segments(log, now_ms)
    log.close(now_ms)

    # A log that an old broker began, in formats v0 and v1, and this one went on with and compacted.
    directory = tmp_path / "old-0"
    directory.mkdir()
    old = [Record(b"%d" % (index % 7), b"%d" % index, now_ms, (), index) for index in range(40)]
    codecs = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
    data = b"".join(
        bytes(encode_message_set(old[start : start + 5], magic=start // 20, compression=codecs[start // 5 % 4]))
        for start in range(0, 40, 5)
    )
    (directory / f"{0:020d}.log").write_bytes(data)
    config = LogConfig(index_interval_bytes=100, cleanup_policy=("compact",), file_delete_delay_ms=0)
    log = PartitionLog.open(DiskStorage(), str(directory), config, now_ms)
    assert [record.value for record in _read(log)] == [record.value for record in old]
    log.append(records.encode_batch([Record(b"0", b"new", now_ms)]), 0, now_ms)
    log.roll(now_ms)
    log.flush(now_ms)
    before = tmp_path / "before-0"
    shutil.copytree(directory, before)
    compact(log, now_ms)
    assert [record.offset for record in _read(log)] == [33, 34, *range(36, 41)]
    log.close(now_ms)
    assert_kafka_finds_nothing_wrong([tmp_path / "ours" / "t-0", before, directory], compacted=True)


def _read(log: PartitionLog) -> list[Record]:
    found: list[Record] = []
    for segment in log.segments:
        for position, header in segment.batches(0):
            found += decode_any(segment.file.pread(header.size, position))
    return found
