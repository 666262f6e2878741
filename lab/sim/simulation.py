"""One run of one plan: a cluster starts, faults happen, all is healed, and it must recover."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Final

from lab.sim.clients.clients import Clients
from lab.sim.faults.between_brokers import BetweenBrokers
from lab.sim.faults.faults import Faults
from lab.sim.former import versions_of
from lab.sim.judges.decisions import Decisions
from lab.sim.judges.promptness import probe
from lab.sim.judges.recovery import compare_images, look_at_disks, look_with_guests, recovery_problem
from lab.sim.judges.truth import Mistakes
from lab.sim.outcome import Outcome
from lab.sim.plan import SAFETY_MS, SeedPlan
from lab.sim.world import World
from sparkonce.broker_lite.replication.invariants import ViolationError

_LOOK_MS: Final = 200
"""The interval between checks of recovery, and whether images agree."""
_UP_MS: Final = 200_000
"""The time limit for the cluster's start: several requests between brokers may be lost, one after the other."""
CALM_MS: Final = 75_000
"""The time limit for recovery: a request between brokers whose response is lost without a sign takes 30 s."""


class Simulation:
    """A world with clients, faults and judges."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._decisions = Decisions(world)
        world.metadata.on_step.append(self._decisions.landed)
        self.clients = Clients(world)
        self.faults = Faults(world, self.clients)
        self.between_brokers = BetweenBrokers(world, self.faults)
        world.on_joined.append(self.between_brokers.joined)

    def run(self) -> Outcome:
        """Go through all phases."""
        world = self.world
        try:
            with self.judged():
                self._come_up()
                began_ms = world.scheduler.now_ms
                if world.ensemble is not None:
                    world.ensemble.is_calm = False
                for step in world.plan.steps:
                    world.scheduler.after(step.at_ms, self.faults.carry_out, step)
                world.pass_until(began_ms + SAFETY_MS)
                self.faults.end()
                self._calm_down()
        except ViolationError as error:
            world.violated(error)
        except Exception as error:  # no event may raise; the seed must be reported
            world.mistake(repr(error), error)
        violation = world.violation
        self.end()
        if violation is not None:
            world.trace(lambda: f"VIOLATION {violation}")
        lines = tuple(world.lines or ())
        digest = blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
        return Outcome(
            world.plan.seed,
            None if violation is None else str(violation),
            None if violation is None else violation.invariant,
            world.scheduler.now_ms,
            world.marks,
            lines,
            digest,
        )

    def end(self) -> None:
        """Stop all activity."""
        for loop in self.world.client_loops:
            loop.end()
        for machine in (*self.world.brokers.values(), self.clients.standalone):
            if machine is not None and machine.process is not None:
                machine.process.end(power=True)

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Observe brokers, and note the bugs that they log."""
        world = self.world
        logger = logging.getLogger("sparkonce.broker_lite")
        handler = Mistakes(world)
        level, logger.propagate = logger.level, False
        logger.setLevel(logging.ERROR)
        logger.addHandler(handler)
        try:
            with ExitStack() as stack:
                for version in versions_of(world.plan):
                    looking = version.observed_brokers(world, self._decisions, self.clients.transactional)
                    stack.enter_context(looking)
                yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = True
            logger.setLevel(level)

    def _come_up(self) -> None:
        world, admin = self.world, self.clients.admin
        for machine in world.brokers.values():
            machine.start()
        self._until(lambda: all(world.image.may_join(each) for each in world.brokers), "no broker is in the cluster")
        admin.run(admin.create_topics())
        self._until(self._has_topics, "its topics have not been made")
        self.clients.begin()

    def _until(self, done: Callable[[], bool], otherwise: str) -> None:
        while not done():
            if self.world.scheduler.now_ms > _UP_MS:
                raise ViolationError("liveness", f"the cluster has not come up in {_UP_MS} ms: {otherwise}")
            self.world.pass_until(self.world.scheduler.now_ms + 50)

    def _has_topics(self) -> bool:
        wanted = sum(topic.partitions for topic in self.world.plan.topics)
        return self.clients.admin.has_created and sum(1 for _ in self.world.image.partitions()) == wanted

    def _calm_down(self) -> None:
        world = self.world
        world.trace(lambda: "all faults are over")
        self.clients.calm()
        until_ms = world.scheduler.now_ms + CALM_MS
        while world.scheduler.now_ms < until_ms:
            world.pass_until(world.scheduler.now_ms + _LOOK_MS)
            compare_images(world)
            if recovery_problem(world, self.clients) is None:
                look_at_disks(world, self.clients)
                look_with_guests(world, self.clients.guests)
                world.metadata.look_at_the_end(world.versions)
                probe(world)
                return
        raise ViolationError("liveness", f"{CALM_MS} ms after the last fault: {recovery_problem(world, self.clients)}")


def run_plan(plan: SeedPlan, *, tracing: bool = False) -> Outcome:
    """Run a plan."""
    return Simulation(World(plan, tracing)).run()
