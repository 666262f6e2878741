"""Spark data sources: `kafka_once` and `delta_once`."""
