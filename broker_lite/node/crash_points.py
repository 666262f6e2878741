"""The crash points of the broker."""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint, check_plans

check_plans()  # a broker does not start with a plan that it cannot read


class BrokerPoint(CrashPoint):
    """Steps of the broker with a request; it knows no batch of Spark's and no appId."""

    APPENDING = "broker.appending"
    """The broker has a batch to append; the log does not have it."""
    APPENDED = "broker.appended"
    """The log has the batch; its producer does not know."""
    OFFSETS = "broker.offsets"
    """The broker has looked up an offset for a client; the response is not sent."""
    FETCHED = "broker.fetched"
    """The broker has found records for a client; they are not sent."""
