"""Compiled: writes the cells of columns as Protobuf values, by operations that `encoder` makes from a schema.

Values are written from their last byte to their first. The contents of a message or a packed list are then written
before its length, which is known without measuring it first or moving it afterwards. So the operations of a message are
those of its fields in descending order of their numbers, and lists are written from their last element.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, compiled, copy_bytes
from sparkonce.connectors.values.columns import SPAN_BITS, SPAN_MASK, Cells
from sparkonce.connectors.values.protobuf.machine import FINE, PROBLEM_BITS, at_field, is_listed
from sparkonce.connectors.values.wire_types import (
    float_bits_as_double,
    is_utf8,
    octet,
    put_word,
    symbol_of,
    whole_as_double,
)

OP, COLUMN, TAG, NULLS, KIND, CHECK, FIRST, SECOND, AFTER = range(9)
"""The numbers of an operation. A `COLUMN` below 0 is always valid. `TAG` is written before the value; 0 is none. What
`FIRST` and `SECOND` are depends on `OP` and `KIND`, and `AFTER` is the operation that follows where there is nothing
to write."""
WIDTH = 9
VALUE, OPEN, CLOSE, LIST, NEXT, ONEOF, END = range(7)
"""`VALUE` is a field that is no message, or an element of it. `OPEN` is the end of a message, `CLOSE` its beginning; of
a group (`KIND` 1), `OPEN` writes the closing tag. `LIST` begins with the last element on level `FIRST`, and `NEXT` goes
to the one before, from operation `SECOND` on; one that is packed (`KIND` 1) needs a `CLOSE`, too. `ONEOF` checks that
at most one of `SECOND` columns is valid, those in the table from `FIRST` on."""
LEFT_OUT, REFUSED, HAS_NO_PRESENCE = range(3)
"""The handling of a null: the field is left out; the row is rejected; it is rejected, and 0 or an empty value is left
out, since the field has no presence."""
(
    WHOLE,
    LOW_WORD,
    ZIGZAG,
    SYMBOL,
    LISTED,
    WORD32,
    WORD64,
    DOUBLE_OF_FLOAT,
    DOUBLE_OF_WHOLE,
    TEXT,
    RAW,
    TIMESTAMP,
    DURATION,
) = range(13)
"""The encoding of a cell: up to `LISTED` as varints, then as four or eight bytes, then with a length. `SYMBOL` is
the name of an enum's value, one of `SECOND` from `FIRST` on in `ProtobufEncoding.symbols`; `LISTED` is a number of a
closed enum, one of `SECOND` in the table from `FIRST` on. `TIMESTAMP` and `DURATION` are microseconds,
written as the fields of a message."""
UNCHECKED, NOT_NEGATIVE, FITS_WORD, NO_HIGH_WORD = range(4)
"""The check of a number: that it is not below 0; that it fits into 32 bits; that a DECIMAL of 128 bits fits into 64."""

IS_NULL, NO_PRESENCE, IS_NULL_LIST, NO_SYMBOL, OUT_OF_RANGE, NOT_UTF8, SEVERAL = range(1, 8)
"""The problem of a row; `FINE` if there is none."""
PROBLEM_MASK = (1 << PROBLEM_BITS) - 1
MOST_BYTES_OF_A_CELL = 32
"""Without text: a Duration of two numbers of ten bytes and their tags, as a group with two tags of five bytes."""
_TIMES_FROM, _TIMES_TO = -62_135_596_800, 253_402_300_799
"""The seconds that a Timestamp may have: the years 1 to 9999."""
_MAX_DURATION_S = 315_576_000_000
_LOW = 0xFFFFFFFF
_MAX_DIGITS = 10
"""Of a number of 32 bits."""


class ProtobufEncoding(NamedTuple):
    """How a schema is written."""

    operations: Int64s
    """[n, `WIDTH`]"""
    tables: Int32s
    """Columns of oneofs, and numbers of closed enums in order."""
    symbols: Int64s
    """The spans in `pool` of enums' names; after those of each the prefix of other numbers' names, empty if it is
    closed."""
    numbers: Int32s
    """Of each symbol."""
    pool: Bytes
    frame: Bytes
    """The prefix of each value."""


class Output(NamedTuple):
    """The buffers of the values that are written."""

    data: Bytes
    starts: Int64s
    """The start of each row in ``data``, and the end of the last one."""
    stack: Int64s
    """Of open messages their ends, of lists their first row."""


@compiled
def put_varint(data: Bytes, at: int, number: int) -> int:
    """Write 64 bits as a number that ends at ``at``; return its start."""
    bits = np.uint64(number)
    if bits < np.uint64(0x80):
        data[at - 1] = np.uint8(bits)
        return at - 1
    size, left = 1, bits >> np.uint64(7)
    while left != np.uint64(0):
        size += 1
        left >>= np.uint64(7)
    at -= size
    for index in range(size - 1):
        data[at + index] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        bits >>= np.uint64(7)
    data[at + size - 1] = np.uint8(bits)
    return at


@compiled
def unnamed(pool: Bytes, prefix: int, text: Bytes, span: int) -> tuple[int, bool]:
    """Return the number after a prefix, as the decoder names values without a name, and whether there is one."""
    start, end = span >> SPAN_BITS, (span >> SPAN_BITS) + (span & SPAN_MASK)
    at, place, shared = start, prefix >> SPAN_BITS, prefix & SPAN_MASK
    if shared == 0 or end - at <= shared:
        return 0, False
    for index in range(shared):
        if pool[place + index] != text[at + index]:
            return 0, False
    at += shared
    negative = text[at] == 0x2D
    if negative:
        at += 1
    if not 0 < end - at <= _MAX_DIGITS:
        return 0, False
    number = 0
    while at < end:
        digit = octet(text, at) - 0x30
        if not 0 <= digit <= 9:
            return 0, False
        number = number * 10 + digit
        at += 1
    number = -number if negative else number
    return number, -0x80000000 <= number <= 0x7FFFFFFF


@compiled
def varint_of(plan: ProtobufEncoding, kind: int, first: int, count: int, text: Bytes, cell: int) -> tuple[int, int]:
    """Return the bits of a varint, and the problem of the cell."""
    if kind == LOW_WORD:
        return cell & _LOW, FINE
    if kind == ZIGZAG:
        return (cell << 1) ^ (cell >> 63), FINE
    if kind == LISTED:
        return cell, (FINE if is_listed(plan.tables, first, count, cell) else NO_SYMBOL)
    if kind == SYMBOL:
        symbol = symbol_of(plan.symbols, plan.pool, first, count, text, cell)
        if symbol >= 0:
            return int(plan.numbers[first + symbol]), FINE
        number, found = unnamed(plan.pool, plan.symbols[first + count], text, cell)
        return number, (FINE if found else NO_SYMBOL)
    return cell, FINE


@compiled
def fits(check: int, cell: int, high: int) -> bool:
    """Return whether a number is one that its field can hold; ``high`` is a DECIMAL's high word."""
    if check == NOT_NEGATIVE:
        return cell >= 0
    if check == FITS_WORD:
        return 0 <= cell <= _LOW
    return check == UNCHECKED or high == 0


