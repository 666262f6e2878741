"""Processes of the simulator: what is held up comes in order, and nothing comes from one that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from lab.sim.machine.loop import SimulatedLoop
from lab.sim.scheduler import Scheduler


class Process:
    """One that notes what it does."""

    def __init__(self, scheduler: Scheduler, network: Any = None) -> None:
        self.scheduler = scheduler
        self.loop = SimulatedLoop(scheduler, network, "10.0.0.1", self.fail)  # type: ignore[abstract]
        self.done: list[str] = []

    def fail(self, context: dict[str, Any]) -> None:
        raise AssertionError(context)

    def act(self, what: str) -> None:
        if what == "die":
            self.loop.end()
        else:
            self.done.append(what)

    def run(self) -> list[str]:
        """Let all happen that is due within ten milliseconds; returns what this process has done by then."""
        until_ms = self.scheduler.now_ms + 10
        while self.scheduler.step(until_ms):
            pass
        return self.done


@pytest.fixture
def process() -> Process:
    return Process(Scheduler())


def test_what_waits_for_a_paused_process_comes_in_order(process: Process) -> None:
    process.loop.pause()
    for delay_s, what in ((0.002, "b"), (0.001, "a"), (0.003, "c")):
        process.loop.call_later(delay_s, process.act, what)
    assert process.run() == []
    process.loop.resume()
    process.loop.call_soon(process.act, "d")
    assert process.run() == ["a", "b", "c", "d"]


def test_what_is_called_off_while_a_process_is_paused_does_not_come(process: Process) -> None:
    process.loop.pause()
    timer = process.loop.call_later(0.001, process.act, "a")
    assert process.run() == []
    timer.cancel()
    process.loop.resume()
    assert process.run() == []


def test_a_process_that_dies_as_it_goes_on_does_nothing_more(process: Process) -> None:
    process.loop.pause()
    for what in ("a", "die", "b"):
        process.loop.call_soon(process.act, what)
    assert process.run() == []
    process.loop.resume()
    assert process.run() == ["a"]


def test_what_a_process_has_planned_is_not_for_the_next_one(process: Process) -> None:
    process.loop.call_later(0.001, process.act, "a")
    process.loop.end()
    following = Process(process.scheduler)
    following.loop.call_later(0.001, following.act, "b")
    assert process.run() == []
    assert following.done == ["b"]
