"""What makes a log shorter at its start: deleted records, and segments that are too old or too many."""

from __future__ import annotations

import pytest

from broker_lite.log.config import LogConfig
from broker_lite.log.partition_log import PartitionLog
from broker_lite.protocol import records
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.records import Record
from tests.unit.log.memory_storage import MemoryStorage

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def batch(*timestamps: int, size: int = 20) -> bytearray:
    return records.encode_batch([Record(None, b"v" * size, at) for at in timestamps or (NOW,)])


def filled(storage: MemoryStorage, count: int, config: LogConfig = SMALL) -> PartitionLog:
    log = PartitionLog.open(storage, DIRECTORY, config, NOW)
    for index in range(count):
        log.append(batch(NOW), index // 10, NOW)
    return log


def test_deleted_records_are_not_read_any_more() -> None:
    log = filled(MemoryStorage(), 30)
    assert log.delete_records(0, NOW) == 0
    assert log.delete_records(13, NOW) == 13
    assert log.delete_records(5, NOW) == 13
    with pytest.raises(KafkaError) as caught:
        log.read(12, 1000, min_one_batch=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert next(records.decode_all(log.read(13, 1000, min_one_batch=True).read())).offset == 13
    assert log.leader_epochs.entries == [(1, 13), (2, 20)]
    assert log.delete_records(20, NOW) == 20
    assert log.leader_epochs.entries == [(2, 20)]
    assert log.delete_records(-1, NOW) == log.log_end_offset == 30
    assert log.leader_epochs.entries == [(2, 30)]


@pytest.mark.parametrize("offset", [-2, 31])
def test_records_that_are_not_there_cannot_be_deleted(offset: int) -> None:
    log = filled(MemoryStorage(), 30)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(offset, NOW)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0
