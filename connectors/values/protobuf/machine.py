"""Compiled: runs the tables of `program` over the bytes of many values.

Each message of a schema is a node: a table from the numbers of its fields to their handling. A field is a row
of numbers, so a batch may mix writers' schemas: each value has the number of its first node. Messages within messages
are kept on a stack. Absent fields stay null; `finishing` fills in defaults afterwards, column by column.

The elements of a list must be contiguous. They are: each list has its own level, and Protobuf adds to
that of one message at a time, since a message in a list is never opened again, and one that is split in parts is
merged into the same row. Only a oneof reverts earlier writes (`take_back`), and that is always last in its levels.

Source of the encoding: protobuf.dev, "Encoding". Where it is silent (numbers that are too long, groups that are too
deep), as Google's own parser in C.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparkonce.connectors.runtime.compiled import Bytes, Int32s, Int64s, compiled
from sparkonce.connectors.values.columns import SPAN_BITS, Cells, forget
from sparkonce.connectors.values.wire_types import is_utf8, octet, word

SELF, DENSE, TABLE, SPARSE, CLOSE, FIRST, SECOND, INTO, REQUIRED, REQUIRED_COUNT = range(10)
"""The numbers of a node. `SELF` is the field that stands for it in problems. Its table has fields by their numbers
below `DENSE`, and then `SPARSE` pairs of number and field, in order. `CLOSE` is the action at the end of the message;
`REQUIRED` are triples of struct (or -1), column and field, of which the column must be valid where the struct is."""
NODE_WIDTH = 10
WIRE, OP, COLUMN, LIST, PACKABLE, CHILD, COUNT, CHECKED, ONEOF, CLEAR, CLEAR_COUNT = range(11)
"""The numbers of a field. A `COLUMN` below 0 is not read, a `LIST` below 0 is not repeated. `CHILD` is the node of a
message, whose cell is wide if `COUNT` is 1; or the position of a closed enum's `COUNT` numbers.
`ONEOF` is a column that holds which field of a oneof is set, or below 0; `CLEAR` is the position of the `CLEAR_COUNT`
columns that another field of the oneof clears."""
FIELD_WIDTH = 11

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types."""

(
    UNREAD,
    INT32,
    UINT32,
    INT64,
    BOOLEAN,
    SINT32,
    SINT64,
    CLOSED_ENUM,
    WIDE,
    WORD32,
    UNSIGNED32,
    WORD64,
    WIDE_WORD64,
    BYTES,
    STRING,
    MESSAGE,
    REFUSED,
) = range(17)
"""The handling of a field. `WIDE` numbers have a column for the high word, which is 0."""

AS_IT_IS, MICROS, ENTRY_OF_ENUM = range(3)
"""What is done where a message ends: nothing; its seconds (`FIRST`) and nanoseconds (`SECOND`) become microseconds
(`INTO`); or the entry of a map, of key `FIRST` and value `SECOND`, is taken back if `INTO` says that its value is a
number that its closed enum does not have."""

(
    FINE,
    ENDS_EARLY,
    NOT_A_NUMBER,
    NOT_A_TAG,
    NO_SUCH_WIRE_TYPE,
    WRONG_LENGTH,
    NOT_UTF8,
    OUT_OF_RANGE,
    NO_SUCH_GROUP,
    OPEN_GROUP,
    TOO_DEEP,
    MISSING,
    CROSSES_END,
    NOT_READABLE,
    SKIPPED,
) = range(15)
"""The problem of a value; the other bits are the number of the field. `SKIPPED` is no problem: an
element that turns out to be absent."""
PROBLEM_BITS = 4
DEEPEST = 100
"""The maximal nesting of messages and groups in a value, as in Google's parsers."""
STACK_WIDTH = 3
_MAX_LENGTH = 0x7FFFFFFF
_MAX_TAG = 0xFFFFFFFF
_MAX_SECONDS = (2**63 - 1) // 1_000_000 - 3
_LOW = 0xFFFFFFFF


