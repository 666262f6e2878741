"""Reads that the disk fails: their partition is refused, the others are answered, and the broker knows."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from lab.sim.disk import SimulatedFile
from lab.sim.machine.process import DATA
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.fetch import FetchPartition
from tests.unit.broker.script import Script
from tests.unit.broker.scripted_follower import SILENT, TOPIC, append, fetch_request, send_fetch, silence


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Return brokers with a record in each of two partitions, of which broker 2 has none yet."""
    silence(monkeypatch)
    with Script() as script:
        script.create_topic(TOPIC, [1, 1])
        for index in (0, 1):
            append(script, index)
            log = script.broker(1).leading(TOPIC, index).log
            answer = fetched(script, SILENT, 0, offset=1)  # so that the records are safe
            assert answer[index] == (ErrorCode.NONE, 0)
            assert log.high_watermark == 1
        yield script


def fetched(script: Script, replica_id: int, isolation_level: int, offset: int = 0) -> dict[int, tuple[ErrorCode, int]]:
    """Let both partitions be fetched; returns the error and how many bytes of records there are of each."""
    asked = [FetchPartition(index, offset, 1 << 20, 0, 0 if offset else -1, 0) for index in (0, 1)]
    wanted = fetch_request(
        script, asked, replica_id=replica_id, isolation_level=isolation_level, session_epoch=-1, max_wait_ms=0
    )
    answer = script.answer(send_fetch(script, wanted))
    assert answer.error_code == 0
    return {
        each.partition: (ErrorCode(each.error_code), len(each.records)) for t in answer.topics for each in t.partitions
    }


@pytest.mark.parametrize("replica_id", [-1, SILENT])
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_partition_that_cannot_be_read_is_refused_alone(
    script: Script,
    replica_id: int,
    isolation_level: int,
    number: int,
    fails: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = script.broker(1).logs
    assert isinstance(logs, LogManager)
    bad = script.brokers[1].disk.files[f"{DATA}/{TOPIC}-0/{0:020}.log"]
    whole = fetched(script, replica_id, isolation_level)
    assert whole[0] == whole[1]
    assert whole[0][1] > 0
    read = SimulatedFile.pread

    def failing(file: SimulatedFile, size: int, position: int) -> bytes:
        if file._content is bad:
            raise OSError(number, "?")
        return read(file, size, position)

    monkeypatch.setattr(SimulatedFile, "pread", failing)
    refused = {0: (ErrorCode.KAFKA_STORAGE_ERROR, 0), 1: whole[1]}
    assert fetched(script, replica_id, isolation_level) == refused
    assert (logs.failure() is not None) == fails


def test_an_error_that_no_log_has_translated_is_refused_and_noted_alike(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "?")

    logs = script.broker(1).logs
    assert isinstance(logs, LogManager)
    monkeypatch.setattr(PartitionLog, "read", failing)
    assert fetched(script, SILENT, 0) == dict.fromkeys((0, 1), (ErrorCode.KAFKA_STORAGE_ERROR, 0))
    assert logs.failure() is not None
