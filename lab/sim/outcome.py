"""How the run of one seed ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lab.sim.marks import Mark


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    seed: int
    violation: str | None
    invariant: str | None
    simulated_ms: int
    marks: Counter[Mark]
    trace: tuple[str, ...]
    digest: str
    """Of the trace, which must have been kept."""
