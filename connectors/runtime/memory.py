"""Memory of Spark's Python workers: cheap garbage collections, and freed memory kept for the next batch.

`pyspark.daemon.manager` has each worker call ``gc.collect()`` after each request: a task, the begin
of a batch, a commit. That visits all that the process has loaded, hundreds of thousands of objects in 40 to 60 ms,
where the call itself takes less. Permanent objects can be excluded (``gc.freeze``): modules, compiled functions,
connections. `connectors.runtime.worker_daemon` does that for what it loads before it forks; here it is done for objects
of a worker's first calls, and for the driver's processes, which that daemon does not start.

Every batch is decoded into new buffers of some megabytes, which are free again once Spark has its rows. The C library
returns memory of that size to the system at once, and the kernel must allocate and clear it again for the next batch:
with records of 100 bytes half of a task's processor time, as much as decoding them. So a worker keeps what it had, up
to `KEPT_BYTES` at the end of each heap; threads that allocate at the same time, as the one that fetches, have heaps of
their own, and what is free between two buffers in use comes on top. Spark ends workers that it has not used for a
minute.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

DAEMONS = ("pyspark.daemon", "sparkonce.connectors.runtime.worker_daemon")
"""The modules that Spark's Python workers run as."""
FREEZE_AT = (2, 10)
"""The calls that begin with a freeze: in the first one nearly everything is loaded, and no garbage
is left, since the collector has run. Some things are needed only later, as after a batch without rows."""

_calls = 0

KEPT_BYTES = 64 << 20
"""Free memory kept at the end of one heap; more is returned."""
LARGEST_BYTES = 32 << 20
"""The largest buffer allocated from a heap; the C library allows no more. An Arrow batch is not much larger."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


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


def is_due(call: int, main_module: str | None) -> bool:
    """Whether a call, counted from 1, of a process that runs as ``main_module`` begins with a freeze."""
    return call in FREEZE_AT and main_module in DAEMONS


def _main_module() -> str | None:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return None if spec is None else str(spec.name)


def keep_freed_memory() -> bool:
    """Configure the C library; False if it is not glibc, or the environment already sets other values."""
    if any(name in os.environ for name in _SET_BY_USER):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # neither macOS nor musl has it
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, LARGEST_BYTES))
