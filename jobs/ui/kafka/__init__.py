"""What the pages know of a Kafka cluster: looked at again and again by one thread."""
