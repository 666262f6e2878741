"""The crash points of the broker."""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint, check_plans

check_plans()  # a broker with an invalid plan does not start


class BrokerPoint(CrashPoint):
    """Steps of the broker in a request; it does not know Spark's batches or appIds."""

    APPENDING = "broker.appending"
    """The broker is about to append a batch."""
    APPENDED = "broker.appended"
    """The batch is in the log; the response is not sent."""
    OFFSETS = "broker.offsets"
    """The broker has looked up an offset for a client; the response is not sent."""
    FETCHED = "broker.fetched"
    """The broker has read records for a client; the response is not sent."""
