"""Reads something repeatedly, in a separate thread, and provides the last result at any time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparkonce.connectors.kafka_sink.transactions import TransactionError
from sparkonce.exactly_once.transactions import DecisionFormatError
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.protocol.errors import KafkaError, ProtocolError
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import OffsetStoreError

STILL_READ_S = 3.0
"""How long after a page has read the result it counts as followed."""
FIRST_LOOK_S = 4.0
"""How long the first page waits for the first result."""
NEXT_LOOK_S = 1.5
"""The time limit of waiting for a future result."""
PROBLEMS = (
    OSError,
    DecisionFormatError,
    KafkaError,
    MissingTopicError,
    OffsetStoreError,
    ProtocolError,
    TransactionError,
)

FoundT = TypeVar("FoundT")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result(Generic[FoundT]):
    """The last successful result, and the error of the attempt after it."""

    found: FoundT
    at_ms: int | None = None
    """The time; None if no attempt has succeeded yet."""
    problem: str | None = None


class Loop(Generic[FoundT]):
    """Calls ``look`` every ``interval_s`` while pages read the result, and every ``idle_s`` otherwise."""

    def __init__(
        self, name: str, look: Callable[[], FoundT], nothing: FoundT, interval_s: float, idle_s: float | None
    ) -> None:
        """``nothing`` is the initial result; with ``idle_s`` None it stops while no page reads."""
        self._look = look
        self._interval_s, self._idle_s = interval_s, idle_s
        self._result: Result[FoundT] = Result(nothing)
        self._looked, self._wake = threading.Event(), threading.Event()
        self._read_at = -STILL_READ_S if idle_s is None else time.monotonic()
        self._made, self._looks = threading.Condition(), 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"ui-{name}", daemon=True)
        self._thread.start()

    def result(self, wait_s: float = FIRST_LOOK_S) -> Result[FoundT]:
        """Return the last result; until there is one, wait for it this long."""
        was_read, self._read_at = self._is_read(), time.monotonic()
        if not was_read:
            self._wake.set()
        self._looked.wait(wait_s)
        return self._result

    def next_result(self) -> Result[FoundT]:
        """Return the result of a call that begins now; the last one if that takes long."""
        self.result()
        with self._made:
            wanted = self._looks + 2  # one may be running

            def is_made() -> bool:
                self._wake.set()
                return self._looks >= wanted

            self._made.wait_for(is_made, NEXT_LOOK_S)
        return self._result

    def close(self) -> None:
        """End it, after the running call."""
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _is_read(self) -> bool:
        return time.monotonic() - self._read_at < STILL_READ_S

    def _run(self) -> None:
        while not self._closed:
            if self._idle_s is not None or self._is_read():
                self._look_once()
            self._wake.wait(self._interval_s if self._is_read() else self._idle_s)
            self._wake.clear()

    def _look_once(self) -> None:
        try:
            self._result = Result(self._look(), now_ms())
        except PROBLEMS as error:
            self._failed(str(error) or type(error).__name__)
        except Exception as error:
            _log.exception("a mistake of ours")
            self._failed(f"a mistake of ours, {type(error).__name__}: its log has more")
        self._looked.set()
        with self._made:
            self._looks += 1
            self._made.notify_all()

    def _failed(self, problem: str) -> None:
        self._result = Result(self._result.found, self._result.at_ms, problem)
