"""An embedded, durable broker, or several of them, that speak Kafka's protocol and keep Kafka's files."""
