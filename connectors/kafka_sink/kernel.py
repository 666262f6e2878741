"""The compiled part of the encoder: from the buffers of Arrow columns to records of format v2 (KIP-98).

Every topic-partition owns a *slot*: a stretch of one arena in which its next record batch grows behind room for a
header. `fill` walks the rows once. It chooses a row's partition as Kafka's Java producer does, works out the size of
the record, and writes it at the end of the slot; so rows of one partition keep their order. Where a record does not
fit, it stops and returns which slot is full: the caller removes the batch, marks the slot empty and continues at that
row. Nothing is written before it is known to fit.
"""

from __future__ import annotations

import numpy as np

from sparkonce.connectors.kafka_sink.buffers import Bytes, Columns, Headers, Int64s, Values
from sparkonce.connectors.runtime.compiled import compiled, copy_bytes

BATCH_HEADER_SIZE = 61

# Columns of the table of slots. START is a position in the arena; CAPACITY and USED count bytes from there, header
# included; times are in milliseconds since 1970.
START, CAPACITY, USED, COUNT, BASE_TIME, LAST_TIME = range(6)
SLOT_COLUMNS = 6

# Columns of the table of topics: its first slot, its partitions, where rows without a key go, and for how many bytes
# they still go there.
FIRST_SLOT, PARTITIONS, STICKY_PARTITION, STICKY_BYTES = range(4)
TOPIC_COLUMNS = 4

STICKY_CHUNK_BYTES = 16 * 1024
"""Rows without a key change their partition after so many bytes, as in Java's producer with its usual batch.size
(KIP-794)."""

# Results of `fill`. FULL: a slot with records has no room for one more. LARGE: a record is larger than an empty slot.
DONE, FULL, LARGE, NEGATIVE_PARTITION, UNKNOWN_PARTITION = range(5)

# Slots of the state that `fill` leaves when it stops: the row, its topic's number, its slot, its partition, and the
# bytes that its record needs as the first of a batch.
ROW, TOPIC, SLOT, PARTITION, RECORD_BYTES = range(5)
STATE_SLOTS = 5

_MASK_32 = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_M = 0x5BD1E995


@compiled
def murmur2(data: Bytes, position: int, length: int) -> int:
    """Hash bytes as `org.apache.kafka.common.utils.Utils.murmur2` does; the result is unsigned."""
    hashed = (_MURMUR_SEED ^ length) & _MASK_32
    end = position + (length & ~3)
    while position < end:
        word = (
            int(data[position])
            | (int(data[position + 1]) << 8)
            | (int(data[position + 2]) << 16)
            | (int(data[position + 3]) << 24)
        )
        word = (word * _MURMUR_M) & _MASK_32
        word ^= word >> 24
        word = (word * _MURMUR_M) & _MASK_32
        hashed = ((hashed * _MURMUR_M) & _MASK_32) ^ word
        position += 4
    rest = length & 3
    if rest > 0:
        if rest == 3:
            hashed ^= int(data[position + 2]) << 16
        if rest >= 2:
            hashed ^= int(data[position + 1]) << 8
        hashed = ((hashed ^ int(data[position])) * _MURMUR_M) & _MASK_32
    hashed ^= hashed >> 13
    hashed = (hashed * _MURMUR_M) & _MASK_32
    return hashed ^ (hashed >> 15)


@compiled
def _is_set(bits: Bytes, position: int) -> bool:
    return bits.shape[0] == 0 or (int(bits[position >> 3]) >> (position & 7)) & 1 != 0


@compiled
def _length(values: Values, row: int) -> int:
    """Return a value's length, -1 for null."""
    if values.offsets.shape[0] == 0 or not _is_set(values.bits, values.first_bit + row):
        return -1
    return int(values.offsets[row + 1]) - int(values.offsets[row])


@compiled
def varint_size(number: int) -> int:
    """Return the bytes that a zig-zag number takes."""
    raw = (number << 1) ^ (number >> 63)
    size = 1
    while raw > 0x7F or raw < 0:
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
        size += 1
    return size


@compiled
def put_varint(arena: Bytes, position: int, number: int) -> int:
    """Write a zig-zag number, and return the position after it."""
    raw = (number << 1) ^ (number >> 63)
    while raw > 0x7F or raw < 0:
        arena[position] = np.uint8((raw & 0x7F) | 0x80)
        raw = (raw >> 7) & 0x1FFFFFFFFFFFFFF
        position += 1
    arena[position] = np.uint8(raw)
    return position + 1


@compiled
def _sized(length: int) -> int:
    """Return the room that a value of this length takes, its length included."""
    return 1 if length < 0 else varint_size(length) + length


