"""From an offset to a place in the file.

The articles' claim: an offset index with the entries 5:500, 13:1300, 24:2400 leads from offset 20 to its batch by
binary search (the last entry that is not beyond 20 is 13:1300) and by reading headers from byte 1300 on. So it is,
with two remarks. An entry holds the *last* offset of the batch that begins at its position, so that the batch of an
offset between two entries is never before the lower one. And there is one entry for every `index.interval.bytes` of
log (4,096), which is why the search ends in a walk: over headers, no record is read.

The first segment has batches of unequal sizes, for which Kafka's own rule gives just these three entries; the second
has one record of 100 bytes in each batch, and an index file with these entries.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from lab.peers import missing_kafka_reason, run_tool
from sparkonce.broker_lite.log import segment as segment_module
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.offset_index import OffsetIndex
from sparkonce.broker_lite.log.segment import BatchPosition, Segment
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.kafka.protocol.records import Record, encode_batch, read_header

ENTRIES = [(5, 500), (13, 1300), (24, 2400)]
UNEQUAL_BATCHES = [
    *[(1, 100)] * 5,  # offsets 0 to 4
    *[(1, 400), (7, 400)],  # 5 at byte 500; 6 to 12
    *[(1, 490), (10, 610)],  # 13 at byte 1300; 14 to 23 at byte 1790
    *[(1, 100)] * 3,  # 24 at byte 2400
]
"""(records, bytes) of each batch."""
INTERVAL_BYTES = 499
NOW_MS = 1_700_000_000_000


def batch_of(records: int, size: int, base_offset: int) -> bytes:
    """Return a batch of just so many bytes."""
    small = [Record(None, b"", NOW_MS) for _ in range(records - 1)]
    for value_bytes in range(size):
        batch = encode_batch([*small, Record(None, b"x" * value_bytes, NOW_MS)], base_offset=base_offset)
        if len(batch) == size:
            return bytes(batch)
    raise AssertionError(f"{records} records do not fit into {size} bytes")


def fill(directory: Path, batches: list[tuple[int, int]], interval_bytes: int) -> Segment:
    storage = DiskStorage()
    segment = Segment.create(storage, str(directory), 0, LogConfig(index_interval_bytes=interval_bytes), NOW_MS)
    offset = 0
    for records, size in batches:
        batch = batch_of(records, size, offset)
        segment.append(batch, read_header(batch), offset + records - 1)
        offset += records
    segment.write_indexes()
    return segment


def entries_in(path: Path) -> list[tuple[int, int]]:
    """Read an index file as Kafka lays it out: pairs of four bytes, big-endian."""
    return list(struct.iter_unpack(">ii", path.read_bytes()))


class CountingHeaders:
    """Takes the place of the struct by which `find` looks at headers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.positions: list[int] = []
        """Where in the window each header was."""
        self._offsets = segment_module._OFFSETS
        monkeypatch.setattr(segment_module, "_OFFSETS", self)

    def unpack_from(self, window: bytes, position: int) -> tuple[int, ...]:
        self.positions.append(position)
        return self._offsets.unpack_from(window, position)


@pytest.fixture
def headers(monkeypatch: pytest.MonkeyPatch) -> CountingHeaders:
    return CountingHeaders(monkeypatch)


def place_of(segment: Segment, offset: int) -> tuple[int, int, int]:
    found = segment.find(offset)
    assert isinstance(found, BatchPosition)
    return found.position, found.header.base_offset, found.header.last_offset


def test_kafkas_rule_gives_these_entries_and_they_lead_to_the_batch(tmp_path: Path, headers: CountingHeaders) -> None:
    segment = fill(tmp_path, UNEQUAL_BATCHES, INTERVAL_BYTES)
    assert entries_in(tmp_path / f"{0:020d}.index") == ENTRIES
    headers.positions.clear()
    assert segment.offset_index.lookup(20) == 1300
    assert place_of(segment, 20) == (1790, 14, 23)
    assert headers.positions == [0, 490]  # of the batches at 1300 and at 1790
    segment.close()


def test_single_records_are_walked_over_one_header_at_a_time(tmp_path: Path, headers: CountingHeaders) -> None:
    fill(tmp_path, [(1, 100)] * 30, 10**6).close()
    index = OffsetIndex(0)
    for entry in ENTRIES:
        index.append(*entry)
    (tmp_path / f"{0:020d}.index").write_bytes(index.encode())
    segment = Segment(DiskStorage(), str(tmp_path), 0, LogConfig(), NOW_MS)  # as after a restart
    walked = {}
    for offset in range(30):
        headers.positions.clear()
        assert place_of(segment, offset) == (100 * offset, offset, offset)
        walked[offset] = len(headers.positions)
    assert walked[20] == 8  # 13 to 20; from the beginning of the file it would be 21
    assert [walked[offset] for offset in (0, 4, 5, 12, 13, 23, 24, 29)] == [1, 5, 1, 8, 1, 11, 1, 6]
    segment.close()


def test_an_empty_index_leads_to_the_beginning(tmp_path: Path, headers: CountingHeaders) -> None:
    segment = fill(tmp_path, [(1, 100)] * 30, 10**6)
    assert entries_in(tmp_path / f"{0:020d}.index") == []
    headers.positions.clear()
    assert place_of(segment, 20) == (2000, 20, 20)
    assert len(headers.positions) == 21
    segment.close()


@pytest.mark.java
def test_kafka_reads_the_same_entries(tmp_path: Path) -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    fill(tmp_path, UNEQUAL_BATCHES, INTERVAL_BYTES).close()
    path = tmp_path / f"{0:020d}.index"
    said = run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(path)).stdout
    assert [(int(a), int(b)) for a, b in re.findall(r"offset: (\d+) position: (\d+)", said)] == ENTRIES
    assert "mismatch" not in said.lower(), said
