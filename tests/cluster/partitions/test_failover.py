"""Three processes, and SIGKILL: what was acknowledged is there, once, in order, and the replicas are equal again."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite.handlers.list_offsets import LATEST
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.frames import read_response_header
from sparkonce.kafka.protocol.produce import ProducePartitionResult, decode_response
from tests.cluster.files import check_files
from tests.cluster.partitions.support import (
    PRODUCE_VERSION,
    Writer,
    client_of,
    create_topic,
    epochs_of,
    read_all,
    send,
    wait_for_equal_logs,
    write,
)
from tests.interop.plain_client import PlainClient

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    settings = {
        "min.insync.replicas": 2,
        "log.segment.bytes": 200_000,
        "replica.lag.time.max.ms": 2_000,  # less than the lease, so that a broker that hangs is out of sync before
    }
    with EmbeddedCluster(3, folder, process=True, config=settings) as running:
        yield running
    check_files(folder)


def test_what_was_acknowledged_outlives_leaders_that_are_killed(cluster: EmbeddedCluster) -> None:
    create_topic(cluster, "kept", PARTITIONS)
    with Writer(cluster, "kept", PARTITIONS) as writer:
        writer.wait_for(200)
        for broker_id in cluster.brokers:
            cluster.kill(broker_id)
            writer.wait_for(200)
            cluster.restart(broker_id)
            cluster.wait_in_sync()
        writer.wait_for(200)
    assert writer.failed == []
    cluster.wait_in_sync()
    found = read_all(cluster, "kept", PARTITIONS, writer.count)
    assert found == writer.acknowledged
    for index in range(PARTITIONS):
        log = wait_for_equal_logs(cluster, f"kept-{index}")
        assert len(epochs_of(log)) > 1, "leaders have changed"


def test_what_a_leader_had_alone_is_cut_off_when_it_comes_back(cluster: EmbeddedCluster) -> None:
    create_topic(cluster, "cut")
    old = cluster.leader("cut", 0)
    others = [broker_id for broker_id in cluster.brokers if broker_id != old]
    with client_of(cluster, old) as client:
        assert write(client, "cut", [b"kept"], acks=-1).error_code == 0
        for broker_id in others:
            cluster.pause(broker_id)
        for _ in range(3):  # the first may be in the answers to fetches that are waiting
            assert write(client, "cut", [b"alone"], acks=1).error_code == 0
        found = client.fetch("cut", 0, 0, isolation_level=0)
        assert found.high_watermark == 1, "consumers see nothing that could be lost"
        cluster.kill(old)
    for broker_id in others:
        cluster.resume(broker_id)
    cluster.wait_until(lambda: cluster.leader("cut", 0) in others, "nobody leads in its place")
    with client_of(cluster, cluster.leader("cut", 0)) as client:
        base_offset = written(client, "cut", b"after").base_offset
    assert base_offset in (1, 2)
    cluster.restart(old)
    cluster.wait_in_sync()
    wait_for_equal_logs(cluster, "cut-0")
    assert read_all(cluster, "cut", 1, 2) == [[b"kept", b"alone", b"after"][:: 3 - base_offset]]


def test_what_was_acknowledged_outlives_the_death_of_all_brokers(cluster: EmbeddedCluster) -> None:
    create_topic(cluster, "all", min_insync_replicas="2")
    values = [b"%d" % number for number in range(20)]
    with client_of(cluster, cluster.leader("all", 0)) as client:
        for value in values:
            assert write(client, "all", [value], acks=-1).error_code == 0
    for broker_id in cluster.brokers:
        cluster.kill(broker_id)
    for broker_id in cluster.brokers:
        cluster.restart(broker_id)
    cluster.wait_in_sync()
    assert read_all(cluster, "all", 1, len(values)) == [values]
    wait_for_equal_logs(cluster, "all-0")


def test_writes_of_one_connection_wait_for_followers_together_and_are_answered_in_order(
    cluster: EmbeddedCluster,
) -> None:
    create_topic(cluster, "together")
    leader = cluster.leader("together", 0)
    others = [broker_id for broker_id in cluster.brokers if broker_id != leader]
    with client_of(cluster, leader) as client, client_of(cluster, leader) as other:
        assert write(client, "together", [b"0"], acks=-1).error_code == 0
        for broker_id in others:
            cluster.pause(broker_id)
        for number in range(1, 5):
            send(client, "together", [b"%d" % number], acks=-1)
        client.send(ApiKey.API_VERSIONS, 0, b"")
        # What is appended to the log later tells that the others are there before any of them was answered.
        cluster.wait_until(lambda: ends_at(other, "together") == 5, "the writes wait for each other")
        for broker_id in others:
            cluster.resume(broker_id)
        assert [answered(client).base_offset for _ in range(4)] == [1, 2, 3, 4]
        assert client.receive(ApiKey.API_VERSIONS, 0)


def test_writes_go_on_without_a_follower_that_hangs_and_it_comes_back(cluster: EmbeddedCluster) -> None:
    create_topic(cluster, "shrunk")
    leader = cluster.leader("shrunk", 0)
    # The controller is left alone: who hangs there is not noticed by others.
    hangs = next(each for each in cluster.brokers if each not in (leader, cluster.controller_id))
    with client_of(cluster, leader) as client:
        assert write(client, "shrunk", [b"v"], acks=-1).error_code == 0
        cluster.pause(hangs)
        assert write(client, "shrunk", [b"w"], acks=-1).error_code == 0
        assert hangs not in cluster.in_sync_replicas("shrunk", 0)
        cluster.resume(hangs)
        cluster.wait_in_sync()
        assert write(client, "shrunk", [b"x"], acks=-1).error_code == 0
    wait_for_equal_logs(cluster, "shrunk-0")


def ends_at(client: PlainClient, topic: str) -> int:
    """Ask as a broker's tool does where a log ends, which consumers are not told."""
    answer = client.ask(ApiKey.LIST_OFFSETS, 7, replica_id=0, isolation_level=0, topics=[(topic, [(0, -1, LATEST)])])
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def answered(client: PlainClient) -> ProducePartitionResult:
    """Read the answer to a Produce, whichever request of the connection it belongs to."""
    (size,) = struct.unpack(">i", client._file.read(4))
    frame = client._file.read(size)
    _, position = read_response_header(ApiKey.PRODUCE, PRODUCE_VERSION, frame)
    return decode_response(PRODUCE_VERSION, memoryview(frame)[position:]).topics[0].partitions[0]


def written(client: PlainClient, topic: str, value: bytes) -> ProducePartitionResult:
    """Write with acks=all to a leader that may have too few in sync for a moment."""
    retriable = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    while (result := write(client, topic, [value], acks=-1)).error_code in retriable:
        pass
    assert result.error_code == 0
    return result
