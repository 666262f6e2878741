"""An embedded, durable broker, or several of them, with Kafka's protocol and Kafka's files."""
