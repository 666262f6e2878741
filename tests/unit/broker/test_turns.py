"""Work that is done in turns: in order, bounded, and ended where it fails or nobody waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from sparkonce.broker_lite.node.request import DROP, Body, Endpoint, Request
from sparkonce.broker_lite.node.turns import MAX_UNITS_PER_TURN, Steps, Turns


class Loop:
    """A scheduler whose rounds are taken one by one."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: Callable[[], object]) -> object:
        self.waiting.append(callback)
        return None

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        raise AssertionError("turns are not timed")


class Stage:
    def __init__(self) -> None:
        self.loop = Loop()
        self.failures: list[str] = []
        self.turns = Turns(self.loop, lambda _, error: self.failures.append(str(error)))
        self.done: list[str] = []
        self.answers: dict[int, Body] = {}
        self.per_round: list[list[str]] = []

    def request(self, number: int) -> Request:
        def send(request: Request, body: Body) -> None:
            self.answers[request.correlation_id] = body

        body = memoryview(bytearray(b"%d" % number))
        return Request(19, 7, number, "", "h", body, send, "User:ANONYMOUS", Endpoint("h", 1))

    def steps(self, name: str, count: int, units: int = MAX_UNITS_PER_TURN) -> Steps:
        for number in range(count):
            self.done.append(f"{name}{number}")
            yield units
        return [name.encode()]

    def round(self) -> list[str]:
        before = len(self.done)
        for callback in [self.loop.waiting.popleft() for _ in range(len(self.loop.waiting))]:
            callback()
        return self.done[before:]


def test_what_fits_into_one_turn_is_answered_at_once() -> None:
    stage = Stage()
    assert stage.turns.run(stage.request(1), stage.steps("a", 9, MAX_UNITS_PER_TURN // 10)) == [b"a"]
    assert not stage.loop.waiting


def test_each_round_does_a_part_of_one_request() -> None:
    stage = Stage()
    assert stage.turns.run(stage.request(1), stage.steps("a", 3)) is None
    assert stage.turns.run(stage.request(2), stage.steps("b", 3)) is None
    assert stage.done == ["a0", "b0"]
    assert [stage.round() for _ in range(6)] == [["a1"], ["b1"], ["a2"], ["b2"], [], []]
    assert stage.answers == {1: [b"a"], 2: [b"b"]}
    assert not stage.loop.waiting


def test_changes_are_made_one_after_the_other_beside_the_rest() -> None:
    stage = Stage()
    assert stage.turns.run(stage.request(1), stage.steps("a", 3), alone=True) is None
    second = stage.request(2)
    buffer = second.body.obj
    assert stage.turns.run(second, stage.steps("b", 1), alone=True) is None
    assert second.body.obj is not buffer, "the read buffer is used again before its turn comes"
    assert stage.turns.run(stage.request(3), stage.steps("c", 3)) is None
    assert stage.done == ["a0", "c0"]
    rounds = [stage.round() for _ in range(8)]
    assert rounds == [["a1"], ["c1"], ["a2"], ["c2"], [], [], ["b0"], []]
    assert list(stage.answers) == [1, 3, 2]


def test_a_failure_closes_one_connection_and_the_others_work_goes_on() -> None:
    stage = Stage()

    def fails() -> Steps:
        yield MAX_UNITS_PER_TURN
        raise OSError("disk")

    assert stage.turns.run(stage.request(1), fails(), alone=True) is None
    assert stage.turns.run(stage.request(2), stage.steps("b", 1), alone=True) is None
    while stage.loop.waiting:
        stage.round()
    assert stage.answers[1] is DROP
    assert stage.answers[2] == [b"b"]
    assert stage.failures == ["disk"]
    with pytest.raises(ValueError, match="now"):
        stage.turns.run(stage.request(3), fails_at_once())


def fails_at_once() -> Steps:
    raise ValueError("now")
    yield 1


def test_nobody_reads_for_a_connection_that_is_gone_but_changes_are_made() -> None:
    stage = Stage()
    reading, changing = stage.request(1), stage.request(2)
    assert stage.turns.run(reading, stage.steps("r", 5)) is None
    assert stage.turns.run(changing, stage.steps("c", 3), alone=True) is None
    for each in (reading, changing):
        each.abandon(bytearray())
    while stage.loop.waiting:
        stage.round()
    assert stage.done == ["r0", "c0", "c1", "c2"]


def test_nothing_is_done_after_the_end() -> None:
    stage = Stage()
    stage.turns.run(stage.request(1), stage.steps("a", 3), alone=True)
    stage.turns.close()
    while stage.loop.waiting:
        stage.round()
    assert stage.done == ["a0"]
    assert not stage.answers
