"""Cells that run side by side with Spark's own source and sinks: the same fault in both (``--show``)."""
