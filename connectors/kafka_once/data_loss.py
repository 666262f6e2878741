"""What to do about records that should be there and are not: stop, or skip forward and say so.

Before either, the question is asked again: right after a leader has moved, brokers have been seen to answer with
offsets from before (KAFKA-7703).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)


class DataLossError(RuntimeError):
    """Records that this query should have read are gone; the message names partition and offsets."""


NEW_CHECKPOINT = "or begin with a new checkpointLocation"
RETENTION = "Longer retention (retention.ms, retention.bytes) prevents this"


def report_loss(what: str, *, fail: bool, instead: str = "", prevention: str = "") -> None:
    """Raise, or warn if the option failOnDataLoss is false.

    ``instead`` is what helps beside that option in this case, and ``prevention`` what keeps it from happening again.

    Raises:
        DataLossError: if ``fail``.
    """
    if fail:
        stops = "The query stops because option failOnDataLoss is true: set it to false to go on with what is left"
        way_out = ", ".join(filter(None, [stops, instead]))
        raise DataLossError(". ".join(filter(None, [f"Some data may have been lost: {what}", way_out, prevention])))
    _log.warning("kafka_once: some data may have been lost: %s; going on, since failOnDataLoss is false", what)


def ask_again(strange: Callable[[], bool], retries: int, interval_ms: int) -> bool:
    """Call ``strange`` until it is false or was called ``retries`` times; give its last answer."""
    for _ in range(retries):
        time.sleep(interval_ms / 1000)
        if not strange():
            return False
    return True
