"""Every task takes the same transactional id, and so aborts what another one of its batch has written."""

from planting import plant


def change(tasks):
    tasks.take_id = lambda prefix, decided: f"{prefix}task"


plant("sparkonce.connectors.kafka_sink.tasks", change)
