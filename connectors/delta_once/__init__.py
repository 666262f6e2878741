"""The sink `delta_once`: Spark's micro-batches into a Delta table, with a delivery guarantee."""
