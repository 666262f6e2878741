"""A client of a schema registry with Confluent's REST API, and the framing of values that name their schema."""
