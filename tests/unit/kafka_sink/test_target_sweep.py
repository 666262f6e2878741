"""Every request of a batch, and everything that may befall it: nothing is lost, doubled, or left open.

A batch is written by one driver, and something happens at one of its requests. Whatever comes of that, a driver that
starts afterwards must bring everything to its end. One application goes through all of it, batch after batch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from connectors.kafka_once.client import Client
from tests.unit.kafka_sink.course import EXPECTED, Course
from tests.unit.kafka_sink.pipeline import Application, Death, Machine, die, die_as_worker, lose

Happens = Callable[[Course], Callable[[], None]]
EVENTS: dict[str, Happens] = {
    "everything dies": lambda course: die,
    "a worker dies": lambda course: die_as_worker,
    "the connection breaks": lambda course: lose,
    "another driver begins the batch": lambda course: course.begin_only,
    "another driver writes the batch": lambda course: lambda: course.another_driver(1),
    "another driver goes on": lambda course: lambda: course.another_driver(2),
}


@pytest.fixture(params=[pytest.param(6, id="some"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def stride(request: pytest.FixtureRequest) -> int:
    """Every how manieth request is tried."""
    return int(request.param)


def go_through(
    course: Course, machine: Machine, happens: Happens, requests: range, *, after_effect: bool, lost: bool = False
) -> int:
    """Let it happen at one request of a batch after another, until there is no such request; give its number."""
    course.run(course.start(), 0)
    course.done = 1
    at = requests.start
    while True:
        machine.happenings.clear()
        happening = machine.plan(at, happens(course), after_effect=after_effect)
        outcome: BaseException | None = None
        try:
            course.run(course.start(), course.done)
        except (*EXPECTED, Death) as error:
            outcome = error
        machine.happenings.clear()
        try:
            if lost:
                course.begin_anew()
            course.recover()
        except Exception as error:
            said = f"{'after' if after_effect else 'before'} request {at}, {happening.happened}: {outcome!r}"
            raise AssertionError(said) from error
        machine.forget()
        if not happening.happened:
            return at
        at += requests.step


MOST_REQUESTS = 1000
CASES = [(event, after_effect) for event in EVENTS for after_effect in (False, True)]


@pytest.mark.parametrize(("event", "after_effect"), CASES)
def test_at_a_request(
    event: str, after_effect: bool, stride: int, machine: Machine, application: Application, observer: Client
) -> None:
    requests = range(CASES.index((event, after_effect)) % stride, MOST_REQUESTS, stride)
    course = Course(application, observer)
    assert go_through(course, machine, EVENTS[event], requests, after_effect=after_effect) > 30


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_at_a_request_with_the_checkpoint_lost(
    after_effect: bool, stride: int, machine: Machine, application: Application, observer: Client
) -> None:
    requests = range(int(after_effect), MOST_REQUESTS, stride)
    course = Course(application, observer)
    go_through(course, machine, EVENTS["everything dies"], requests, after_effect=after_effect, lost=True)