class Code(NamedTuple):
    """The tables of all schemas."""

    nodes: Int32s
    """[n, `NODE_WIDTH`]"""
    fields: Int32s
    """[n, `FIELD_WIDTH`]; the first is for unknown fields."""
    tables: Int32s
    """The lists to which nodes and fields point."""
    below: Int32s
    """By column, the level of a list's elements; 0 for others."""


class Values(NamedTuple):
    """The bytes to read."""

    data: Bytes
    starts: Int64s
    ends: Int64s
    entries: Int32s
    """By value, its first node; below 0 if it is not read."""
    problems: Int32s
    """By value, its problem; to be filled."""
    stack: Int64s
    """Of the enclosing messages: end, node and the number of the group, 0 if it is none."""
    firsts: Int64s
    """By level, scratch of `take_back`."""


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
        else:
            cells.valid[cells.base[0] + row] = 1


# The following functions read one item, and return it and its end; or a position below 0, which is the problem.


@compiled
def varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read a number of at most ten bytes; bits beyond 64 are lost."""
    if at < end and data[at] < 0x80:
        return octet(data, at), at + 1
    shift, bits = 0, 0
    while at < end:
        byte = octet(data, at)
        at += 1
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            return bits, at
        shift += 7
        if shift >= 70:
            return 0, -NOT_A_NUMBER
    return 0, -ENDS_EARLY


@compiled
def short_varint(data: Bytes, at: int, end: int, most: int, problem: int) -> tuple[int, int]:
    """Read a number of at most five bytes and not above ``most``."""
    bits, after = varint(data, at, end)
    if after >= 0 and (bits > most or bits < 0 or after - at > 5):
        return 0, -problem
    return bits, after


@compiled
def length_of(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Read a length, and check that so many bytes follow."""
    length, at = short_varint(data, at, end, _MAX_LENGTH, WRONG_LENGTH)
    if at >= 0 and length > end - at:
        return 0, -ENDS_EARLY
    return length, at


@compiled
def skip(data: Bytes, wire: int, number: int, at: int, end: int, depth: int, stack: Int64s) -> int:
    """Return the end of a field that is not read; its tag has been read. ``stack`` is free from ``depth`` on."""
    opened = depth
    while True:
        if wire == VARINT:
            _, at = varint(data, at, end)
        elif wire == LENGTH:
            length, at = length_of(data, at, end)
            at = at + length if at >= 0 else at
        elif wire in (FIXED32, FIXED64):
            width = 4 if wire == FIXED32 else 8
            at = at + width if end - at >= width else -ENDS_EARLY
        elif wire == START_GROUP:
            if opened >= DEEPEST:
                return -TOO_DEEP
            stack[opened * STACK_WIDTH] = number
            opened += 1
        elif wire == END_GROUP:
            if opened == depth or stack[(opened - 1) * STACK_WIDTH] != number:
                return -NO_SUCH_GROUP
            opened -= 1
        else:
            return -NO_SUCH_WIRE_TYPE
        if at < 0 or opened == depth:
            return at
        if at >= end:
            return -OPEN_GROUP
        tag, at = short_varint(data, at, end, _MAX_TAG, NOT_A_TAG)
        if at < 0:
            return at
        number, wire = tag >> 3, tag & 7


@compiled
def find(code: Code, node: int, number: int) -> Any:
    """Return the field of a number; 0 if it is unknown."""
    first, dense = code.nodes[node, TABLE], code.nodes[node, DENSE]
    if number < dense:
        return code.tables[first + number]
    low, high = 0, code.nodes[node, SPARSE]
    while low < high:
        middle = (low + high) >> 1
        found = code.tables[first + dense + 2 * middle]
        if found == number:
            return code.tables[first + dense + 2 * middle + 1]
        if found < number:
            low = middle + 1
        else:
            high = middle
    return 0


@compiled
def is_listed(tables: Int32s, first: int, count: int, number: int) -> bool:
    """Return whether a closed enum has a number; they are in order."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) >> 1
        if tables[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < first + count and tables[low] == number


@compiled
def signed(bits: int) -> int:
    """Return the number of 32 bits in two's complement."""
    return ((bits & _LOW) ^ 0x80000000) - 0x80000000


