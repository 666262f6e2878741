"""A Kafka client: connections, logging in, metadata, offsets of topics and groups."""
