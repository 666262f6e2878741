"""How far Spark's streaming queries are behind Kafka: per partition, in Python and for Prometheus."""

from sparkonce.connectors.lag.listener import LagListener
from sparkonce.connectors.lag.progress import PartitionLag, SourceLag
from sparkonce.connectors.lag.state import QueryLag

__all__ = ["LagListener", "PartitionLag", "QueryLag", "SourceLag"]
