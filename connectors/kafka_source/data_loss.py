"""Handles records that should exist and do not: fail, or skip them with a warning.

Before either, the request is repeated: right after a leader change, brokers may return older offsets (KAFKA-7703).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from sparkonce.connectors.kafka_source.epochs import Divergence
from sparkonce.offset_store.offsets import Position, TopicPartition

_log = logging.getLogger(__name__)


class DataLossError(RuntimeError):
    """Records that this query should have read are gone; the message names partition and offsets."""


NEW_CHECKPOINT = "or use a new checkpointLocation"
RETENTION = "Longer retention (retention.ms, retention.bytes) prevents this"


def report_loss(what: str, *, fail: bool, alone: bool = False, instead: str = "", prevention: str = "") -> None:
    """Raise, or warn if the option failOnDataLoss is false.

    ``alone`` says that only the topic stops; ``instead`` is an alternative remedy, where the query does, and
    ``prevention`` what prevents the loss in future.

    Raises:
        DataLossError: if ``fail``.
    """
    if fail:
        stops = "The topic is not read any more" if alone else "The query stops"
        stops += " because option failOnDataLoss is true: set it to false to continue with what is left"
        way_out = ", ".join(filter(None, [stops, "" if alone else instead]))
        raise DataLossError(". ".join(filter(None, [f"Some data may have been lost: {what}", way_out, prevention])))
    _log.warning("kafka_once: some data may have been lost: %s; continuing, since failOnDataLoss is false", what)


def report_replaced(
    tp: TopicPartition,
    position: Position,
    divergence: Divergence,
    log_end: int | None,
    *,
    fail: bool,
    alone: bool = False,
    this_query: str = "has read",
) -> None:
    """Report that a log no longer has what was read of it; ``log_end`` is None if unknown.

    ``this_query`` describes what the query did with the records.

    Raises:
        DataLossError: if ``fail``.
    """
    at = divergence.offset
    records = f"records [{at}, {position.next})" if at < position.next else f"records before offset {at}"
    became = "are gone" if log_end is not None and log_end <= at < position.next else "have been replaced"
    doubt = "" if divergence.is_exact else f". Records before {at} may have been replaced too"
    report_loss(
        f"{records} of {tp} that this query {this_query} {became}: the record of leader epoch {position.epoch} before "
        f"offset {position.next} is no longer in the log, so the log was truncated, by an unclean leader election or "
        f"a broker restored to an older state. What was written of them stays, and what the log has from offset {at} "
        f"on was never read{doubt}",
        fail=fail,
        alone=alone,
        instead="and read the log from there on (the rows of replaced records stay beside the new ones, and the commit "
        f"that continues records which they are), {NEW_CHECKPOINT} and appId, startingOffsets=earliest and a new "
        "table or topic to read everything again",
    )


def ask_again(strange: Callable[[], bool], pauses_s: Iterable[float]) -> bool:
    """Call ``strange`` after each pause, until it is false; return its last result."""
    for pause_s in pauses_s:
        time.sleep(pause_s)
        if not strange():
            return False
    return True
