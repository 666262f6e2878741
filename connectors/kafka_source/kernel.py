"""The compiled part of the decoder: bytes of record batches (format v2, KIP-98) to the buffers of Arrow columns.

Two functions. `scan_batches` reads the headers of the whole batches in a buffer into a table of integers, one row a
batch. `decode_batches` walks the records of some of these batches once and writes offsets, timestamps, keys, values and
headers straight into buffers that the caller has made large enough: no buffer can need more room than the bytes that
are read. Every length is checked before it is used, so a damaged or malicious batch returns a status, never reads out
of bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, compiled, copy_bytes
from sparkonce.connectors.values.record_times import MAX_TIMESTAMP_MS

BATCH_HEADER_SIZE = 61
"""Bytes from the base offset to the first record."""
CRC_START = 21
"""The checksum covers everything from the attributes on."""

# Columns of the table that `scan_batches` fills.
START, RECORDS, END, BASE_OFFSET, LAST_DELTA, BASE_TIME, MAX_TIME, ATTRIBUTES, COUNT, PRODUCER, CRC = range(11)
COLUMNS = 11

# Attributes of a batch.
COMPRESSION_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20

# Statuses of `decode_batches`.
OK, OVERRUN, BAD_VARINT, BAD_LENGTH, BAD_COUNT, BAD_TIMESTAMP, BAD_OFFSET, BAD_ORDER = range(8)
REASONS = {
    OVERRUN: "a record reaches past the end of its batch",
    BAD_VARINT: "a variable-length number does not end",
    BAD_LENGTH: "a length is negative, or the fields of a record do not fill it",
    BAD_COUNT: "the batch does not hold as many records as its header says",
    BAD_OFFSET: "a record's offset lies outside its batch",
    BAD_ORDER: "offsets go back: a batch or a record does not follow the one before",
}

# Statuses of `scan_batches` besides OK.
OLD_FORMAT, BAD_HEADER = 10, 11

# Slots of the state of `decode_batches`; the count of nulls follows the bytes used by the same column.
STATUS, ROWS, FAILED_OFFSET, KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS = range(7)
HEADERS, HEADER_LISTS, HEADER_KEY_BYTES, HEADER_KEY_NULLS, HEADER_VALUE_BYTES, HEADER_VALUE_NULLS = range(7, 13)
FAILED_TIME, NEXT_OFFSET = 13, 14
STATE_SLOTS = 15

# Which columns `decode_batches` writes; the others are skipped, and their buffers may be empty.
KEYS, VALUES, OFFSETS, TIMES, TIME_TYPES, WITH_HEADERS, RAW_TIMES = 1, 2, 4, 8, 16, 32, 64


class Column(NamedTuple):
    """The three buffers of a column of Arrow's binary or string type."""

    offsets: Int32s
    bits: Bytes
    data: Bytes


class Headers(NamedTuple):
    """The buffers of a column of lists of (key, value)."""

    lists: Int32s
    list_bits: Bytes
    keys: Column
    values: Column


class Rows(NamedTuple):
    """The buffers to fill; those of unwanted columns may be empty."""

    offsets: Int64s
    times: Int64s
    """Microseconds (`TIMES`), which not every time fits into, or milliseconds as Kafka has them (`RAW_TIMES`)."""
    time_types: Int32s
    keys: Column
    values: Column
    headers: Headers


@compiled
def _big_endian(buffer: Bytes, position: int, width: int) -> int:
    number = 0
    for index in range(width):
        number = (number << 8) | int(buffer[position + index])
    return number


@compiled
def _signed_32(number: int) -> int:
    return number - (1 << 32) if number >= (1 << 31) else number


@compiled
def scan_batches(buffer: Bytes, size: int, table: Int64s) -> tuple[int, int, int]:
    """Fill ``table`` from the whole batches in ``buffer[:size]``; stop where it is full.

    Return (batches, their bytes, status); a partial batch at the end is left, as consumers must.
    """
    position = 0
    count = 0
    while count < table.shape[0] and size - position >= 17:
        length = _signed_32(_big_endian(buffer, position + 8, 4))
        if buffer[position + 16] != 2:
            return count, position, OLD_FORMAT
        if length < BATCH_HEADER_SIZE - 12:
            return count, position, BAD_HEADER
        end = position + 12 + length
        if end > size:
            break
        table[count, START] = position
        table[count, RECORDS] = position + BATCH_HEADER_SIZE
        table[count, END] = end
        table[count, BASE_OFFSET] = _big_endian(buffer, position, 8)
        table[count, CRC] = _big_endian(buffer, position + 17, 4)
        table[count, ATTRIBUTES] = _big_endian(buffer, position + 21, 2)
        table[count, LAST_DELTA] = _signed_32(_big_endian(buffer, position + 23, 4))
        table[count, BASE_TIME] = _big_endian(buffer, position + 27, 8)
        table[count, MAX_TIME] = _big_endian(buffer, position + 35, 8)
        table[count, PRODUCER] = _big_endian(buffer, position + 43, 8)
        table[count, COUNT] = _signed_32(_big_endian(buffer, position + 57, 4))
        if table[count, LAST_DELTA] < 0 or table[count, COUNT] < 0 or table[count, BASE_OFFSET] < 0:
            return count, position, BAD_HEADER
        count += 1
        position = end
    return count, position, OK


