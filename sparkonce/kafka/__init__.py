"""What clients and brokers of Kafka share."""
