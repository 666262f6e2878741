"""A follower of partitions that rest: what its leader answers when the time is up, and what it looks at for that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkonce.broker_lite.handlers import fetch as fetch_handler
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node.fetch_sessions import CachedPartition
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.fetch import FetchPartition
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.unit.broker.script import CONTROLLER, LOOK_MS, Script
from tests.unit.broker.scripted_follower import SILENT, TOPIC, WAIT_MS, Follower, append, silence

LAG_MS = 30_000
SESSION_MS = 9_000


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    silence(monkeypatch)
    with Script() as script:
        script.create_topic(TOPIC, [1, 1])
        yield script


@pytest.fixture
def follower(script: Script) -> Follower:
    """Return one that has all of both partitions, two records in the first, and has been told so."""
    append(script)
    append(script)
    follower = Follower(script)
    follower.fetch(at(0, 2), at(1, 0))
    script.pass_time(WAIT_MS)
    assert follower.told() == {0: (2, 0), 1: (0, 0)}
    return follower


def at(index: int, offset: int, leader_epoch: int = 0) -> FetchPartition:
    return FetchPartition(index, offset, 1 << 20, leader_epoch, 0 if offset else -1, 0)


def log(script: Script, index: int = 0) -> PartitionLog:
    return script.broker(1).leading(TOPIC, index).log


def test_where_nothing_has_changed_no_partition_is_read(
    script: Script, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a partition that rests is read")

    monkeypatch.setattr(fetch_handler, "_read_partition", read)
    for _ in range(3):
        follower.fetch()
        script.pass_time(WAIT_MS - 1)
        assert follower.waits
        script.pass_time(1)
        assert follower.told() == {}


def test_a_high_watermark_that_has_moved_is_told(script: Script, follower: Follower) -> None:
    append(script)
    follower.fetch()
    script.pass_time(WAIT_MS)
    assert follower.told() == {0: (2, 0)}
    follower.fetch(at(0, 3))
    script.pass_time(WAIT_MS)
    assert follower.told() == {0: (3, 0)}


def test_a_beginning_that_has_moved_is_told(script: Script, follower: Follower) -> None:
    follower.fetch()
    kind = (TOPIC, [(0, 1)])
    script.send(1, ApiKey.DELETE_RECORDS, 1, topics=[kind], timeout_ms=10 * WAIT_MS)
    script.pass_time(WAIT_MS)
    assert follower.told() == {0: (2, 1)}


def test_records_that_nobody_was_woken_by_are_told(script: Script, follower: Follower) -> None:
    follower.fetch()
    batch = encode_batch([Record(None, b"v", script.brokers[1].now_ms())])
    log(script).append(batch, 0, script.brokers[1].now_ms())
    script.pass_time(WAIT_MS)
    assert list(follower.told()) == [0]


@pytest.mark.parametrize("leader", [3, 1])
def test_who_leads_no_more_or_in_another_epoch_says_so(script: Script, follower: Follower, leader: int) -> None:
    follower.fetch()
    script.let_lead(TOPIC, 1, 3)
    if leader == 1:
        script.let_lead(TOPIC, 1, 1)
    script.pass_time(WAIT_MS)
    assert follower.told() == {1: (-1, -1)}


@pytest.fixture
def resting(follower: Follower) -> Follower:
    """Return one that has everything, as broker 3 has, and has asked for it until nothing of it is looked at again."""
    follower.idle(3)
    return follower


def in_sync(script: Script) -> set[int]:
    """Return who is in sync, when the leader has looked for followers that are behind."""
    process = script.brokers[1].process
    assert process is not None
    assert process.member is not None
    member = process.member
    process.loop.call_soon(lambda: member.publish(member.replicas.tick(script.broker(1).clock.monotonic_ms())))
    script.pass_time(10 * LOOK_MS)
    return set(script.state(TOPIC, 0).in_sync_replicas)


def test_of_a_follower_that_rests_nothing_is_noted_partition_by_partition(
    script: Script, resting: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError("a partition that rests is looked at")

    script.pass_time(10 * WAIT_MS)  # broker 3's partitions rest as well
    monkeypatch.setattr(PartitionLeader, "fetched", fetched)
    monkeypatch.setattr(CachedPartition, "must_tell", fetched)
    resting.idle(3)
    monkeypatch.undo()
    append(script)
    resting.fetch()
    script.pass_time(WAIT_MS)
    assert list(resting.told()) == [0]


def test_a_follower_that_rests_no_more_is_found_to_be_behind(script: Script, resting: Follower) -> None:
    del resting
    append(script)
    script.pass_time(LAG_MS + 1)
    assert in_sync(script) == {1, 3}


def test_a_follower_that_has_rested_is_behind_only_after_its_whole_time(script: Script, resting: Follower) -> None:
    resting.idle(LAG_MS // WAIT_MS + 1)
    append(script)
    script.pass_time(LAG_MS - WAIT_MS)
    assert in_sync(script) == {1, 2, 3}
    script.pass_time(2 * WAIT_MS)
    assert in_sync(script) == {1, 3}


def test_a_follower_that_has_rested_has_been_caught_up_when_it_fetched_last(script: Script, resting: Follower) -> None:
    resting.idle(LAG_MS // WAIT_MS + 1)
    append(script)
    append(script)
    script.pass_time(LAG_MS - WAIT_MS)
    resting.fetch(at(0, 3))
    assert in_sync(script) == {1, 2, 3}, "it has what there was when it fetched before, which is not too long ago"


def test_who_may_not_be_in_sync_joins_as_soon_as_it_may(script: Script, resting: Follower) -> None:
    heartbeats = {(SILENT, CONTROLLER), (CONTROLLER, SILENT)}
    script.network.blocked |= heartbeats
    resting.idle(2 * SESSION_MS // WAIT_MS)
    assert script.state(TOPIC, 0).in_sync_replicas == (1, 3)
    script.network.blocked -= heartbeats
    script.until(lambda: script.image.may_join(SILENT))
    script.pass_time(LOOK_MS)
    assert script.state(TOPIC, 0).in_sync_replicas == (1, 3)
    resting.fetch()
    script.pass_time(10 * LOOK_MS)
    assert set(script.state(TOPIC, 0).in_sync_replicas) == {1, 2, 3}
