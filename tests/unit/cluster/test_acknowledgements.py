"""Waiting until records are safe, with a clock and replicas of the test's."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sparkonce.broker_lite.cluster.acknowledgements import Acknowledgements
from sparkonce.broker_lite.replication.replicas import Follows, Gone, HighWatermarkMoved, Leads
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.handling import when

KEY = (uuid.UUID(int=1), 0)
OTHER = (uuid.UUID(int=1), 1)


class World:
    """One broker's high watermarks, a clock, and timers that go off when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 1000
        self.high_watermarks = {KEY: 0, OTHER: 0}
        self.too_few = False
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.waiting = Acknowledgements(self, self, lambda: self.now_ms)  # type: ignore[arg-type]
        self.heard: list[tuple[str, ErrorCode]] = []

    def leader(self, key: tuple[uuid.UUID, int]) -> SimpleNamespace:
        if key not in self.high_watermarks:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        def is_acknowledged(last_offset: int) -> bool:
            if self.high_watermarks[key] <= last_offset:
                return False
            if self.too_few:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            return True

        return SimpleNamespace(is_acknowledged=is_acknowledged)

    def call_later(self, delay: float, callback: Callable[[], object]) -> SimpleNamespace:
        timer = (self.now_ms + delay * 1000, callback)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def wait(self, name: str, last_offset: int, timeout_ms: int = 100, key: tuple[uuid.UUID, int] = KEY) -> None:
        when(self.waiting.safe(key, last_offset, timeout_ms), lambda code: self.heard.append((name, code)))

    def safe(self, offset: int) -> None:
        self.high_watermarks[KEY] = offset
        self.waiting.on_event(HighWatermarkMoved(KEY))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        for timer in [each for each in self.timers if each[0] <= self.now_ms]:
            self.timers.remove(timer)
            timer[1]()


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_safe_is_told_at_once_and_nothing_waits(world: World) -> None:
    world.safe(5)
    world.wait("a", 4)
    assert world.heard == [("a", ErrorCode.NONE)]
    assert (world.waiting.size, world.timers) == (0, [])


def test_each_hears_when_the_high_watermark_has_passed_it_the_lowest_first(world: World) -> None:
    for name, offset in (("c", 9), ("a", 3), ("b", 3), ("d", 12)):
        world.wait(name, offset)
    world.safe(3)
    assert world.heard == []
    world.safe(10)
    assert world.heard == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE), ("c", ErrorCode.NONE)]
    assert world.waiting.size == 1


@pytest.mark.parametrize("event", [Leads(KEY), Follows(KEY, 2), Gone(KEY)])
def test_a_change_of_the_leader_ends_the_wait_of_that_partition_only(
    world: World, event: Leads | Follows | Gone
) -> None:
    world.wait("a", 3)
    world.wait("b", 3, key=OTHER)
    world.waiting.on_event(event)
    assert world.heard == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert world.waiting.size == 1


def test_who_does_not_lead_says_so_at_once(world: World) -> None:
    del world.high_watermarks[KEY]
    world.wait("a", 3)
    assert world.heard == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_too_few_replicas_after_the_append_are_told(world: World) -> None:
    world.wait("a", 3)
    world.too_few = True
    world.safe(4)
    assert world.heard == [("a", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]


def test_time_runs_out_for_each_by_itself(world: World) -> None:
    world.wait("slow", 9, 300)
    world.wait("quick", 20, 100)
    world.wait("middle", 5, 200)
    world.pass_ms(99)
    assert world.heard == []
    world.pass_ms(1)
    assert world.heard == [("quick", ErrorCode.REQUEST_TIMED_OUT)]
    world.safe(6)
    assert world.heard[1:] == [("middle", ErrorCode.NONE)]
    world.pass_ms(100)
    world.pass_ms(100)
    assert world.heard[2:] == [("slow", ErrorCode.REQUEST_TIMED_OUT)]
    assert (world.waiting.size, world.timers) == (0, [])


def test_who_hears_may_wait_for_more(world: World) -> None:
    when(world.waiting.safe(KEY, 3, 100), lambda _: world.wait("second", 3))
    when(world.waiting.safe(KEY, 4, 100), lambda _: world.wait("third", 7))
    world.safe(6)
    assert world.heard == [("second", ErrorCode.NONE)]
    world.safe(8)
    assert world.heard[1:] == [("third", ErrorCode.NONE)]
    world.waiting.close()
    assert world.timers == []


def test_a_mistake_of_one_that_is_called_back_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def mistaken(_: ErrorCode) -> None:
        raise RuntimeError("by the test")

    heard: list[ErrorCode] = []
    for event in (Follows(KEY, 2), HighWatermarkMoved(KEY)):
        world.high_watermarks[KEY] = 0
        for then in (mistaken, heard.append):
            when(world.waiting.safe(KEY, 4, 60_000), then)
        world.high_watermarks[KEY] = 5
        world.waiting.on_event(event)
    assert heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    assert caplog.text.count("by the test") >= 2
