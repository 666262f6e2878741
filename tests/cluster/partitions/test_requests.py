"""What clients and followers hear of a replicated partition, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from sparkonce import EmbeddedCluster
from sparkonce.broker_lite.handlers.list_offsets import EARLIEST, LATEST
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.kafka.protocol import fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.cluster.partitions.support import (
    DEADLINE_S,
    PRODUCE_VERSION,
    ask_offset,
    client_of,
    create_topic,
    send,
    wait_for_equal_logs,
    write,
)
from tests.interop.plain_client import PlainClient

FETCH_VERSION = 12
_numbers = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    name = f"t{next(_numbers)}"
    create_topic(cluster, name, min_insync_replicas="2")
    return name


@pytest.fixture
def leader(cluster: EmbeddedCluster, topic: str) -> Iterator[PlainClient]:
    with client_of(cluster, cluster.leader(topic, 0)) as client:
        yield client


def a_follower(cluster: EmbeddedCluster, topic: str) -> int:
    return next(broker_id for broker_id in cluster.brokers if broker_id != cluster.leader(topic, 0))


def broker_of(cluster: EmbeddedCluster, broker_id: int) -> Broker:
    """Return what runs in the thread of a broker, to look at."""
    broker = cluster.brokers[broker_id]._runner._server.broker  # type: ignore[union-attr]
    assert broker is not None
    return broker


def in_sync_as_known_to(cluster: EmbeddedCluster, broker_id: int, topic: str) -> tuple[int, ...]:
    """Return who is in sync as far as a broker has heard, which may be a moment later than it is so."""
    member = broker_of(cluster, broker_id).member
    assert member is not None
    state = member.image.partition(member.key(topic, 0))
    assert state is not None
    return state.in_sync_replicas


def ask_fetch(client: PlainClient, topic: str, partition: fetch.FetchPartition) -> fetch.FetchPartitionResult:
    request = fetch.FetchRequest(0, 0, 1 << 20, [fetch.FetchTopic(topic, ZERO_UUID, [partition])])
    client.send(ApiKey.FETCH, FETCH_VERSION, fetch.encode_request(FETCH_VERSION, request))
    return client.receive_fetch()


def test_who_does_not_lead_says_who_does(cluster: EmbeddedCluster, topic: str) -> None:
    with client_of(cluster, a_follower(cluster, topic)) as client:
        send(client, topic, [b"v"], acks=-1)
        response = produce.decode_response(PRODUCE_VERSION, client.receive(ApiKey.PRODUCE, PRODUCE_VERSION))
        (result,) = response.topics[0].partitions
        leader = cluster.leader(topic, 0)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader == produce.LeaderHint(leader, 0)
        (node,) = response.node_endpoints
        assert f"{node.host}:{node.port}" == cluster.brokers[leader].bootstrap_servers
        found = ask_fetch(client, topic, fetch.FetchPartition(0, 0, 1 << 20))
        assert (found.error_code, found.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, result.current_leader)
        assert ask_offset(client, topic, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_epochs_that_a_client_names_are_compared(leader: PlainClient, topic: str) -> None:
    assert write(leader, topic, [b"v"], acks=-1).error_code == 0
    found = ask_fetch(leader, topic, fetch.FetchPartition(0, 0, 1 << 20, current_leader_epoch=1))
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    found = ask_fetch(leader, topic, fetch.FetchPartition(0, 5, 1 << 20, last_fetched_epoch=0))
    assert (found.error_code, found.diverging_epoch) == (0, fetch.EpochEndOffset(0, 1))
    assert ask_offset(leader, topic, LATEST).leader_epoch == 0


def test_faults_of_one_partition_are_injected_in_a_cluster_too(
    cluster: EmbeddedCluster, leader: PlainClient, topic: str
) -> None:
    broker = cluster.brokers[cluster.leader(topic, 0)]
    with broker.faults.fail("REQUEST_TIMED_OUT", api="Produce", topic=topic, partition=0, times=1):
        assert write(leader, topic, [b"v"], acks=-1).error_code == ErrorCode.REQUEST_TIMED_OUT
    with broker.faults.delay(50, api="Produce", topic=topic, times=1):
        assert write(leader, topic, [b"v"], acks=-1).base_offset == 0
    assert write(leader, topic, [b"v"], acks=-1).base_offset == 1


def test_a_consumer_that_waits_is_answered_when_followers_have_the_records(
    cluster: EmbeddedCluster, leader: PlainClient, topic: str
) -> None:
    leader.send_fetch(topic, 0, 0, isolation_level=0, min_bytes=1, max_wait_ms=60_000)
    with client_of(cluster, cluster.leader(topic, 0)) as other:
        assert write(other, topic, [b"v"], acks=1).error_code == 0
    found = leader.receive_fetch()
    assert found.high_watermark == 1
    assert found.records


def test_records_are_deleted_on_every_replica_before_the_answer(
    cluster: EmbeddedCluster, leader: PlainClient, topic: str
) -> None:
    for _ in range(4):
        assert write(leader, topic, [b"a", b"b"], acks=-1).error_code == 0
    answer = leader.ask(ApiKey.DELETE_RECORDS, 2, topics=[(topic, [(0, 5)])], timeout_ms=30_000)
    (deleted,) = answer.topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (0, 5)
    assert ask_offset(leader, topic, EARLIEST).offset == 5
    for broker_id in cluster.brokers:
        assert broker_of(cluster, broker_id).logs.partition(topic, 0).log_start_offset == 5


def test_a_follower_that_was_away_begins_where_its_leader_now_begins(cluster: EmbeddedCluster, topic: str) -> None:
    away = a_follower(cluster, topic)
    with client_of(cluster, cluster.leader(topic, 0)) as client:
        assert write(client, topic, [b"gone"] * 3, acks=-1).error_code == 0
        cluster.stop(away)
        assert write(client, topic, [b"gone", b"kept"], acks=-1).error_code == 0
        answer = client.ask(ApiKey.DELETE_RECORDS, 2, topics=[(topic, [(0, 4)])], timeout_ms=30_000)
        assert answer.topics[0].partitions[0].error_code == 0
        cluster.restart(away)
        cluster.wait_in_sync()
        log = broker_of(cluster, away).logs.partition(topic, 0)
        assert (log.log_start_offset, log.log_end_offset) == (4, 5)
        assert write(client, topic, [b"kept"], acks=-1).error_code == 0


def test_acks_all_is_refused_where_too_few_are_in_sync_and_followers_catch_up_after(
    cluster: EmbeddedCluster, topic: str
) -> None:
    leader = cluster.leader(topic, 0)
    others = [broker_id for broker_id in cluster.brokers if broker_id != leader]
    with client_of(cluster, leader) as client:
        assert write(client, topic, [b"v"], acks=-1).error_code == 0
        for broker_id in others:
            cluster.stop(broker_id)
        cluster.wait_until(
            lambda: in_sync_as_known_to(cluster, leader, topic) == (leader,), "others are in sync", DEADLINE_S
        )
        assert write(client, topic, [b"v"], acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert write(client, topic, [b"w"], acks=1).error_code == 0
        for broker_id in others:
            cluster.restart(broker_id)
        cluster.wait_in_sync()
        assert write(client, topic, [b"x"], acks=-1).error_code == 0
    wait_for_equal_logs(cluster, f"{topic}-0")
