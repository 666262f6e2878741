"""Every expression that direct queries allow, over edge values of its types, beside Spark's."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparkonce.connectors.sql import failures
from tests.spark.sql_comparison import differences, spark_rows, with_settings
from tests.spark.sql_pairs import edge_rows, pairs

ROWS = 400
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_all_that_is_allowed_is_as_in_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(failures, "EXACT_REASONS", 0)
    rows = edge_rows(ROWS, part)
    some = list(pairs())[part::PARTS]
    with with_settings(spark):
        found = list(differences(spark_rows(spark, rows, tmp_path / "rows.parquet"), rows, some))
    print(f"RESULT expressions={len(some)} values={len(some) * ROWS} differences={len(found)}")
    assert not found, "\n".join(map(str, found))
