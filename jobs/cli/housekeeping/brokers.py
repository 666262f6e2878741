"""The broker's state of the topics whose offsets are stored: their names, ids and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkonce.connectors.kafka_source.epochs import LogEpochs
from sparkonce.exactly_once.audit_broker import PartitionLog
from sparkonce.kafka.client.client import EARLIEST, LATEST, Client
from sparkonce.kafka.client.metadata import EpochEnd, MissingTopicError, TopicMetadata, leader_of
from sparkonce.kafka.client.settings import command_settings
from sparkonce.kafka.client.topic_ids import topic_id_text
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.offset_store.offsets import Position, TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The current state of the requested topics on the broker."""

    topics: Mapping[str, TopicMetadata]
    logs: Mapping[tuple[str, int], PartitionLog]

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of the topic with this id, if it exists."""
        return next((name for name, topic in self.topics.items() if topic.topic_id == topic_id), None)

    def state_of(self, partition: TopicPartition) -> str:
        """Return whether offsets of ``partition`` are still valid: ``there``, ``recreated`` or ``gone``."""
        name = partition.topic or self.name_of(partition.topic_id)
        topic = self.topics.get(name or "")
        if topic is None or partition.partition not in topic.partitions:
            return "gone"
        return "recreated" if partition.topic_id and partition.topic_id != topic.topic_id else "there"

    def log_of(self, partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition that was not recreated."""
        if self.state_of(partition) != "there":
            return None
        name = partition.topic or self.name_of(partition.topic_id)
        return self.logs.get((name or "", partition.partition))


def ask(options: Mapping[str, str], names: Iterable[str], topic_ids: Iterable[str] = ()) -> BrokerView:
    """Request topics by name, and ``topic_ids``' names, if they exist. Raises OptionError or KafkaUnreachableError."""
    client = Client(command_settings(options))
    try:
        wanted = set(names)
        missing = set(topic_ids)
        if missing:
            wanted |= {name for name, topic_id in _all_topics(client).items() if topic_id in missing}
        topics: dict[str, TopicMetadata] = {}
        for name in sorted(wanted):
            try:
                topics |= client.topics([name])
            except MissingTopicError:
                continue
        partitions = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        earliest = client.offsets(dict.fromkeys(partitions, EARLIEST), topics)
        latest = client.offsets(dict.fromkeys(partitions, LATEST), topics)
        return BrokerView(topics, {each: PartitionLog(earliest[each], latest[each]) for each in partitions})
    finally:
        client.close()


def find_parted(
    options: Mapping[str, str], topics: Mapping[str, TopicMetadata], read: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, int]:
    """Return where logs diverge from what was read: `LogEpochs.parted`. Raises KafkaError or KafkaUnreachableError."""
    client, known = Client(command_settings(options)), dict(topics)

    def ask_epochs(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        found = client.epoch_ends({(tp.topic, tp.partition): epoch for tp, epoch in wanted.items()}, known)
        return {tp: found[tp.topic, tp.partition] for tp in wanted if (tp.topic, tp.partition) in found}

    try:
        found = LogEpochs(ask_epochs, lambda tp: leader_of(known, tp.topic, tp.partition).epoch).parted(read)
        return {tp: divergence.offset for tp, divergence in found.items()}
    finally:
        client.close()


def _all_topics(client: Client) -> dict[str, str]:
    def attempt() -> dict[str, str]:
        connection = client.connection(client.settings.bootstrap_servers[0])
        version = connection.version(ApiKey.METADATA)
        answer = client.ask(connection, ApiKey.METADATA, version, topics=None, allow_auto_topic_creation=False)
        return {topic.name: topic_id_text(getattr(topic, "topic_id", None)) for topic in answer.topics}

    return client.retry("ask for all topics", attempt)
