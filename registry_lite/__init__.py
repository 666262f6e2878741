"""A schema registry with the REST API of Confluent's, which stores its schemas in a Kafka topic."""
