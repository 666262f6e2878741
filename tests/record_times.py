"""Times of records, in milliseconds since 1970: of each kind that producers write, by mistake or not."""

from __future__ import annotations

from sparkonce.connectors.values.record_times import MAX_TIMESTAMP_MS

FIT = (-1, -2, -62_135_596_800_001, -MAX_TIMESTAMP_MS, 0, 1, 1_700_000_000_000, 1_700_000_000_000_000, MAX_TIMESTAMP_MS)
"""These are timestamps of Spark; one of them was written in microseconds."""
TIMES_MS = (*FIT, MAX_TIMESTAMP_MS + 1, -MAX_TIMESTAMP_MS - 1, 1_700_000_000_000_000_000, 2**63 - 1, -(2**63))
"""One of the others was written in nanoseconds."""
