"""The format `kafka_once`: Kafka topics as Spark DataFrames, and DataFrames as Kafka topics."""

from sparkonce.connectors.kafka_once.data_source import KafkaOnceDataSource

__all__ = ["KafkaOnceDataSource"]
