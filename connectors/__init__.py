"""Spark data sources: `kafka_once` and `delta_once`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the formats known to a session, where PySpark does not find them by itself.

    It finds them if this package is installed, through the modules ``pyspark_kafka_once`` and ``pyspark_delta_once``.
    """
    from connectors.delta_once import DeltaOnceDataSource
    from connectors.kafka_once import KafkaOnceDataSource

    spark.dataSource.register(KafkaOnceDataSource)
    spark.dataSource.register(DeltaOnceDataSource)
