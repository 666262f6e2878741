"""The crash points of a MERGE."""

from __future__ import annotations

from sparkonce.crash_points import CrashPoint


class MergePoint(CrashPoint):
    """Steps of a MERGE with exactly-once, beside those of every sink."""

    RECORDED = "merge.recorded"
    """The intent of a MERGE is in the table of offsets; the MERGE has not run."""
    UNCONFIRMED = "merge.unconfirmed"
    """The MERGE has landed; the table of offsets does not have it confirmed."""
