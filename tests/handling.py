"""Runs handlers as a connection does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.waiting import Promise, Waiting, begin, begin_in_background

T = TypeVar("T")


def handle(broker: Broker, request: Request, later: list[Body | Exception | None] | None = None) -> Body | None:
    """Run a request's handler; return its response, or None if it waits: the response goes to `later` then.

    Raises:
        Exception: the handler's, if it does not wait.
    """
    return run(dispatch.handle(broker, request), later)


def run(coroutine: Waiting[Body | None], later: list[Body | Exception | None] | None = None) -> Body | None:
    """Do the same with any coroutine."""
    ends: list[Body | Exception | None] = []
    to = ends

    def on_end(body: Body | None, error: Exception | None) -> None:
        assert to is ends or later is not None, f"nobody waits for {body!r}, {error!r}"
        to.append(body if error is None else error)

    begin(coroutine, on_end)
    if not ends:
        to = [] if later is None else later
        return None
    if isinstance(ends[0], Exception):
        raise ends[0]
    return ends[0]


def when(promise: Promise[T], then: Callable[[T], object]) -> None:
    """Call `then` with the promise's value, as a coroutine that has waited for it."""

    async def wait() -> None:
        then(await promise)

    begin_in_background(wait(), "the test's wait")
