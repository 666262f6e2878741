"""Brokers that are dead for a while: topics that are made meanwhile, internal ones too; and how soon they are back."""

from __future__ import annotations

from confluent_kafka import Consumer

from sparkonce import EmbeddedCluster
from tests.cluster.control.clients import QUIET, admin, create, produce

INTERNAL = "__consumer_offsets"


def test_groups_begin_with_one_of_three_brokers_dead() -> None:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}
    with EmbeddedCluster(brokers=3, process=True, config=config) as cluster:
        cluster.kill(3)
        cluster.wait_until(lambda: sorted(cluster.alive) == [1, 2], "the dead broker counts as alive")
        create(admin(cluster.bootstrap_servers), "t", partitions=2, factor=3, min_insync_replicas="2")
        produce(cluster, "t", 0, [b"a", b"b"])
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest", **QUIET}
        )
        try:
            consumer.subscribe(["t"])
            assert [each.value() for each in consumer.consume(2, 30)] == [b"a", b"b"]
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        for topic, partitions in (("t", 2), (INTERNAL, 3)):
            for index in range(partitions):
                state = cluster.state(topic, index)
                assert set(state.replicas) == {1, 2, 3}
                assert state.replicas[-1] == 3
                assert set(state.in_sync_replicas) == {1, 2}
        cluster.restart(3)
        cluster.wait_in_sync()
        assert all(3 in cluster.in_sync_replicas(INTERNAL, index) for index in range(3))


def test_a_broker_does_not_wait_for_the_end_of_its_former_session() -> None:
    """Also where there was nobody to see it die: the file that says which start is there is its own."""
    with EmbeddedCluster(brokers=1, process=True, config={"broker.session.timeout.ms": 600_000}) as cluster:
        create(admin(cluster.bootstrap_servers), "t", partitions=1, factor=1)
        cluster.kill(1)
        cluster.restart(1)
        produce(cluster, "t", 0, [b"a"])
