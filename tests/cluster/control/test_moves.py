"""Partitions that move from broker to broker while records come in."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sparkonce import EmbeddedCluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.cluster.control.clients import admin, consumed, create, produce
from tests.interop.plain_client import PlainClient

ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS


def move(client: PlainClient, topic: str, replicas: list[int] | None, **fields: Any) -> int:
    """Ask for partition 0 to move; returns the error."""
    kind = apis.request_class(ALTER).ReassignableTopic
    partition = kind.ReassignablePartition(version=1, partition_index=0, replicas=replicas)
    answer = client.ask(ALTER, 1, topics=[kind(version=1, name=topic, partitions=[partition])], **fields)
    assert answer.error_code == 0
    return int(answer.responses[0].partitions[0].error_code)


def under_way(client: PlainClient) -> dict[str, tuple[list[int], list[int]]]:
    answer = client.ask(LIST, 0, topics=None)
    return {
        topic.name: (topic.partitions[0].adding_replicas, topic.partitions[0].removing_replicas)
        for topic in answer.topics
    }


@pytest.mark.parametrize("asked", [1, 2])
def test_a_partition_moves_with_all_it_has(asked: int) -> None:
    with EmbeddedCluster(brokers=4) as cluster, PlainClient(cluster.brokers[asked].bootstrap_servers) as client:
        create(admin(cluster.bootstrap_servers), "t", partitions=1, factor=2, min_insync_replicas="2")
        before = cluster.state("t", 0).replicas
        target = [each for each in (4, 3, 2, 1) if each not in before]
        produce(cluster, "t", 0, [b"%d" % number for number in range(100)])
        during = threading.Thread(
            target=produce, args=(cluster, "t", 0, [b"%d" % number for number in range(100, 300)])
        )
        during.start()
        assert move(client, "t", target) == ErrorCode.NONE
        cluster.wait_until(lambda: cluster.state("t", 0).replicas == tuple(target), "the partition has not moved")
        during.join()
        state = cluster.state("t", 0)
        assert (state.leader, set(state.in_sync_replicas)) == (target[0], set(target))
        cluster.wait_until(lambda: under_way(client) == {}, "a move is under way")
        assert consumed(cluster, "t", 0, 300) == [b"%d" % number for number in range(300)]
        cluster.wait_until(
            lambda: not [each for each in before if (cluster.data_dir / str(each) / "t-0").exists()],
            "what has moved away is still there",
        )


def test_a_move_to_a_broker_that_is_away_waits_and_can_be_given_up() -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=1, factor=2)
        before = cluster.state("t", 0).replicas
        away = next(each for each in cluster.brokers if each not in before)
        cluster.stop(away)
        with PlainClient(cluster.brokers[before[0]].bootstrap_servers) as client:
            assert move(client, "t", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert move(client, "t", [away]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            wanted = [away, before[0]]
            refused = move(client, "t", [*wanted, before[1]], allow_replication_factor_change=False)
            assert refused == ErrorCode.INVALID_REPLICATION_FACTOR
            assert move(client, "t", wanted) == ErrorCode.NONE
            cluster.wait_until(lambda: under_way(client) == {"t": ([away], [before[1]])}, "no move is under way")
            assert move(client, "t", None) == ErrorCode.NONE
            cluster.wait_until(lambda: under_way(client) == {}, "a move is under way")
            assert set(cluster.state("t", 0).replicas) == set(before)
            assert move(client, "no-such", [before[0]]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
