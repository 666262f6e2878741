"""A client of a schema registry with the REST API of Confluent's, and the framing of values that name their schema."""
