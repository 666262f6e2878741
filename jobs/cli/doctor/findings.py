"""Findings: a line for each thing checked, with the remedy where one is needed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SKEW_S = 5.0
"""The allowed difference between two clocks; what is measured includes a request's time."""


class State(StrEnum):
    """The state of what was checked."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may work, but needs attention."""
    WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, the result, and the remedy."""

    what: str
    found: str
    state: State = State.OK
    remedy: str = ""

    @property
    def words(self) -> str:
        """The result and the remedy."""
        text = " ".join(self.found.split())
        return f"{text.rstrip('.')}. {self.remedy}" if self.remedy else text

    def __str__(self) -> str:
        return f"{self.state:<7} {self.what}: {self.words}"


def wrong(what: str, found: object, remedy: str) -> Finding:
    """Return a finding with which a query cannot run."""
    return Finding(what, str(found), State.WRONG, remedy)


def warning(what: str, found: object, remedy: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(what, str(found), State.WARNING, remedy)
