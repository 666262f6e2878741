"""What an examination finds: a line for each thing checked, with the remedy where one is needed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SKEW_S = 5.0
"""How far two clocks may be apart; what is measured includes a request's time."""


class State(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may work, and is worth a look."""
    WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, what was found, and what to do about it."""

    what: str
    found: str
    state: State = State.OK
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.state:<7} {self.what}: {' '.join(self.found.split())}"
        return f"{text.rstrip('.')}. {self.remedy}" if self.remedy else text


def wrong(what: str, found: object, remedy: str) -> Finding:
    """Return a finding that a query cannot go on with."""
    return Finding(what, str(found), State.WRONG, remedy)


def warning(what: str, found: object, remedy: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(what, str(found), State.WARNING, remedy)
