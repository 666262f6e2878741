"""Rows of Arrow batches, gathered into record batches of Kafka's format v2.

A `RowEncoder` keeps one open record batch for each partition that rows go to, over all Arrow batches of a task, so that
record batches become large however small Spark's are. It owns the arena that the compiled kernel writes into, removes
a batch when it is full, and compresses it. The producer is not decided here: producer id, epoch, sequence and checksum,
which covers these, are written by `EncodedBatch.stamp`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from sparkonce.connectors.kafka_sink import kernel
from sparkonce.connectors.kafka_sink.buffers import Bytes, Columns, Int64s, RowError, Rows
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.protocol.compression import Compression, compress
from sparkonce.words import counted

BUFFERED_BYTES = 32 << 20
"""Limit of the open batches of an encoder together; with many partitions each gets less than `batch_bytes`."""
LEAST_BATCH_BYTES = 4 * 1024
"""The minimum for each open batch, however many partitions there are."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FROM = 12
_MAGIC = 2


def now_ms() -> int:
    """Return the time since 1970."""
    return time.time_ns() // 1_000_000


def completed(
    place: tuple[str, int],
    room: Bytes,
    count: int,
    times: tuple[int, int],
    codec: Compression,
    settings: ProducerSettings,
) -> EncodedBatch:
    """Return the record batch for a topic and partition: compressed, and with its header.

    Args:
        place: topic and partition.
        room: room for the header, and behind it ``count`` records.
        count: how many records there are.
        times: the timestamps that their deltas are relative to, and the largest one, in ms since 1970.
        codec: how the records are compressed here.
        settings: the levels of codecs.
    """
    if codec:
        data = bytearray(kernel.BATCH_HEADER_SIZE)
        data += compress(codec, room[kernel.BATCH_HEADER_SIZE :].data, settings.level_of(codec))
    else:
        data = bytearray(room.data)
    length, topic, partition = len(data) - _LENGTH_FROM, *place
    _HEADER.pack_into(data, 0, 0, length, -1, _MAGIC, 0, int(codec), count - 1, *times, -1, -1, -1, count)
    return EncodedBatch(topic, partition, count, data)


