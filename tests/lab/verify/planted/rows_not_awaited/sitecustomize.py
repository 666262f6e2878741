"""A task answers before Kafka has acknowledged its rows."""

from planting import plant


def change(tasks):
    tasks.Producer.flush = lambda self: None


plant("sparkonce.connectors.kafka_sink.tasks", change)
