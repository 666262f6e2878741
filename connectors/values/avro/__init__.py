"""Avro: schemas, their resolution, and compiled decoding into Arrow columns."""
