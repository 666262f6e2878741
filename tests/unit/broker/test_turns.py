"""Work that is done in turns: in order, bounded, and ended where nobody waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from sparkonce.broker_lite.node.request import Endpoint, Request
from sparkonce.broker_lite.node.turns import MAX_UNITS_PER_TURN, Turns
from sparkonce.broker_lite.waiting import Execution, Promise, Waiting


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
        self.turns = Turns(self.loop)
        self.done: list[str] = []
        self.ends: dict[str, object] = {}
        """How each has ended: its name, its error, or None if it was ended early."""

    def begin(self, name: str, count: int, units: int = MAX_UNITS_PER_TURN, **kind: bool) -> Execution | None:
        """Begin to handle a request; returns it if it waits."""
        return self.handle(name, self.steps(name, count, units, **kind))

    def handle(self, name: str, coroutine: Waiting[str]) -> Execution | None:
        def on_end(result: str | None, error: Exception | None) -> None:
            self.ends[name] = result if error is None else error

        try:
            promise = coroutine.send(None)
        except StopIteration as end:
            self.ends[name] = end.value
            return None
        return Execution(coroutine, promise, on_end)

    async def steps(self, name: str, count: int, units: int, *, changes: bool = False) -> str:
        request = Request(19, 7, 1, "", "h", memoryview(b""), "User:ANONYMOUS", Endpoint("h", 1))
        if changes:
            async with self.turns.change(request):
                return await self._work(request, name, count, units)
        return await self._work(request, name, count, units)

    async def _work(self, request: Request, name: str, count: int, units: int) -> str:
        for number in range(count):
            self.done.append(f"{name}{number}")
            await self.turns.spend(request, units)
        return name

    def round(self) -> list[str]:
        before = len(self.done)
        for callback in [self.loop.waiting.popleft() for _ in range(len(self.loop.waiting))]:
            callback()
        return self.done[before:]

    def finish(self) -> None:
        while self.loop.waiting:
            self.round()


def test_what_fits_into_one_turn_is_answered_at_once() -> None:
    stage = Stage()
    assert stage.begin("a", 9, MAX_UNITS_PER_TURN // 10) is None
    assert stage.ends == {"a": "a"}
    assert not stage.loop.waiting


def test_each_round_does_a_part_of_one_request() -> None:
    stage = Stage()
    stage.begin("a", 3)
    stage.begin("b", 3)
    assert stage.done == ["a0", "b0"]
    assert [stage.round() for _ in range(6)] == [["a1"], ["b1"], ["a2"], ["b2"], [], []]
    assert stage.ends == {"a": "a", "b": "b"}
    assert not stage.loop.waiting


def test_changes_are_made_one_after_the_other_beside_the_rest() -> None:
    stage = Stage()
    stage.begin("a", 3, changes=True)
    stage.begin("b", 1, changes=True)
    stage.begin("c", 3)
    assert stage.done == ["a0", "c0"]
    rounds = [stage.round() for _ in range(8)]
    assert rounds == [["a1"], ["c1"], ["a2"], ["c2"], [], [], ["b0"], []]
    assert list(stage.ends) == ["a", "c", "b"]


def test_a_change_that_waits_for_something_else_is_not_overtaken_and_readers_go_on() -> None:
    stage = Stage()
    written: Promise[None] = Promise()

    async def change() -> str:
        request = Request(19, 7, 1, "", "h", memoryview(b""), "User:ANONYMOUS", Endpoint("h", 1))
        async with stage.turns.change(request):
            await written
        return "a"

    stage.handle("a", change())
    stage.begin("b", 1, changes=True)
    stage.begin("c", 2)
    stage.finish()
    assert stage.done == ["c0", "c1"]
    written.complete(None)
    stage.finish()
    assert list(stage.ends) == ["c", "a", "b"]


def test_a_failure_ends_one_request_and_the_others_work_goes_on() -> None:
    stage = Stage()

    async def fails() -> str:
        await stage.steps("a", 2, MAX_UNITS_PER_TURN, changes=True)
        raise OSError("disk")

    stage.handle("a", fails())
    stage.begin("b", 1, changes=True)
    stage.finish()
    assert str(stage.ends["a"]) == "disk"
    assert stage.ends["b"] == "b"


def test_nobody_reads_for_a_connection_that_is_gone_but_changes_are_made() -> None:
    stage = Stage()
    for execution in (stage.begin("r", 5), stage.begin("c", 3, changes=True)):
        assert execution is not None
        execution.abandon()
    stage.finish()
    assert stage.done == ["r0", "c0", "c1", "c2"]
    assert stage.ends == {"r": None, "c": "c"}


def test_nothing_is_done_after_the_end() -> None:
    stage = Stage()
    stage.begin("a", 3, changes=True)
    stage.begin("b", 3, changes=True)
    stage.begin("c", 3)
    stage.turns.close()
    stage.finish()
    assert stage.done == ["a0", "c0"]
    assert stage.ends == dict.fromkeys("abc")
