"""The topic `__consumer_offsets`: appending the groups' records, and reading them back at the start.

Theory of operation: a group's records all go to the partition that Kafka's hash of its id names, one batch for each
event, so that a crash keeps all of an event or nothing of it. Reading back comes before the first request; the last
record of a key is the truth. Offsets of a transaction count from its commit marker on; what waits for one is in
`Broker.pending_offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker_lite.coordinators.consumer_group_image import GroupImage
from broker_lite.coordinators.group_records import ClassicRecord, StoredGroup, decode
from broker_lite.coordinators.offsets import OFFSETS_TOPIC, OffsetTable, partition_of
from broker_lite.protocol.control_records import read_end_marker
from broker_lite.protocol.records import BatchHeader, Record, decode_records, encode_batch, scan

if TYPE_CHECKING:
    from broker_lite.handlers.broker import Broker, Topic

logger = logging.getLogger(__name__)

LEADER_EPOCH = 0
REPLAY_BYTES = 4 * 1024 * 1024


class OffsetsLog:
    """The groups' records in the log."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def append(self, group_id: str, records: Sequence[Record]) -> None:
        """Append one event's records; when this returns they are in the log.

        Raises:
            KafkaError: if the append failed; then nothing was written.
        """
        broker = self._broker
        topic = self.topic()
        index = partition_of(group_id, len(topic.partitions))
        batch = encode_batch(records)
        log = topic.partitions[index]
        appended = log.append(batch, LEADER_EPOCH, broker.clock.now_ms())
        broker.pending_offsets.written(index, records)
        broker.purgatory.appended(OFFSETS_TOPIC, index, len(batch), log.last_stable_offset > appended.last_offset)

    def topic(self) -> Topic:
        """Give the topic, made if need be."""
        return self._broker.internal_topic(OFFSETS_TOPIC)

    def records(self) -> Iterator[Record]:
        """Read everything that has taken effect, oldest first in each partition; what waits for a marker is kept."""
        topic = self._broker.logs.topics.get(OFFSETS_TOPIC)
        for index, log in enumerate(topic.partitions if topic is not None else ()):
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                stretch = log.read(offset, REPLAY_BYTES, min_one_batch=True)
                data = stretch.file.pread(stretch.size, stretch.position)
                for position, header in scan(data):
                    records = decode_records(memoryview(data)[position : position + header.size])
                    yield from self._effective(index, header, records)
                    offset = header.next_offset

    def _effective(self, partition: int, header: BatchHeader, records: Sequence[Record]) -> Iterable[Record]:
        """Give the records that a batch brings into effect: its own, or those that its marker ends the wait of."""
        pending = self._broker.pending_offsets
        if header.is_control:
            marker = read_end_marker(records[0]) if records else None
            return () if marker is None else pending.end(partition, header.producer_id, marker.committed)
        if header.is_transactional:
            pending.add(partition, header.producer_id, records)
            return ()
        pending.written(partition, records)
        return records


class Replayed:
    """The sum of the records: offsets, and groups of both kinds."""

    def __init__(self, records: Iterator[Record]) -> None:
        self.offsets = OffsetTable()
        self.classic: dict[str, StoredGroup] = {}
        self.consumer: dict[str, GroupImage] = {}
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        found = decode(record)
        if found is None:
            self.offsets.replay([record])
        elif isinstance(found, ClassicRecord):
            if found.group is None:
                self.classic.pop(found.group_id, None)
            else:
                self.classic[found.group_id] = found.group
        elif found.change is None:
            self.consumer.pop(found.group_id, None)
        elif record.value is not None or found.group_id in self.consumer:
            # A removal does not bring back a group that compaction has left nothing else of.
            self.consumer.setdefault(found.group_id, GroupImage()).apply(found.change)
