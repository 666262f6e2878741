"""Make the garbage collection after every call of Spark's Python workers cheap.

`pyspark.daemon.manager` has each worker call ``gc.collect()`` when it has done what it was asked for: a task, the begin
of a batch, a commit. That visits all that the process has loaded, hundreds of thousands of objects in 40 to 60 ms,
where the call itself takes less. What stays anyway can be left out (``gc.freeze``): modules, compiled functions,
connections. `connectors.runtime.worker_daemon` does that for what it loads before it forks; here it is done for what a
worker comes to hold in its first calls, and for the driver's processes, which that daemon does not start.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection

from sparkonce.connectors.runtime.memory import keep_freed_memory

DAEMONS = ("pyspark.daemon", "sparkonce.connectors.runtime.worker_daemon")
"""The modules that Spark's Python workers run as."""
FREEZE_AT = (2, 10)
"""The calls that begin with a freeze: in the first one nearly everything is loaded, and what is left of it is garbage
no more, since the collector has been through. Some things are needed only later, as after a batch without rows."""

_calls = 0


def begin_call() -> None:
    """Announce the start of a call by Spark, before it creates objects; does nothing outside Spark's daemons.

    The first call also has the process keep the memory that it frees.
    """
    global _calls
    _calls += 1
    if _calls == 1 and _main_module() in DAEMONS:
        keep_freed_memory()
    if is_due(_calls, _main_module()):
        gc.freeze()


def is_due(call: int, main_module: str | None, at: Collection[int] = FREEZE_AT) -> bool:
    """Whether a call, counted from 1, of a process that runs as ``main_module`` begins with a freeze."""
    return call in at and main_module in DAEMONS


def _main_module() -> str | None:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return None if spec is None else str(spec.name)
