"""The sink `kafka_once`: rows of a micro-batch into Kafka topics, at most, at least or exactly once."""
