"""The compiled part of a mirror: records of fetched batches, moved into new batches without being decoded.

A record's place in its batch is in its first three fields: length, timestamp delta and offset delta. `pack` writes
these anew, and copies the rest, key, value and headers, as it is. As in `connectors.kafka_sink.kernel`, each partition
has a slot of one arena in which its next batch grows; where a record does not fit, `pack` stops and returns which slot
is full. Every length is checked before it is used.
"""

from __future__ import annotations

from sparkonce.connectors.kafka_sink.kernel import (
    BASE_TIME,
    BATCH_HEADER_SIZE,
    CAPACITY,
    COUNT,
    LAST_TIME,
    PARTITIONS,
    START,
    STICKY_PARTITION,
    USED,
    count_sticky,
    murmur2,
    put_varint,
    varint_size,
)
from sparkonce.connectors.kafka_source.kernel import (
    ATTRIBUTES,
    BAD_COUNT,
    BAD_LENGTH,
    BAD_OFFSET,
    BAD_VARINT,
    BASE_OFFSET,
    END,
    LAST_DELTA,
    LOG_APPEND_TIME,
    MAX_TIME,
    OVERRUN,
    RECORDS,
    read_varint,
)
from sparkonce.connectors.kafka_source.kernel import BASE_TIME as BATCH_TIME
from sparkonce.connectors.kafka_source.kernel import COUNT as RECORDS_LEFT
from sparkonce.connectors.runtime.compiled import Bytes, Int64s, compiled, copy_bytes

# Results of `pack`. FULL: a slot with records has no room for one more. LARGE: a record is larger than an empty slot.
# ENOUGH: as many records as were wanted are written. DAMAGED: the state has the reason.
DONE, FULL, LARGE, ENOUGH, DAMAGED = range(5)

# The state: the batch to continue with, the position of its next record, or -1 for its first one, and how many it has
# left; then the slot that is full, the bytes that its record needs, why a batch is damaged, and the records written.
BATCH, POSITION, LEFT, SLOT, RECORD_BYTES, REASON, WRITTEN = range(7)
STATE_SLOTS = 7

ANY_NUMBER = 1 << 62
"""Of records, where there is no limit."""


@compiled
def is_keyless(buffer: Bytes, header: Int64s) -> bool:
    """Whether no record of a batch has a key; false for a damaged one, which `pack` reports."""
    position = int(header[RECORDS])
    for _ in range(header[RECORDS_LEFT]):
        length, position = read_varint(buffer, position, header[END])
        if position < 0 or length < 1 or length > header[END] - position:
            return False
        end = position + length
        _, position = read_varint(buffer, position + 1, end)
        if position < 0:
            return False
        _, position = read_varint(buffer, position, end)
        if position < 0:
            return False
        key_length, position = read_varint(buffer, position, end)
        if position < 0 or key_length >= 0:
            return False
        position = end
    return True


@compiled
def _place(buffer: Bytes, position: int, end: int, header: Int64s) -> tuple[int, int, int]:
    """Read the deltas of time and offset of a record, and return them and the position after them or minus a status."""
    time_delta, position = read_varint(buffer, position + 1, end)
    if position < 0:
        return 0, 0, -BAD_VARINT
    offset_delta, position = read_varint(buffer, position, end)
    if position < 0:
        return 0, 0, -BAD_VARINT
    if offset_delta < 0 or offset_delta > header[LAST_DELTA]:
        return 0, 0, -BAD_OFFSET
    return time_delta, offset_delta, position


@compiled
def _choose(buffer: Bytes, position: int, end: int, topic: Int64s) -> tuple[int, bool]:
    """Return the partition of a record whose key begins at ``position``, or minus a status; and whether it has one."""
    length, position = read_varint(buffer, position, end)
    if position < 0:
        return -BAD_VARINT, False
    if length < -1 or length > end - position:
        return -BAD_LENGTH, False
    if length < 0:
        return int(topic[STICKY_PARTITION]), False
    return (murmur2(buffer, position, length) & 0x7FFFFFFF) % int(topic[PARTITIONS]), True


