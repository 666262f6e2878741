"""A simulated process does nothing after its death, whatever was waiting for it."""

from __future__ import annotations

from sparkonce.broker_lite.sim.disk import CutShort
from sparkonce.broker_lite.sim.network import Network
from sparkonce.broker_lite.sim.node import Node
from sparkonce.broker_lite.sim.plan import plan_of
from sparkonce.broker_lite.sim.scheduler import Scheduler


class Process(Node):
    def __init__(self) -> None:
        scheduler = Scheduler()
        super().__init__(1, scheduler, Network(scheduler, 0, plan_of(0).settings))
        self.done: list[str] = []
        self.started()

    def act(self, what: str) -> None:
        if what == "die":
            raise CutShort
        self.done.append(what)

    def cut_short(self) -> None:
        self.ended()


def test_what_waits_for_a_paused_process_comes_in_order() -> None:
    process = Process()
    process.pause()
    for what in ("a", "b"):
        process.after(1, process.act, what)
    while process.scheduler.step(10):
        pass
    assert process.done == []
    process.resume()
    assert process.done == ["a", "b"]


def test_a_process_that_dies_as_it_goes_on_does_nothing_more() -> None:
    process = Process()
    process.pause()
    for what in ("a", "die", "b"):
        process.after(1, process.act, what)
    while process.scheduler.step(10):
        pass
    process.resume()
    assert process.done == ["a"]
    assert not process.alive


def test_what_a_process_has_planned_is_not_for_the_next_one() -> None:
    process = Process()
    process.after(1, process.act, "a")
    process.ended()
    process.started()
    while process.scheduler.step(10):
        pass
    assert process.done == []
