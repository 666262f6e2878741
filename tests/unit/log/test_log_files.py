"""The files beside the records: indexes, snapshots, checkpoints; their bytes, and what is said of damaged ones."""

from __future__ import annotations

import errno
import os
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.log import checkpoints, storage
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.offset_index import CorruptIndexError, OffsetIndex
from sparkonce.broker_lite.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from sparkonce.broker_lite.log.producer_state import AppendedBatch, ProducerEntry
from sparkonce.broker_lite.log.time_index import TimeIndex
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


def test_the_articles_index_leads_to_the_batchs_start() -> None:
    index = OffsetIndex(0)
    for offset, position in ((5, 500), (13, 1300), (24, 2400)):
        index.append(offset, position)
    assert [index.lookup(offset) for offset in (0, 4, 5, 12, 13, 20, 23, 24, 2**40)] == [
        *(0, 0, 500, 500, 1300, 1300, 1300, 2400, 2400)
    ]


@given(st.integers(0, 2**40), st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=50))
def test_offset_index_files(base: int, steps: list[tuple[int, int]]) -> None:
    index = OffsetIndex(base)
    relative = position = 0
    expected = b""
    for offset_step, position_step in steps:
        relative, position = relative + offset_step, position + position_step
        index.append(base + relative, position)
        expected += struct.pack(">ii", relative, position)
    assert index.encode() == expected
    again = OffsetIndex.decode(base, expected, position + 1)
    assert again.encode() == expected
    assert again.lookup(base + relative) == position
    if steps:
        with pytest.raises(CorruptIndexError):
            OffsetIndex.decode(base, expected, position)
        with pytest.raises(CorruptIndexError):
            OffsetIndex.decode(base, expected[:-1], position + 1)


def test_time_index_files() -> None:
    index = TimeIndex(100)
    assert index.last == (-1, 100)
    for timestamp, offset in ((10, 105), (10, 107), (9, 110), (30, 120)):
        index.maybe_append(timestamp, offset)
    assert index.encode() == struct.pack(">qiqi", 10, 5, 30, 20)
    assert [index.lookup(timestamp) for timestamp in (0, 9, 10, 29, 30, 99)] == [100, 100, 105, 105, 120, 120]
    assert TimeIndex.decode(100, index.encode()).last == (30, 120)
    for bad in (b"123", struct.pack(">qiqi", 10, 5, 9, 20), struct.pack(">qiqi", 10, 5, 11, 4)):
        with pytest.raises(CorruptIndexError):
            TimeIndex.decode(100, bad)


ENTRIES = st.lists(
    st.builds(
        lambda pid, epoch, sequence, offset, delta, at: ProducerEntry(
            pid, epoch, deque([AppendedBatch(sequence, offset, delta, at)], maxlen=5), at
        ),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 2**62),
    ),
    max_size=10,
)


@given(ENTRIES)
def test_snapshots_come_back(entries: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


@given(ENTRIES, st.data())
def test_damaged_snapshots_are_noticed(entries: list[ProducerEntry], data: st.DataObject) -> None:
    content = bytearray(encode_snapshot(entries))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(content), encode_snapshot(entries)[:-1], b""):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(damaged)


def test_offset_checkpoints() -> None:
    offsets = {("b", 1): 7, ("a-x", 0): 2**40, ("b", 0): 0}
    text = b"0\n3\na-x 0 1099511627776\nb 0 0\nb 1 7\n"
    assert checkpoints.encode_offsets(offsets) == text
    assert checkpoints.decode_offsets(text) == offsets
    for bad in (b"", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"\xff\n0\n", b"0\nx\n"):
        with pytest.raises(checkpoints.CheckpointFormatError):
            checkpoints.decode_offsets(bad)


def test_leader_epoch_checkpoints() -> None:
    entries = [checkpoints.EpochStart(0, 0), checkpoints.EpochStart(3, 17)]
    assert checkpoints.encode_leader_epochs(entries) == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.decode_leader_epochs(b"0\n2\n0 0\n3 17\n") == entries
    with pytest.raises(checkpoints.CheckpointFormatError):
        checkpoints.decode_leader_epochs(b"0\n1\n0\n")


