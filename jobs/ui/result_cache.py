"""A cache of recent results by key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

_T = TypeVar("_T")


class ResultCache:
    """The most recently used results; any thread may use it. Two threads may compute the same result twice."""

    def __init__(self, most: int, most_characters: int) -> None:
        """Keep ``most`` results, of so many characters together."""
        self._most, self._left = most, most_characters
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        """Return the result for ``key``, computed now if it is missing; ``size`` counts its characters."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return cast("_T", self._results[key][0])
        made = make()
        characters = size(made)
        with self._lock:
            self._left += self._results.pop(key, (None, 0))[1] - characters
            self._results[key] = made, characters
            while self._results and (len(self._results) > self._most or self._left < 0):
                self._left += self._results.popitem(last=False)[1][1]
        return made
