"""The source `kafka_once`: plans micro-batches, and reads records into Arrow columns."""
