"""An embedded, durable, single-process broker that speaks Kafka's protocol and keeps Kafka's files."""
