"""Expensive results, computed again only after a pause that grows with their cost."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

PAUSE = 20
"""A result is kept for at least this many times the time of its computation."""
KEPT = 32
"""The number of results; the least recently used one is dropped."""


class PacedResults(Generic[T]):
    """Results by key, for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def get(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Return the result of ``answer``, now or earlier; errors are not kept."""
        began_s = time.monotonic()
        with self._lock:
            known = self._answers.get(question)
            if known is not None and began_s < known[0]:
                self._answers.move_to_end(question)
                return known[1]
        made = answer()
        ended_s = time.monotonic()
        with self._lock:
            self._answers[question] = ended_s + PAUSE * (ended_s - began_s), made
            self._answers.move_to_end(question)
            while len(self._answers) > KEPT:
                self._answers.popitem(last=False)
        return made
