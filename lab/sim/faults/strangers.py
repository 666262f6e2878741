"""Requests whose answers fail, beside others that wait for the same records: those must not suffer from it.

A stranger waits as a handler or a coordinator does, and fails when it is called back, as one with a mistake in it
would. The broker notes that (`cluster/acknowledgements.py`), and nothing else may come of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lab.sim.scheduler import stream

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.acknowledgements import Then
    from sparkonce.broker_lite.controller.image import PartitionKey
    from sparkonce.kafka.protocol.errors import ErrorCode

_STRANGERS: Final = 0.2
"""How many seeds have them."""
_OFTEN: Final = 0.15
"""How many requests have one beside them."""
_NOTED_BY: Final = ".cluster.acknowledgements"
"""The module of brokers, of whatever version, that catches what they fail with."""

WhenSafe = Callable[["PartitionKey", int, int, "Then"], None]


class StrangerError(Exception):
    """What a stranger fails with."""


def has_strangers(seed: int) -> bool:
    """Whether a seed has them."""
    return stream("strangers", seed).random() < _STRANGERS


def beside_strangers(when_safe: WhenSafe, seed: int, broker_id: int, failing: Callable[[], None]) -> WhenSafe:
    """Return the same, with a stranger that waits before some of the others; `failing` hears of each that fails."""
    rng = stream("stranger", seed, broker_id)

    def fail(_: ErrorCode) -> None:
        failing()
        raise StrangerError

    def both(key: PartitionKey, last_offset: int, timeout_ms: int, then: Then) -> None:
        if rng.random() < _OFTEN:
            with suppress(StrangerError):  # nobody has to wait
                when_safe(key, last_offset, timeout_ms, fail)
        when_safe(key, last_offset, timeout_ms, then)

    return both


def is_noted(record: logging.LogRecord, error: BaseException) -> bool:
    """Whether a log line is about a stranger, and comes from where its error should end."""
    return isinstance(error, StrangerError) and record.name.endswith(_NOTED_BY)
