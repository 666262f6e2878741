"""Compiled: writes the cells of columns as Avro values, by operations like those of `machine`.

An operation writes one value of the schema from one column. `PICK` writes the branch of a union that has the value,
`NULL_OR` only that of null, and `MEMBERS` finds which of a struct's fields has the value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, compiled, copy_bytes
from sparkonce.connectors.values.avro.machine import AFTER, COLUMN, FINE, FIRST, OP, PROBLEM_BITS, SECOND, at_operation
from sparkonce.connectors.values.columns import SPAN_BITS, SPAN_MASK, Cells
from sparkonce.connectors.values.wire_types import float_bits_as_double, put_word, symbol_of, whole_as_double

(
    WHOLE,
    MILLIS,
    NANOS,
    FLOAT,
    DOUBLE,
    DOUBLE_OF_FLOAT,
    DOUBLE_OF_WHOLE,
    BOOLEAN,
    TEXT,
    FIXED,
    DECIMAL,
    FIXED_DECIMAL,
    ENUM,
    RECORD,
    LIST,
    NEXT,
    PICK,
    NULL_OR,
    MEMBERS,
    JUMP,
    END,
) = range(21)

IS_NULL, NO_SYMBOL, WRONG_LENGTH, OUT_OF_RANGE, NO_MEMBER, TWO_MEMBERS = range(1, 7)
"""The problem of a row; `FINE` if there is none."""
MOST_BYTES_OF_A_CELL = 24
"""Without text: a number in a union, or a decimal of 16 bytes with its length."""
_MAX_NANOS = (2**63 - 1) // 1000


class AvroEncoding(NamedTuple):
    """How a schema is written."""

    operations: Int32s
    """[n, `machine.WIDTH`]"""
    tables: Int32s
    """Of unions, pairs of a member's column and the operation that writes it."""
    symbols: Int64s
    """Of enums, the spans of symbols in `pool`."""
    pool: Bytes
    frame: Bytes
    """The prefix of each value."""


class Output(NamedTuple):
    """The buffers of the values that are written."""

    data: Bytes
    offsets: Int32s
    stack: Int64s
    """The number of items left in open lists."""


@compiled
def put_varint(data: Bytes, at: int, number: int) -> int:
    """Write a number; return where it ends."""
    bits = np.uint64((number << 1) ^ (number >> 63))
    while bits > np.uint64(0x7F):
        data[at] = np.uint8(bits & np.uint64(0x7F)) | np.uint8(0x80)
        bits >>= np.uint64(7)
        at += 1
    data[at] = np.uint8(bits)
    return at + 1


@compiled
def byte_of(high: int, low: int, index: int) -> int:
    """Return a byte of a number of two words, 0 being the lowest; bytes above are the sign's."""
    if index >= 16:
        return 0xFF if high < 0 else 0
    return ((high if index >= 8 else low) >> (8 * (index & 7))) & 0xFF


@compiled
def width_of(high: int, low: int) -> int:
    """Return how many bytes a number in two's complement needs."""
    width = 16
    sign = 0xFF if high < 0 else 0
    while (
        width > 1 and byte_of(high, low, width - 1) == sign and (byte_of(high, low, width - 2) & 0x80) == (sign & 0x80)
    ):
        width -= 1
    return width


@compiled
def put_decimal(data: Bytes, at: int, high: int, low: int, size: int) -> int:
    """Write a number big-endian into ``size`` bytes, or if that is below 0 with its length; -1 if it does not fit."""
    width = width_of(high, low)
    if size < 0:
        at = put_varint(data, at, width)
    elif width > size:
        return -1
    else:
        width = size
    for index in range(width):
        data[at + index] = byte_of(high, low, width - 1 - index)
    return at + width