@compiled
def put_seconds(kind: int, data: Bytes, at: int, micros: int) -> int:
    """Write the fields of a Timestamp or Duration; return their start, or -1 if they are out of range."""
    seconds = micros // 1_000_000
    rest = micros - seconds * 1_000_000
    if kind == DURATION and seconds < 0 and rest > 0:  # both have the same sign
        seconds, rest = seconds + 1, rest - 1_000_000
    if kind == TIMESTAMP and not _TIMES_FROM <= seconds <= _TIMES_TO:
        return -1
    if kind == DURATION and not -_MAX_DURATION_S <= seconds <= _MAX_DURATION_S:
        return -1
    if rest != 0:
        at = put_varint(data, put_varint(data, at, rest * 1000), 0x10)
    if seconds != 0:
        at = put_varint(data, put_varint(data, at, seconds), 0x08)
    return at


@compiled
def put_sized(kind: int, data: Bytes, at: int, text: Bytes, cell: int) -> int:
    """Write text or bytes and their length; return the start, or -1 if text is not UTF-8."""
    start, length = cell >> SPAN_BITS, cell & SPAN_MASK
    if kind == TEXT and not is_utf8(text, start, start + length):
        return -1
    at -= length
    copy_bytes(data, at, text, start, length)
    return put_varint(data, at, length)


@compiled
def put_number(kind: int, data: Bytes, at: int, cell: int) -> int:
    """Write a number of four or eight bytes; return its start."""
    width = 4 if kind == WORD32 else 8
    if kind == DOUBLE_OF_FLOAT:
        cell = float_bits_as_double(cell)
    elif kind == DOUBLE_OF_WHOLE:
        cell = whole_as_double(cell)
    put_word(data, at - width, cell, width)
    return at - width


