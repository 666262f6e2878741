"""Found by PySpark, which imports every module named ``pyspark_*`` and registers its ``DefaultSource``."""

from sparkonce.connectors.formats.kafka_once import KafkaOnceDataSource as DefaultSource

__all__ = ["DefaultSource"]