class Layout(Protocol):
    """Where the parts of a record are; see `rows.RowLayout`."""

    def rows(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        """Yield the buffers of a batch; raise RowError for a row that cannot become a record."""


class RowEncoder:
    """Turns the rows of one task into record batches.

    Args:
        layout: where the parts of a record are.
        partition_count: returns the number of a topic's partitions, or raises; called again, with the partition that a
            row names as second argument, if that seems not to exist.
        settings: compression, and how large a batch may grow.
        start: the first partition for rows without a key; different in each task.
        clock: returns the timestamp of records.
    """

    def __init__(
        self,
        layout: Layout,
        partition_count: Callable[[str, int | None], int],
        settings: ProducerSettings,
        start: int = 0,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._layout = layout
        self._partition_count = partition_count
        self._settings = settings
        self._start = start
        self._clock = clock
        self._now_ms = 0
        self._numbers: dict[str, int] = {}
        self._largest: dict[str, int] = {}
        self._places: list[tuple[str, int]] = []
        self._topics: Int64s = np.zeros((0, kernel.TOPIC_COLUMNS), np.int64)
        self._slots: Int64s = np.zeros((0, kernel.SLOT_COLUMNS), np.int64)
        self._arena: Bytes = np.empty(0, np.uint8)
        self._state = np.zeros(kernel.STATE_SLOTS, np.int64)

    def encode(self, batch: pa.RecordBatch) -> Iterator[EncodedBatch]:
        """Encode rows, and yield the record batches that they fill; the others stay open.

        Rows are encoded as the iterator is consumed, so it must be consumed to its end.

        Raises:
            RowError: if a row cannot become a record.
            MissingTopicError: if a topic does not exist.

        """
        self._now_ms = max(self._now_ms, self._clock())  # timestamps stay in order even if the clock is set back
        for rows in self._layout.rows(batch):
            yield from self._encode(rows)

    def finish(self) -> Iterator[EncodedBatch]:
        """Yield the open record batches; the encoder may be used again."""
        for slot in np.flatnonzero(self._slots[:, kernel.COUNT]).tolist():
            yield self._take(slot, self._arena)

    def limit(self, topic: str, batch_bytes: int) -> None:
        """Make later batches for a topic no larger than so many bytes, because its broker accepts no more."""
        largest = self._largest[topic] = min(batch_bytes, self._largest.get(topic, batch_bytes))
        for slot, (name, _) in enumerate(self._places):
            if name == topic:
                self._slots[slot, kernel.CAPACITY] = min(self._slots[slot, kernel.CAPACITY], largest)

    def _encode(self, rows: Rows) -> Iterator[EncodedBatch]:
        if any(name not in self._numbers for name in rows.topics):
            yield from self.finish()
            self._make_room(rows.topics)
        columns = self._numbered(rows)
        row = 0
        while True:
            status = kernel.fill(
                columns, row, rows.size, self._now_ms, self._topics, self._slots, self._arena, self._state
            )
            if status == kernel.DONE:
                return
            row = int(self._state[kernel.ROW])
            if status == kernel.FULL:
                yield self._take(int(self._state[kernel.SLOT]), self._arena)
            elif status == kernel.LARGE:
                yield self._alone(columns, row)
                row += 1
            elif status == kernel.UNKNOWN_PARTITION:
                yield from self.finish()
                self._ask_again()
            else:
                raise RowError(
                    f"kafka_once: a row has {int(self._state[kernel.PARTITION])} in its column 'partition'; "
                    "partitions are numbered from 0, and null leaves the choice to the sink"
                )

    def _numbered(self, rows: Rows) -> Columns:
        """Return the columns with this encoder's numbers of topics in place of the batch's own."""
        if len(self._numbers) == 1:
            return rows.columns
        numbers = np.array([self._numbers[name] for name in rows.topics], np.int32)
        own = rows.columns.topics
        topics = numbers[own] if own.shape[0] else np.full(rows.size, numbers[0], np.int32)
        topics.flags.writeable = False  # so that the kernel is compiled for one kind of array only
        return rows.columns._replace(topics=topics)

    def _take(self, slot: int, arena: Bytes) -> EncodedBatch:
        """Remove a batch from its slot, and complete it."""
        row = self._slots[slot]
        start, used = int(row[kernel.START]), int(row[kernel.USED])
        count, base_time, last_time = int(row[kernel.COUNT]), int(row[kernel.BASE_TIME]), int(row[kernel.LAST_TIME])
        row[kernel.COUNT] = 0
        room, times = arena[start : start + used], (base_time, last_time)
        return completed(self._places[slot], room, count, times, self._settings.compression, self._settings)

    def _alone(self, columns: Columns, row: int) -> EncodedBatch:
        """Encode a record that is larger than a slot, in a buffer of its own."""
        slot = int(self._state[kernel.SLOT])
        size = kernel.BATCH_HEADER_SIZE + int(self._state[kernel.RECORD_BYTES])
        place = self._slots[slot].copy()
        self._slots[slot, kernel.START], self._slots[slot, kernel.CAPACITY] = 0, size
        arena = np.empty(size, np.uint8)
        status = kernel.fill(columns, row, row + 1, self._now_ms, self._topics, self._slots, arena, self._state)
        assert status == kernel.DONE
        taken = self._take(slot, arena)
        self._slots[slot] = place
        return taken

    def _make_room(self, new: tuple[str, ...]) -> None:
        """Lay out topics and slots again; there is no open batch."""
        counts = {name: int(self._topics[number, kernel.PARTITIONS]) for name, number in self._numbers.items()}
        for name in new:
            if name not in counts:
                counts[name] = self._partition_count(name, None)
        self._lay_out(counts)

    def _ask_again(self) -> None:
        """Refresh the number of partitions of a topic of which a row names an unknown one."""
        counts = {name: int(self._topics[number, kernel.PARTITIONS]) for name, number in self._numbers.items()}
        topic = list(self._numbers)[int(self._state[kernel.TOPIC])]
        partition = int(self._state[kernel.PARTITION])
        counts[topic] = self._partition_count(topic, partition)
        if partition >= counts[topic]:
            raise RowError(
                f"kafka_once: a row has {partition} in its column 'partition', but topic {topic} has "
                f"{counted(counts[topic], 'partition')}, numbered from 0: correct the column, or add partitions to the "
                "topic"
            )
        self._lay_out(counts)

    def _lay_out(self, counts: dict[str, int]) -> None:
        total = sum(counts.values())
        share = min(self._settings.batch_bytes, max(LEAST_BATCH_BYTES, BUFFERED_BYTES // total))
        self._numbers = {name: number for number, name in enumerate(counts)}
        self._places = [(name, partition) for name, count in counts.items() for partition in range(count)]
        self._arena = np.empty(total * share, np.uint8)  # pages that are never touched cost nothing
        self._slots = np.zeros((total, kernel.SLOT_COLUMNS), np.int64)
        self._slots[:, kernel.START] = np.arange(total) * share
        self._slots[:, kernel.CAPACITY] = [min(share, self._largest.get(name, share)) for name, _ in self._places]
        self._topics = np.zeros((len(counts), kernel.TOPIC_COLUMNS), np.int64)
        first = 0
        for number, count in enumerate(counts.values()):
            self._topics[number] = (first, count, (self._start + number) % count, kernel.STICKY_CHUNK_BYTES)
            first += count
