"""MERGE, append and overwrite by delta-spark from foreachBatch, with the same guarantees."""
