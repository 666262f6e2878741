"""Encoding and decoding of Kafka's protocol."""
