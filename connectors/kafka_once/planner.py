"""Where batches begin and end: the driver's side of the source, between Spark's offsets and the broker's.

One planner lives as long as its query. Choosing the end of a micro-batch costs two questions to the brokers, topics and
latest offsets, over connections that stay open.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from connectors.kafka_once.client import EARLIEST, LATEST, Client, Leader, MissingTopicError, TopicMetadata
from connectors.kafka_once.data_loss import ask_again, report_loss
from connectors.kafka_once.group_offsets import KafkaGroupOffsets
from connectors.kafka_once.offset_rules import OffsetRule
from connectors.kafka_once.options import SourceOptions
from connectors.kafka_once.planning import bundle, share_out, split
from connectors.kafka_once.ranges import FetchRange, KafkaInputPartition
from connectors.options import OptionError
from offset_store import open_store
from offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class Planner:
    """Plans the batches of one query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = Client(options.settings)
        self.topics: Mapping[str, TopicMetadata] = {}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def refresh(self) -> list[TopicPartition]:
        """Ask for the topics again, and give the partitions that this query reads.

        Raises:
            MissingTopicError: if a topic, or an assigned partition, does not exist.
            KafkaUnreachableError: if no broker answers.
        """
        self.topics = self._client.topics(self._options.topics)
        found = []
        for name in self._options.topics:
            topic = self.topics[name]
            assigned = self._options.assigned
            numbers = sorted(topic.partitions) if assigned is None else assigned[name]
            missing = [number for number in numbers if number not in topic.partitions]
            if missing:
                raise MissingTopicError(
                    f"topic {name} has no partition {missing[0]}, which option assign names; it has partitions 0 to "
                    f"{len(topic.partitions) - 1}"
                )
            found += [TopicPartition(name, topic.topic_id, number) for number in numbers]
        return found

    def resolve(self, option: str, rule: OffsetRule, partitions: list[TopicPartition]) -> Offsets:
        """Turn a rule into an offset for each partition.

        Raises:
            OptionError: if the rule names some partitions only, or others.
            DataLossError: if it names an offset that the log does not have and failOnDataLoss is true.
        """
        if rule.everywhere is not None:
            return self.ask(dict.fromkeys(partitions, rule.everywhere))
        assigned = {(tp.topic, tp.partition) for tp in partitions}
        if assigned != set(rule.each):
            raise OptionError(
                f"kafka_once: if {option} contains specific offsets, it must name all partitions. Use -1 for latest, "
                f"-2 for earliest. Specified: {_names(rule.each)}. Assigned: {_names(assigned)}"
            )
        wanted = {tp: rule.each[tp.topic, tp.partition] for tp in partitions}
        offsets = {tp: offset for tp, offset in wanted.items() if offset >= 0}
        offsets |= self.ask({tp: offset for tp, offset in wanted.items() if offset < 0})
        earliest, latest = self._bounds([tp for tp, offset in wanted.items() if offset >= 0])
        for tp in earliest:
            if not earliest[tp] <= offsets[tp] <= latest[tp]:
                report_loss(
                    f"{option} for {tp} was {offsets[tp]}, but its log holds offsets {earliest[tp]} to {latest[tp]}",
                    fail=self._options.fail_on_data_loss,
                )
                offsets[tp] = min(max(offsets[tp], earliest[tp]), latest[tp])
        return offsets

    def ask(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Ask the brokers for LATEST or EARLIEST of each partition; latest heeds kafka.isolation.level."""
        found = self._client.offsets({(tp.topic, tp.partition): what for tp, what in wanted.items()}, self.topics)
        return {tp: found[tp.topic, tp.partition] for tp in wanted}

    def initial(self, rule: OffsetRule) -> SourceOffset:
        """Give the offset at which a query without a checkpoint begins: the stored one, or what the rule says."""
        partitions = self.refresh()
        offsets = self._stored(partitions)
        rest = [tp for tp in partitions if tp not in offsets]
        if offsets and rest and rule.everywhere == LATEST:
            # Nothing of these partitions was ever written to the table, or it would have their offsets. Beginning at
            # the latest could lose what came in since the others were stored, so they are read from their start.
            _log.warning("kafka_once: no offsets stored for %s: reading from the start", ", ".join(map(str, rest)))
            offsets |= self.ask(dict.fromkeys(rest, EARLIEST))
        elif rest:
            by_rule = self.resolve("startingOffsets", rule, partitions)
            offsets |= {tp: by_rule[tp] for tp in rest}
        return SourceOffset(self._options.source, {tp: Position(at, at) for tp, at in offsets.items()})

    def adapt(self, start: SourceOffset, partitions: list[TopicPartition]) -> SourceOffset:
        """Give ``start`` with partitions added that are new, and those taken out that this query reads no more.

        Raises:
            DataLossError: if either loses records and failOnDataLoss is true.
        """
        current = set(partitions)
        gone = sorted(tp for tp in start.positions if tp not in current)
        if gone:
            report_loss(
                f"partitions {', '.join(map(str, gone))} are in the checkpoint, but this query does not read them any "
                "more (deleted, or no longer in subscribe or assign: set that back)",
                fail=self._options.fail_on_data_loss,
            )
        positions = {tp: position for tp, position in start.positions.items() if tp in current}
        new = [tp for tp in partitions if tp not in positions]
        for tp, earliest in self.ask(dict.fromkeys(new, EARLIEST)).items():
            if earliest > 0:
                report_loss(
                    f"partition {tp} is new and should be read from offset 0, but its log begins at {earliest}",
                    fail=self._options.fail_on_data_loss,
                )
            positions[tp] = Position(earliest, earliest)
        return SourceOffset(start.source, positions)

    def latest(self, start: SourceOffset) -> Offsets:
        """Ask for the latest offsets of the partitions in ``start``.

        Raises:
            DataLossError: if one lies before ``start``, even when asked again, and failOnDataLoss is true.
        """
        positions = start.positions
        offsets = self.ask(dict.fromkeys(positions, LATEST))

        def is_strange() -> bool:
            behind = [tp for tp in positions if offsets[tp] < positions[tp].next]
            offsets.update(self.ask(dict.fromkeys(behind, LATEST)))
            return any(offsets[tp] < positions[tp].next for tp in behind)

        if any(offsets[tp] < positions[tp].next for tp in positions) and ask_again(
            is_strange, self._options.offset_retries, self._options.offset_retry_interval_ms
        ):
            for tp, position in sorted(positions.items()):
                if offsets[tp] < position.next:
                    report_loss(
                        f"records of {tp} from offset {offsets[tp]} to {position.next - 1} were read before and are "
                        f"gone: its log now ends at {offsets[tp]}, so new records take the same offsets again",
                        fail=self._options.fail_on_data_loss,
                    )
        return offsets

    def advance(self, start: SourceOffset, latest: Offsets, limit: int | None) -> SourceOffset:
        """Give the end of the batch that begins at ``start``, goes to ``latest`` at most, and heeds the limit."""
        begin = {tp: position.next for tp, position in start.positions.items()}
        target = {tp: max(offset, begin[tp]) for tp, offset in latest.items() if tp in begin}
        ends = target if limit is None else share_out(limit, begin, target)
        return SourceOffset(
            start.source,
            {tp: Position(position.origin, ends.get(tp, position.next)) for tp, position in start.positions.items()},
        )

    def tasks(self, ranges: Mapping[TopicPartition, OffsetRange]) -> list[KafkaInputPartition]:
        """Cut ranges into tasks, each with the leader to ask first."""
        least = self._options.min_partitions
        return [
            KafkaInputPartition(tuple(self._fetch_range(tp, extent) for tp, extent in pieces))
            for pieces in bundle(split(ranges, least), least)
        ]

    def _fetch_range(self, tp: TopicPartition, extent: OffsetRange) -> FetchRange:
        return FetchRange(tp.topic, tp.topic_id, tp.partition, extent.start, extent.end, self._leader(tp))

    def _leader(self, tp: TopicPartition) -> Leader | None:
        topic = self.topics.get(tp.topic)
        return topic.partitions.get(tp.partition) if topic else None

    def _stored(self, partitions: list[TopicPartition]) -> Offsets:
        if self._options.offset_store is None:
            return {}
        store = open_store(
            self._options.offset_store,
            self._options.app_id or "",
            self._options.storage_options or None,
            groups=lambda group_id: KafkaGroupOffsets(self._client, group_id),
        )
        return store.read(self._options.source, partitions)

    def _bounds(self, partitions: list[TopicPartition]) -> tuple[Offsets, Offsets]:
        return self.ask(dict.fromkeys(partitions, EARLIEST)), self.ask(dict.fromkeys(partitions, LATEST))


def _names(partitions: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
