"""Queries that write into topics, by what they leave in Kafka: decisions, and notes beside a group's offsets.

With exactly-once the newest decisions of each appId say which query, which batch and which topics. The weaker
guarantees leave notes in a consumer group only, as do queries into tables whose offsets are kept there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.ui.kafka.state import GroupState, TransactionsState
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import PartitionKey


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """What Kafka has of one query."""

    app_id: str
    query_id: str
    guarantee: Guarantee | None
    """None: one of the two weaker ones."""
    topics: tuple[str, ...]
    """Those that its options name."""
    group_id: str
    last_batch: int
    last_ms: int
    ends: Mapping[PartitionKey, OffsetRange]
    """The newest range of each partition that it reads."""


def topic_queries(transactions: TransactionsState, groups: Iterable[GroupState]) -> tuple[TopicQuery, ...]:
    """Return all that is known of queries, those of one appId in the order of their decisions."""
    found: dict[tuple[str, str], TopicQuery] = {}
    for application in transactions.ours.applications:
        for decision in application.decisions.standing:
            record = decision.record
            found[record.app_id, record.query_id] = TopicQuery(
                record.app_id,
                record.query_id,
                Guarantee.EXACTLY_ONCE,
                decision.topics,
                decision.group_id,
                record.batch_id,
                decision.at_ms,
                record.ranges,
            )
    return (*found.values(), *(each for each in _noted(groups) if (each.app_id, each.query_id) not in found))


def _noted(groups: Iterable[GroupState]) -> Iterable[TopicQuery]:
    found: dict[tuple[str, str, str], TopicQuery] = {}
    for group in groups:
        for each in group.partitions:
            note = each.note
            if note is None:
                continue
            key = note.app_id, note.query_id, group.group_id
            end = note.source, TopicPartition(each.topic, note.topic_id, each.partition)
            known = found.get(key) or TopicQuery(note.app_id, note.query_id, None, (), group.group_id, -1, 0, {})
            found[key] = replace(
                known,
                last_batch=max(known.last_batch, note.batch_id),
                last_ms=max(known.last_ms, note.at_ms),
                ends={**known.ends, end: OffsetRange(note.start, each.committed)},
            )
    return found.values()
