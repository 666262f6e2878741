"""Brokers that die, hang and stop, as processes: who leads then, and what clients hear of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic

from sparkonce import EmbeddedCluster
from tests.cluster.control.clients import admin, consumed, create, leaders, produce, refusal, told_leaders

QUICK = {
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_500,
    "controller.quorum.fetch.timeout.ms": 500,
    "replica.lag.time.max.ms": 2_000,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, process=True, config=QUICK) as cluster:
        yield cluster


@pytest.fixture
def whole(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster, with all of its brokers in it."""
    cluster.wait_until(lambda: sorted(cluster.alive) == [1, 2, 3], "not all brokers are alive")
    return cluster


def others(cluster: EmbeddedCluster, *broker_ids: int) -> list[int]:
    return [each for each in cluster.brokers if each not in broker_ids]


def test_a_leader_that_is_killed_is_replaced_and_comes_back(whole: EmbeddedCluster) -> None:
    client = admin(whole.bootstrap_servers)
    create(client, "killed", min_insync_replicas="2")
    victim = others(whole, whole.controller_id)[0]
    led = [index for index, leader in told_leaders(whole, "killed", 3).items() if leader == victim]
    assert led, "leadership is spread over all brokers"
    produce(whole, "killed", led[0], [b"before"])
    whole.kill(victim)
    whole.wait_until(lambda: victim not in told_leaders(whole, "killed", 3).values(), "the dead broker leads")
    assert leaders(client, "killed") == told_leaders(whole, "killed", 3)
    assert victim not in client.list_topics(timeout=10).brokers
    produce(whole, "killed", led[0], [b"after"])
    whole.restart(victim)
    whole.wait_in_sync()
    assert consumed(whole, "killed", led[0], 2) == [b"before", b"after"]
    preferred = [TopicPartition("killed", led[0])]
    assert client.elect_leaders(ElectionType.PREFERRED, preferred).result(20)[preferred[0]] is None
    assert whole.leader("killed", led[0]) == victim
    again = client.elect_leaders(ElectionType.PREFERRED, preferred).result(20)[preferred[0]]
    assert again is not None
    assert again.name() == "ELECTION_NOT_NEEDED"


def test_a_controller_that_is_killed_is_replaced(whole: EmbeddedCluster) -> None:
    former = whole.controller_id
    client = admin(whole.bootstrap_servers)
    create(client, "before")
    whole.kill(former)
    whole.wait_until(lambda: whole.controller_id != former, "the dead broker is the controller")
    whole.wait_until(lambda: former not in whole.alive, "the dead broker counts as alive")
    create(client, "without", factor=2)
    assert former not in {each for index in range(3) for each in whole.state("without", index).replicas}
    create(client, "with", partitions=1)
    assert whole.state("with", 0).replicas[-1] == former, "it will have it when it is back"
    assert refusal(client.create_topics([NewTopic("too-many", 1, 4)])) == "INVALID_REPLICATION_FACTOR"
    assert client.list_topics(timeout=10).controller_id == whole.controller_id
    whole.restart(former)
    whole.wait_in_sync()
    assert {"before", "without"} <= client.list_topics(timeout=10).topics.keys()


def test_a_broker_that_stops_hands_over_first(whole: EmbeddedCluster) -> None:
    client = admin(whole.bootstrap_servers)
    create(client, "handed", min_insync_replicas="2")
    whole.wait_in_sync()
    stopping = whole.controller_id
    whole.stop(stopping)
    assert stopping not in told_leaders(whole, "handed", 3).values()
    whole.wait_until(lambda: whole.controller_id != stopping, "a broker that has stopped is the controller")
    assert stopping not in whole.alive
    for index in range(3):
        produce(whole, "handed", index, [b"x"])
    whole.restart(stopping)
    whole.wait_in_sync()


def test_a_controller_that_hangs_is_replaced_and_is_none_when_it_goes_on(whole: EmbeddedCluster) -> None:
    former = whole.controller_id
    client = admin(",".join(whole.brokers[each].bootstrap_servers for each in others(whole, former)))
    whole.pause(former)
    whole.wait_until(lambda: whole.controller_id != former, "a broker that hangs is the controller")
    whole.wait_until(lambda: former not in whole.alive, "a broker that hangs keeps its lease")
    create(client, "hung", factor=2)
    whole.resume(former)
    whole.wait_until(lambda: former in whole.alive, "the broker that hung is not taken in again")
    assert whole.controller_id != former
    create(admin(whole.brokers[former].bootstrap_servers), "hung-again")
    whole.wait_in_sync()


def test_a_cluster_that_is_killed_as_a_whole_comes_back_with_all_it_had(whole: EmbeddedCluster) -> None:
    client = admin(whole.bootstrap_servers)
    create(client, "all")
    produce(whole, "all", 0, [b"kept"])
    for broker_id in whole.brokers:
        whole.kill(broker_id)
    for broker_id in whole.brokers:
        whole.restart(broker_id)
    whole.wait_in_sync()
    assert consumed(whole, "all", 0, 1) == [b"kept"]
