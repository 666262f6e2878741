"""How far Spark's streaming queries are behind Kafka: per partition, in Python and for Prometheus."""

from connectors.lag.listener import LagListener
from connectors.lag.progress import PartitionLag, SourceLag
from connectors.lag.state import QueryLag

__all__ = ["LagListener", "PartitionLag", "QueryLag", "SourceLag"]
