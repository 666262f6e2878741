"""A cache of recent results by key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

_T = TypeVar("_T")


class ResultCache:
    """The most recently used results; any thread may use it. Two threads may compute the same result twice."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, object] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the result for ``key``, computed now if it is missing."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return cast("_T", self._results[key])
        made = make()
        with self._lock:
            self._results[key] = made
            while len(self._results) > self._most:
                self._results.popitem(last=False)
        return made
