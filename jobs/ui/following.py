"""Sends followers of a page its changes, as server-sent events.

All followers of a page share one read of its data: it is rendered repeatedly while there are followers, and not
otherwise. Each follower is sent the difference from its state; a slow one skips intermediate states, and nothing
is queued for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from sparkonce.jobs.ui.rendering import Rendered

MAX_FOLLOWERS = 100
"""At the same time; more are asked to retry later."""
MAX_READING = 16
"""Pages that are read at once for followers: the other threads, 24 of 40, are left to requests."""
STILL_THERE_S = 15.0
"""The interval of comments without a change, to detect disconnected followers."""
RETRY_MS = 500
"""The reconnection delay of a browser."""

_log = logging.getLogger(__name__)


class TooManyError(RuntimeError):
    """The limit of followers is reached."""


@dataclass(eq=False)
class _Watched:
    """A page with followers."""

    now: Rendered | None = None
    followers: int = 0
    task: asyncio.Task[None] | None = None
    has_ended: bool = False
    """Whether it is not read any more."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once, at the next change; then replaced."""

    def announce(self) -> None:
        """Wake all followers."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()


class Following:
    """All followed pages; belongs to one event loop, except `stop`."""

    def __init__(self) -> None:
        self._watched: dict[Hashable, _Watched] = {}
        self._followers = 0
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading = asyncio.Semaphore(MAX_READING)

    def stop(self) -> None:
        """End all streams; any thread may call it."""
        self._stopped = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the streams with it
                self._loop.call_soon_threadsafe(self._announce)

    def _announce(self) -> None:
        for each in self._watched.values():
            each.announce()

    async def follow(
        self, name: Hashable, has: str, look: Callable[[], Rendered], interval_s: float
    ) -> AsyncGenerator[str]:
        """Yield events for a follower of page ``name`` that ``has`` a digest. Raises TooManyError beyond the limit."""
        if self._followers >= MAX_FOLLOWERS:
            raise TooManyError(f"{MAX_FOLLOWERS} pages are open: close some")
        self._loop = asyncio.get_running_loop()
        watched = self._watched.get(name)
        if watched is None or watched.has_ended:
            watched = self._watched[name] = _Watched()
        self._followers += 1
        watched.followers += 1
        try:
            if watched.task is None:
                watched.task = asyncio.create_task(self._look(watched, look, interval_s))
            yield f"retry: {RETRY_MS}\n\n"
            async for event in self._events(watched, has):
                yield event
        finally:
            self._followers -= 1
            watched.followers -= 1
            if not watched.followers:
                if self._watched.get(name) is watched:
                    del self._watched[name]
                if watched.task is not None:
                    watched.task.cancel()

    async def _events(self, watched: _Watched, has: str) -> AsyncGenerator[str]:
        shown: Rendered | None = None
        while not (self._stopped or watched.has_ended):
            changed, now = watched.changed, watched.now
            if now is not None:
                if now.digest != has:
                    yield _event(shown, now)
                shown, has = now, now.digest
            if watched.now is now and not self._stopped:
                try:
                    await asyncio.wait_for(changed.wait(), STILL_THERE_S)
                except TimeoutError:
                    yield ": still there\n\n"
        if watched.has_ended:
            yield f"retry: {10 * RETRY_MS}\n\n"

    async def _look(self, watched: _Watched, look: Callable[[], Rendered], interval_s: float) -> None:
        try:
            while True:
                async with self._reading:
                    now = await run_in_threadpool(look)
                if watched.now is None or now.digest != watched.now.digest:
                    watched.now = now
                    watched.announce()
                await asyncio.sleep(interval_s)
        except Exception:
            _log.exception("a page cannot be read any more")
        finally:  # end the streams: browsers connect again, and do not stay "live" with an old state
            watched.has_ended = True
            watched.announce()


def _event(before: Rendered | None, now: Rendered) -> str:
    changed = None if before is None else now.changed_since(before)
    kind, data = ("whole", now.whole) if changed is None else ("parts", changed)
    return f"id: {now.digest}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