@compiled
def _put(arena: Bytes, position: int, values: Values, row: int, length: int) -> int:
    position = put_varint(arena, position, length)
    if length > 0:
        copy_bytes(arena, position, values.data, int(values.offsets[row]), length)
        position += length
    return position


@compiled
def _header_range(headers: Headers, row: int) -> tuple[int, int]:
    if headers.lists.shape[0] == 0 or not _is_set(headers.bits, headers.first_bit + row):
        return 0, 0
    return int(headers.lists[row]), int(headers.lists[row + 1])


@compiled
def _content_size(columns: Columns, row: int, key_length: int, value_length: int) -> int:
    """Return the size of what does not depend on where in its batch a record stands."""
    first, end = _header_range(columns.headers, row)
    size = 1 + _sized(key_length) + _sized(value_length) + varint_size(end - first)
    for header in range(first, end):
        size += _sized(_length(columns.headers.keys, header)) + _sized(_length(columns.headers.values, header))
    return size


@compiled
def _put_record(
    columns: Columns,
    row: int,
    lengths: tuple[int, int],
    body: int,
    deltas: tuple[int, int],
    arena: Bytes,
    position: int,
) -> None:
    position = put_varint(arena, position, body)
    arena[position] = 0
    position = put_varint(arena, position + 1, deltas[0])
    position = put_varint(arena, position, deltas[1])
    position = _put(arena, position, columns.keys, row, lengths[0])
    position = _put(arena, position, columns.values, row, lengths[1])
    first, end = _header_range(columns.headers, row)
    position = put_varint(arena, position, end - first)
    for header in range(first, end):
        key, value = columns.headers.keys, columns.headers.values
        position = _put(arena, position, key, header, _length(key, header))
        position = _put(arena, position, value, header, _length(value, header))


@compiled
def _is_assigned(columns: Columns, row: int) -> bool:
    """Return whether the row names its partition."""
    return columns.partitions.shape[0] > 0 and _is_set(columns.partition_bits, columns.first_partition_bit + row)


@compiled
def _partition(columns: Columns, row: int, key_length: int, topic: Int64s) -> int:
    if _is_assigned(columns, row):
        return int(columns.partitions[row])
    if key_length >= 0:
        position = int(columns.keys.offsets[row])
        return (murmur2(columns.keys.data, position, key_length) & 0x7FFFFFFF) % int(topic[PARTITIONS])
    return int(topic[STICKY_PARTITION])


@compiled
def count_sticky(topic: Int64s, size: int) -> None:
    """Count the bytes of a record without a key, so that a later one goes to the next partition."""
    topic[STICKY_BYTES] -= size
    if topic[STICKY_BYTES] <= 0:
        topic[STICKY_BYTES] = STICKY_CHUNK_BYTES
        topic[STICKY_PARTITION] = (topic[STICKY_PARTITION] + 1) % topic[PARTITIONS]


@compiled
def fill(
    columns: Columns, first_row: int, end_row: int, now_ms: int, topics: Int64s, slots: Int64s, arena: Bytes,
    state: Int64s,
) -> int:  # fmt: skip
    """Append the rows from ``first_row`` on to the batches of their partitions, until one does not fit.

    Returns one of the results above; for all but DONE ``state`` has where it stopped, and that row is not written.
    ``now_ms`` becomes the timestamp of these records.
    """
    for row in range(first_row, end_row):
        number = int(columns.topics[row]) if columns.topics.shape[0] > 0 else 0
        topic = topics[number]
        key_length = _length(columns.keys, row)
        value_length = _length(columns.values, row)
        partition = _partition(columns, row, key_length, topic)
        state[ROW], state[TOPIC], state[PARTITION] = row, number, partition
        if partition < 0:
            return NEGATIVE_PARTITION
        if partition >= topic[PARTITIONS]:
            return UNKNOWN_PARTITION
        number = int(topic[FIRST_SLOT]) + partition
        slot = slots[number]
        count = int(slot[COUNT])
        time_delta = now_ms - int(slot[BASE_TIME]) if count > 0 else 0
        body = _content_size(columns, row, key_length, value_length) + varint_size(time_delta) + varint_size(count)
        size = body + varint_size(body)
        used = int(slot[USED]) if count > 0 else BATCH_HEADER_SIZE
        if used + size > slot[CAPACITY]:
            state[SLOT], state[RECORD_BYTES] = number, size
            return FULL if count > 0 else LARGE
        _put_record(columns, row, (key_length, value_length), body, (time_delta, count), arena, int(slot[START]) + used)
        if count == 0:
            slot[BASE_TIME] = now_ms
        slot[USED], slot[COUNT], slot[LAST_TIME] = used + size, count + 1, now_ms
        if key_length < 0 and not _is_assigned(columns, row):
            count_sticky(topic, size)
    return DONE
