"""Partition logs in Kafka's own files."""
