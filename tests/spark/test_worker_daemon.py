"""Spark's Python workers come from our daemon, with what the connectors need loaded already."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkonce.connectors.runtime.worker_daemon import MODULE

pytestmark = pytest.mark.spark


def look_around(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc
    import os
    import sys
    from pathlib import Path

    rows = sum(batch.num_rows for batch in batches)
    parent = Path(f"/proc/{os.getppid()}/cmdline").read_text()
    loaded = (
        "sparkonce.connectors.kafka_source.reading" in sys.modules
        and "sparkonce.connectors.formats.delta_once" in sys.modules
    )
    yield pa.RecordBatch.from_pylist(
        [{"rows": rows, "parent": parent, "loaded": loaded, "frozen": gc.get_freeze_count()}]
    )


def test_workers_are_forked_with_the_connectors_loaded(spark: SparkSession) -> None:
    found = (
        spark.range(0, 10, 1, 2)
        .mapInArrow(look_around, "rows long, parent string, loaded boolean, frozen long")
        .collect()
    )
    assert sum(row.rows for row in found) == 10
    for row in found:
        assert MODULE in row.parent
        assert row.loaded
        assert row.frozen > 50_000
