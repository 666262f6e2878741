"""What the brokers say about the topics of a flow, before it is started."""

from __future__ import annotations

from sparkonce.connectors.ingest.routing import Flow
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.values.registered import resolved


def check_topics(flow: Flow) -> int:
    """Return how many partitions a flow reads.

    Raises:
        MissingTopicError: if a topic does not exist.
        KafkaUnreachableError: if no broker answers.
        KafkaError, PermissionError: if a broker refuses.
    """
    planner = Planner(SourceOptions.read(resolved(OPTIONS, flow.source)))
    try:
        return len(planner.refresh())
    finally:
        planner.close()
