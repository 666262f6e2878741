"""Readers of topics whose messages are shown; one thread at a time uses each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparkonce.connectors.schema_registry.client import Registry
from sparkonce.jobs.cli.peek.clients import open_registry
from sparkonce.jobs.cli.peek.decoding import Decoder
from sparkonce.jobs.cli.peek.reading import TopicReader
from sparkonce.jobs.ui.kafka.messages import Messages

MAX_OPEN = 8
ISOLATION, COMMITTED = "kafka.isolation.level", "read_committed"
"""Records of open and aborted transactions are left out, unless the user asks for them."""


@dataclass(frozen=True, slots=True)
class _Open:
    reader: TopicReader
    registry: Registry | None
    messages: Messages
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Close its connections, once it is unused."""
        with self.lock:
            self.reader.close()
            if self.registry is not None:
                self.registry.close()


class Topics:
    """All readers; the least recently used ones are closed."""

    def __init__(self, kafka: Mapping[str, str], registry: Mapping[str, str]) -> None:
        self._kafka, self._registry = {ISOLATION: COMMITTED, **kafka}, registry
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._is_closed = False

    @contextmanager
    def messages(self, topic: str) -> Iterator[Messages]:
        """Yield a reader of a topic's messages. Raises ConnectionError after the end."""
        opened = self._opened(topic)
        with opened.lock:
            yield opened.messages

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            for each in self._open.values():
                each.close()
            self._open.clear()

    def _made(self, topic: str) -> _Open:
        reader, registry = TopicReader(self._kafka, topic), open_registry("ui", self._registry, self._kafka)
        return _Open(reader, registry, Messages(reader, Decoder(registry)))

    def _opened(self, topic: str) -> _Open:
        with self._lock:
            if self._is_closed:  # a page that is still being read opens no connection
                raise ConnectionError("the pages have ended")
            if topic not in self._open:
                self._open[topic] = self._made(topic)
            self._open.move_to_end(topic)
            leaving = self._open.popitem(last=False)[1] if len(self._open) > MAX_OPEN else None
            found = self._open[topic]
        if leaving is not None:
            leaving.close()
        return found
