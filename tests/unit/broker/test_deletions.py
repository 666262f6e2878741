"""Deleting records waits for every replica that is there: whose starts count, who is told what, and when."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sparkonce.broker_lite.node.deletions import Deletions
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.handling import when

KEY = (uuid.UUID(int=1), 0)


class World:
    """A leader that begins at 10, and followers 2 and 3 of which both are there."""

    def __init__(self) -> None:
        self.starts = {2: 0, 3: 0}
        self.there = {2, 3}
        self.leads = True
        self.timers: list[Callable[[], object]] = []
        member = SimpleNamespace(
            image=SimpleNamespace(may_join=self.there.__contains__), replicas=SimpleNamespace(leader=self.leader)
        )
        self.deletions = Deletions(member, self)  # type: ignore[arg-type]
        self.heard: list[tuple[ErrorCode, int]] = []

    def leader(self, _key: object) -> SimpleNamespace:
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        followers = {each: SimpleNamespace(log_start_offset=start) for each, start in self.starts.items()}
        return SimpleNamespace(log=SimpleNamespace(log_start_offset=10), followers=followers)

    def call_later(self, _delay: float, callback: Callable[[], object]) -> SimpleNamespace:
        self.timers.append(callback)
        return SimpleNamespace(cancel=lambda: self.timers.remove(callback))

    def wait(self, offset: int = 10) -> None:
        when(self.deletions.deleted(KEY, offset, 100), self.heard.append)

    def fetched(self, broker_id: int, start: int) -> None:
        self.starts[broker_id] = start
        self.deletions.fetched(KEY)


@pytest.fixture
def world() -> World:
    return World()


def test_the_answer_waits_for_the_last_replica(world: World) -> None:
    world.wait()
    world.fetched(2, 10)
    assert world.heard == []
    world.fetched(3, 10)
    assert world.heard == [(ErrorCode.NONE, 10)]
    assert world.timers == []


def test_each_waits_for_its_own_offset(world: World) -> None:
    world.wait(10)
    world.wait(4)
    world.fetched(2, 10)
    world.fetched(3, 5)
    assert world.heard == [(ErrorCode.NONE, 5)]
    world.fetched(3, 10)
    assert world.heard[1:] == [(ErrorCode.NONE, 10)]


def test_a_broker_that_is_not_there_is_not_waited_for(world: World) -> None:
    world.there.clear()
    world.wait()
    assert world.heard == [(ErrorCode.NONE, 10)]


def test_time_runs_out(world: World) -> None:
    world.wait()
    world.timers.pop()()
    assert world.heard == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    world.fetched(2, 10)
    world.fetched(3, 10)
    assert len(world.heard) == 1


def test_another_leader_ends_the_wait(world: World) -> None:
    world.wait()
    world.deletions.lost(KEY)
    world.deletions.lost(KEY)
    assert (world.heard, world.timers) == ([(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)], [])
    world.leads = False
    with pytest.raises(KafkaError):
        world.wait()
    world.leads = True
    world.wait()
    world.leads = False
    world.fetched(2, 10)
    assert world.heard[1:] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