@compiled
def zigzag(bits: int) -> int:
    """Return the number that a sint has in 64 bits."""
    return ((bits >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(bits & 1)


# The following functions read one value of a field, and return its cell, its end, and its problem.


@compiled
def read_varint(
    op: int, checked: bool, tables: Int32s, first: int, count: int, data: Bytes, at: int, end: int
) -> tuple[int, int, int]:
    """Read a number; ``checked`` that it fits if the writer's type is larger than the reader's."""
    bits, at = varint(data, at, end)
    if at < 0:
        return 0, at, -at
    if op in (INT64, WIDE):
        return bits, at, FINE
    if op == INT32:
        cell = signed(bits)
        return cell, at, (OUT_OF_RANGE if checked and cell != bits else FINE)
    if op == BOOLEAN:
        return (1 if bits != 0 else 0), at, FINE
    if op == UINT32:
        return bits & _LOW, at, (OUT_OF_RANGE if checked and bits != bits & _LOW else FINE)
    if op == SINT64:
        return zigzag(bits), at, FINE
    if op == SINT32:
        return signed(zigzag(bits & _LOW)), at, (OUT_OF_RANGE if checked and bits != bits & _LOW else FINE)
    cell = signed(bits)
    return cell, at, (FINE if is_listed(tables, first, count, cell) else SKIPPED)


@compiled
def read_fixed(op: int, wire: int, data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read four or eight bytes."""
    if wire == FIXED32:
        if end - at < 4:
            return 0, at, ENDS_EARLY
        bits = word(data, at, 4)
        return (bits if op == UNSIGNED32 else signed(bits)), at + 4, FINE
    if end - at < 8:
        return 0, at, ENDS_EARLY
    return word(data, at, 8), at + 8, FINE


@compiled
def read_bytes(op: int, data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read bytes or a string as a span."""
    length, at = length_of(data, at, end)
    if at < 0:
        return 0, at, -at
    problem = NOT_UTF8 if op == STRING and not is_utf8(data, at, at + length) else FINE
    return (at << SPAN_BITS) | length, at + length, problem


@compiled
def add_row(code: Code, cells: Cells, column: int) -> None:
    """Add an element to a list."""
    place = cells.base[column] + cells.row[cells.level_of[column]]
    below = code.below[column]
    if not cells.valid[place]:
        cells.valid[place] = 1
        cells.values[place] = cells.used[below]
    cells.row[below] = cells.used[below]
    cells.used[below] += 1


@compiled
def put(cells: Cells, column: int, cell: int, wide: bool) -> None:
    """Write a cell of the present row."""
    row = cells.row[cells.level_of[column]]
    place = cells.base[column] + row
    cells.values[place] = cell
    cells.valid[place] = 1
    if wide:
        cells.values[cells.base[column + 1] + row] = 0


@compiled
def open_message(cells: Cells, column: int, wide: bool) -> None:
    """Make the current row of a message valid, with a cell of 0 for one that holds its only field."""
    if not cells.valid[cells.base[column] + cells.row[cells.level_of[column]]]:
        put(cells, column, 0, wide)


@compiled
def choose(code: Code, field: int, cells: Cells, firsts: Int64s) -> None:
    """Set a field of a oneof: revert another one that was set."""
    oneof = code.fields[field, ONEOF]
    place = cells.base[oneof] + cells.row[cells.level_of[oneof]]
    if cells.valid[place] and cells.values[place] != field:
        other = cells.values[place]
        take_back(code, code.fields[other, CLEAR], code.fields[other, CLEAR_COUNT], cells, firsts)
    cells.valid[place] = 1
    cells.values[place] = field


@compiled
def take_back(code: Code, first: int, count: int, cells: Cells, firsts: Int64s) -> None:
    """Set some columns to null in the current row, and free the rows below; lists come before their contents."""
    for each in range(first, first + count):
        column = code.tables[each]
        level = cells.level_of[column]
        below = code.below[column]
        # Rows of the level that was cleared first: the current one; of those below: those of its list.
        begin, finish = cells.row[level], cells.row[level] + 1
        if firsts[level] >= 0:
            begin, finish = firsts[level], cells.used[level]
        if below > 0:
            firsts[below] = cells.used[below]
        for row in range(begin, finish):
            place = cells.base[column] + row
            if below > 0 and cells.valid[place]:
                firsts[below] = min(firsts[below], cells.values[place])
            cells.valid[place] = 0
    for each in range(first, first + count):
        below = code.below[code.tables[each]]
        if below > 0:
            cells.used[below] = firsts[below]
            firsts[below] = -1


@compiled
def close_message(code: Code, node: int, cells: Cells) -> int:
    """Perform the action at the end of a message; return its problem."""
    close, first, second = code.nodes[node, CLOSE], code.nodes[node, FIRST], code.nodes[node, SECOND]
    if close == AS_IT_IS:
        return FINE
    level = cells.level_of[first]
    row = cells.row[level]
    if close == ENTRY_OF_ENUM:
        into = code.nodes[node, INTO]
        if cells.valid[cells.base[into] + row]:
            cells.used[level] -= 1
            cells.valid[cells.base[first] + row] = 0
            cells.valid[cells.base[second] + row] = 0
            cells.valid[cells.base[into] + row] = 0
        return FINE
    place = cells.base[first] + row
    seconds = cells.values[place] if cells.valid[place] else 0
    place = cells.base[second] + row
    nanos = cells.values[place] if cells.valid[place] else 0
    if not -_MAX_SECONDS <= seconds <= _MAX_SECONDS:
        return OUT_OF_RANGE
    micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    put(cells, code.nodes[node, INTO], seconds * 1000000 + micros, False)
    return FINE


@compiled
def missing(code: Code, node: int, cells: Cells) -> Any:
    """Return a required field that is missing in the current row; 0 if there is none."""
    for each in range(code.nodes[node, REQUIRED_COUNT]):
        at = code.nodes[node, REQUIRED] + 3 * each
        struct, column = code.tables[at], code.tables[at + 1]
        row = cells.row[cells.level_of[column]]
        if (struct < 0 or cells.valid[cells.base[struct] + row]) and not cells.valid[cells.base[column] + row]:
            return code.tables[at + 2]
    return 0


@compiled
def at_field(problem: int, field: int) -> int:
    """Return a problem with the field that has it."""
    return problem | (field << PROBLEM_BITS)


@compiled
def end_message(code: Code, node: int, cells: Cells) -> int:
    """Return the problem of a message that ends, `FINE` if it has none."""
    problem = close_message(code, node, cells)
    if problem != FINE:
        return at_field(problem, code.nodes[node, SELF])
    if code.nodes[node, REQUIRED_COUNT] > 0:
        field = missing(code, node, cells)
        if field > 0:
            return at_field(MISSING, field)
    return FINE


@compiled
def read_one(code: Code, field: int, wire: int, values: Values, at: int, end: int) -> tuple[int, int, int]:
    """Read one value of a field that is no message."""
    here = code.fields[field]
    if wire == VARINT:
        return read_varint(here[OP], here[CHECKED] == 1, code.tables, here[CHILD], here[COUNT], values.data, at, end)
    if wire == LENGTH:
        return read_bytes(here[OP], values.data, at, end)
    return read_fixed(here[OP], wire, values.data, at, end)


@compiled
def read_packed(code: Code, field: int, values: Values, cells: Cells, at: int, end: int) -> tuple[int, int]:
    """Read the packed elements of a list; return their end, and the problem."""
    here = code.fields[field]
    length, at = length_of(values.data, at, end)
    if at < 0:
        return at, -at
    end = at + length
    wide = here[OP] in (WIDE, WIDE_WORD64)
    while at < end:
        cell, at, problem = read_one(code, field, here[WIRE], values, at, end)
        if problem == SKIPPED:
            continue
        if problem != FINE:
            return at, CROSSES_END if problem == ENDS_EARLY else problem
        if here[COLUMN] >= 0:
            add_row(code, cells, here[LIST])
            put(cells, here[COLUMN], cell, wide)
    return at, FINE


@compiled
def enter(code: Code, field: int, wire: int, values: Values, cells: Cells, at: int, end: int) -> tuple[int, int, int]:
    """Begin a message within another; return its end, the start of its fields, and the problem."""
    here = code.fields[field]
    inner = end
    if wire == LENGTH:
        length, at = length_of(values.data, at, end)
        if at < 0:
            return end, at, -at
        inner = at + length
    if here[ONEOF] >= 0:
        choose(code, field, cells, values.firsts)
    if here[LIST] >= 0:
        add_row(code, cells, here[LIST])
    if here[COLUMN] >= 0:
        open_message(cells, here[COLUMN], here[COUNT] == 1)
    return inner, at, FINE


@compiled
def decode(code: Code, values: Values, cells: Cells, row: int) -> int:
    """Decode one value; return its problem, `FINE` if it has none."""
    data, at, end = values.data, values.starts[row], values.ends[row]
    node: Any = np.int64(values.entries[row])
    depth, group = 0, 0
    while True:
        number, wire, tag = 0, END_GROUP, 0
        if at < end:
            tag, at = short_varint(data, at, end, _MAX_TAG, NOT_A_TAG)
            number, wire = tag >> 3, tag & 7
            if number == 0 or at < 0:
                return at_field(NOT_A_TAG if at >= 0 else -at, code.nodes[node, SELF])
        if wire == END_GROUP:
            if number != group:
                return at_field(OPEN_GROUP if number == 0 else NO_SUCH_GROUP, code.nodes[node, SELF])
            problem = end_message(code, node, cells)
            if problem != FINE or depth == 0:
                return problem
            depth -= 1
            end, node, group = _popped(values.stack, depth)
            continue
        field = find(code, node, number)
        here = code.fields[field]
        op, column, problem = here[OP], here[COLUMN], FINE
        packed = wire == LENGTH and here[PACKABLE] == 1
        if op == REFUSED:
            problem = NOT_READABLE
        elif field == 0 or (wire != here[WIRE] and not packed):
            at = skip(data, wire, number, at, end, depth, values.stack)
            field = code.nodes[node, SELF]
            problem = -at if at < 0 else FINE
        elif op == UNREAD:
            at = skip(data, wire, number, at, end, depth, values.stack)
            problem = -at if at < 0 else FINE
            choose(code, field, cells, values.firsts)
        elif op == MESSAGE:
            inner, at, problem = enter(code, field, wire, values, cells, at, end)
            if problem != FINE or depth >= DEEPEST:
                return at_field(problem if problem != FINE else TOO_DEEP, field)
            _push(values.stack, depth, end, node, group)
            depth, end, node, group = depth + 1, inner, np.int64(here[CHILD]), number if wire == START_GROUP else 0
        elif packed:
            at, problem = read_packed(code, field, values, cells, at, end)
        else:
            cell, at, problem = read_one(code, field, wire, values, at, end)
            if problem == FINE:
                if here[ONEOF] >= 0:
                    choose(code, field, cells, values.firsts)
                if here[LIST] >= 0:
                    add_row(code, cells, here[LIST])
                put(cells, column, cell, op in (WIDE, WIDE_WORD64))
            elif problem == SKIPPED and code.nodes[node, CLOSE] == ENTRY_OF_ENUM:
                put(cells, code.nodes[node, INTO], 1, False)
        if problem != FINE and problem != SKIPPED:
            return at_field(problem, field)


@compiled
def _push(stack: Int64s, depth: int, end: int, node: int, group: int) -> None:
    stack[depth * STACK_WIDTH] = end
    stack[depth * STACK_WIDTH + 1] = node
    stack[depth * STACK_WIDTH + 2] = group


@compiled
def _popped(stack: Int64s, depth: int) -> tuple[int, int, int]:
    place = depth * STACK_WIDTH
    return stack[place], stack[place + 1], stack[place + 2]
