"""The topics of a cluster, for patterns."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.connectors.ingest.routing import Route
from sparkonce.connectors.ingest.settings import IngestSettings
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings


def existing_topics(settings: IngestSettings, routes: Sequence[Route]) -> list[str]:
    """Return the topics that patterns with a table for each topic match; the brokers are only asked if there are any.

    Raises:
        KafkaUnreachableError: if no broker answers.
        KafkaError, PermissionError: if a broker refuses.
    """
    patterns = [route.pattern for route in routes if route.finds_topics and route.pattern is not None]
    if not patterns:
        return []
    client = Client(read_settings(settings.client))
    try:
        return sorted(client.matching_topics(lambda topic: any(each.finds(topic) for each in patterns)))
    finally:
        client.close()
