"""Plan the next batch while Spark runs this one: for Trigger.AvailableNow, whose end is fixed when the query starts.

With other triggers a batch is planned when it begins, so that it reads what has arrived by then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

PAUSE_S = 0.005
"""The thread's delay, unless somebody waits for it: so the response of the call that started it is sent first,
as one Python thread makes another wait that long (``sys.getswitchinterval``)."""

STOP_S = 10.0
"""How long a stopping query waits for a plan that it does not need, so that no connection is opened afterwards."""

_log = logging.getLogger(__name__)
_Plan = TypeVar("_Plan")


class Ahead(Generic[_Plan]):
    """One plan, made in a thread; ``asked`` is its request.

    Until `result` or `wait` returns, the thread alone may use what ``plan`` uses.
    """

    def __init__(self, asked: object, plan: Callable[[], _Plan | None]) -> None:
        self.asked = asked
        self._plan = plan
        self._found: _Plan | None = None
        self._is_awaited = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plan ahead", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended, or for a timeout."""
        self._is_awaited.set()
        self._thread.join(timeout_s)

    def result(self, asked: object) -> _Plan | None:
        """Return the plan; None if there is none, it failed (perhaps transiently), or it is for another request."""
        self.wait()
        return self._found if asked == self.asked else None

    def _run(self) -> None:
        self._is_awaited.wait(PAUSE_S)
        try:
            self._found = self._plan()
        except Exception as error:  # the caller plans again, and then raises the remaining error
            _log.info("kafka_once: could not plan a batch ahead: %s", error)
