"""A Kafka client: connections, authentication, metadata, offsets of topics and groups."""
