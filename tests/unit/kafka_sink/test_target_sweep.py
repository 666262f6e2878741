"""Every request of a batch, and everything that may befall it: nothing is lost, doubled, or left open.

A batch is written by one driver, and something happens at one of its requests. Whatever comes of that, a driver that
starts afterwards must bring everything to its end. One application goes through all of it, batch after batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from connectors.kafka_once.client import Client, KafkaUnreachableError
from connectors.kafka_once.sink.decisions import DecisionTopicError
from connectors.kafka_once.sink.producer import DeliveryRefusedError
from connectors.kafka_once.sink.transactions import TransactionError
from exactly_once.batch import Batch
from exactly_once.errors import DeliveryError
from offset_store.errors import OffsetStoreError
from tests.unit.kafka_sink.pipeline import (
    Application,
    Death,
    Incarnation,
    Machine,
    check_whole,
    die,
    die_as_worker,
    group_offsets,
    lose,
)

EXPECTED = (DeliveryError, OffsetStoreError, TransactionError, DecisionTopicError, KafkaUnreachableError)
"""What `Target` says it raises; anything else is a mistake."""
EXPECTED_OF_TASKS = (*EXPECTED, DeliveryRefusedError)
SIZE = 2
"""How many records of each partition a batch has."""


@dataclass(slots=True)
class Course:
    """Where an application stands while one thing after another happens to it."""

    application: Application
    observer: Client
    done: int = 0
    """How many batches of `SIZE` have been written."""
    query_id: str = "query"
    first: int = 0
    """How many were, when this query began."""

    def start(self) -> Incarnation:
        return self.application.start(self.query_id)

    def run(self, incarnation: Incarnation, number: int) -> None:
        """Write the batch that follows the first ``number`` ones."""
        self.application.run(incarnation, self.batch(incarnation, number))

    def begin_only(self) -> None:
        rival = self.start()
        self.application.write(rival, self.batch(rival, self.done))

    def another_driver(self, batches: int) -> None:
        rival = self.start()
        for number in range(batches):
            self.run(rival, self.done + number)

    def another_checkpoint(self) -> None:
        """A second driver, whose checkpoint is new: it begins where the group stands, and writes up to two batches."""
        start = group_offsets(self.observer, self.application.name).get(0, 0)
        rival = self.application.start(f"beside-{self.done}")
        if start <= self.done * SIZE:
            self.application.run(rival, self.application.batch(rival, 0, start, start + SIZE))

    def batch(self, incarnation: Incarnation, number: int) -> Batch:
        return self.application.batch(incarnation, number - self.first, SIZE * number, SIZE * number + SIZE)

    def recover(self) -> None:
        """Start again with the checkpoint, and see that everything is as if nothing had happened."""
        last = self.start()
        self.run(last, self.done)
        self.run(last, self.done + 1)
        self.done += 2
        check_whole(self.observer, self.application, SIZE * self.done)

    def begin_anew(self) -> None:
        """Lose the checkpoint; the next one begins where the group stands."""
        stands = group_offsets(self.observer, self.application.name)
        assert len(set(stands.values())) <= 1, "a batch moves all partitions or none"
        self.first = self.done = stands.get(0, 0) // SIZE
        self.query_id = f"query-{self.done}"


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
