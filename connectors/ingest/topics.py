"""What the brokers say about topics: which there are for patterns, and whether those of a flow exist."""

from __future__ import annotations

from collections.abc import Sequence

from sparkonce.connectors.ingest.routing import Flow, Route
from sparkonce.connectors.ingest.settings import IngestSettings
from sparkonce.connectors.kafka_source.options import OPTIONS, SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.resolving import Offsets
from sparkonce.connectors.values.registered import resolved
from sparkonce.kafka.client.client import EARLIEST, LATEST, Client
from sparkonce.kafka.client.settings import read_settings
from sparkonce.offset_store.offsets import SourceOffset, TopicPartition


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


def unread(shared: Flow, end: SourceOffset) -> tuple[set[str], set[TopicPartition]]:
    """Return the topics that have records behind ``end``, and the partitions that have some before its origin.

    The latter only of a query that begins at the earliest. Partitions without a leader are left out. Raises as
    `check_topics`.
    """
    planner, reads_all = Planner(SourceOptions.read(shared.source)), shared.reads_all
    begun_later = [tp for tp, at in end.positions.items() if at.origin and reads_all]

    def ask() -> tuple[Offsets, Offsets]:
        known = {tp for tp in planner.refresh(lenient=True) if tp in end.positions}
        wanted = {tp: EARLIEST for tp in begun_later if tp in known}
        earliest = planner.ask(wanted, waits_for_leaders=False)
        return planner.ask(dict.fromkeys(known, LATEST), waits_for_leaders=False), earliest

    try:
        latest, earliest = planner.while_topics_stay(ask)
    finally:
        planner.close()
    waiting = {tp.topic for tp, at in latest.items() if at > end.positions[tp].next}
    return waiting, {tp for tp, at in earliest.items() if at < end.positions[tp].origin}
