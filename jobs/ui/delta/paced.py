"""Answers that cost much, made again only after a pause that grows with their cost."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

PAUSE = 20
"""An answer is kept for this many times as long as it took, at least."""
KEPT = 32
"""Answers; the one that was asked for least recently is forgotten."""


class Paced(Generic[T]):
    """Answers by their question, for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def get(self, question: Hashable, answer: Callable[[], T]) -> T:
        """Return what ``answer`` returns, now or some time ago; an error of it is not kept."""
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
