"""Requests that fail, beside others that wait for the same records: the others must not suffer from it.

A stranger waits as a handler or a coordinator does, and raises when it is resumed, as a handler with a bug would. The
broker logs that (`waiting.py`), and nothing else may come of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lab.sim.scheduler import stream
from sparkonce.broker_lite.waiting import Promise, begin_in_background

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.kafka.protocol.errors import ErrorCode

_STRANGERS: Final = 0.2
"""The share of seeds that have them."""
_OFTEN: Final = 0.15
"""The share of requests that have one beside them."""
_NOTED_BY: Final = ".broker_lite.waiting"
"""The module that catches their errors."""

Safe = Callable[["PartitionKey", int, int], "Promise[ErrorCode]"]


class StrangerError(Exception):
    """The error of a stranger."""


def has_strangers(seed: int) -> bool:
    """Whether a seed has strangers."""
    return stream("strangers", seed).random() < _STRANGERS


def beside_strangers(safe: Safe, seed: int, broker_id: int, failing: Callable[[], None]) -> Safe:
    """Return `safe` with a stranger beside some of the requests; `failing` is called for each that fails."""
    rng = stream("stranger", seed, broker_id)

    async def fail(promise: Promise[ErrorCode]) -> None:
        await promise
        failing()
        raise StrangerError

    def both(key: PartitionKey, last_offset: int, timeout_ms: int) -> Promise[ErrorCode]:
        if rng.random() < _OFTEN:
            begin_in_background(fail(safe(key, last_offset, timeout_ms)), "a stranger fails")
        return safe(key, last_offset, timeout_ms)

    return both


def is_noted(record: logging.LogRecord, error: BaseException) -> bool:
    """Whether a log line is about a stranger, and from where its error should end."""
    return isinstance(error, StrangerError) and record.name.endswith(_NOTED_BY)
