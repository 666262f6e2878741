"""Finds the topics and partitions that the options of a query choose."""

from __future__ import annotations

from collections.abc import Set

from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.tables import TablesByTopic
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import MissingTopicError, TopicMetadata
from sparkonce.offset_store.offsets import TopicPartition

Slots = set[tuple[str, int]]
"""Topics' names, and partitions."""


class TopicFinder:
    """Finds topics for one query, and remembers which existed before: one that is gone is reported once."""

    def __init__(self, options: SourceOptions, tables: TablesByTopic) -> None:
        self._options, self._tables = options, tables
        self._seen: set[str] = set()

    def find(self, client: Client, before: Slots, *, lenient: bool) -> dict[str, TopicMetadata]:
        """Return the topics that exist. Those read ``before`` may be missing, and if ``lenient`` all may.

        With isolated tables it notes those that this client must not describe. A pattern finds no such topic, and the
        options may not name it any more, so the topics that were read before are asked for by name.

        Once a query with isolated tables has begun, it also notes topics that do not exist, and reads the others.

        Raises:
            MissingTopicError: if a topic does not exist.
            KafkaUnreachableError: if no broker answers.
        """
        optional, options = {topic for topic, _ in before}, self._options
        if options.pattern is not None:
            found = client.matching_topics(options.pattern.finds)
            gone = set(filter(options.pattern.finds, optional - found.keys())) if options.isolate_tables else set()
            # One that is known to be forbidden is not asked for with each batch: the pattern finds it later.
            hidden = gone & self._tables.forbidden
            return found | self._existing(client, gone - hidden, optional, hidden)
        names = {*options.topics}
        known = self._seen | optional | (names if lenient else set())
        asked = self._existing(client, names | optional if options.isolate_tables else names, known)
        found = {name: topic for name, topic in asked.items() if name in names}
        missing = names - found.keys() - known - self._tables.forbidden
        goes_on = options.isolate_tables and bool(before)
        self._tables.note_missing(missing if goes_on else ())
        if missing and not goes_on:
            try:
                found |= client.topics(missing)
            except MissingTopicError as error:
                where = f"(option {self.chosen_by}; remove it there if it was deleted)"
                raise MissingTopicError(f"{error} {where}") from None
        self._seen.update(found)
        return found

    def partitions(self, topics: dict[str, TopicMetadata], before: Slots, *, lenient: bool) -> list[TopicPartition]:
        """Return the chosen partitions of topics, of which those read ``before`` may be missing; as `find`."""
        return [
            TopicPartition(name, topic.topic_id, number)
            for name, topic in sorted(topics.items())
            for number in self._numbers(topic, None if lenient else before)
        ]

    @property
    def chosen_by(self) -> str:
        """The option that selects the topics."""
        if self._options.assigned is not None:
            return "assign"
        return "subscribe" if self._options.pattern is None else "subscribePattern"

    def _existing(
        self, client: Client, names: set[str], known: set[str], hidden: Set[str] = frozenset()
    ) -> dict[str, TopicMetadata]:
        """Return the topics that exist, and note those that must not be described, and the ``hidden`` ones as such.

        ``known`` are those that may have been read before.
        """
        forbidden: set[str] | None = set() if self._options.isolate_tables else None
        found = client.existing_topics(names, forbidden) if names else {}
        self._tables.note_forbidden(hidden | (forbidden or set()), before=known)
        return found

    def _numbers(self, topic: TopicMetadata, optional: Slots | None) -> list[int]:
        """Return the partitions of a topic that are read; those that option assign names may be missing if optional."""
        if self._options.assigned is None:
            return sorted(topic.partitions)
        assigned = self._options.assigned[topic.name]
        for number in assigned:
            if number not in topic.partitions and not (optional is None or (topic.name, number) in optional):
                raise MissingTopicError(
                    f"topic {topic.name} has no partition {number}, which option assign names; it has partitions 0 to "
                    f"{len(topic.partitions) - 1}"
                )
        return [number for number in assigned if number in topic.partitions]
