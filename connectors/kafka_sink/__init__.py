"""The sink `kafka_once`: rows to record batches, and batches into topics by one decision for many transactions."""