@compiled
def put_number(op: int, cell: int, small: bool, data: Bytes, at: int) -> int:
    """Write a number of a fixed kind; return where it ends, or -1 if it does not fit."""
    if op == WHOLE:
        return -1 if small and not -0x80000000 <= cell <= 0x7FFFFFFF else put_varint(data, at, cell)
    if op == MILLIS:
        return put_varint(data, at, cell // 1000)
    if op == NANOS:
        return put_varint(data, at, cell * 1000) if -_MAX_NANOS <= cell <= _MAX_NANOS else -1
    if op == FLOAT:
        return put_word(data, at, cell, 4)
    if op == DOUBLE_OF_FLOAT:
        return put_word(data, at, float_bits_as_double(cell), 8)
    if op == DOUBLE_OF_WHOLE:
        return put_word(data, at, whole_as_double(cell), 8)
    return put_word(data, at, cell, 8)


@compiled
def member_of(plan: AvroEncoding, first: int, count: int, cells: Cells) -> int:
    """Return the operation of the member of a union that is not null; -1 if all are, -2 if several are not."""
    found = -1
    for number in range(count):
        column = plan.tables[first + 2 * number]
        if cells.valid[cells.base[column] + cells.row[cells.level_of[column]]]:
            if found >= 0:
                return -2
            found = plan.tables[first + 2 * number + 1]
    return found


@compiled
def write(plan: AvroEncoding, cells: Cells, text: Bytes, row: int, output: Output, start: int) -> tuple[int, int]:
    """Write the value of one row; return its end, and its problem."""
    data, at, pc, lists = output.data, start, 0, 0
    cells.row[0] = row
    while True:
        here = plan.operations[pc]
        op, column, first, second = here[OP], here[COLUMN], here[FIRST], here[SECOND]
        cell, following, valid = 0, pc + 1, True
        if column >= 0:
            place = cells.base[column] + cells.row[cells.level_of[column]]
            cell, valid = cells.values[place], cells.valid[place] != 0
        if op in (PICK, NULL_OR):
            if not valid and first < 0:
                return at, at_operation(IS_NULL, pc)
            if op == PICK or not valid:
                at = put_varint(data, at, second if valid else first)
            pc = following if valid else here[AFTER]
            continue
        if not valid:
            return at, at_operation(IS_NULL, pc)
        if op <= DOUBLE_OF_WHOLE:
            at = put_number(op, cell, first == 1, data, at)
            if at < 0:
                return start, at_operation(OUT_OF_RANGE, pc)
        elif op == BOOLEAN:
            data[at] = cell
            at += 1
        elif op in (TEXT, FIXED):
            length = cell & SPAN_MASK
            if op == FIXED and length != second:
                return start, at_operation(WRONG_LENGTH, pc)
            if op == TEXT:
                at = put_varint(data, at, length)
            copy_bytes(data, at, text, cell >> SPAN_BITS, length)
            at += length
        elif op in (DECIMAL, FIXED_DECIMAL):
            high = cells.values[cells.base[column + 1] + cells.row[cells.level_of[column]]]
            at = put_decimal(data, at, high, cell, second if op == FIXED_DECIMAL else -1)
            if at < 0:
                return start, at_operation(OUT_OF_RANGE, pc)
        elif op == ENUM:
            symbol = symbol_of(plan.symbols, plan.pool, first, second, text, cell)
            if symbol < 0:
                return start, at_operation(NO_SYMBOL, pc)
            at = put_varint(data, at, symbol)
        elif op == LIST:
            items = cell & SPAN_MASK
            if items > 0:
                at = put_varint(data, at, items)
            output.stack[lists] = items
            lists += 1
            cells.row[first] = (cell >> SPAN_BITS) - 1
            following = second
        elif op == NEXT:
            if output.stack[lists - 1] == 0:
                data[at] = 0
                at += 1
                lists -= 1
            else:
                output.stack[lists - 1] -= 1
                cells.row[first] += 1
                following = second
        elif op == MEMBERS:
            following = member_of(plan, first, second, cells)
            if following < 0:
                return start, at_operation(NO_MEMBER if following == -1 else TWO_MEMBERS, pc)
        elif op == JUMP:
            following = here[AFTER]
        elif op == END:
            return at, FINE
        pc = following


@compiled
def run(plan: AvroEncoding, cells: Cells, text: Bytes, wanted: Bytes, output: Output) -> tuple[int, int]:
    """Write the values of the wanted rows; return the first one that cannot be written, and its problem; or -1."""
    at = 0
    for row in range(wanted.shape[0]):
        output.offsets[row] = at
        if wanted[row]:
            copy_bytes(output.data, at, plan.frame, 0, plan.frame.shape[0])
            at, problem = write(plan, cells, text, row, output, at + plan.frame.shape[0])
            if problem != FINE:
                return row, problem
    output.offsets[wanted.shape[0]] = at
    return -1, FINE


PROBLEM_MASK = (1 << PROBLEM_BITS) - 1
