"""Delays some responses with which a transaction coordinator verifies transactions for a partition leader."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any, Final

from lab.sim.scheduler import stream

_LATE: Final = (0.0, 0.1, 0.5)
"""The share of them that is delayed: one of these for each seed."""
_LATE_AND_HURRIED: Final = 0.7


class Words:
    """Which responses to AddPartitionsToTxn are delayed in a seed, and by how much."""

    def __init__(self, seed: int, most_ms: int) -> None:
        self._chance = stream("words", seed)
        self._most_ms = most_ms
        self._likely = self._chance.choice(_LATE)
        self.hurried: set[str] = set()
        """The transactional ids of clients that do not wait for the response to their current batch."""

    def late(
        self, loop: AbstractEventLoop, request: Any, then: Callable[[Any], None], *, calm: bool
    ) -> Callable[[Any], None]:
        """Return a replacement of the callback `then`: sometimes delayed, unless all is calm.

        If its client does not wait for it, mostly delayed: the transaction has ended when the response comes.
        """
        likely = 0.0 if calm else self._likely
        if any(transactional_id in self.hurried for transactional_id, *_ in request.transactions):
            likely = _LATE_AND_HURRIED
        if self._chance.random() >= likely:
            return then
        delay_s = int(self._chance.random() * self._most_ms) / 1000

        def later(answer: Any) -> None:
            loop.call_later(delay_s, then, answer)

        return later
