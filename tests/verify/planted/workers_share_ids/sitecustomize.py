"""All workers take the same transactional ids, so that each aborts what another has written."""

from planting import plant


def change(tasks):
    tasks.process_name = lambda: "worker"


plant("connectors.kafka_once.sink.tasks", change)
