"""Plan the next batch while Spark runs this one: for Trigger.AvailableNow, whose end is fixed when the query starts.

With other triggers a batch is planned when it begins, so that it reads what has arrived by then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

PAUSE_S = 0.005
"""Of the thread before it begins, unless somebody waits for it: the answer of the call that started it goes out first,
as one thread of Python makes another wait that long (``sys.getswitchinterval``)."""

STOP_S = 10.0
"""How long a query that stops waits for a plan that it does not need, so that no connection is opened afterwards."""

_log = logging.getLogger(__name__)
_Plan = TypeVar("_Plan")


class Ahead(Generic[_Plan]):
    """One plan, made in a thread; ``asked`` is what it is for.

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
        """Wait until the thread has ended, or for so long."""
        self._is_awaited.set()
        self._thread.join(timeout_s)

    def result(self, asked: object) -> _Plan | None:
        """Return the plan; None if there is none, it failed, which may have passed by now, or is for something else."""
        self.wait()
        return self._found if asked == self.asked else None

    def _run(self) -> None:
        self._is_awaited.wait(PAUSE_S)
        try:
            self._found = self._plan()
        except Exception as error:  # the caller plans again, and then raises what is still wrong
            _log.info("kafka_once: could not plan a batch ahead: %s", error)
