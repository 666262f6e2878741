"""The memory of a task that reads and writes directly, with large fetches and files: its peak and its growth.

A new session reads a small topic, and then one four times as large, with the same number of tasks. The figure is the
largest peak of resident memory of a Python worker since its start, after each of the two; the difference is what
four times the data adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.bench.load import create_topic, delete_topic, fill, random_bytes
from lab.bench.results import Bound, Results, say
from lab.bench.sessions import OURS, SideError, SparkSide
from lab.bench.settings import LIMITS, PARTITIONS, Settings
from lab.bench.spark_side import Query

RECORD_BYTES = 1024
FETCH_BYTES = 64 << 20
FILE_BYTES = 128 << 20
TIMES_LARGER = 4


def watch_task_memory(
    name: str, broker: str, conf: Mapping[str, str], directory: Path, settings: Settings, results: Results
) -> None:
    """Check a worker's peak, and its growth with the data, against limits."""
    most = settings.direct_rows_of(RECORD_BYTES)
    say(f"{name}: starting a session of its own")
    home = directory / name
    home.mkdir()
    with SparkSide(OURS, conf, home) as side:
        small, large = (_peak_mb(name, broker, side, rows) for rows in (max(1, most // TIMES_LARGER), most))
    for line, figure in ((f"{name}-peak-rss-mb", large), (f"{name}-growth-mb", large - small)):
        results.bounds.append(Bound(line, "MB", (figure,), (), "", LIMITS[line]))


def _peak_mb(name: str, broker: str, side: SparkSide, rows: int) -> float:
    topic = f"{name}-{rows}"
    create_topic(broker, topic, PARTITIONS)
    fill(broker, topic, rows, random_bytes(RECORD_BYTES), PARTITIONS)
    outcome = side.run(query(broker, topic))
    delete_topic(broker, topic)
    written = None if outcome.table is None else outcome.table["rows"]
    if written != rows:
        raise SideError(f"{name}: {side.name} wrote {written} of {rows} rows")
    megabytes = rows * RECORD_BYTES / 1e6
    say(f"{name}: {megabytes:,.0f} MB in {outcome.wall_s:.1f} s, peak of a worker {outcome.peak_worker_mb:.0f} MB")
    return outcome.peak_worker_mb


def query(broker: str, topic: str) -> Query:
    """Return the measured query."""
    return Query(
        "kafka_once",
        "delta_once",
        broker,
        topic,
        None,
        source_options={"handOver": "ranges", "kafka.max.partition.fetch.bytes": str(FETCH_BYTES)},
        sink_options={"targetFileBytes": str(FILE_BYTES)},
        count_table=True,
    )
