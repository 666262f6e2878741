"""Kafka's own tool reads our files and finds nothing wrong."""

from __future__ import annotations

import random
import re
import uuid
from pathlib import Path

import pytest

from lab import peers
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.records import Record
from tests.unit.log.managing import create_topic

NOW = 1_700_000_000_000
DUMP = "org.apache.kafka.tools.DumpLogSegments"
pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory with many segments, all codecs and two producers, recovered once in between."""
    reason = peers.missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("data")
    rng = random.Random(7)
    manager = LogManager.open(DiskStorage(), str(directory), LogConfig(segment_bytes=60_000), NOW)
    create_topic(manager, "t", 1, uuid.uuid4(), {}, NOW)
    for half in range(2):
        log = manager.partition("t", 0)
        for _ in range(1500):
            producer = rng.choice([-1, 1, 2])
            known = log.producers.get(producer)
            numbers = (producer, 0, known.last_sequence + 1 if known else 0) if producer > 0 else (-1, -1, -1)
            batch = records.encode_batch(
                [
                    Record(b"k", b"v" * rng.randint(0, 300), NOW + rng.randint(-1000, 1000), (("h", b"x"),))
                    for _ in range(rng.randint(1, 5))
                ],
                compression=rng.randrange(5),
                producer_id=numbers[0],
                producer_epoch=numbers[1],
                base_sequence=numbers[2],
            )
            log.append(batch, half, NOW)
        if half == 0:
            manager.abandon()
            with open(max((directory / "t-0").glob("*.log")), "ab") as torn:
                torn.write(b"a torn tail")
            manager = LogManager.open(DiskStorage(), str(directory), LogConfig(segment_bytes=60_000), NOW)
    manager.close(NOW)
    return directory / "t-0"


def dump(filled: Path, *options: str) -> tuple[str, str]:
    files = sorted(path for suffix in ("log", "index", "timeindex", "snapshot") for path in filled.glob(f"*.{suffix}"))
    result = peers.run_tool(DUMP, *options, "--files", ",".join(map(str, files)))
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


def test_records_and_indexes_agree(filled: Path) -> None:
    out, complaints = dump(filled, "--deep-iteration", "--print-data-log")
    bases = {int(path.stem) for path in filled.glob("*.log")}
    assert len(bases) > 10
    # With --deep-iteration the tool begins every file at -1, so a segment that does not start at 0, of whatever broker,
    # begins with a gap to it. Nothing else may be said.
    expected = {
        f"Non-consecutive offsets in {filled}/{base:020d}.log\n  -1 is followed by {base}" for base in bases - {0}
    }
    assert set(re.findall(r"^Non-consecutive.*\n  -1 is.*$", complaints, re.MULTILINE)) == expected
    assert len(complaints.splitlines()) == 2 * len(expected)
    for complaint in ("Mismatches in", "Index timestamp", "Found timestamp", "invalid", "not a valid", "corrupt"):
        assert complaint not in out
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", out, re.MULTILINE)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) > 8000
    assert "isvalid: false" not in out


def test_indexes_pass_the_sanity_check(filled: Path) -> None:
    out, complaints = dump(filled, "--index-sanity-check")
    assert complaints == ""
    indexes = [path.name for suffix in ("index", "timeindex") for path in filled.glob(f"*.{suffix}")]
    for name in indexes:
        assert f"{name} passed sanity check." in out


def test_snapshots_are_read(filled: Path) -> None:
    out, complaints = dump(filled)
    assert complaints == ""
    assert re.search(r"^producerId: 1 producerEpoch: 0 .* lastOffset: \d+", out, re.MULTILINE)
