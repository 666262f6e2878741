"""Requests with more work than one turn of the event loop may take.

Theory of operation: the handler of such an API is a generator that yields how much it has done, in units, since it last
yielded. Within `MAX_UNITS_PER_TURN` it runs as any handler does, and is answered at once. The rest is done a turn at a
time, one request a turn, however many clients there are: other requests are served in between. Requests that change
topics or settings do not overlap: they are done in order of arrival, as in Kafka's controller. All others alternate
with each other, and end with their connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import wraps
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from sparkonce.broker_lite.node.request import DROP, Body, Request

if TYPE_CHECKING:
    from sparkonce.broker_lite.scheduling import Scheduler

MAX_UNITS_PER_TURN: Final = 1_000
"""How much of one request is done before the others get a turn; a unit takes about 20 microseconds."""
ITEM: Final = 1
"""The units of one array item that is looked up or created in memory."""
FILES: Final = 100
"""The units of a partition whose files are removed, or created."""
DESCRIBED: Final = 50
"""The units of describing all settings of a topic or broker."""
WRITTEN: Final = 100
"""The units of a durable write."""

Steps = Generator[int, None, Body | None]
"""Yields units of work; returns the answer, or None if it comes later through `Request.answer`."""

Result = TypeVar("Result")


class _HasTurns(Protocol):
    """The broker, as far as it is needed here."""

    @property
    def turns(self) -> Turns:
        """Its unfinished requests."""


Node = TypeVar("Node", bound=_HasTurns)


def in_turns(handler: Callable[[Node, Request], Steps]) -> Callable[[Node, Request], Body | None]:
    """Let a handler that only reads, or whose changes may overlap with others', work in turns."""

    @wraps(handler)
    def handle(broker: Node, request: Request) -> Body | None:
        return broker.turns.run(request, handler(broker, request))

    return handle


def one_after_the_other(handler: Callable[[Node, Request], Steps]) -> Callable[[Node, Request], Body | None]:
    """Let a handler that changes topics or settings work in turns, after those before it are done."""

    @wraps(handler)
    def handle(broker: Node, request: Request) -> Body | None:
        return broker.turns.run(request, handler(broker, request), alone=True)

    return handle


class _Work:
    """The rest of one request's work."""

    __slots__ = ("abandoned", "request", "steps")

    def __init__(self, request: Request, steps: Steps) -> None:
        self.request = request
        self.steps = steps
        self.abandoned = False

    def abandon(self) -> None:
        """End with the connection."""
        self.abandoned = True


class Turns:
    """All unfinished requests of a broker."""

    def __init__(self, scheduler: Scheduler, note_failure: Callable[[Request, Exception], object]) -> None:
        self._scheduler = scheduler
        self._note_failure = note_failure
        self._changes: deque[_Work] = deque()
        self._others: deque[_Work] = deque()
        self._changes_next = True
        self._booked = False

    def run(self, request: Request, steps: Steps, *, alone: bool = False) -> Body | None:
        """Do a request's work, within this turn's limit; None if its answer comes later.

        Raises:
            Exception: the handler's errors in this turn.
        """
        if alone and self._changes:
            request.body = memoryview(bytes(request.body))  # the read buffer is reused before it is decoded
        else:
            done, body = _advance(steps)
            if done:
                return body
        work = _Work(request, steps)
        if not alone:
            request.on_abandoned = work.abandon
        (self._changes if alone else self._others).append(work)
        self._book()
        return None

    def close(self) -> None:
        """Stop; answer no request."""
        for work in (*self._changes, *self._others):
            work.steps.close()
        self._changes.clear()
        self._others.clear()

    def _book(self) -> None:
        if not self._booked and (self._changes or self._others):
            self._booked = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._booked = False
        if not (self._changes or self._others):
            return
        waiting = self._changes if self._changes and (self._changes_next or not self._others) else self._others
        self._changes_next = waiting is self._others
        work = waiting[0]
        if work.abandoned:
            done, body = True, None
            work.steps.close()
        else:
            done, body = self._advance(work)
        if done:
            waiting.popleft()
        elif waiting is self._others:
            waiting.rotate(-1)
        self._book()
        if body is not None:
            work.request.answer(body)

    def _advance(self, work: _Work) -> tuple[bool, Body | None]:
        try:
            return _advance(work.steps)
        except Exception as error:  # the others' work continues
            self._note_failure(work.request, error)
            return True, DROP


def in_units(steps: Generator[bool, None, Result]) -> Generator[int, None, Result]:
    """Convert a generator that yields after each partition whether it touched files to units of work."""
    while True:
        try:
            units = FILES if next(steps) else ITEM
        except StopIteration as end:
            result: Result = end.value
            return result
        yield units


def _advance(steps: Steps) -> tuple[bool, Body | None]:
    """Work until done, or enough for one turn; returns whether it is done, and the answer."""
    units = 0
    while units < MAX_UNITS_PER_TURN:
        try:
            units += next(steps)
        except StopIteration as end:
            body: Body | None = end.value
            return True, body
    return False, None
