"""Publish messages at an even pace, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

from sparkonce.jobs.etl.publish import publish

POLL_S = 0.2


class Publisher(threading.Thread):
    """Sends ``count`` messages to a topic within some minutes, each until it is acknowledged."""

    def __init__(
        self, bootstrap_servers: str, topic: str, messages: Iterable[tuple[bytes, bytes]], count: int, minutes: float
    ) -> None:
        super().__init__(name=f"publisher {topic}", daemon=True)
        self._where = (bootstrap_servers, topic)
        self._messages = messages
        self._gap_s = minutes * 60 / count
        self._error: Exception | None = None

    def run(self) -> None:
        """Send all messages."""
        try:
            publish(*self._where, _paced(self._messages, self._gap_s), lambda _: None)
        except Exception as error:
            self._error = error

    def check(self) -> None:
        """Raise the error that ended it, if it failed."""
        if self._error is not None:
            raise self._error


def _paced(messages: Iterable[tuple[bytes, bytes]], gap_s: float) -> Iterator[tuple[bytes, bytes]]:
    began_s = time.monotonic()
    for number, message in enumerate(messages):
        ahead_s = began_s + number * gap_s - time.monotonic()
        if ahead_s > POLL_S:
            time.sleep(ahead_s)
        yield message
