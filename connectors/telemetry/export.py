"""Sends spans to a collector: a queue, and a thread that empties it.

Adding a span never waits. Spark may kill a process of the driver right after its
commit, so that process asks for its spans to be sent (`flush`), and waits at most `FLUSH_S`. After a failure nobody
waits for `QUIET_S`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from sparkonce.connectors.telemetry.spans import Span

MAX_QUEUED = 2_048
"""The limit of waiting spans; beyond it, new ones are dropped."""
MAX_SENT = 256
"""Spans in one request."""
LINGER_S = 0.1
"""How long the first span of a request waits for others."""
FLUSH_S = 2.0
QUIET_S = 60.0

Send = Callable[[Sequence[Span]], bool]
"""Sends spans; returns whether the collector has them."""

_log = logging.getLogger(__name__)


class SpanQueue:
    """A process's spans to send; ``connect`` returns a function that sends them."""

    def __init__(self, connect: Callable[[], Send], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Span] = deque()
        self._added = self._done = 0
        self._hurries = False
        self._quiet_until: float | None = None
        threading.Thread(target=self._send_all, name="sparkonce-spans", daemon=True).start()

    def add(self, spans: Iterable[Span]) -> None:
        """Queue spans; they are dropped if too many wait."""
        with self._changed:
            for span in spans:
                if len(self._waiting) < MAX_QUEUED:
                    self._waiting.append(span)
                    self._added += 1
            self._changed.notify_all()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until the queued spans are sent, but not long, and not soon after a failure; return whether they are."""
        with self._changed:
            if self._quiet_until is not None and self._clock() < self._quiet_until:
                return False
            wanted = self._added
            self._hurries = True
            self._changed.notify_all()
            is_done = self._changed.wait_for(lambda: self._done >= wanted, timeout_s)
            if not is_done:
                self._quiet_until = self._clock() + QUIET_S
            return is_done

    def _send_all(self) -> None:
        send = self._connected()
        while True:
            spans = self._next()
            try:
                sent = send(spans)
            except Exception as error:  # such as an invalid address; the batch must not be affected
                sent = False
                _log.debug("spans cannot be sent: %r", error)
            with self._changed:
                self._done += len(spans)
                if not sent:
                    self._note_failure()
                self._changed.notify_all()

    def _connected(self) -> Send:
        try:
            return self._connect()
        except ImportError as error:
            _log.warning("batches are not traced: %s. Install the extra: pip install 'sparkonce[otel]'", error)
        except Exception as error:
            _log.warning("batches are not traced: %s", error)
        return lambda _: True

    def _next(self) -> list[Span]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting))
            self._changed.wait_for(lambda: self._hurries or len(self._waiting) >= MAX_SENT, LINGER_S)
            self._hurries = False
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_SENT))]

    def _note_failure(self) -> None:
        now = self._clock()
        if self._quiet_until is None or now >= self._quiet_until:
            _log.warning("spans cannot be sent to the collector of OTEL_EXPORTER_OTLP_ENDPOINT, and are dropped")
        self._quiet_until = now + QUIET_S


_queues: dict[int, SpanQueue] = {}
"""By process id: a forked process has no threads any more."""


def export(*spans: Span) -> None:
    """Queue spans; never waits or raises: the batch continues without them."""
    try:
        _queue().add(spans)
    except Exception as error:  # such as too many threads
        _log.debug("a span is dropped: %r", error)


def flush() -> None:
    """Wait a moment until they are sent; never raises."""
    queue = _queues.get(os.getpid())
    if queue is not None:
        queue.flush()


def _queue() -> SpanQueue:
    own = os.getpid()
    if own not in _queues:
        _queues[own] = SpanQueue(_connect)
    return _queues[own]


def _connect() -> Send:
    from sparkonce.connectors.telemetry.otlp import connect  # its packages are in an extra, and slow to load

    return connect()
