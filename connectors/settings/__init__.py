"""Options and Kafka's settings: declared once, checked, read."""