@compiled
def put_value(
    plan: ProtobufEncoding, op: int, cell: int, high: int, text: Bytes, data: Bytes, at: int
) -> tuple[int, int]:
    """Write a value that is not null, with its tag; return its start, and its problem."""
    here = plan.operations[op]
    kind, left_out = here[KIND], here[NULLS] == HAS_NO_PRESENCE
    if not fits(here[CHECK], cell, high):
        return at, OUT_OF_RANGE
    if kind <= LISTED:
        bits, problem = varint_of(plan, kind, here[FIRST], here[SECOND], text, cell)
        if problem != FINE or (left_out and bits == 0):
            return at, problem
        at = put_varint(data, at, bits)
    elif kind <= DOUBLE_OF_WHOLE:
        if left_out and cell == 0:
            return at, FINE
        at = put_number(kind, data, at, cell)
    elif kind <= RAW:
        if left_out and cell & SPAN_MASK == 0:
            return at, FINE
        at = put_sized(kind, data, at, text, cell)
        if at < 0:
            return at, NOT_UTF8
    else:
        at = put_seconds(kind, data, at, cell)
        if at < 0:
            return at, OUT_OF_RANGE
    return (at if here[TAG] == 0 else put_varint(data, at, here[TAG])), FINE


@compiled
def how_many(plan: ProtobufEncoding, first: int, count: int, cells: Cells) -> int:
    """Return how many columns of a oneof have a value."""
    found = 0
    for index in range(first, first + count):
        column = plan.tables[index]
        if cells.valid[cells.base[column] + cells.row[cells.level_of[column]]]:
            found += 1
    return found


@compiled
def write(plan: ProtobufEncoding, cells: Cells, text: Bytes, row: int, output: Output, at: int) -> tuple[int, int]:
    """Write the value of one row so that it ends at ``at``; return its start, and its problem."""
    data, stack, pc, top = output.data, output.stack, 0, 0
    cells.row[0] = row
    while True:
        here = plan.operations[pc]
        op, column, first = here[OP], here[COLUMN], here[FIRST]
        cell, high, valid, following, problem = 0, 0, True, pc + 1, FINE
        if column >= 0:
            row_here = cells.row[cells.level_of[column]]
            cell, valid = cells.values[cells.base[column] + row_here], cells.valid[cells.base[column] + row_here] != 0
            if here[CHECK] == NO_HIGH_WORD:
                high = cells.values[cells.base[column + 1] + row_here]
        if not valid:
            if here[NULLS] != LEFT_OUT:
                null = NO_PRESENCE if here[NULLS] == HAS_NO_PRESENCE else IS_NULL
                problem = IS_NULL_LIST if op == LIST else null
            following = here[AFTER]
        elif op == VALUE:
            at, problem = put_value(plan, pc, cell, high, text, data, at)
        elif op == OPEN:
            if here[TAG] != 0:
                at = put_varint(data, at, here[TAG])
            stack[top] = at
            top += 1
        elif op == CLOSE:
            top -= 1
            if here[KIND] == 0:
                at = put_varint(data, at, stack[top] - at)
            if here[TAG] != 0:
                at = put_varint(data, at, here[TAG])
        elif op == LIST:
            if cell & SPAN_MASK == 0:
                following = here[AFTER]
            else:
                if here[KIND] != 0:
                    stack[top] = at
                    top += 1
                stack[top] = cell >> SPAN_BITS
                cells.row[first] = (cell >> SPAN_BITS) + (cell & SPAN_MASK) - 1
                top += 1
        elif op == NEXT:
            if cells.row[first] > stack[top - 1]:
                cells.row[first] -= 1
                following = here[SECOND]
            else:
                top -= 1
        elif op == ONEOF:
            if how_many(plan, first, here[SECOND], cells) > 1:
                problem = SEVERAL
        elif op == END:
            return at, FINE
        if problem != FINE:
            return at, at_field(problem, pc)
        pc = following


@compiled
def run(plan: ProtobufEncoding, cells: Cells, text: Bytes, wanted: Bytes, output: Output) -> tuple[int, int]:
    """Write the values of the wanted rows; return the last one that cannot be written, and its problem; or -1."""
    at = output.data.shape[0]
    rows, framed = wanted.shape[0], plan.frame.shape[0]
    output.starts[rows] = at
    for row in range(rows - 1, -1, -1):
        if wanted[row]:
            at, problem = write(plan, cells, text, row, output, at)
            if problem != FINE:
                return row, problem
            at -= framed
            copy_bytes(output.data, at, plan.frame, 0, framed)
        output.starts[row] = at
    return -1, FINE
