"""Found by PySpark, which imports every module named ``pyspark_*`` and registers its ``DefaultSource``."""

from sparkonce.connectors.kafka_once.data_source import KafkaOnceDataSource as DefaultSource

__all__ = ["DefaultSource"]
