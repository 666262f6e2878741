"""Fetched record batches, turned into batches for the target: copied whole where possible, else packed anew.

A batch is copied whole, with only its header rewritten, if all its records are wanted, none is missing (a broker
accepts only batches whose last offset delta is one less than their count; compaction leaves gaps), their timestamps are
their producer's, the codec may stay, and it is large enough for its own request. The records of
other batches are packed into new ones. Either way key, value, headers and timestamp of a record are those of the
source. The records of a partition keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sparkonce.connectors.kafka_sink import kernel as slots_kernel
from sparkonce.connectors.kafka_sink.buffers import RowError
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.connectors.kafka_sink.encoding import BUFFERED_BYTES, LEAST_BATCH_BYTES, completed
from sparkonce.connectors.kafka_source import kernel as source_kernel
from sparkonce.connectors.kafka_source.decode import FetchedBatches
from sparkonce.connectors.mirror import kernel
from sparkonce.connectors.runtime.compiled import Bytes, Int64s, read_only
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.records import set_base_offset, set_partition_leader_epoch
from sparkonce.words import counted

LEAST_PLAIN_BYTES = 128 * 1024
"""Smaller batches without compression are packed into larger ones: a request for each would cost more."""
LEAST_COMPRESSED_BYTES = 16 * 1024
"""The same where packing includes inflating and compressing."""
_NO_EPOCH = -1
_EXTENT = (slots_kernel.START, slots_kernel.USED, slots_kernel.COUNT)
_ATTRIBUTES_THAT_MAY_STAY = source_kernel.COMPRESSION_MASK | source_kernel.TRANSACTIONAL


class BatchCopier:
    """Makes the batches that one task sends of those that it fetched.

    Args:
        topic: the topic to write to; None for the name of the topic that was read.
        keep_partitions: whether records keep the number of their partition; else those with a key go where Kafka's
            Java producer puts them, and the others to all partitions.
        codec: how batches are compressed; None for as they were.
        partition_count: returns the number of a topic's partitions, or raises; called again, with a partition as second
            argument, if that seems not to exist.
        settings: how large a batch may grow, and the levels of codecs.
        start: the first partition for records without a key.
    """

    def __init__(
        self,
        topic: str | None,
        *,
        keep_partitions: bool,
        codec: Compression | None,
        partition_count: Callable[[str, int | None], int],
        settings: ProducerSettings,
        start: int = 0,
    ) -> None:
        self._topic = topic
        self._keeps = keep_partitions
        self._codec = codec
        self._partition_count = partition_count
        self._settings = settings
        self._start = start
        self._largest: dict[str, int] = {}
        self._keyed: set[str] = set()
        """Topics that were read in which there are keys."""
        self._open = ("", -1, Compression.NONE)
        """Target of the open batches: topic, partition if that is kept, and codec."""
        self._counts: dict[str, int] = {}
        """Partitions of the topics that are written to."""
        self._sticky: Int64s = np.zeros(slots_kernel.TOPIC_COLUMNS, np.int64)
        self._slots: Int64s = np.zeros((0, slots_kernel.SLOT_COLUMNS), np.int64)
        self._arena: Bytes = np.empty(0, np.uint8)

    def encode(self, fetched: FetchedBatches) -> Iterator[EncodedBatch]:
        """Yield the batches that are moved whole, and those that are full; the others stay open.

        The iterator must be consumed to its end before what was fetched becomes invalid.

        Raises:
            RowError: if a partition does not exist in the target.
            MissingTopicError: if a topic does not exist.
            CorruptBatchError: if a batch is damaged.

        """
        if not fetched.num_rows:
            return
        topic = self._topic or fetched.topic
        partition = fetched.partition if self._keeps else -1
        self._check_partition(topic, partition)
        codecs = fetched.table[:, source_kernel.ATTRIBUTES] & source_kernel.COMPRESSION_MASK
        whole = self._whole(fetched, topic)
        changes = (np.flatnonzero(np.diff(np.where(whole, -1, codecs))) + 1).tolist()
        for first, end in pairwise([0, *changes, len(codecs)]):
            codec = Compression(int(codecs[first])) if self._codec is None else self._codec
            yield from self._prepare(topic, partition, codec)
            if whole[first]:
                yield from self.finish()
                yield from self._move(fetched, topic, fetched.table[first:end])
            else:
                yield from self._pack(fetched, fetched.table[first:end])

    def finish(self) -> Iterator[EncodedBatch]:
        """Yield the open batches; the copier may be used again."""
        for slot in np.flatnonzero(self._slots[:, slots_kernel.COUNT]).tolist():
            yield self._take(slot, self._arena)

    def limit(self, topic: str, batch_bytes: int) -> None:
        """Make later batches for a topic no larger than so many bytes before compression, and move none whole."""
        largest = self._largest[topic] = min(batch_bytes, self._largest.get(topic, batch_bytes))
        if self._open[0] == topic:
            self._slots[:, slots_kernel.CAPACITY] = np.minimum(self._slots[:, slots_kernel.CAPACITY], largest)

    def _whole(self, fetched: FetchedBatches, topic: str) -> NDArray[np.bool_]:
        """Return which batches are moved whole."""
        table = fetched.table
        if topic in self._largest:
            return np.zeros(table.shape[0], np.bool_)
        attributes, base = table[:, source_kernel.ATTRIBUTES], table[:, source_kernel.BASE_OFFSET]
        last_delta = table[:, source_kernel.LAST_DELTA]
        size = table[:, source_kernel.END] - table[:, source_kernel.START]
        codec = attributes & source_kernel.COMPRESSION_MASK
        whole: NDArray[np.bool_] = (
            (codec < len(Compression) if self._codec is None else codec == int(self._codec))
            & (attributes & ~_ATTRIBUTES_THAT_MAY_STAY == 0)
            & (table[:, source_kernel.COUNT] == last_delta + 1)
            & (base >= fetched.start)
            & (base + last_delta < fetched.end)
            & (size >= np.where(codec == 0, LEAST_PLAIN_BYTES, LEAST_COMPRESSED_BYTES))
        )
        if not self._keeps:
            for row in np.flatnonzero(whole).tolist():
                whole[row] = self._is_keyless(fetched, table[row : row + 1])
        return whole

    def _is_keyless(self, fetched: FetchedBatches, row: Int64s) -> bool:
        """Whether no record of a batch has a key; once there was one in a topic, batches are not examined any more."""
        if fetched.topic in self._keyed:
            return False
        for buffer, table in fetched.decoder.inflated(fetched.data, row):
            if not kernel.is_keyless(read_only(buffer), table[0]):
                self._keyed.add(fetched.topic)
                return False
        return True

    def _move(self, fetched: FetchedBatches, topic: str, table: Int64s) -> Iterator[EncodedBatch]:
        """Yield batches that differ from those that were fetched in their headers only."""
        view = fetched.data.data
        columns = (source_kernel.START, source_kernel.END, source_kernel.COUNT)
        for start, end, count in table[:, columns].tolist():
            fetched.count.records += count
            data = bytearray(view[start:end])
            set_base_offset(data, 0)
            set_partition_leader_epoch(data, _NO_EPOCH)
            yield EncodedBatch(topic, fetched.partition if self._keeps else self._next_partition(), count, data)

    def _next_partition(self) -> int:
        """Return the partition for records without a key, and have others go to the next one."""
        partition = int(self._sticky[slots_kernel.STICKY_PARTITION])
        self._sticky[slots_kernel.STICKY_PARTITION] = (partition + 1) % int(self._sticky[slots_kernel.PARTITIONS])
        self._sticky[slots_kernel.STICKY_BYTES] = slots_kernel.STICKY_CHUNK_BYTES
        return partition

    def _pack(self, fetched: FetchedBatches, rows: Int64s) -> Iterator[EncodedBatch]:
        """Append the wanted records of batches to the open ones, and yield those that are full."""
        for buffer, table in fetched.decoder.inflated(fetched.data, rows):
            wanted = (read_only(buffer), table, fetched.start, fetched.end, 0 if self._keeps else -1)
            state = np.zeros(kernel.STATE_SLOTS, np.int64)
            state[kernel.POSITION] = -1
            while True:
                status = kernel.pack(*wanted, self._sticky, self._slots, self._arena, kernel.ANY_NUMBER, state)
                fetched.count.records += int(state[kernel.WRITTEN])
                if status == kernel.DONE:
                    break
                slot = int(state[kernel.SLOT])
                if status == kernel.FULL:
                    yield self._take(slot, self._arena)
                elif status == kernel.LARGE:
                    size = slots_kernel.BATCH_HEADER_SIZE + int(state[kernel.RECORD_BYTES])
                    place = self._slots[slot].copy()
                    self._slots[slot, slots_kernel.START], self._slots[slot, slots_kernel.CAPACITY] = 0, size
                    arena = np.empty(size, np.uint8)
                    status = kernel.pack(*wanted, self._sticky, self._slots, arena, 1, state)
                    fetched.count.records += int(state[kernel.WRITTEN])
                    assert status not in (kernel.FULL, kernel.LARGE), "the record fits into an arena of its own"
                    yield self._take(slot, arena)
                    self._slots[slot] = place
                else:
                    offset = int(table[state[kernel.BATCH], source_kernel.BASE_OFFSET])
                    raise fetched.decoder.corrupt(offset, source_kernel.REASONS[int(state[kernel.REASON])])

    def _take(self, slot: int, arena: Bytes) -> EncodedBatch:
        """Remove a batch from its slot, and complete it."""
        row = self._slots[slot]
        start, used, count = (int(row[column]) for column in _EXTENT)
        times = int(row[slots_kernel.BASE_TIME]), int(row[slots_kernel.LAST_TIME])
        row[slots_kernel.COUNT] = 0
        topic, partition, codec = self._open
        place = topic, partition if self._keeps else slot
        return completed(place, arena[start : start + used], count, times, codec, self._settings)

    def _prepare(self, topic: str, partition: int, codec: Compression) -> Iterator[EncodedBatch]:
        """Yield the open batches if they have another target or codec; then open others."""
        if self._open == (topic, partition, codec):
            return
        yield from self.finish()
        same_topic, self._open = self._open[0] == topic, (topic, partition, codec)
        if not same_topic:
            self._lay_out(topic)

    def _lay_out(self, topic: str) -> None:
        total = 1 if self._keeps else self._count(topic)
        share = min(self._settings.batch_bytes, max(LEAST_BATCH_BYTES, BUFFERED_BYTES // total))
        self._arena = np.empty(total * share, np.uint8)  # pages that are never touched cost nothing
        self._slots = np.zeros((total, slots_kernel.SLOT_COLUMNS), np.int64)
        self._slots[:, slots_kernel.START] = np.arange(total) * share
        self._slots[:, slots_kernel.CAPACITY] = min(share, self._largest.get(topic, share))
        self._sticky[:] = (0, total, self._start % total, slots_kernel.STICKY_CHUNK_BYTES)

    def _check_partition(self, topic: str, partition: int) -> None:
        if partition >= self._count(topic):
            self._counts[topic] = self._partition_count(topic, partition)
        if partition >= self._counts[topic]:
            raise RowError(
                f"kafka_once: a record of partition {partition} keeps the number of its partition, but topic {topic} "
                f"has {counted(self._counts[topic], 'partition')}, numbered from 0: set the option "
                "keepPartitions=false, or add partitions to the topic"
            )

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._partition_count(topic, None)
        return self._counts[topic]
