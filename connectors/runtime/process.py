"""A name for this process, for transactional ids: no other process has it or had it."""

from __future__ import annotations

import os
import uuid
from functools import cache


def process_name() -> str:
    """Return the name. Spark's workers are forked from a process that has imported this, and get names of their own."""
    return _name_of(os.getpid())


@cache
def _name_of(pid: int) -> str:  # noqa: ARG001 - the key
    return uuid.uuid4().hex[:12]
