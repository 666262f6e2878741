"""Topics of a log directory as a standalone broker's controller decides them, without the broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from sparkonce.broker_lite.log.log_manager import LogManager, Topic, WantedTopic
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.topics_file import Entry
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


def create_topic(
    manager: LogManager, name: str, partitions: int, topic_id: uuid.UUID, settings: Mapping[str, str], now_ms: int
) -> Topic:
    """Check a topic, decide it, and make its logs."""
    manager.check_new_topic(name, partitions, settings)
    return change_topic(manager, name, partitions, topic_id, settings, now_ms)


def change_topic(
    manager: LogManager, name: str, partitions: int, topic_id: uuid.UUID, settings: Mapping[str, str], now_ms: int
) -> Topic:
    """Decide how a topic is to be, and match its logs."""
    there = manager.topics[name].partition_count if name in manager.topics else 0
    finish(manager.prepare(name, topic_id, range(there, partitions), settings, now_ms))
    try:
        manager.keep({**entries(manager), name: Entry(topic_id, partitions, settings)})
        finish(manager.take([WantedTopic(name, topic_id, partitions, range(partitions), settings)], [], now_ms))
    finally:
        manager.end_preparation(name, topic_id)
    return manager.topics[name]


def forget_topics(manager: LogManager, topics: Iterable[Topic], now_ms: int) -> None:
    """Decide that topics are no more, and leave their files."""
    gone = list(topics)
    names = {each.name for each in gone}
    manager.keep({name: entry for name, entry in entries(manager).items() if name not in names})
    finish(manager.take([], gone, now_ms))


def delete_topic(manager: LogManager, name: str, now_ms: int) -> None:
    """Delete a topic and its files.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    topic = manager.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    forget_topics(manager, [topic], now_ms)
    while manager.remove_deleted(name):
        pass
    manager.finish_deletions([topic.topic_id])


def entries(manager: LogManager) -> dict[str, Entry]:
    """Return the topics that there are, as they are decided."""
    return {
        name: Entry(topic.topic_id, topic.partition_count, topic.settings) for name, topic in manager.topics.items()
    }
