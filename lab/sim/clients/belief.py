"""The states that a thing may be in, by the requests that a client has sent and the responses that it received.

A request without a response may be carried out at any later time, or never. One that is answered with an error may
have been carried out before it was sent again to the next controller or coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

State = TypeVar("State")


class Belief(Generic[State]):
    """The possible states of one thing, by requests and responses."""

    def __init__(self, state: State) -> None:
        self.states = {state}
        self._strays: list[Callable[[State], State]] = []
        """Requested changes without a response."""

    def done(self, change: Callable[[State], State]) -> None:
        """Apply an acknowledged change."""
        self._be({change(each) for each in self.states})

    def refused(self, change: Callable[[State], State]) -> None:
        """Note a change answered with an error: its first attempt may have been carried out."""
        self._be(self.states | {change(each) for each in self.states})

    def unanswered(self, change: Callable[[State], State]) -> None:
        """Note a change without a response: it may be carried out from now on."""
        self._strays.append(change)
        self._be(self.states)

    def expire(self, state: State) -> None:
        """Set the only possible state: all requests are too old to matter."""
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
