"""The result of running one seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lab.sim.marks import Mark


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    seed: int
    violation: str | None
    invariant: str | None
    simulated_ms: int
    marks: Counter[Mark]
    trace: tuple[str, ...]
    digest: str
    """Hash of the trace, which must have been kept."""
