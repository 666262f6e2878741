"""What a client may believe of a thing of its own, by what it has asked for and what it was answered.

A request without an answer may be carried out at any later time, or never. One that is answered with an error may have
been carried out before it came a second time, to the next controller or coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

State = TypeVar("State")


class Belief(Generic[State]):
    """The states that one thing may be in, by what was asked for and answered."""

    def __init__(self, state: State) -> None:
        self.states = {state}
        self._strays: list[Callable[[State], State]] = []
        """What was asked for without an answer."""

    def done(self, change: Callable[[State], State]) -> None:
        """Take a change that was acknowledged."""
        self._be({change(each) for each in self.states})

    def refused(self, change: Callable[[State], State]) -> None:
        """Take a change that was answered with an error: it may have been carried out before."""
        self._be(self.states | {change(each) for each in self.states})

    def unanswered(self, change: Callable[[State], State]) -> None:
        """Take a change that may be carried out from now on."""
        self._strays.append(change)
        self._be(self.states)

    def expire(self, state: State) -> None:
        """Be in this state, whatever was asked for: it was long ago."""
        self.states, self._strays = {state}, []

    def _be(self, states: set[State]) -> None:
        self.states, new = set(states), list(states)
        while new:
            state = new.pop()
            for stray in self._strays:
                reached = stray(state)
                if reached not in self.states:
                    self.states.add(reached)
                    new.append(reached)
