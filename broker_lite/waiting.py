"""Coroutines that wait without asyncio's tasks: a handler's first step runs at once, and a promise resumes it.

Theory of operation: a request's handler is a coroutine. Its first step runs in the call that reads the request, and
most handlers end there, at little more than the cost of a call. A handler that has to wait awaits a `Promise`; whoever
completes the promise runs the handler's next step, in the same call. An `asyncio.Task` would begin in a later round of
the loop (eager tasks need Python 3.12), and cannot adopt a coroutine that has begun. So handlers await promises and
each other, and nothing of asyncio's.

A client that goes ends its handlers only where they wait for its sake, such as for new records, or for their next turn
between two items of a request: nothing else is interrupted, so that the change of an item is complete, and what was
appended is completed as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Waiting = Coroutine["Promise[Any]", None, T]
"""A coroutine that awaits promises only."""

logger = logging.getLogger(__name__)


class Promise(Generic[T]):
    """A value that comes later; one coroutine may await it."""

    __slots__ = ("_execution", "_value", "ends_with_client", "is_complete")

    def __init__(self, *, ends_with_client: bool = False) -> None:
        """`ends_with_client`: whoever waits is to end here once its client has gone."""
        self.ends_with_client = ends_with_client
        self.is_complete = False
        self._value: T | None = None
        self._execution: Execution | None = None

    def complete(self, value: T) -> None:
        """Set the value, and run the next step of the coroutine that waits; a second call does nothing."""
        if not self.is_complete:
            self.is_complete = True
            self._value = value
            if self._execution is not None:
                self._execution.resume()

    def end_waiting(self) -> None:
        """End the coroutine that waits, if there is one: the value will never come."""
        if self._execution is not None:
            self._execution.close()

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self.is_complete:
            yield self
        return self._value  # type: ignore[return-value]  # it is complete


class Execution:
    """A coroutine that waits for a promise."""

    __slots__ = ("_coroutine", "_is_abandoned", "_on_end", "_promise")

    def __init__(
        self, coroutine: Waiting[Any], promise: Promise[Any], on_end: Callable[[Any, Exception | None], None]
    ) -> None:
        """Take over a coroutine whose last step has ended with `promise`.

        `on_end` is called once, with the coroutine's result or its error; with neither if it was ended early.
        """
        self._coroutine = coroutine
        self._on_end = on_end
        self._is_abandoned = False
        self._promise: Promise[Any] | None = None
        self._wait(promise)

    def resume(self) -> None:
        """Run the next step."""
        self._promise = None
        try:
            promise = self._coroutine.send(None)
        except StopIteration as end:
            self._on_end(end.value, None)
        except Exception as error:
            self._on_end(None, error)
        else:
            self._wait(promise)

    def abandon(self) -> None:
        """Note that the client has gone: end at the first wait that is for its sake, now or later."""
        self._is_abandoned = True
        if self._promise is not None:
            self._wait(self._promise)

    def close(self) -> None:
        """End the coroutine where it waits."""
        promise, self._promise = self._promise, None
        if promise is not None:
            promise._execution = None
        try:
            self._coroutine.close()
        finally:
            self._on_end(None, None)

    def _wait(self, promise: Promise[Any]) -> None:
        assert promise._execution in (None, self), "one coroutine awaits a promise"
        self._promise, promise._execution = promise, self
        if self._is_abandoned and promise.ends_with_client:
            self.close()


def begin(coroutine: Waiting[T], on_end: Callable[[T | None, Exception | None], None]) -> None:
    """Run a coroutine's first step; `on_end` is called as in `Execution`, and may be before this returns."""
    try:
        promise = coroutine.send(None)
    except StopIteration as end:
        on_end(end.value, None)
    except Exception as error:
        on_end(None, error)
    else:
        Execution(coroutine, promise, on_end)


def begin_in_background(coroutine: Waiting[object], what: str) -> None:
    """Run a coroutine that nobody waits for: its error is logged, with `what` was not done."""

    def on_end(_result: object, error: Exception | None) -> None:
        if error is not None:
            logger.error("%s: this is a mistake of the broker's", what, exc_info=error)

    begin(coroutine, on_end)
