"""A schema registry with the REST API of Confluent's, which keeps its schemas in a topic of Kafka."""
