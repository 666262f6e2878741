"""MERGE into a Delta table from foreachBatch, with the same guarantees."""
