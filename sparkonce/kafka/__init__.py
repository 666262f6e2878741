"""Shared by Kafka clients and the broker."""
