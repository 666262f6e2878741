"""Keep memory that a worker frees, for its next batch of rows.

Every batch is decoded into new buffers of some megabytes, which are free again once Spark has its rows. The C library
returns memory of that size to the system at once, and the kernel must allocate and clear it again for the next batch:
with records of 100 bytes half of a task's processor time, as much as decoding them. So a worker keeps what it had, up
to `KEPT_BYTES` at the end of each heap; threads that allocate at the same time, as the one that fetches, have heaps of
their own, and what is free between two buffers in use comes on top. Spark ends workers that it has not used for a
minute.
"""

from __future__ import annotations

import ctypes
import os

KEPT_BYTES = 64 << 20
"""Free memory kept at the end of one heap; more is returned."""
LARGEST_BYTES = 32 << 20
"""The largest buffer allocated from a heap; the C library allows no more. An Arrow batch is not much larger."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""
_SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Configure the C library; False if it is not glibc, or the environment already sets other values."""
    if any(name in os.environ for name in _SET_BY_USER):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # neither macOS nor musl has it
        return False
    return bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(_MMAP_THRESHOLD, LARGEST_BYTES))
