"""What a start after a crash finds past the recovery point: it may be in the memory of the system only."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.records import Record

NOW = 1_700_000_000_000
RECORDS = 2
"""In a batch."""


def open_log(storage: SimulatedDisk, **settings: Any) -> PartitionLog:
    return PartitionLog.open(storage, "/data/t-0", LogConfig(**settings), NOW, clean=False)


def append(log: PartitionLog) -> None:
    log.append(records.encode_batch([Record(None, b"v", NOW)] * RECORDS), 0, NOW)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("segments", [1, 4])
def test_it_is_flushed_as_if_appended_then(segments: int, seed: int) -> None:
    """Consumers see it from now on, so a loss of power must not take it away."""
    storage = SimulatedDisk()
    log = open_log(storage)
    for _ in range(segments):
        log.roll(NOW)
        append(log)
    log.abandon()
    storage.process_died()
    log = open_log(storage, flush_messages=1)
    assert (log.log_end_offset, log.recovery_point) == (RECORDS * segments, RECORDS * segments)
    storage.lose_power(random.Random(seed))
    assert open_log(storage).log_end_offset == RECORDS * segments


def test_the_names_of_older_segments_are_flushed_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the disk with the segments before the recovery point moves past them: a start does not look before it."""
    storage = SimulatedDisk()
    log = open_log(storage)
    append(log)
    log.roll(NOW)
    append(log)
    log.abandon()
    storage.process_died()
    flushed: list[str] = []
    flush_later = storage.flush_later
    monkeypatch.setattr(storage, "flush_later", lambda paths: flushed.extend(paths) or flush_later(paths))
    open_log(storage)
    assert {"/data/t-0", "/data", "/data/t-0/00000000000000000000.log"} <= set(flushed)


def test_nothing_is_flushed_at_once_where_nobody_asked_for_it() -> None:
    storage = SimulatedDisk()
    log = open_log(storage)
    append(log)
    log.abandon()
    log = open_log(storage, flush_ms=10)
    assert log.recovery_point == 0
    log.flush_if_due(NOW + 10)
    assert log.recovery_point == RECORDS
