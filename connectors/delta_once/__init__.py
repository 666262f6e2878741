"""The sink `delta_once`: Spark's micro-batches into a Delta table, with a delivery guarantee."""

from sparkonce.connectors.delta_once.sink import DeltaOnceDataSource

__all__ = ["DeltaOnceDataSource"]
