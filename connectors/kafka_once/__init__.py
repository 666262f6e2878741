"""The format `kafka_once`: Kafka topics as Spark DataFrames, read a batch of records at a time."""

from connectors.kafka_once.data_source import KafkaOnceDataSource

__all__ = ["KafkaOnceDataSource"]
