"""The topic `__consumer_offsets`: appending the groups' records, and loading them.

Theory of operation: a group's records all go to the partition that Kafka's hash of its id selects, one batch for each
event, so that after a crash an event is complete or absent. A partition is loaded before the first request for its
groups; the last record of a key is the valid one. Offsets of a transaction are valid from its commit marker on; until
then they are in `PendingOffsets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from sparkonce.broker_lite.coordinators.offsets import OffsetTable, PendingOffsets
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.node.coordinated import Coordinated, replay_slices
from sparkonce.kafka.protocol.control_records import read_end_marker
from sparkonce.kafka.protocol.records import BatchHeader, Record, encode_batch


class OffsetsLog:
    """The groups' records in the log."""

    def __init__(self, pending: PendingOffsets, partitions: Coordinated) -> None:
        self._pending = pending
        self._partitions = partitions

    def append(self, group_id: str, records: Sequence[Record]) -> None:
        """Append one event's records; when this returns they are in the log.

        Raises:
            KafkaError: if the append failed; then nothing was written.
        """
        placed = self._partitions.append(group_id, encode_batch(records))
        self._pending.written(placed.partition, records)

    def replay(self, logs: Mapping[int, PartitionLog], take: Callable[[Record], None]) -> Iterator[None]:
        """Pass on all records in effect, oldest first in each partition; those without a marker yet are kept."""
        for index, log in logs.items():
            yield from replay_slices(log, partial(self._replay_one, index, take))

    def _replay_one(self, partition: int, take: Callable[[Record], None], header: BatchHeader, record: Record) -> None:
        """Pass on what a record brings into effect: itself, or the pending records that its marker commits."""
        pending = self._pending
        if header.is_control:
            marker = read_end_marker(record)
            for each in () if marker is None else pending.end(partition, header.producer_id, marker.committed):
                take(each)
        elif header.is_transactional:
            OffsetTable().replay([record])  # raises now what could not be handled when the marker comes
            pending.add(partition, header.producer_id, [record])
        else:
            take(record)
            pending.written(partition, [record])
