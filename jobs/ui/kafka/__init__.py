"""The state of a Kafka cluster for the pages: read repeatedly by one thread."""
