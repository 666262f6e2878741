"""A follower of partitions that rest: what its leader answers when the time is up, and what it looks at for that."""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.controller.records import BrokerChanged
from sparkonce.broker_lite.coordinators.fetch_sessions import CachedPartition, next_epoch
from sparkonce.broker_lite.handlers import fetch as fetch_handler
from sparkonce.broker_lite.log.segment import Slice
from sparkonce.broker_lite.node import dispatch
from sparkonce.broker_lite.node.request import Body, Endpoint, Request
from sparkonce.broker_lite.protocol import fetch
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.fetch import FetchPartition
from sparkonce.broker_lite.protocol.records import Record, encode_batch
from sparkonce.broker_lite.replication.leader import PartitionLeader
from tests.unit.broker.coordinator_cluster import Cluster
from tests.unit.broker.test_transaction_coordinator import World

VERSION = 18
WAIT_MS = 500


class Follower:
    """Broker 2, which fetches both partitions of t from broker 1, in a session."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.session_id = self.epoch = 0
        self.answers: list[fetch.FetchResponse] = []

    def fetch(self, *partitions: FetchPartition) -> None:
        topic_id = self.cluster.image.topic_ids["t"]
        topics = [fetch.FetchTopic("", topic_id, partitions)] if partitions else []
        wanted = fetch.FetchRequest(
            WAIT_MS, 1, 1 << 20, topics, session_id=self.session_id, session_epoch=self.epoch, replica_id=2,
            replica_epoch=self.cluster.image.broker_epoch(2),
        )  # fmt: skip
        body = memoryview(bytes(fetch.encode_request(VERSION, wanted)))
        request = Request(
            ApiKey.FETCH, VERSION, 1, "f", "h", body, lambda _, parts: self._take(parts), "User:ANONYMOUS",
            Endpoint("h", 1),
        )  # fmt: skip
        parts = dispatch.handle(self.cluster.brokers[1], request)
        if parts is not None:
            self._take(parts)

    def _take(self, parts: Body) -> None:
        data = b"".join(part.read() if isinstance(part, Slice) else bytes(part) for part in parts)
        answer = fetch.decode_response(VERSION, memoryview(data))
        self.session_id, self.epoch = answer.session_id, next_epoch(self.epoch)
        self.answers.append(answer)

    def told(self) -> dict[int, tuple[int, int]]:
        """Return the high watermark and the start of what the last answer tells of, by partition."""
        (answer,) = self.answers
        self.answers.clear()
        assert answer.error_code == 0
        return {
            each.partition: (each.high_watermark, each.log_start_offset) for t in answer.topics for each in t.partitions
        }


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(World())
    cluster.create_topic("t", [1, 1])
    return cluster


@pytest.fixture
def follower(cluster: Cluster) -> Follower:
    """Return one that has all of both partitions, two records in the first, and has been told so."""
    append(cluster)
    append(cluster)
    follower = Follower(cluster)
    follower.fetch(at(0, 2), at(1, 0))
    cluster.world.pass_time(WAIT_MS)
    assert follower.told() == {0: (0, 0), 1: (0, 0)}
    return follower


def append(cluster: Cluster) -> None:
    led = cluster.brokers[1].leading("t", 0)
    led.log.append(encode_batch([Record(None, b"v", cluster.world.now_ms)]), led.leader_epoch, cluster.world.now_ms)


def at(index: int, offset: int, leader_epoch: int = 0) -> FetchPartition:
    return FetchPartition(index, offset, 1 << 20, leader_epoch, 0 if offset else -1, 0)


def test_where_nothing_has_changed_no_partition_is_read(
    cluster: Cluster, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a partition that rests is read")

    monkeypatch.setattr(fetch_handler, "_read_partition", read)
    for _ in range(3):
        follower.fetch()
        cluster.world.pass_time(WAIT_MS - 1)
        assert follower.answers == []
        cluster.world.pass_time(1)
        assert follower.told() == {}


def test_a_high_watermark_that_has_moved_is_told(cluster: Cluster, follower: Follower) -> None:
    follower.fetch()
    cluster.brokers[1].leading("t", 0).log.advance_high_watermark(2)  # type: ignore[attr-defined]
    cluster.world.pass_time(WAIT_MS)
    assert follower.told() == {0: (2, 0)}


def test_a_beginning_that_has_moved_is_told(cluster: Cluster, follower: Follower) -> None:
    follower.fetch()
    log = cluster.brokers[1].leading("t", 0).log
    log.advance_high_watermark(2)  # type: ignore[attr-defined]
    cluster.world.pass_time(WAIT_MS)
    assert follower.told() == {0: (2, 0)}
    follower.fetch()
    log.advance_start(1)
    cluster.world.pass_time(WAIT_MS)
    assert follower.told() == {0: (2, 1)}


def test_records_that_nobody_was_woken_by_are_told(cluster: Cluster, follower: Follower) -> None:
    follower.fetch()
    append(cluster)
    cluster.world.pass_time(WAIT_MS)
    assert list(follower.told()) == [0]


def test_a_leader_that_is_none_any_more_says_so(cluster: Cluster, follower: Follower) -> None:
    follower.fetch()
    cluster.elect("t", 1, 3)
    cluster.world.pass_time(WAIT_MS)
    assert follower.told() == {1: (-1, -1)}


def test_an_epoch_that_is_over_is_refused(cluster: Cluster, follower: Follower) -> None:
    follower.fetch()
    cluster.elect("t", 1, 1)
    cluster.world.pass_time(WAIT_MS)
    assert follower.told() == {1: (-1, -1)}


LAG_MS = 30_000


@pytest.fixture
def resting(cluster: Cluster, follower: Follower) -> Follower:
    """Return one that has everything, as broker 3 has, and has asked for it until nothing of it is looked at again."""
    leader(cluster).fetched(3, -1, 2, 0, cluster.world.now_ms)
    idle(cluster, follower, 3)
    return follower


def leader(cluster: Cluster, index: int = 0) -> PartitionLeader:
    return cluster.brokers[1].member.replicas.leader((cluster.image.topic_ids["t"], index))


def idle(cluster: Cluster, follower: Follower, times: int) -> None:
    for _ in range(times):
        follower.fetch()
        cluster.world.pass_time(WAIT_MS)
        follower.told()


def proposed(cluster: Cluster) -> list[tuple[int, ...]]:
    """Return who is in sync by what is to be sent to the controller for t-0."""
    cluster.brokers[1].member.publish(cluster.brokers[1].member.replicas.tick(cluster.world.now_ms))
    found = cluster.brokers[1].member.replicas.proposals()
    return [tuple(each for each, _ in proposal.in_sync_replicas) for key, proposal in found if key[1] == 0]


def test_of_a_follower_that_rests_nothing_is_noted_partition_by_partition(
    cluster: Cluster, resting: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError("a partition that rests is looked at")

    monkeypatch.setattr(PartitionLeader, "fetched", fetched)
    monkeypatch.setattr(CachedPartition, "must_tell", fetched)
    idle(cluster, resting, 3)
    monkeypatch.undo()
    append(cluster)
    resting.fetch()
    cluster.world.pass_time(WAIT_MS)
    assert list(resting.told()) == [0]


def test_a_follower_that_has_rested_is_behind_only_after_its_whole_time(cluster: Cluster, resting: Follower) -> None:
    idle(cluster, resting, LAG_MS // WAIT_MS + 1)
    append(cluster)
    cluster.world.pass_time(LAG_MS - WAIT_MS)
    assert proposed(cluster) == [(1, 2)], "broker 3 has been silent for longer"


def test_a_follower_that_rests_no_more_is_found_to_be_behind(cluster: Cluster, resting: Follower) -> None:
    append(cluster)
    cluster.world.pass_time(LAG_MS + 1)
    assert proposed(cluster) == [(1,)]


def test_a_follower_that_has_rested_has_been_caught_up_when_it_fetched_last(
    cluster: Cluster, resting: Follower
) -> None:
    idle(cluster, resting, LAG_MS // WAIT_MS + 1)
    append(cluster)
    append(cluster)
    cluster.world.pass_time(LAG_MS - WAIT_MS)
    resting.fetch(at(0, 3))
    assert proposed(cluster) == [(1, 2)], "it has what there was when it fetched before, which is not too long ago"


def test_who_may_not_be_in_sync_joins_as_soon_as_it_may(cluster: Cluster, resting: Follower) -> None:
    cluster.kill(2)
    idle(cluster, resting, 3)
    assert proposed(cluster) == []
    cluster.decide(BrokerChanged(2, cluster.image.broker_epoch(2), fenced=False, shutting_down=False))
    resting.fetch()
    assert proposed(cluster) == [(1, 3, 2)]
