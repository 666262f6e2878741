"""Outages that end when the log has said that there is one."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from sparkonce import EmbeddedBroker


class Outages(logging.Handler):
    """Starts a broker again each time that a client has said it is not reachable; a context manager."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        super().__init__(logging.WARNING)
        self._broker = broker
        self.said: list[str] = []
        """Everything that was said of outages."""

    def __enter__(self) -> Self:
        logging.getLogger("sparkonce").addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        logging.getLogger("sparkonce").removeHandler(self)
        self._broker.restart()  # it is down if what should wait has failed

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.endswith(".outage"):
            self.said.append(record.getMessage())
            if "not reachable since" in self.said[-1]:
                self._broker.restart()

    @property
    def count(self) -> int:
        """How often brokers were said to be away."""
        return sum("not reachable since" in text for text in self.said)
