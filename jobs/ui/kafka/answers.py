"""Answers of brokers, or of a registry, that pages ask for while they are open, cached briefly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

RETRY_S = 1.0
"""The delay before what did not answer is asked again."""
MAX_KEPT = 1000


class Closeable(Protocol):
    """A client."""

    def close(self) -> None:
        """Close all connections."""


ClientT = TypeVar("ClientT", bound=Closeable)
AnswerT = TypeVar("AnswerT")


class Answers(Generic[ClientT, AnswerT]):
    """Answers to one kind of question; any thread may ask."""

    def __init__(self, client: ClientT, problems: tuple[type[Exception], ...], kept_s: float) -> None:
        """``problems`` are the errors of asking, ``kept_s`` is how long an answer is cached."""
        self._client, self._problems, self._kept_s = client, problems, kept_s
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[float, AnswerT | None, Exception | None]] = {}
        self._is_closed = False

    def get(self, name: Hashable, ask: Callable[[ClientT], AnswerT]) -> tuple[AnswerT | None, Exception | None]:
        """Return the answer, and why there is no newer one; None if there has not been any."""
        with self._lock:
            until_s, known, problem = self._kept.get(name, (0.0, None, None))
            # A page that is still being read opens no connection after the end.
            if self._is_closed or time.monotonic() < until_s:
                return known, problem
            try:
                known, problem, kept_s = ask(self._client), None, self._kept_s
            except self._problems as error:
                problem, kept_s = error, min(RETRY_S, self._kept_s)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[name] = time.monotonic() + kept_s, known, problem
            return known, problem

    def close(self) -> None:
        """Close all connections, after what is being asked."""
        self._is_closed = True
        with self._lock:
            self._client.close()
