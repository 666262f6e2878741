"""Topics of a cluster, asked for at any of its brokers; all in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from sparkonce import EmbeddedCluster
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.cluster.control.clients import admin, consumed, create, leaders, produce, refusal, told_leaders
from tests.interop.plain_client import PlainClient


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config={"leader.imbalance.check.interval.seconds": 1}) as cluster:
        yield cluster


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_any_broker_tells_of_all_brokers_and_has_topics_made(cluster: EmbeddedCluster, broker_id: int) -> None:
    client = admin(cluster.brokers[broker_id].bootstrap_servers)
    create(client, f"by-{broker_id}")
    found = client.list_topics(timeout=10)
    assert set(found.brokers) == {1, 2, 3}
    assert found.controller_id == cluster.controller_id
    assert leaders(client, f"by-{broker_id}") == told_leaders(cluster, f"by-{broker_id}", 3)
    assert set(told_leaders(cluster, f"by-{broker_id}", 3).values()) == {1, 2, 3}
    described = client.describe_cluster().result(20)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert described.controller.id == cluster.controller_id
    produce(cluster, f"by-{broker_id}", 0, [b"x", b"y"])
    assert consumed(cluster, f"by-{broker_id}", 0, 2) == [b"x", b"y"]


def test_topics_are_changed_and_deleted_through_any_broker(cluster: EmbeddedCluster) -> None:
    first, second = (admin(cluster.brokers[each].bootstrap_servers) for each in (1, 2))
    create(first, "changing", partitions=1, factor=2)
    (future,) = second.create_partitions([NewPartitions("changing", 3)]).values()
    future.result(20)
    assert [len(cluster.state("changing", index).replicas) for index in range(3)] == [2, 2, 2]
    resource = ConfigResource(ResourceType.TOPIC, "changing")
    entry = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, "changing", incremental_configs=[entry])
    (future,) = first.incremental_alter_configs([changed]).values()
    future.result(20)
    (future,) = first.describe_configs([resource]).values()
    assert future.result(20)["min.insync.replicas"].value == "2"
    (future,) = second.delete_topics(["changing"]).values()
    future.result(20)
    assert "changing" not in second.list_topics(timeout=10).topics
    with pytest.raises(KeyError, match="no topic 'changing'"):
        cluster.leader("changing", 0)


def test_what_the_controller_refuses_is_refused_everywhere(cluster: EmbeddedCluster) -> None:
    for broker in cluster.brokers.values():
        client = admin(broker.bootstrap_servers)
        assert refusal(client.create_topics([NewTopic("x", 1, 4)])) == "INVALID_REPLICATION_FACTOR"
        assert refusal(client.create_topics([NewTopic("x", 1, replica_assignment=[[1, 9]])])) == (
            "INVALID_REPLICA_ASSIGNMENT"
        )
        assert refusal(client.create_topics([NewTopic("x", 1, 1, config={"no": "such"})])) == "INVALID_CONFIG"
        assert refusal(client.delete_topics(["x"])) == "UNKNOWN_TOPIC_OR_PART"
    create(client, "twice")
    assert refusal(client.create_topics([NewTopic("twice", 1, 1)])) == "TOPIC_ALREADY_EXISTS"


def test_replicas_may_be_given(cluster: EmbeddedCluster) -> None:
    client = admin(cluster.bootstrap_servers)
    (future,) = client.create_topics([NewTopic("given", 2, replica_assignment=[[3, 1], [2, 3]])]).values()
    future.result(20)
    assert [cluster.state("given", index).replicas for index in (0, 1)] == [(3, 1), (2, 3)]


def test_a_topic_is_made_on_first_use_with_the_replicas_that_are_the_default(cluster: EmbeddedCluster) -> None:
    produce(cluster, "first-use", 0, [b"x"])
    assert len(cluster.state("first-use", 0).replicas) == 3
    for broker_id, broker in cluster.brokers.items():
        with PlainClient(broker.bootstrap_servers) as client:
            wanted = {"topics": [(f"first-use-{broker_id}",)], "allow_auto_topic_creation": True}

            def error(client: PlainClient = client, wanted: dict[str, Any] = wanted) -> int:
                return int(client.ask(ApiKey.METADATA, 9, **wanted).topics[0].error_code)

            assert error() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the controller or not: as in Kafka"
            cluster.wait_until(lambda error=error: error() == 0, "the topic is not made")  # type: ignore[misc]


def test_leadership_goes_back_to_who_is_preferred_by_itself(cluster: EmbeddedCluster) -> None:
    create(admin(cluster.bootstrap_servers), "balanced")
    cluster.wait_in_sync()
    cluster.stop(2)
    cluster.wait_until(lambda: 2 not in told_leaders(cluster, "balanced", 3).values(), "broker 2 still leads")
    cluster.restart(2)
    cluster.wait_until(lambda: 2 in told_leaders(cluster, "balanced", 3).values(), "broker 2 leads nothing")
