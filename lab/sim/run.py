"""One run of one plan: its time, network and trace, and the violations found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import PurePath
from traceback import extract_tb

from lab.sim.disk import SharedDisk
from lab.sim.machine.sockets import Network
from lab.sim.marks import Mark
from lab.sim.plan import SeedPlan
from lab.sim.scheduler import Scheduler
from lab.sim.zookeeper.ensemble import ensemble_of
from sparkonce.broker_lite.replication.invariants import ViolationError


class Run:
    """What all parts of a simulation share: brokers and clients, faults and judges."""

    def __init__(self, plan: SeedPlan, tracing: bool) -> None:
        self.plan = plan
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, plan.seed, plan.settings)
        self.shared = SharedDisk()
        """The disk that all machines share."""
        self.ensemble = ensemble_of(plan, self.scheduler, self.network)
        self.is_healed = False
        """Whether all faults are over."""
        self.marks: Counter[Mark] = Counter()
        self.lines: list[str] | None = [] if tracing else None
        self.violation: ViolationError | None = None

    def mark(self, mark: Mark) -> None:
        """Note a rare event."""
        self.marks[mark] += 1

    def trace(self, line: Callable[[], str]) -> None:
        """Add a line to the trace, if there is one."""
        if self.lines is not None:
            self.lines.append(f"{self.scheduler.now_ms:>7} {line()}")

    def violated(self, error: ViolationError) -> None:
        """Note a violation; the first one counts."""
        if self.violation is None:
            self.violation = error

    def judge(self, check: Callable[[], object]) -> None:
        """Run a check; an error is noted, and not raised in the broker that is running."""
        try:
            check()
        except ViolationError as error:
            self.violated(error)
        except AssertionError as error:  # those of the state machines
            self.mistake(repr(error), error)

    def mistake(self, text: str, error: BaseException | None) -> None:
        """Note an unexpected error."""
        at = ""
        if error is not None and error.__traceback__ is not None:
            last = extract_tb(error.__traceback__)[-1]
            at = f" in {last.name}, {PurePath(last.filename).name}:{last.lineno}"
        self.violated(ViolationError("error", f"{text}{at}"))
