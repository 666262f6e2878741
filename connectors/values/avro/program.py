"""From a writer's and the reader's schema to the operations that `machine` runs.

Source: the specification of Avro 1.12, "Schema Resolution". Where it is silent (which branch of a reader's union is
meant), as in Java's Resolver: the same type or name first, then a record that fits, then a promotion. What cannot be
resolved fails only for a value that has it: a branch or a symbol that is never written is harmless.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkonce.connectors.values.avro import machine
from sparkonce.connectors.values.avro import schema as avro
from sparkonce.connectors.values.avro.machine import AFTER, NULL_AT, PROBLEM_BITS, SECOND, WIDTH, Code
from sparkonce.connectors.values.avro.types import is_null, is_widened, widest
from sparkonce.connectors.values.columns import SPAN_BITS, Column, Layout

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
MAX_BYTES = 2**31 - 1
"""More than any value has, as Arrow's offsets show; a larger type can have no value."""
_UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_MEANING = {
    machine.ENDS_EARLY: "the value ends too early",
    machine.NOT_A_NUMBER: "a number has too many bytes",
    machine.NO_SUCH_BRANCH: "the union has no such branch",
    machine.NO_SUCH_SYMBOL: "the enum has no such symbol",
    machine.NOT_UTF8: "the text is not UTF-8",
    machine.TOO_MANY_DIGITS: "the decimal has more digits than its precision",
    machine.NO_DIGITS: "the decimal has no bytes",
    machine.NOT_A_BOOLEAN: "a boolean is neither 0 nor 1",
    machine.BYTES_LEFT: "bytes are left after the value: it was written with another schema",
    machine.OUT_OF_RANGE: "the number is too large for its type",
    machine.WRONG_LENGTH: "a length is negative",
    machine.TOO_MANY_ITEMS: "an array or map has more items than bytes",
    machine.TOO_DEEP: "records, arrays and maps are too deep within each other",
}


