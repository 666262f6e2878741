"""Protobuf: schemas, their Spark types, and compiled decoding into Arrow columns."""