def test_partition_metadata_and_properties() -> None:
    topic_id = uuid.UUID("0f9a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8")
    content = checkpoints.encode_partition_metadata(topic_id)
    assert content == b"version: 0\ntopic_id: D5orPE1eb3CBkqO0xdbn-A"
    assert checkpoints.decode_partition_metadata(content) == topic_id
    for bad in (b"", b"version: 0", b"topic_id: x", b"topic_id: \xff\xff"):
        with pytest.raises(checkpoints.CheckpointFormatError):
            checkpoints.decode_partition_metadata(bad)
    properties = {"version": "1", "cluster.id": "abc"}
    assert checkpoints.decode_properties(b"# comment\n\n" + checkpoints.encode_properties(properties)) == properties


def test_topic_settings() -> None:
    config = LogConfig().with_topic_settings({"segment.bytes": "500", "retention.ms": "-1"})
    assert (config.segment_bytes, config.segment_ms) == (500, LogConfig().segment_ms)
    assert LogConfig().with_topic_settings({"message.timestamp.type": "LogAppendTime"}).log_append_time
    for settings, said in (
        ({"segment.byte": "500"}, "did you mean segment.bytes"),
        ({"segment.bytes": "x"}, "expected a whole number"),
        ({"segment.bytes": "13"}, "must be at least 14"),
        ({"flush.ms": str(2**63)}, "must be at most"),
        ({"segment.bytes": str(2**31)}, "must be at most"),
        ({"message.timestamp.type": "Never"}, "expected one of CreateTime, LogAppendTime"),
        ({"cleanup.policy": "delete,tidy"}, "'tidy' is none of compact, delete"),
        ({"compression.gzip.level": "0"}, "must be at least 1"),
        ({"remote.storage.enable": "true"}, "tiered storage is not served"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "exceeds"),
    ):
        with pytest.raises(KafkaError, match=said) as caught:
            LogConfig().with_topic_settings(settings)
        assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "decode", [checkpoints.decode_leader_epochs, checkpoints.decode_offsets], ids=["leader epochs", "offsets"]
)
def test_no_torn_checkpoint_is_read_as_a_whole_one(decode: Callable[[bytes], object]) -> None:
    if decode is checkpoints.decode_leader_epochs:
        whole = checkpoints.encode_leader_epochs([checkpoints.EpochStart(0, 0), checkpoints.EpochStart(9, 34)])
    else:
        whole = checkpoints.encode_offsets({("t", 0): 5, ("t", 1): 34})
    decode(whole)
    for size in range(len(whole)):
        with pytest.raises(checkpoints.CheckpointFormatError):
            decode(whole[:size])


@pytest.mark.parametrize("entries", [[(0, 0), (9, 17), (11, 3)], [(0, 0), (0, 4)], [(2, 0), (1, 4)]])
def test_leader_epochs_that_do_not_rise_are_damaged(entries: list[tuple[int, int]]) -> None:
    data = checkpoints.encode_leader_epochs(checkpoints.EpochStart(*each) for each in entries)
    with pytest.raises(checkpoints.CheckpointFormatError, match="comes after"):
        checkpoints.decode_leader_epochs(data)


def lacking_descriptors(times: int, number: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let this many files not be opened; returns how long is waited for the next try."""
    waited: list[float] = []
    real, left = os.open, [times]

    def opened(path: str, flags: int, *more: int) -> int:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_flush_waits_for_a_descriptor(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = storage.DiskStorage()
    disk.open(f"{tmp_path}/a").append(b"1")
    waited = lacking_descriptors(3, number, monkeypatch)
    disk.flush_later([f"{tmp_path}/a", f"{tmp_path}/gone", str(tmp_path)]).result()
    assert len(waited) == 3
    disk.close()


@pytest.mark.parametrize(("number", "tries"), [(errno.EMFILE, 50), (errno.EIO, 1)])
def test_a_flush_does_not_wait_for_ever_nor_for_anything_else(
    number: int, tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = storage.DiskStorage()
    disk.open(f"{tmp_path}/a").append(b"1")
    waited = lacking_descriptors(1000, number, monkeypatch)
    with pytest.raises(OSError, match=os.strerror(number)):
        disk.flush_later([f"{tmp_path}/a"]).result()
    assert len(waited) == tries - 1
    monkeypatch.undo()
    disk.close()


def test_a_close_that_fails_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is free all the same, and by then another file's."""
    close, closed = os.close, []

    def fail(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    disk = storage.DiskStorage()
    file, lock = disk.open(str(tmp_path / "file")), disk.lock(str(tmp_path / "lock"))
    with monkeypatch.context() as failing:
        failing.setattr(os, "close", fail)
        for end in (file.close, lock.release):
            with pytest.raises(OSError, match="Input/output"):
                end()
            end()
    assert len(closed) == 2
