"""Objects that are kept over batches and queries: a process has a few, and evicts the least recently used one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

MAX_KEPT = 8
"""How many of a kind one process keeps, unless said otherwise."""

MAX_TABLES = 4_000
"""How many objects that belong to one table are kept: a query may write two tables for each topic. With more tables
than that every batch would make all of them anew, since it takes them in the same order."""


class LruCache(Generic[KeyT, ValueT]):
    """The most recently used objects of a kind, by key; threads may share it."""

    def __init__(self, limit: int = MAX_KEPT) -> None:
        """Keep at most ``limit``."""
        self._limit = limit
        self._by_key: OrderedDict[KeyT, ValueT] = OrderedDict()
        self._lock = Lock()

    def get(self, key: KeyT, make: Callable[[], ValueT]) -> ValueT:
        """Return the object of a key, created first if it is not kept; of two that threads create, the first stays."""
        with self._lock:
            if key in self._by_key:
                self._by_key.move_to_end(key)
                return self._by_key[key]
        made = make()
        with self._lock:
            found = self._by_key.setdefault(key, made)
            self._by_key.move_to_end(key)
            while len(self._by_key) > self._limit:
                self._by_key.popitem(last=False)
            return found

    def pop(self, key: KeyT) -> ValueT | None:
        """Drop one and return it; None if it is not kept."""
        return self._by_key.pop(key, None)

    def __len__(self) -> int:
        return len(self._by_key)

    def clear(self) -> None:
        """Drop all objects, as a new process starts."""
        self._by_key.clear()
