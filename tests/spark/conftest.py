"""One Spark session for all tests of this folder: a JVM of its own for each module would cost most of their time.

It has Delta's jars where Maven gives them. A test that needs another master, or a session to be killed, starts a
process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connectors.session import spark_session
from exactly_once.crash_points import FOLDER_VARIABLE
from jobs.peers import PeerMissingError, delta_jars

CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "5",
}
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="session")
def delta_jar_paths() -> list[str] | None:
    """Delta's jars for Spark's JVM, or None where Maven cannot give them."""
    try:
        return [str(path) for path in delta_jars()]
    except PeerMissingError:
        return None


@pytest.fixture(scope="session")
def crash_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the session's processes look into for crash plans."""
    return tmp_path_factory.mktemp("crash-plans")


@pytest.fixture(scope="session")
def spark(delta_jar_paths: list[str] | None, crash_folder: Path) -> Iterator[SparkSession]:
    """The session."""
    conf = CONF if delta_jar_paths is None else {**CONF, **DELTA_CONF, "spark.jars": ",".join(delta_jar_paths)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(crash_folder))  # for the JVM and its Python workers, not for other tests
        session = spark_session("tests", **conf)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def delta_spark(spark: SparkSession, delta_jar_paths: list[str] | None) -> SparkSession:
    """The session, for tests that need delta-spark in it."""
    if delta_jar_paths is None:
        pytest.skip("needs Delta's jars: install Maven")
    return spark
