"""The crash points of the transactions in Kafka."""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint


class TransactionPoint(CrashPoint):
    """Steps of exactly-once into a topic, beside those of every sink."""

    BEGUN = "transaction.begun"
    """A task has a transactional id and a producer id; none of its rows are sent."""
    DECIDING = "transaction.deciding"
    """The decision about a batch is in the driver's transaction, which is open."""
    DECIDED = "transaction.decided"
    """The decision is committed; none of the tasks' transactions is ended."""
    ENDING = "transaction.ending"
    """The first of the tasks' transactions is ended; others are not, if there are any."""
    ENDED = "transaction.ended"
    """All of the tasks' transactions are ended; that is not recorded yet."""
