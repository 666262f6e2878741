"""Answers of a cluster that pages ask for while they are open, cached briefly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sparkonce.jobs.ui.kafka.loop import PROBLEMS
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import ClientSettings

RETRY_S = 1.0
"""The delay before brokers that did not answer are asked again."""
MAX_KEPT = 1000

AnswerT = TypeVar("AnswerT")


class Answers(Generic[AnswerT]):
    """Answers to one kind of question; any thread may ask."""

    def __init__(self, settings: ClientSettings, kept_s: float) -> None:
        """``kept_s`` is how long an answer is cached."""
        self._client = Client(settings)
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[float, AnswerT | None, str | None]] = {}
        self._is_closed = False

    def get(self, name: Hashable, ask: Callable[[Client], AnswerT]) -> tuple[AnswerT | None, str | None]:
        """Return the answer, and why there is no newer one; None if there has not been any."""
        with self._lock:
            until_s, known, problem = self._kept.get(name, (0.0, None, None))
            # A page that is still being read opens no connection after the end.
            if self._is_closed or time.monotonic() < until_s:
                return known, problem
            try:
                known, problem, kept_s = ask(self._client), None, self._kept_s
            except PROBLEMS as error:
                problem, kept_s = str(error), min(RETRY_S, self._kept_s)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[name] = time.monotonic() + kept_s, known, problem
            return known, problem

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            self._client.close()
