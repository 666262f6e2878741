"""A follower's fetch that makes records safe, by which a coordinator appends: the follower must not miss that."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sparkonce.broker_lite.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from sparkonce.broker_lite.protocol.records import Record, encode_batch
from sparkonce.broker_lite.replication.replicas import Event, HighWatermarkMoved
from tests.unit.broker.coordinator_cluster import Cluster
from tests.unit.broker.test_transaction_coordinator import World


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(World())
    cluster.create_topic("t", [1, 1])
    return cluster


def append(cluster: Cluster, index: int) -> None:
    led = cluster.brokers[1].leading("t", index)
    led.log.append(encode_batch([Record(None, b"v", cluster.world.now_ms)]), led.leader_epoch, cluster.world.now_ms)


def fetched(cluster: Cluster, follower: int) -> Collection[tuple[str, int]]:
    """Let a follower ask for what comes after all there is; returns for what it has to wait."""
    ends = [cluster.brokers[1].leading("t", index).log.log_end_offset for index in (0, 1)]
    asked = [FetchPartition(index, end, 1 << 20, 0, 0 if end else -1, 0) for index, end in enumerate(ends)]
    topic = FetchTopic("t", cluster.image.topic_ids["t"], asked)
    epoch = cluster.image.broker_epoch(follower)
    wanted = FetchRequest(500, 1, 1 << 20, [topic], replica_id=follower, replica_epoch=epoch)
    return cluster.brokers[1].cluster.follower_fetches.fetched(wanted, uses_topic_ids=True)


def test_a_follower_that_has_everything_waits(cluster: Cluster) -> None:
    append(cluster, 0)
    assert fetched(cluster, 2) == {("t", 0), ("t", 1)}
    assert fetched(cluster, 3) == {("t", 0), ("t", 1)}


def test_a_follower_does_not_wait_for_what_its_own_fetch_has_let_be_appended(cluster: Cluster) -> None:
    append(cluster, 0)
    fetched(cluster, 2)
    member = cluster.brokers[1].member
    assert member is not None

    def on_event(event: Event) -> None:
        if isinstance(event, HighWatermarkMoved) and event.key[1] == 0:
            append(cluster, 1)

    member.listen(on_event)
    assert fetched(cluster, 3) == ()
