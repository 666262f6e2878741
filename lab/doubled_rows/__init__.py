"""Spark's own Kafka sink and ours under the same kills: what readers of the output see twice."""
