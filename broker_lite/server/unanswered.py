"""Writes of one connection that have been handled and wait for followers: their answers go out in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sparkonce.broker_lite.handlers.request import Body, Request


class UnansweredWrites:
    """The writes, the oldest first, each with its answer once there is one."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[tuple[Request, list[Body]]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, request: Request, body: Body | None = None) -> None:
        """File a request behind the others, with its answer if it has one already."""
        self._entries.append((request, [] if body is None else [body]))

    def answer(self, request: Request, body: Body) -> bool:
        """Note the answer to a request; returns whether it is one of these."""
        for waiting, answers in self._entries:
            if waiting is request:
                answers.append(body)
                return True
        return False

    def take(self) -> Iterator[tuple[Request, Body]]:
        """Take off those that may be answered now: up to the first that has no answer yet."""
        while self._entries and self._entries[0][1]:
            request, (body,) = self._entries.popleft()
            yield request, body

    def abandon(self, read_buffer: bytearray) -> None:
        """Forget everything, as the connection is gone."""
        for request, _ in self._entries:
            request.abandon(read_buffer)
        self._entries.clear()