@compiled
def read_varint(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read a zig-zag number of up to ten bytes; return it and the position after it, or -1 if it does not end."""
    raw = 0
    shift = 0
    while position < end and shift < 70:
        byte = int(buffer[position])
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position
        shift += 7
    return 0, -1


@compiled
def _append(buffer: Bytes, position: int, end: int, column: Column, row: int, state: Int64s, used_slot: int) -> int:
    """Read a sized value into row ``row`` of a binary column; return the position after it or a negative status."""
    length, position = read_varint(buffer, position, end)
    if position < 0:
        return -BAD_VARINT
    if length < -1:
        return -BAD_LENGTH
    if length > end - position:
        return -OVERRUN
    used = state[used_slot]
    if length < 0:
        state[used_slot + 1] += 1
        column.offsets[row + 1] = used
        return position
    column.bits[row >> 3] |= np.uint8(1 << (row & 7))
    copy_bytes(column.data, used, buffer, position, length)
    state[used_slot] = used + length
    column.offsets[row + 1] = used + length
    return position + length


@compiled
def _skip(buffer: Bytes, position: int, end: int) -> int:
    """Skip a sized value; return the position after it or a negative status."""
    length, position = read_varint(buffer, position, end)
    if position < 0:
        return -BAD_VARINT
    if length < -1:
        return -BAD_LENGTH
    if length > end - position:
        return -OVERRUN
    return position + length if length > 0 else position


@compiled
def _append_headers(buffer: Bytes, position: int, end: int, headers: Headers, row: int, state: Int64s) -> int:
    """Read the headers of one record; return the position after them or a negative status."""
    count, position = read_varint(buffer, position, end)
    if position < 0:
        return -BAD_VARINT
    if count < 0:
        return -BAD_LENGTH
    for _ in range(count):
        header = state[HEADERS]
        position = _append(buffer, position, end, headers.keys, header, state, HEADER_KEY_BYTES)
        if position < 0:
            return position
        position = _append(buffer, position, end, headers.values, header, state, HEADER_VALUE_BYTES)
        if position < 0:
            return position
        state[HEADERS] += 1
    if state[HEADER_KEY_NULLS] > 0 or position != end:
        return -BAD_LENGTH
    headers.lists[row + 1] = state[HEADERS]
    if count > 0:
        headers.list_bits[row >> 3] |= np.uint8(1 << (row & 7))
        state[HEADER_LISTS] += 1
    return position


@compiled
def _decode_record(buffer: Bytes, position: int, end: int, rows: Rows, wanted: int, row: int, state: Int64s) -> int:
    """Read key, value and headers, as far as they are wanted; return a status."""
    if wanted & KEYS:
        position = _append(buffer, position, end, rows.keys, row, state, KEY_BYTES)
    elif wanted & (VALUES | WITH_HEADERS):
        position = _skip(buffer, position, end)
    if wanted & VALUES:
        if position >= 0:
            position = _append(buffer, position, end, rows.values, row, state, VALUE_BYTES)
    elif wanted & WITH_HEADERS and position >= 0:
        position = _skip(buffer, position, end)
    if wanted & WITH_HEADERS and position >= 0:
        position = _append_headers(buffer, position, end, rows.headers, row, state)
    return OK if position >= 0 else -position


@compiled
def _decode_batch(
    buffer: Bytes, header: Int64s, start_offset: int, end_offset: int, rows: Rows, wanted: int, state: Int64s
) -> int:
    """Decode one batch; return a status."""
    appended = header[ATTRIBUTES] & LOG_APPEND_TIME != 0
    position = header[RECORDS]
    for _ in range(header[COUNT]):
        length, position = read_varint(buffer, position, header[END])
        if position < 0:
            return BAD_VARINT
        if length < 1:
            return BAD_LENGTH
        if length > header[END] - position:
            return OVERRUN
        end = position + length
        time_delta, position = read_varint(buffer, position + 1, end)
        if position < 0:
            return BAD_VARINT
        offset_delta, position = read_varint(buffer, position, end)
        if position < 0:
            return BAD_VARINT
        if offset_delta < 0 or offset_delta > header[LAST_DELTA]:
            return BAD_OFFSET
        offset = header[BASE_OFFSET] + offset_delta
        if offset < state[NEXT_OFFSET]:
            return BAD_ORDER
        state[NEXT_OFFSET] = offset + 1
        if start_offset <= offset < end_offset:
            state[FAILED_OFFSET] = offset
            row = state[ROWS]
            if wanted & (TIMES | RAW_TIMES):
                time = header[MAX_TIME] if appended else header[BASE_TIME] + time_delta
                if wanted & RAW_TIMES:
                    rows.times[row] = time
                elif time > MAX_TIMESTAMP_MS or time < -MAX_TIMESTAMP_MS:
                    state[FAILED_TIME] = time
                    return BAD_TIMESTAMP
                else:
                    rows.times[row] = time * 1000
            status = _decode_record(buffer, position, end, rows, wanted, row, state)
            if status != OK:
                return status
            if wanted & OFFSETS:
                rows.offsets[row] = offset
            if wanted & TIME_TYPES:
                rows.time_types[row] = 1 if appended else 0
            state[ROWS] = row + 1
        position = end
    return OK if position == header[END] else BAD_COUNT


@compiled
def decode_batches(
    buffer: Bytes,
    table: Int64s,
    start_offset: int,
    end_offset: int,
    rows: Rows,
    wanted: int,
    state: Int64s,
) -> None:
    """Decode the records with ``start_offset <= offset < end_offset`` of the batches in ``table``.

    ``wanted`` selects the columns to write. ``rows`` must have room for them; its bits and the first element of its
    offsets must be zero. Null is the length -1, as in Kafka. ``state``, zero on entry,
    receives the slots named above.
    """
    for batch in range(table.shape[0]):
        state[FAILED_OFFSET] = table[batch, BASE_OFFSET]
        status = _decode_batch(buffer, table[batch], start_offset, end_offset, rows, wanted, state)
        if status != OK:
            state[STATUS] = status
            return
