"""The times of records, which Kafka stores in milliseconds, as timestamps in microseconds, if they fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkonce.connectors.values.columns import Problems

MAX_TIMESTAMP_MS = 9223372036854775
"""The latest time that fits into microseconds, in the year 294247; producers that write microseconds may exceed it."""
_TYPE = pa.timestamp("us", tz="UTC")


def out_of_range(time_ms: int) -> str:
    """Return what is wrong with a time."""
    return (
        f"the timestamp {time_ms}, which does not fit into Spark's range of microseconds. Kafka's timestamps are "
        "milliseconds since 1970: its producer may have written microseconds or nanoseconds"
    )


def timestamps(times_ms: pa.Int64Array) -> tuple[pa.TimestampArray, Problems]:
    """Return timestamps, and the problems of times without one, which are null."""
    raw = np.asarray(times_ms)
    wrong = (raw > MAX_TIMESTAMP_MS) | (raw < -MAX_TIMESTAMP_MS)
    if not wrong.any():
        return pa.array(raw * 1000, _TYPE), {}
    times = pa.array(np.where(wrong, 0, raw) * 1000, _TYPE, mask=wrong)
    return times, {row: f"it has {out_of_range(int(raw[row]))}" for row in np.flatnonzero(wrong).tolist()}
