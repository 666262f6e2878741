"""Spark's own Kafka sink and ours under the same kills: duplicates that readers of the output see."""
