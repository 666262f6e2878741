"""Apache Kafka in a container: the image built from Maven's jars, its start, and the tests that run on it."""
