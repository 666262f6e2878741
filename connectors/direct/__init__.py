"""Rows that are read where they are written: the sink's side of a source with ``handOver=ranges``."""
