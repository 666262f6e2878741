"""Every request of a batch, and everything that may befall it: nothing is lost, doubled, or left open.

A batch is written by one driver, and something happens at one of its requests. Whatever comes of that, a driver that
starts afterwards must bring everything to its end. One application goes through all of it, batch after batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkonce.connectors.kafka_sink.spool import Spool, SpoolError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.course import EXPECTED, Course
from tests.unit.kafka_sink.pipeline import Application, Death, Machine, die, die_as_worker, lose

Happens = Callable[[Course], Callable[[], None]]


def both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def event() -> None:
        first()
        second()

    return event


EVENTS: dict[str, Happens] = {
    "everything dies": lambda course: die,
    "a worker dies": lambda course: die_as_worker,
    "the connection breaks": lambda course: lose,
    "the broker restarts": lambda course: course.application.broker.restart,
    "all times out": lambda course: course.time_out,
    "all times out and dies": lambda course: both(course.time_out, die),
    "another driver begins the batch": lambda course: course.begin_only,
    "another driver writes the batch": lambda course: lambda: course.another_driver(1),
    "another driver goes on": lambda course: lambda: course.another_driver(2),
}
STILL_EVENTS = ["everything dies", "all times out", "all times out and dies"]
"""What is tried with a batch that moves nothing."""
ATOMIC_EVENTS = ["everything dies", "the connection breaks", "another driver goes on"]
"""What is tried with a batch that becomes visible at once."""
WEAK_EVENTS = ["everything dies", "a worker dies", "the connection breaks"]
"""What is tried without transactions."""


@dataclass(frozen=True, slots=True)
class Case:
    """What happens, to which kind of batch."""

    event: str
    after_effect: bool
    is_still: bool = False
    is_checkpoint_lost: bool = False
    is_atomic: bool = False
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE

    @property
    def is_strict(self) -> bool:
        """Whether each row must be there once."""
        return self.guarantee is Guarantee.EXACTLY_ONCE

    def __str__(self) -> str:
        words = [self.event, "after" if self.after_effect else "before"]
        words += ["still"] if self.is_still else []
        words += ["checkpoint lost"] if self.is_checkpoint_lost else []
        words += ["atomic"] if self.is_atomic else []
        return ", ".join(words + ([] if self.is_strict else [self.guarantee.value]))


WHEN = (False, True)
CASES = [
    *(Case(event, after_effect) for event in EVENTS for after_effect in WHEN),
    *(Case(event, after_effect, is_still=True) for event in STILL_EVENTS for after_effect in WHEN),
    *(Case("everything dies", after_effect, is_checkpoint_lost=True) for after_effect in WHEN),
    *(Case(event, after_effect, is_atomic=True) for event in ATOMIC_EVENTS for after_effect in WHEN),
    *(Case(event, True, guarantee=Guarantee.AT_LEAST_ONCE) for event in WEAK_EVENTS),
    *(Case(event, True, guarantee=Guarantee.AT_MOST_ONCE) for event in WEAK_EVENTS),
]
EVERY = [
    pytest.param(13, id="few"),
    pytest.param(7, id="some", marks=pytest.mark.lab),
    pytest.param(1, id="all", marks=pytest.mark.soak),
]
"""Every how many requests one is tried. Each case begins at another one, so all cases together try each request, though
not each case does."""


@pytest.mark.parametrize("stride", EVERY)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_at_a_request(
    case: Case, stride: int, machine: Machine, application: Application, observer: Client, tmp_path: Path
) -> None:
    application.guarantee = case.guarantee
    if case.is_atomic:
        application.options["spool"] = Spool(str(tmp_path))
    course = Course(application, observer)
    course.run(course.start(), 0)
    course.done = 1
    at = CASES.index(case) % stride
    while try_request(course, machine, case, at):
        machine.forget()
        at += stride
    assert at > LEAST_REQUESTS[case.guarantee], "a batch has more requests than were seen"


LEAST_REQUESTS = {Guarantee.EXACTLY_ONCE: 25, Guarantee.AT_LEAST_ONCE: 10, Guarantee.AT_MOST_ONCE: 10}


SPOOL_ERRORS = (SpoolError, FileNotFoundError)
"""What a driver finds whose spool another one has cleared."""


def try_request(course: Course, machine: Machine, case: Case, at: int) -> bool:
    """Let it happen at one request of the next batch; False if the batch has no such request."""
    happening = machine.plan(at, EVENTS[case.event](course), after_effect=case.after_effect)
    outcome: BaseException | None = None
    try:
        if case.is_still:
            course.run_still(course.start())
        else:
            course.run(course.start(), course.done)
    except (*EXPECTED, *SPOOL_ERRORS, Death) as error:
        outcome = error
    assert case.is_atomic or not isinstance(outcome, SPOOL_ERRORS)
    machine.happenings.clear()
    try:
        if case.is_checkpoint_lost:
            course.begin_anew()
        if case.is_still:
            course.recover_still()
        else:
            course.recover()
    except Exception as error:
        raise AssertionError(f"{case} request {at}, {happening.happened}, with {outcome!r}: {error!r}") from error
    return bool(happening.happened)
