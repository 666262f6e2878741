"""How far Spark's streaming queries are behind Kafka: per partition, in Python and for Prometheus."""
