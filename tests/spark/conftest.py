"""What several tests with Spark need: a session that knows the stream of numbers, and faults in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkonce import crash_points
from sparkonce.crash_points import CrashPlans
from tests.spark.sink_support import NumbersSource
from tests.spark.source_support import PARTITIONS, Topics, fill


@pytest.fixture(scope="session")
def delta_session(delta_spark: SparkSession) -> SparkSession:
    """A session with Delta's jars and the source `numbers`."""
    delta_spark.dataSource.register(NumbersSource)
    return delta_spark


@pytest.fixture(scope="module")
def topics(kafka: Any) -> Topics:
    """Topics on the session's broker."""
    return Topics(kafka.bootstrap_servers)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic that is filled."""
    name = topics.create(PARTITIONS)
    fill(topics, name, 0)
    return name


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of crash plans for this very process, in which functions of `foreachBatch` run."""
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, folder))
    return folder
