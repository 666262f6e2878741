"""The loop of all retries: which errors, how often or how long, with which pauses. The caller words the last error."""

from __future__ import annotations

import math
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sparkonce.kafka.protocol.errors import RETRIABLE, KafkaError

_Result = TypeVar("_Result")
_FROM_ZERO_S = 0.02
"""The second pause, if the first is zero."""
SPREAD = (0.8, 1.2)
"""Pauses vary by these factors, so that clients do not return all at once."""


def growing(first_s: float, most_s: float, spread: tuple[float, float] = SPREAD) -> Iterator[float]:
    """Yield pauses without end, each twice the last, up to ``most_s``."""
    pause_s = min(first_s, most_s)
    while True:
        yield pause_s * random.uniform(*spread)  # noqa: S311 - spreads clients, no secret
        pause_s = min(2 * pause_s or _FROM_ZERO_S, most_s)


def retry(
    attempt: Callable[[], _Result],
    errors: type[Exception] | tuple[type[Exception], ...],
    pauses_s: Iterable[float],
    *,
    deadline_s: float = math.inf,
    may_pass: Callable[[Exception], bool] = lambda _: True,
    note: Callable[[Exception], None] = lambda _: None,
) -> _Result:
    """Call ``attempt`` until it succeeds; raise its error if that cannot pass, or no pause or no time is left.

    ``deadline_s`` is of `time.monotonic`. ``note`` is called with an error after which it is called again.
    """
    for pause_s in pauses_s:
        try:
            return attempt()
        except errors as error:
            if not may_pass(error) or time.monotonic() + pause_s > deadline_s:
                raise
            note(error)
        time.sleep(pause_s)
    return attempt()


def may_pass(error: Exception, reached: bool) -> bool:
    """Whether an error of a request may pass; ``reached`` says that the cluster has answered before."""
    if isinstance(error, KafkaError):
        return error.code in RETRIABLE
    if isinstance(error, (PermissionError, ssl.SSLCertVerificationError)):
        return False
    # An unknown host name is a typo, unless the cluster was reached before: a container's name is unknown
    # while it restarts.
    return reached or not (isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME)
