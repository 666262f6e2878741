"""Reads that the disk fails: their partition is refused, the others are answered, and the broker knows."""

from __future__ import annotations

import errno

import pytest

from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.segment import Slice
from sparkonce.broker_lite.log.storage import File
from sparkonce.broker_lite.node import dispatch
from sparkonce.broker_lite.node.request import Body, Endpoint, Request
from sparkonce.broker_lite.protocol import fetch
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from sparkonce.broker_lite.protocol.records import Record, encode_batch
from sparkonce.broker_lite.sim.disk import SimulatedFile
from tests.unit.broker.coordinator_cluster import Cluster
from tests.unit.broker.test_transaction_coordinator import World

VERSION = 18


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(World())
    cluster.create_topic("t", [1, 1])
    for index in (0, 1):
        led = cluster.brokers[1].leading("t", index)
        batch = encode_batch([Record(None, b"v", cluster.world.now_ms)])
        led.log.append(batch, led.leader_epoch, cluster.world.now_ms)
    cluster.run()
    return cluster


def fetched(cluster: Cluster, replica_id: int, isolation_level: int) -> dict[int, tuple[ErrorCode, int]]:
    """Let both partitions be fetched; returns the error and how many bytes of records there are of each."""
    asked = [FetchPartition(index, 0, 1 << 20, 0, -1, 0) for index in (0, 1)]
    topic = FetchTopic("", cluster.image.topic_ids["t"], asked)
    epoch = cluster.image.broker_epoch(replica_id) if replica_id >= 0 else -1
    wanted = FetchRequest(
        0, 1, 1 << 20, [topic], isolation_level=isolation_level, replica_id=replica_id, replica_epoch=epoch,
        session_epoch=-1,
    )  # fmt: skip
    body = memoryview(bytes(fetch.encode_request(VERSION, wanted)))

    def never(_request: Request, _body: Body) -> None:
        raise AssertionError("it was to be answered at once")

    request = Request(ApiKey.FETCH, VERSION, 1, "f", "h", body, never, "User:ANONYMOUS", Endpoint("h", 1))
    parts = dispatch.handle(cluster.brokers[1], request)
    assert parts is not None
    data = b"".join(part.read() if isinstance(part, Slice) else bytes(part) for part in parts)
    answer = fetch.decode_response(VERSION, memoryview(data))
    assert answer.error_code == 0
    return {
        each.partition: (ErrorCode(each.error_code), len(each.records)) for t in answer.topics for each in t.partitions
    }


@pytest.mark.parametrize("replica_id", [-1, 2])
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_partition_that_cannot_be_read_is_refused_alone(
    cluster: Cluster,
    replica_id: int,
    isolation_level: int,
    number: int,
    fails: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = cluster.brokers[1].logs
    assert isinstance(logs, LogManager)
    bad: File = cluster.brokers[1].leading("t", 0).log.segments[0].file
    whole = fetched(cluster, replica_id, isolation_level)
    assert whole[0] == whole[1]
    read = SimulatedFile.pread

    def failing(file: SimulatedFile, size: int, position: int) -> bytes:
        if file is bad:
            raise OSError(number, "?")
        return read(file, size, position)

    monkeypatch.setattr(SimulatedFile, "pread", failing)
    refused = {0: (ErrorCode.KAFKA_STORAGE_ERROR, 0), 1: whole[1]}
    assert fetched(cluster, replica_id, isolation_level) == refused
    assert (logs.failure() is not None) == fails


def test_an_error_that_no_log_has_translated_is_refused_and_noted_alike(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "?")

    logs = cluster.brokers[1].logs
    assert isinstance(logs, LogManager)
    monkeypatch.setattr(PartitionLog, "read", failing)
    assert fetched(cluster, 2, 0) == dict.fromkeys((0, 1), (ErrorCode.KAFKA_STORAGE_ERROR, 0))
    assert logs.failure() is not None
