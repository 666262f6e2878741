"""The format `kafka_once`: Kafka topics as Spark DataFrames, and DataFrames as Kafka topics."""