class Programs:
    """The programs that read values of many writers' schemas into the columns of one reader's."""

    def __init__(self, reader: avro.Schema, layout: Layout) -> None:
        self._reader, self._layout = reader, layout
        self._operations: list[list[int]] = []
        self._where: list[str] = []
        self._reasons: dict[int, str] = {}
        """By operation, the reason for `NOT_READABLE`."""
        self._tables: list[int] = []
        self._constants: list[int] = []
        self._pool = bytearray()
        self._depth = self.deepest = self._defaulted = self.items_of_defaults = 0
        """The nesting of lists, and the maximal number of default items in one value."""
        self.skips = False
        """Whether recursive records are skipped, however deep they are."""
        self._skipped: dict[str, tuple[avro.Recursion, str]] = {}
        """By name, such records of one writer's schema, and their first position."""
        self._calls: list[tuple[int, str]] = []
        """The operations that skip such a record, with its name."""
        self._code: Code | None = None

    def add(self, writer: avro.Schema) -> int:
        """Compile the program of a writer's schema; return its first operation."""
        self._code = None
        first, self._depth, self._defaulted = len(self._operations), 0, 0
        self._skipped, self._calls = {}, []
        self._value(writer, self._reader, self._layout.root, "")
        self._emit(machine.END, "")
        self._skip_records()
        self.items_of_defaults = max(self.items_of_defaults, self._defaulted)
        return first

    @property
    def code(self) -> Code:
        """All programs."""
        if self._code is None:
            limits = [divmod(10**digits, 1 << 64) for digits in range(avro.MAX_PRECISION + 1)]
            self._code = Code(
                np.array(self._operations, np.int32).reshape(-1, WIDTH),
                np.array(self._tables or [0], np.int32),
                np.array(self._constants or [0], np.int64),
                np.array(limits, np.uint64).view(np.int64),
            )
        return self._code

    @property
    def pool(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The texts of constants."""
        return np.frombuffer(bytes(self._pool) or b"\0", np.uint8)

    def explain(self, problem: int) -> str:
        """Return a value's problem, and its field."""
        at, kind = problem >> PROBLEM_BITS, problem & ((1 << PROBLEM_BITS) - 1)
        meaning = self._reasons[at] if kind == machine.NOT_READABLE else _MEANING[kind]
        return f"{self._where[at]}: {meaning}" if self._where[at] else meaning

    def _skip_records(self) -> None:
        """Compile an operation for each recursive record, called where one is skipped."""
        begins: dict[str, int] = {}
        while len(begins) < len(self._skipped):
            name = next(each for each in self._skipped if each not in begins)
            schema, where = self._skipped[name]
            begins[name] = len(self._operations)
            self._record(schema.record, None, None, where)
            self._emit(machine.RETURN, where)
        for call, name in self._calls:
            self._operations[call][machine.FIRST] = begins[name]
        self.skips = self.skips or bool(begins)

    # The arguments of these are the writer's schema, the reader's (None if not read), the column, and the path.

    def _value(self, w: avro.Schema, r: avro.Schema | None, column: Column | None, where: str) -> None:
        if column is None:
            r = None
            if isinstance(w, avro.Recursion):
                self._skipped.setdefault(w.name, (w, where))
                self._calls.append((self._emit(machine.CALL, where), w.name))
                return
        w, r = avro.expanded(w), None if r is None else avro.expanded(r)
        if isinstance(w, avro.Union):
            self._union(w, r, column, where)
        elif isinstance(r, avro.Union):
            self._into_union(w, r, column, where)
        elif isinstance(w, avro.RecordSchema):
            self._record(w, r, column, where)
        elif isinstance(w, avro.Array):
            self._items(w.items, r.items if isinstance(r, avro.Array) else None, w, r, column, where)
        elif isinstance(w, avro.Map):
            self._items(w.values, r.values if isinstance(r, avro.Map) else None, w, r, column, where)
        elif isinstance(w, avro.Enum):
            self._enum(w, r, column, where)
        elif isinstance(w, avro.Fixed):
            self._fixed(w, r, column, where)
        else:
            self._primitive(w, r, column, where)

    def _union(self, w: avro.Union, r: avro.Schema | None, column: Column | None, where: str) -> None:
        """Read the number of the branch, then the value of that branch."""
        nulls = [at for at, branch in enumerate(w.branches) if is_null(branch)]
        if len(w.branches) == 2 and nulls and (r is None or accepts_null(r)):
            first = len(self._operations)
            self._value(w.branches[1 - nulls[0]], r, column, where)
            self._operations[first][NULL_AT] = nulls[0]
            self._operations[first][AFTER] = len(self._operations)
            return
        table = len(self._tables)
        self._tables += [0] * len(w.branches)
        self._emit(machine.UNION, where, first=table, second=len(w.branches))
        jumps = []
        for at, branch in enumerate(w.branches):
            self._tables[table + at] = len(self._operations)
            self._value(branch, r, column, where)
            jumps.append(self._emit(machine.JUMP, where))
        for jump in jumps:
            self._operations[jump][AFTER] = len(self._operations)

    def _into_union(self, w: avro.Schema, r: avro.Union, column: Column | None, where: str) -> None:
        r = avro.Union(tuple(avro.expanded(each) for each in r.branches))
        branch = matching_branch(w, r)
        if branch is None:
            self._fail(f"no branch of the reader's union takes {_name(w)}", where)
            return
        others = [each for each in r.branches if not is_null(each)]
        if is_null(branch):
            return
        if len(others) == 1 or is_widened(others):
            # A column of long holds ints, too: the writer's value is read with the column's type.
            self._value(w, branch if len(others) == 1 else widest(others), column, where)
            return
        assert column is not None
        member = f"member{others.index(branch)}"
        self._emit(machine.STRUCT, where, column)
        self._value(w, branch, column.field(member), _path(where, member))

    def _record(self, w: avro.RecordSchema, r: avro.Schema | None, column: Column | None, where: str) -> None:
        if r is not None and not isinstance(r, avro.RecordSchema):
            self._unlike(w, r, where)
            return
        pairs, missing = matched_fields(w, r) if r is not None else ([(each, None) for each in w.fields], [])
        read = [each for each in missing if column is not None and column.field(each.name) is not None]
        for field in read:
            if field.default is avro.NO_DEFAULT:
                self._fail(f"the writer's schema has no field {field.name}, and the reader's no default for it", where)
                return
            if not avro.is_default(field.type, field.default):
                self._fail(f"the reader's default of the field {field.name} is not of its type", where)
                return
        self._emit(machine.STRUCT, where, column)
        for field in read:
            assert column is not None
            self._default(field.type, field.default, column.field(field.name), _path(where, field.name))
        for theirs, ours in pairs:
            below = column.field(ours.name) if column is not None and ours is not None else None
            name = theirs.name if ours is None else ours.name
            self._value(theirs.type, None if ours is None else ours.type, below, _path(where, name))

    def _items(
        self,
        items: avro.Schema,
        into: avro.Schema | None,
        w: avro.Array | avro.Map,
        r: avro.Schema | None,
        column: Column | None,
        where: str,
    ) -> None:
        if r is not None and type(r) is not type(w):
            self._unlike(w, r, where)
            return
        least = least_bytes(items) + isinstance(w, avro.Map)
        if least == 0:
            self._fail("items that take no bytes are not supported: their number would be without a limit", where)
            return
        level = column.below if column is not None else 0
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        begin = self._emit(machine.LIST, where, column, first=level)
        if isinstance(w, avro.Map):
            self._emit(machine.STRING, _path(where, "key"), column.children[0] if column is not None else None)
        below = column.children[-1] if column is not None else None
        self._value(items, into, below, _path(where, "value" if isinstance(w, avro.Map) else "element"))
        end = self._emit(machine.NEXT, where, first=level, second=begin + 1)
        self._operations[end][AFTER] = min(least, MAX_BYTES)
        self._operations[begin][SECOND] = end
        self._depth -= 1

    def _enum(self, w: avro.Enum, r: avro.Schema | None, column: Column | None, where: str) -> None:
        if r is not None and not (isinstance(r, avro.Enum) and same_name(w, r)):
            self._unlike(w, r, where)
            return
        table = len(self._tables)
        at = self._emit(machine.ENUM, where, column, first=table, second=len(w.symbols))
        if not isinstance(r, avro.Enum):
            return
        unknown = [symbol for symbol in w.symbols if symbol not in r.symbols]
        if unknown and r.default is None:
            self._reasons[at] = f"the reader's enum has none of the symbols {', '.join(unknown)}, and no default"
        for symbol in w.symbols:
            known = symbol if symbol in r.symbols else r.default
            self._tables.append(-1 if known is None else self._constant(self._text(known.encode())))

    def _fixed(self, w: avro.Fixed, r: avro.Schema | None, column: Column | None, where: str) -> None:
        if r is not None and not (isinstance(r, avro.Fixed) and same_name(w, r) and w.size == r.size):
            self._unlike(w, r, where)
            return
        if isinstance(r, avro.Fixed) and r.decimal is not None:
            if self._scales_differ(w.decimal, r.decimal, where):
                return
            self._emit(machine.FIXED_DECIMAL, where, column, first=r.decimal.precision, second=min(w.size, MAX_BYTES))
        else:
            self._emit(machine.FIXED, where, column, second=min(w.size, MAX_BYTES))

    def _primitive(self, w: avro.Primitive, r: avro.Schema | None, column: Column | None, where: str) -> None:
        if r is None:
            if w.kind != "null":
                self._emit(_READ[w.kind], where, first=int(w.kind == "int"))
            return
        if not isinstance(r, avro.Primitive) or (w.kind != r.kind and r.kind not in _PROMOTIONS.get(w.kind, ())):
            self._unlike(w, r, where)
        elif r.decimal is not None:
            if not self._scales_differ(w.decimal, r.decimal, where):
                self._emit(machine.DECIMAL, where, column, first=r.decimal.precision)
        elif w.kind in ("int", "long"):
            self._emit(_whole(w, r), where, column, first=int(w.kind == "int"))
        elif w.kind == "float" and r.kind == "double":
            self._emit(machine.DOUBLE_OF_FLOAT, where, column)
        elif w.kind != "null":
            self._emit(_READ[r.kind], where, column)

    def _default(self, r: avro.Schema, value: Any, column: Column | None, where: str) -> None:
        """Write a default of the reader's schema, in the JSON form that schemas have."""
        if column is None or value is None:
            return
        r = avro.expanded(r)
        if isinstance(r, avro.Union):
            branch = next(each for each in r.branches if avro.is_default(each, value))
            others = [each for each in r.branches if not is_null(each)]
            if len(others) > 1 and not is_widened(others):
                self._emit(machine.STRUCT, where, column)
                column = column.field(f"member{others.index(branch)}")
            self._default(widest(others) if is_widened(others) else branch, value, column, where)
        elif isinstance(r, avro.RecordSchema):
            self._emit(machine.STRUCT, where, column)
            for field in r.fields:
                given = value.get(field.name, field.default)
                self._default(field.type, given, column.field(field.name), _path(where, field.name))
        elif isinstance(r, avro.Array | avro.Map):
            self._emit(machine.NEW_LIST, where, column, first=column.below)
            for item in value:
                self._defaulted += 1
                self._emit(machine.NEW_ITEM, where, first=column.below)
                if isinstance(r, avro.Map):
                    self._default(avro.Primitive("string"), item, column.children[0], where)
                    self._default(r.values, value[item], column.children[-1], where)
                else:
                    self._default(r.items, item, column.children[-1], where)
        else:
            self._constant_into(r, value, column, where)

    def _constant_into(self, r: avro.Schema, value: Any, column: Column, where: str) -> None:
        assert not isinstance(r, avro.RecordSchema | avro.Array | avro.Map | avro.Union | avro.Recursion)
        if isinstance(r, avro.Enum) or (isinstance(r, avro.Primitive) and r.kind == "string"):
            cell = self._text(value.encode())
        elif r.decimal is not None:
            number = int.from_bytes(value.encode("latin-1"), "big", signed=True)
            high, cell = number >> 64, _signed(number & (2**64 - 1))
            second = Column(column.at + 1, column.level, column.kind, column.arrow)
            self._emit(machine.CONSTANT, where, second, first=self._constant(high))
        elif isinstance(r, avro.Fixed) or r.kind == "bytes":
            cell = self._text(value.encode("latin-1"))
        elif r.kind == "float":
            cell = int(np.float32(value).view(np.int32))
        elif r.kind == "double":
            cell = int(np.float64(value).view(np.int64))
        else:
            cell = value * 1_000_000 // _unit_of(r) if _is_timestamp(r) else int(value)
        self._emit(machine.CONSTANT, where, column, first=self._constant(cell))

    def _scales_differ(self, w: avro.Decimal | None, r: avro.Decimal, where: str) -> bool:
        if w is None or w.scale == r.scale:
            return False
        self._fail(f"the writer's decimal has scale {w.scale}, and the reader's {r.scale}", where)
        return True

    def _unlike(self, w: avro.Schema, r: avro.Schema, where: str) -> None:
        self._fail(f"the writer's {_name(w)} cannot be read as the reader's {_name(r)}", where)

    def _fail(self, reason: str, where: str) -> None:
        self._reasons[self._emit(machine.FAIL, where)] = reason

    def _emit(self, op: int, where: str, column: Column | None = None, *, first: int = 0, second: int = 0) -> int:
        self._operations.append([op, -1, -1 if column is None else column.at, first, second, 0])
        self._where.append(where)
        return len(self._operations) - 1

    def _constant(self, cell: int) -> int:
        self._constants.append(cell)
        return len(self._constants) - 1

    def _text(self, text: bytes) -> int:
        start = -1 - len(self._pool)
        self._pool += text
        return (start << SPAN_BITS) | len(text)


_READ = {
    "boolean": machine.BOOLEAN,
    "int": machine.INT,
    "long": machine.LONG,
    "float": machine.FLOAT,
    "double": machine.DOUBLE,
    "bytes": machine.BYTES,
    "string": machine.STRING,
}


def _whole(w: avro.Primitive, r: avro.Primitive) -> int:
    """Return the operation that reads an int or long; the writer's unit of time applies if it has one."""
    if r.kind in ("float", "double"):
        return machine.FLOAT_OF_WHOLE if r.kind == "float" else machine.DOUBLE_OF_WHOLE
    ours = 1_000_000 if _is_timestamp(r) else _unit_of(r)
    theirs = _unit_of(w) or _unit_of(r)
    if not ours or ours == theirs:
        return machine.LONG
    # Ours are microseconds then: a time in milliseconds is an int, and ints have no other unit.
    return machine.MILLIS if theirs == 1_000 else machine.NANOS


def _unit_of(schema: avro.Primitive) -> int:
    """Return how many of a time's units make a second; 0 if it is no time."""
    return _UNITS.get((schema.logical or "").rpartition("-")[2], 0)


def _is_timestamp(schema: avro.Primitive) -> bool:
    return "timestamp" in (schema.logical or "")


def accepts_null(schema: avro.Schema) -> bool:
    """Return whether null is a value of a schema."""
    return is_null(schema) or (isinstance(schema, avro.Union) and any(is_null(each) for each in schema.branches))


def matched_fields(
    w: avro.RecordSchema, r: avro.RecordSchema
) -> tuple[list[tuple[avro.Field, avro.Field | None]], list[avro.Field]]:
    """Return the writer's fields with the matching reader's fields, and the reader's fields without a writer's."""
    names = {each.name for each in w.fields}
    taken: dict[str, avro.Field] = {}
    for field in r.fields:
        known = next((name for name in (field.name, *field.aliases) if name in names), None)
        if known is not None:
            taken.setdefault(known, field)
    given = [each.name for each in taken.values()]
    return [(each, taken.get(each.name)) for each in w.fields], [each for each in r.fields if each.name not in given]


def matching_branch(w: avro.Schema, r: avro.Union) -> avro.Schema | None:
    """Return the branch of the reader's union that matches the writer's value; None if there is none."""
    kind = avro.kind_of(w)
    aliases = [each for each in r.branches if isinstance(each, avro.Named) and kind in each.aliases]
    exact = [each for each in r.branches if avro.kind_of(each) == kind] or aliases
    if exact:
        return exact[0]
    if isinstance(w, avro.Named):
        alike = [each for each in r.branches if type(each) is type(w)]
        short = [each for each in alike if same_name(w, each)]
        fitting = [each for each in short or alike if isinstance(each, avro.RecordSchema) and fits_record(w, each)]
        return (fitting or short or [None])[0]
    promoted = [each for each in r.branches if avro.kind_of(each) in _PROMOTIONS.get(kind, ())]
    return promoted[0] if promoted else None


def fits_record(w: avro.Schema, r: avro.RecordSchema) -> bool:
    """Return whether each field of the reader's record is written or has a default."""
    return isinstance(w, avro.RecordSchema) and all(
        each.default is not avro.NO_DEFAULT for each in matched_fields(w, r)[1]
    )


def same_name(w: avro.Named, r: avro.Schema) -> bool:
    """Return whether the names without namespaces are equal, or an alias of the reader's is the writer's name."""
    assert isinstance(r, avro.Named)
    return _short(w.name) == _short(r.name) or w.name in r.aliases


def least_bytes(schema: avro.Schema) -> int:
    """Return the minimal number of bytes of a value; of a recursive record, a byte says whether there is one."""
    if isinstance(schema, avro.RecordSchema):
        return sum(least_bytes(each.type) for each in schema.fields)
    if isinstance(schema, avro.Fixed):
        return schema.size
    if isinstance(schema, avro.Primitive):
        return {"null": 0, "float": 4, "double": 8}.get(schema.kind, 1)
    return 1


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _name(schema: avro.Schema) -> str:
    kind = avro.kind_of(schema)
    return f"{type(schema).__name__.lower()} {kind}" if isinstance(schema, avro.Named) else kind


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >= 1 << 63 else bits
