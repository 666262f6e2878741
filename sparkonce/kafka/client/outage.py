"""What the log says of an outage of the brokers: when it began, until when to expect another attempt, and its end.

A worker's log is where its user looks while a query stands still, and an outage makes thousands of failed attempts: so
there is one warning for each.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from sparkonce.kafka.protocol.errors import ProtocolError

FAILURES_BEFORE = 1
"""One failure alone is no outage: brokers close connections that are idle."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outage:
    """The outage that a client is in, if it is in one; for one thread at a time."""

    servers: str
    named: str
    """Whose brokers they are: the format or command that the lines begin with."""
    _failures: int = 0
    _since_s: float = 0.0

    def note_failure(self, what: str, error: Exception, left_s: float) -> None:
        """Note a failure, if it is of the network; ``what`` is tried again for ``left_s`` more seconds."""
        if not isinstance(error, (OSError, ProtocolError)):
            return
        self._failures += 1
        if self._failures == 1:
            self._since_s = time.time()
        if self._failures == FAILURES_BEFORE + 1:
            _log.warning(
                "%s: brokers at %s not reachable since %s (%s: %s), trying again until %s to %s",
                self.named,
                self.servers,
                _time_of_day(self._since_s),
                type(error).__name__,
                error,
                _time_of_day(time.time() + left_s),
                what,
            )

    def note_answer(self) -> None:
        """Note that brokers have answered."""
        if self._failures > FAILURES_BEFORE:
            away_s = time.time() - self._since_s
            _log.warning("%s: brokers at %s answer again, after %.0f s", self.named, self.servers, away_s)
        self._failures = 0


def _time_of_day(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
