"""The crash points of writes by delta-spark."""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint


class IntentPoint(CrashPoint):
    """Steps of a write by delta-spark with exactly-once, beside those of every sink."""

    RECORDED = "intent.recorded"
    """The intent of a write is in the table of offsets; the write has not run."""
    UNCONFIRMED = "intent.unconfirmed"
    """The write has landed; the table of offsets does not have it confirmed."""
