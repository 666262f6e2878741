"""Compiled: runs the programs of `program` over the bytes of many values.

An operation reads one value of the writer's schema and puts it where the reader's schema wants it. It is a row of
numbers, so a batch may mix writers' schemas: each value says at which operation it begins.

Source of the encoding: the specification of Avro 1.12, "Binary Encoding".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, compiled
from sparkonce.connectors.values.columns import SPAN_BITS, SPAN_MASK, Cells, forget
from sparkonce.connectors.values.wire_types import is_utf8, octet, word

OP, NULL_AT, COLUMN, FIRST, SECOND, AFTER = range(6)
"""The numbers of an operation. With `NULL_AT` 0 or 1, a branch of a union precedes the value, and shows whether it
is null; then the operation at `AFTER` is next. A `COLUMN` below 0 is not read."""
WIDTH = 6

(
    BOOLEAN,
    INT,
    LONG,
    MILLIS,
    NANOS,
    FLOAT_OF_WHOLE,
    DOUBLE_OF_WHOLE,
    FLOAT,
    DOUBLE,
    DOUBLE_OF_FLOAT,
    BYTES,
    STRING,
    FIXED,
    DECIMAL,
    FIXED_DECIMAL,
    ENUM,
    CONSTANT,
    STRUCT,
    LIST,
    NEXT,
    NEW_LIST,
    NEW_ITEM,
    UNION,
    JUMP,
    FAIL,
    END,
    CALL,
    RETURN,
) = range(28)

(
    FINE,
    ENDS_EARLY,
    NOT_A_NUMBER,
    NO_SUCH_BRANCH,
    NO_SUCH_SYMBOL,
    NOT_UTF8,
    TOO_MANY_DIGITS,
    NOT_A_BOOLEAN,
    BYTES_LEFT,
    OUT_OF_RANGE,
    WRONG_LENGTH,
    TOO_MANY_ITEMS,
    NOT_READABLE,
    NO_DIGITS,
    TOO_DEEP,
) = range(15)
"""The problem of a value; the other bits are the number of the operation."""
PROBLEM_BITS = 4
MOST_LISTS = 200
"""The nesting of lists in a schema, `schema.MAX_DEPTH`; recursive records have more."""
MOST_OPEN = 10_000
"""The nesting of records, arrays and maps that are skipped."""
MAX_MILLIS = (2**63 - 1) // 1000
_MAX_VARINT_BITS = 63


class Code(NamedTuple):
    """The programs of all schemas."""

    operations: Int32s
    """[n, `WIDTH`]"""
    tables: Int32s
    """Of unions, the operation for each branch; of enums, the number of the constant for each symbol, or -1."""
    constants: Int64s
    """Cells of default values."""
    limits: Int64s
    """By precision of a decimal, the high and the low word of the first number that has more digits: [39, 2]."""


class Values(NamedTuple):
    """The bytes to read."""

    data: Bytes
    starts: Int64s
    ends: Int64s
    entries: Int32s
    """By value, its first operation; below 0 if it is not read."""
    problems: Int32s
    """By value, its problem; to be filled."""
    stack: Int64s
    """The number of items left in open lists, and the return positions of called operations."""


@compiled
def varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number, and its end: -1 if the data ends first, -2 if it has too many bits."""
    shift, bits = 0, 0
    while at < end:
        byte = octet(data, at)
        at += 1
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == _MAX_VARINT_BITS and byte > 1:
                return 0, -2
            return ((bits >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(bits & 1), at
        shift += 7
        if shift > _MAX_VARINT_BITS:
            return 0, -2
    return 0, -1


@compiled
def two_words(data: Bytes, start: int, length: int) -> tuple[int, int, bool]:
    """Return a big-endian number in two's complement as its high and low word, and whether it fits into two words."""
    sign = -1 if length > 0 and data[start] >= 0x80 else 0
    high, low = sign, sign
    for index in range(length):
        byte = octet(data, start + index)
        if index < length - 16 and byte != (sign & 0xFF):
            return 0, 0, False
        high = (high << 8) | ((low >> 56) & 0xFF)
        low = (low << 8) | byte
    return high, low, length <= 16 or (high < 0) == (sign < 0)


@compiled
def fits(high: int, low: int, limit_high: int, limit_low: int) -> bool:
    """Return whether a number's magnitude is below a limit; both are in two words."""
    if high < 0:
        low = -low
        high = ~high + (1 if low == 0 else 0)
        if high < 0:
            return False
    if high != limit_high:
        return high < limit_high
    return bool(np.uint64(low) < np.uint64(limit_low))


@compiled
def run(code: Code, values: Values, cells: Cells, before: Int64s) -> None:
    """Decode all values into cells; ``before`` is scratch, by level."""
    for row in range(values.starts.shape[0]):
        if values.entries[row] < 0:
            continue
        cells.row[0] = row
        for level in range(before.shape[0]):
            before[level] = cells.used[level]
        problem = decode(code, values, cells, row)
        if problem != FINE:
            values.problems[row] = problem
            forget(cells, before, row)


@compiled
def late(at: int) -> int:
    """Return the problem for a result of -1 or -2 of `varint`."""
    return ENDS_EARLY if at == -1 else NOT_A_NUMBER


# The following functions read one value, and return its cell, its end, and its problem.


@compiled
def read_whole(op: int, small: bool, data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read a number of the type int (``small``) or long."""
    number, at = varint(data, at, end)
    if at < 0:
        return 0, at, late(at)
    if small and not -0x80000000 <= number <= 0x7FFFFFFF:
        return 0, at, OUT_OF_RANGE
    if op in (INT, LONG):
        return number, at, FINE
    if op == MILLIS:
        return number * 1000, at, (FINE if -MAX_MILLIS <= number <= MAX_MILLIS else OUT_OF_RANGE)
    if op == NANOS:
        return number // 1000, at, FINE
    if op == FLOAT_OF_WHOLE:
        return bits_of_float(number), at, FINE
    return bits_of_double(number), at, FINE


@compiled
def bits_of_float(number: int) -> Any:
    """Return the 32 bits of a number as a float."""
    return np.int64(np.float32(number).view(np.int32))


@compiled
def bits_of_double(number: int) -> Any:
    """Return the 64 bits of a number as a double."""
    return np.float64(number).view(np.int64)


@compiled
def float_as_double(bits: int) -> Any:
    """Return the 64 bits of a float, which is given by its 32."""
    return np.float64(np.int32(bits).view(np.float32)).view(np.int64)


@compiled
def read_float(op: int, data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read a float or double."""
    width = 8 if op == DOUBLE else 4
    if end - at < width:
        return 0, at, ENDS_EARLY
    bits = word(data, at, 8) if op == DOUBLE else word(data, at, 4)
    return (float_as_double(bits) if op == DOUBLE_OF_FLOAT else bits), at + width, FINE


@compiled
def read_boolean(data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read a boolean."""
    if at >= end:
        return 0, at, ENDS_EARLY
    return octet(data, at), at + 1, (FINE if data[at] <= 1 else NOT_A_BOOLEAN)


@compiled
def read_bytes(checked: bool, data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read bytes or a string as a span; ``checked`` that they are UTF-8."""
    length, at = varint(data, at, end)
    if at < 0:
        return 0, at, late(at)
    if length < 0 or length > end - at:
        return 0, at, (WRONG_LENGTH if length < 0 else ENDS_EARLY)
    problem = NOT_UTF8 if checked and not is_utf8(data, at, at + length) else FINE
    return (at << SPAN_BITS) | length, at + length, problem


@compiled
def read_items(left: int, least: int, data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return how many items of a list are left, read from the next block if the last one is used up; 0 at its end.

    An item takes ``least`` bytes at least.
    """
    if left > 0:
        return left, at, FINE
    left, at = varint(data, at, end)
    if at >= 0 and left < 0:
        left = -left
        _, at = varint(data, at, end)  # the block's size in bytes
    if at < 0:
        return 0, at, late(at)
    return left, at, (TOO_MANY_ITEMS if left < 0 or left > (end - at) // least else FINE)


@compiled
def read_symbol(code: Code, first: int, count: int, read: bool, data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read one of ``count`` symbols of an enum as a span; ``first`` is where the table has them."""
    symbol, at = varint(data, at, end)
    if at < 0 or not 0 <= symbol < count:
        return 0, at, (late(at) if at < 0 else NO_SUCH_SYMBOL)
    if not read:
        return 0, at, FINE
    constant = code.tables[first + symbol]
    return (code.constants[constant], at, FINE) if constant >= 0 else (0, at, NOT_READABLE)


@compiled
def new_row(cells: Cells, level: int) -> None:
    """Begin the next row of a level; level 0 stands for a list that is not read."""
    if level > 0:
        cells.row[level] = cells.used[level]
        cells.used[level] += 1


@compiled
def put_decimal(code: Code, digits: int, column: int, span: int, data: Bytes, cells: Cells) -> tuple[int, int]:
    """Write the high word of the decimal at a span; return its low word, and its problem."""
    if span & SPAN_MASK == 0:
        return 0, NO_DIGITS
    high, low, held = two_words(data, span >> SPAN_BITS, span & SPAN_MASK)
    if not held or not fits(high, low, code.limits[digits, 0], code.limits[digits, 1]):
        return 0, TOO_MANY_DIGITS
    cells.values[cells.base[column + 1] + cells.row[cells.level_of[column]]] = high
    return low, FINE


@compiled
def at_operation(problem: int, pc: int) -> int:
    """Return a problem with the operation that found it."""
    return problem | (pc << PROBLEM_BITS)


@compiled
def decode(code: Code, values: Values, cells: Cells, row: int) -> int:
    """Decode one value; return its problem, `FINE` if it has none."""
    data, at, end = values.data, values.starts[row], values.ends[row]
    pc, lists = values.entries[row], 0
    while True:
        here = code.operations[pc]
        op, column, first, second = here[OP], here[COLUMN], here[FIRST], here[SECOND]
        cell, problem, following, read = 0, FINE, pc + 1, column >= 0
        if here[NULL_AT] >= 0:
            branch, at = varint(data, at, end)
            if at >= 0 and branch == here[NULL_AT]:
                pc = here[AFTER]
                continue
            if at < 0 or branch != 1 - here[NULL_AT]:
                return at_operation(NO_SUCH_BRANCH, pc)
        if BOOLEAN < op <= DOUBLE_OF_WHOLE:
            cell, at, problem = read_whole(op, first == 1, data, at, end)
        elif op in (STRING, BYTES, DECIMAL):
            cell, at, problem = read_bytes(op == STRING and read, data, at, end)
        elif op in (FLOAT, DOUBLE, DOUBLE_OF_FLOAT):
            cell, at, problem = read_float(op, data, at, end)
        elif op == BOOLEAN:
            cell, at, problem = read_boolean(data, at, end)
        elif op in (FIXED, FIXED_DECIMAL):
            cell, at, problem = (at << SPAN_BITS) | second, at + second, (FINE if second <= end - at else ENDS_EARLY)
        elif op == CONSTANT:
            cell = code.constants[first]
        elif op == ENUM:
            cell, at, problem = read_symbol(code, first, second, read, data, at, end)
        elif op in (LIST, NEW_LIST):
            cell = cells.used[first]
            if op == LIST:
                values.stack[lists] = 0
                lists, following = lists + 1, second
        elif op == NEXT:
            left, at, problem = read_items(values.stack[lists - 1], here[AFTER], data, at, end)
            if left == 0:
                lists -= 1
            elif problem == FINE:
                values.stack[lists - 1] = left - 1
                new_row(cells, first)
                following = second
        elif op == NEW_ITEM:
            new_row(cells, first)
        elif op == UNION:
            branch, at = varint(data, at, end)
            if at < 0 or not 0 <= branch < second:
                problem = late(at) if at < 0 else NO_SUCH_BRANCH
            else:
                following = code.tables[first + branch]
        elif op == JUMP:
            following = here[AFTER]
        elif op == END:
            return FINE if at == end else at_operation(BYTES_LEFT, pc)
        elif op == FAIL:
            problem = NOT_READABLE
        elif op == CALL:
            if lists + MOST_LISTS >= values.stack.shape[0]:
                problem = TOO_DEEP
            else:
                values.stack[lists] = following
                lists, following = lists + 1, first
        elif op == RETURN:
            lists -= 1
            following = values.stack[lists]
        if op in (DECIMAL, FIXED_DECIMAL) and read and problem == FINE:
            cell, problem = put_decimal(code, first, column, cell, data, cells)
        if problem != FINE:
            return at_operation(problem, pc)
        if read:
            place = cells.base[column] + cells.row[cells.level_of[column]]
            cells.values[place] = cell
            cells.valid[place] = 1
        pc = following
