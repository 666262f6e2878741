"""Assertions about the broker's own state, which hold in production and also under `python -O`.

One that fails is a mistake of the broker's, or files that were changed from outside. It fails the request or the
partition at hand, as any `KafkaError` does, with one line in the log; the broker goes on. None is checked while logs
are recovered: what a log has is served, or truncated, as recovery decides.
"""

from __future__ import annotations

import logging

from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class BrokenInvariantError(KafkaError):
    """An assertion does not hold (UNKNOWN_SERVER_ERROR)."""


def broken(invariant: str, text: str) -> BrokenInvariantError:
    """Log that an invariant does not hold, and return the error to raise."""
    error = BrokenInvariantError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{invariant}: {text}")
    logger.error("this is a mistake of the broker's, or files were changed from outside: %s", error)
    return error


def beyond_end(directory: str, high_watermark: int, log_end_offset: int) -> BrokenInvariantError:
    """Return the error of a high watermark that is not within its log."""
    return broken("high-watermark-in-log", f"{directory}: it is {high_watermark}, the log ends at {log_end_offset}")


def older_cluster(directory: str, latest: int, leader_epoch: int) -> BrokenInvariantError:
    """Return the error of a log whose records are of a later epoch than its cluster has reached."""
    return broken(
        "epochs-rise",
        f"{directory} has records of leader epoch {latest}, and the cluster is at {leader_epoch}: its metadata are "
        "older than the log, as after a restore from a backup; nothing is appended until the cluster is at that epoch",
    )
