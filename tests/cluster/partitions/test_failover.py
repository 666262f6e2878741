"""Three processes, and SIGKILL: what was acknowledged is there, once, in order, and the replicas are equal again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_lite import EmbeddedCluster
from broker_lite.protocol.errors import ErrorCode
from broker_lite.protocol.produce import ProducePartitionResult
from tests.cluster.partitions.support import (
    Writer,
    client_of,
    create_topic,
    epochs_of,
    read_all,
    wait_for_equal_logs,
    write,
)
from tests.interop.plain_client import PlainClient

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"min.insync.replicas": 2, "log.segment.bytes": 200_000}
    with EmbeddedCluster(process=True, config=settings) as running:
        yield running


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


def written(client: PlainClient, topic: str, value: bytes) -> ProducePartitionResult:
    """Write with acks=all to a leader that may have too few in sync for a moment."""
    retriable = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    while (result := write(client, topic, [value], acks=-1)).error_code in retriable:
        pass
    assert result.error_code == 0
    return result