@compiled
def _append(buffer: Bytes, position: int, end: int, attributes: int, time: int, slot: Int64s, arena: Bytes) -> int:
    """Write a record whose key begins at ``position``; return its bytes, or minus these if they do not fit."""
    count = int(slot[COUNT])
    used = int(slot[USED]) if count > 0 else BATCH_HEADER_SIZE
    time_delta = time - int(slot[BASE_TIME]) if count > 0 else 0
    body = 1 + varint_size(time_delta) + varint_size(count) + end - position
    size = body + varint_size(body)
    if used + size > slot[CAPACITY]:
        return -size
    to = put_varint(arena, int(slot[START]) + used, body)
    arena[to] = attributes
    to = put_varint(arena, to + 1, time_delta)
    to = put_varint(arena, to, count)
    copy_bytes(arena, to, buffer, position, end - position)
    if count == 0:
        slot[BASE_TIME] = time
    slot[LAST_TIME] = max(time, int(slot[LAST_TIME])) if count > 0 else time
    slot[USED], slot[COUNT] = used + size, count + 1
    return size


@compiled
def _pack_batch(
    buffer: Bytes, header: Int64s, start_offset: int, end_offset: int, slot_of_all: int, topic: Int64s, slots: Int64s,
    arena: Bytes, most: int, state: Int64s,
) -> int:  # fmt: skip
    """Append the records of one batch that are left; returns as `pack`."""
    batch_end = int(header[END])
    while state[LEFT] > 0:
        state[REASON] = OVERRUN
        length, first = read_varint(buffer, int(state[POSITION]), batch_end)
        if first < 0 or length < 1 or length > batch_end - first:
            return DAMAGED
        end = first + length
        time_delta, offset_delta, position = _place(buffer, first, end, header)
        if position < 0:
            state[REASON] = -position
            return DAMAGED
        if start_offset <= header[BASE_OFFSET] + offset_delta < end_offset:
            if state[WRITTEN] >= most:
                return ENOUGH
            number, has_key = slot_of_all, True
            if slot_of_all < 0:
                number, has_key = _choose(buffer, position, end, topic)
            if number < 0:
                state[REASON] = -number
                return DAMAGED
            appended = header[ATTRIBUTES] & LOG_APPEND_TIME != 0
            time = int(header[MAX_TIME]) if appended else int(header[BATCH_TIME]) + time_delta
            size = _append(buffer, position, end, int(buffer[first]), time, slots[number], arena)
            if size < 0:
                state[SLOT], state[RECORD_BYTES] = number, -size
                return FULL if slots[number][COUNT] > 0 else LARGE
            if not has_key:
                count_sticky(topic, size)
            state[WRITTEN] += 1
        state[POSITION] = end
        state[LEFT] -= 1
    state[REASON] = BAD_COUNT
    return DONE if state[POSITION] == batch_end else DAMAGED


@compiled
def pack(
    buffer: Bytes, table: Int64s, start_offset: int, end_offset: int, slot_of_all: int, topic: Int64s, slots: Int64s,
    arena: Bytes, most: int, state: Int64s,
) -> int:  # fmt: skip
    """Append the records with ``start_offset <= offset < end_offset`` of the batches in ``table`` to open batches.

    Begins where ``state`` says, and leaves there where it stopped; returns one of the results above. All records go to
    ``slot_of_all``; if that is negative, those with a key where Kafka's Java producer puts them, the others where
    ``topic`` says. At most ``most`` records are written.
    """
    state[WRITTEN] = 0
    for batch in range(state[BATCH], table.shape[0]):
        header = table[batch]
        if state[POSITION] < 0:
            state[BATCH], state[POSITION], state[LEFT] = batch, header[RECORDS], header[RECORDS_LEFT]
        result = _pack_batch(
            buffer, header, start_offset, end_offset, slot_of_all, topic, slots, arena, most, state
        )  # fmt: skip
        if result != DONE:
            return result
        state[BATCH], state[POSITION] = batch + 1, -1
    return DONE
