"""Applications to which anything happens, several things at a time, in an order that a seed chooses.

Each step writes a batch while up to three things happen at any of its requests; then, perhaps again while something
happens, another driver starts. At the end of a step everything must be as if nothing had happened: each row once for
readers of committed records, the group at the end, nothing open. A failure names the seed and the step; run it alone
with ``SPARKONCE_SEED=<seed>``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.conftest import Applications
from tests.unit.kafka_sink.course import EXPECTED, Course
from tests.unit.kafka_sink.pipeline import Death, Machine, WorkerDeath, die, die_as_worker, lose

SEED = int(os.environ.get("SPARKONCE_SEED", "0"))
STEPS = 12
REQUESTS = 75
"""About how many a batch and what follows take."""


class Life:
    """One application's life, as a seed tells it."""

    def __init__(self, seed: int, course: Course, machine: Machine) -> None:
        self._random = random.Random(seed)
        self._course = course
        self._machine = machine
        self.story: list[str] = []
        course.application.tasks = self._random.randint(1, 3)
        course.application.twice = self._random.random() < 0.3
        course.application.reuses_workers = self._random.random() < 0.5

    def step(self) -> None:
        """Write a batch under whatever happens, and see that nothing came of it."""
        self.story = []
        course, kind = self._course, self._random.choice(["moving", "moving", "moving", "still", "empty"])
        self.story.append(kind)
        if kind == "empty":
            course.empty.add(course.done)
        events = self._events(still=kind == "still")
        for _ in range(self._random.choice([1, 1, 2, 3])):
            for _ in range(self._random.choice([0, 1, 1, 2, 3])):
                name = self._random.choice(list(events))
                at, after_effect = self._random.randrange(REQUESTS), self._random.random() < 0.5
                self.story.append(f"{name} {'after' if after_effect else 'before'} {at}")
                self._machine.plan(at, self._guarded(name, events[name]), after_effect=after_effect)
            self._attempt(still=kind == "still")
        self._machine.happenings.clear()
        is_anew = any(each.startswith("happened: another checkpoint") for each in self.story)
        if is_anew or (kind != "still" and self._random.random() < 0.2):
            self.story.append("the checkpoint is lost")
            course.begin_anew()
            kind = "moving"
        self.story.append("recover")
        if kind == "still":
            course.recover_still()
        else:
            course.recover()

    def _attempt(self, *, still: bool) -> None:
        incarnation = self._course.start()
        try:
            if still:
                self._course.run_still(incarnation)
            else:
                self._course.run(incarnation, self._course.done)
        except (*EXPECTED, Death) as error:
            self.story.append(f"{type(error).__name__}: {error}"[:150])
        else:
            self.story.append("went well")

    def _guarded(self, name: str, event: Callable[[], None]) -> Callable[[], None]:
        """What happens to whoever is held up must not end the one that holds it up, but for deaths of everything."""

        def happen() -> None:
            self.story.append(f"happened: {name}")
            event()

        def rival() -> None:
            self.story.append(f"happened: {name}")
            try:
                event()
            except (*EXPECTED, WorkerDeath) as error:
                self.story.append(f"the other: {type(error).__name__}")

        return happen if event in (die, die_as_worker, lose) else rival

    def _events(self, *, still: bool) -> dict[str, Callable[[], None]]:
        course = self._course
        events: dict[str, Callable[[], None]] = {
            "everything dies": die,
            "a worker dies": die_as_worker,
            "the connection breaks": lose,
            "time-out": course.time_out,
        }
        if still:
            events["another driver"] = lambda: course.run_still(course.start())
        else:
            events["another driver begins"] = course.begin_only
            events["another driver"] = lambda: course.another_driver(1)
            events["another driver goes on"] = lambda: course.another_driver(2)
            events["another checkpoint"] = course.another_checkpoint
        return events


def live(seed: int, new_application: Applications, observer: Client, machine: Machine) -> None:
    course = Course(new_application(), observer)
    life = Life(seed, course, machine)
    course.recover()
    for number in range(STEPS):
        try:
            life.step()
        except BaseException as error:
            story = "\n  ".join(life.story)
            raise AssertionError(f"SPARKONCE_SEED={seed}, step {number}:\n  {story}\n  {error!r}") from error
    machine.forget()


@pytest.mark.parametrize(
    "seed", [SEED, *(pytest.param(seed, marks=pytest.mark.lab) for seed in range(SEED + 1, SEED + 6))]
)
def test_lives(seed: int, new_application: Applications, observer: Client, machine: Machine) -> None:
    live(seed, new_application, observer, machine)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(SEED + 1000, SEED + 1200))
def test_many_lives(seed: int, new_application: Applications, observer: Client, machine: Machine) -> None:
    live(seed, new_application, observer, machine)
