"""Turns of the event loop for requests with more work than one turn may take, and exclusive access for changes.

Theory of operation: a handler says how much it has done, in units, with `spend`. Up to `MAX_UNITS_PER_TURN` it goes on
at once, as any handler. Then it waits for its next turn: one request has one turn in a round of the loop, however many
clients there are, and other requests are served in between. Requests that change topics or settings do not overlap:
each waits for `change`, in order of arrival, as in Kafka's controller. The change under way and the readers alternate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Final, TypeVar

from sparkonce.broker_lite.waiting import Promise

if TYPE_CHECKING:
    from sparkonce.broker_lite.node.request import Request
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
"""The units of a change that is appended to a log."""

Result = TypeVar("Result")


class _NoWait:
    """What `spend` returns within a turn: no coroutine and no promise is made for each item of work."""

    def __await__(self) -> Generator[Promise[None], None, None]:
        return iter(())  # type: ignore[return-value]  # the cheapest iterator that ends at once


_NO_WAIT: Final = _NoWait()


class Turns:
    """The requests of a broker that wait for a turn, or to change something."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._changing: Request | None = None
        """The request whose change is under way."""
        self._next_of_change: Promise[None] | None = None
        """Its next turn, if it waits for that."""
        self._changes: deque[Promise[None]] = deque()
        """The requests that wait to change something."""
        self._others: deque[Promise[None]] = deque()
        """The next turns of all other requests."""
        self._changes_next = True
        self._booked = False

    def spend(self, request: Request, units: int, *, ends_with_client: bool = True) -> Awaitable[None]:
        """Note that a request did some work; await the result, which is its next turn if it has had enough.

        A change goes on even if its client goes, and so does a request that says so.
        """
        request.units += units
        if request.units < MAX_UNITS_PER_TURN:
            return _NO_WAIT
        request.units = 0
        turn: Promise[None] = Promise(ends_with_client=ends_with_client and request is not self._changing)
        if request is self._changing:
            self._next_of_change = turn
        else:
            self._others.append(turn)
        self._book()
        return turn

    async def do(self, request: Request, steps: Generator[int, None, Result]) -> Result:
        """Do work of a service that yields the units of each step, in turns; return its result."""
        try:
            while True:
                await self.spend(request, next(steps))
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            steps.close()

    def change(self, request: Request) -> _Change:
        """Have exclusive access to topics and settings, in order of arrival; not even the client's end interrupts."""
        return _Change(self, request)

    async def begin_change(self, request: Request) -> None:
        """See `change`, which is `async with`."""
        if self._changing is not None or self._changes:
            access: Promise[None] = Promise()
            self._changes.append(access)
            self._book()
            await access
        self._changing = request

    def end_change(self) -> None:
        """See `change`."""
        self._changing = None
        self._book()

    def close(self) -> None:
        """End all requests that wait here."""
        waiting = [self._next_of_change, *self._changes, *self._others]
        self._next_of_change = None
        self._changes.clear()
        self._others.clear()
        for each in waiting:
            if each is not None:
                each.end_waiting()

    def _due_change(self) -> Promise[None] | None:
        if self._changing is not None:
            return self._next_of_change
        return self._changes[0] if self._changes else None

    def _book(self) -> None:
        if not self._booked and (self._others or self._due_change() is not None):
            self._booked = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        """Let one request go on."""
        self._booked = False
        turn = self._due_change()
        if turn is not None and (self._changes_next or not self._others):
            self._changes_next = False
            if self._changing is not None:
                self._next_of_change = None
            else:
                self._changes.popleft()
        elif self._others:
            self._changes_next = True
            turn = self._others.popleft()
        if turn is not None:
            turn.complete(None)
        self._book()


class _Change:
    """Exclusive access while a block runs. A class, since asyncio keeps track of asynchronous generators."""

    __slots__ = ("_request", "_turns")

    def __init__(self, turns: Turns, request: Request) -> None:
        self._turns = turns
        self._request = request

    async def __aenter__(self) -> None:
        await self._turns.begin_change(self._request)

    async def __aexit__(self, *_: object) -> None:
        self._turns.end_change()


def in_units(steps: Generator[bool, None, Result]) -> Generator[int, None, Result]:
    """Convert a generator that yields after each partition whether it touched files to units of work."""
    while True:
        try:
            units = FILES if next(steps) else ITEM
        except StopIteration as end:
            result: Result = end.value
            return result
        yield units
