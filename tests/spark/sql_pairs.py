"""Every expression that direct queries allow, as Spark writes it, too, and rows of values at the edges of all types.

The expressions come from the table that the check of a SELECT uses: each name, for all types of arguments for which the
rules find a meaning, with each constant that the table names. `EXTRA` has what is not in the table: literals, lambdas,
fields.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkonce.connectors.sql import rules
from sparkonce.connectors.sql.casts import cast_of
from sparkonce.connectors.sql.constants import KINDS, ConstantError
from sparkonce.connectors.sql.forms import FORMS
from sparkonce.connectors.sql.kinds import simple
from sparkonce.connectors.sql.meanings import Argument
from sparkonce.connectors.sql.select import check_select
from sparkonce.connectors.sql.types import arrow_schema
from sparkonce.options import OptionError

DAY_1, DAY_9999 = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
DAY_US = 86_400_000_000
DAYS = [
    0,
    -1,
    1,
    DAY_1,
    DAY_1 - 1,
    DAY_9999,
    DAY_9999 + 1,
    18_321,
    18_322,
    -719_528,
    11_016,
    11_017,
    18_628,
    18_993,
    -141_427,
    2_932_532,
    106_751_991,
    -106_751_991,
    19_782,
    -25_509,
]
TIMES = [
    0,
    -1,
    1,
    999_999,
    -999_999,
    1_582_988_399_999_999,
    1_585_443_600_000_000,
    1_603_584_000_000_000,
    DAY_1 * DAY_US,
    DAY_1 * DAY_US - 1,
    (DAY_9999 + 1) * DAY_US - 1,
    (DAY_9999 + 1) * DAY_US,
    -62_167_219_200_000_000,
    1_700_000_000_123_456,
    1_700_000_000_120_000,
    -12_219_292_800_000_000,
    9_000_000_000_000_000_000,
    -9_000_000_000_000_000_000,
    1_709_164_800_000_000,
]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    1.005,
    0.285,
    0.1,
    0.30000000000000004,
    float("nan"),
    float("inf"),
    float("-inf"),
    5e-324,
    -2.2250738585072014e-308,
    1.7976931348623157e308,
    1e20,
    -1e20,
    9007199254740993.0,
    2147483647.5,
    -2147483648.5,
    9.223372036854775807e18,
    -9.223372036854775808e18,
    127.9,
    32768.0,
    0.49999999999999994,
    1e-7,
    123456789.125,
]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -2.5,
    0.1,
    1.005,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e-45,
    3.4028234e38,
    1.6777216e7,
    2147483648.0,
    9.223372e18,
    1e10,
    0.285,
    127.5,
]
TEXTS = [
    "",
    " ",
    "a",
    "abc",
    "ABC",
    "a,b,,c,",
    "  ab  ",
    "\tab\n",
    "abc\n",
    "a\nb",
    "ab\r\n",
    "a\u2028b",
    "a\u0085c",
    "aXbXc",
    "A_b%c\\d",
    "a\\",
    "%",
    "_",
    "éa",
    "e\u0301a",
    "日本,日",
    "𠮷野家",
    "👍🏽 ok",
    "👨‍👩‍👧",
    "İI",
    "\u0131i",
    "ΑΣ",
    "ΑΣ Σ",
    "ß",
    "ﬁ",
    "ŉ",
    "ǅ",
    "ΐ",
    "\U00010d50x",
    "\ua7dcΣ",
    "K",
    "\u017f",
    "\x00a",
    "\x0ba",
    "\x7f",
    "\u00a0a",
    "1",
    "-1",
    "+0",
    " 12 ",
    "007",
    "1.5",
    "2147483648",
    "-128",
    "1e3",
    "1.5d",
    "NaN",
    "inf",
    "0x1A",
    "1_000",
    "٣",
    "true",
    "T",
    "yes",
    "on",
    "n",
    " No ",
    "ye\u017f",
    "2020-02-29",
    "2021-02-29",
    "2020-1-2",
    "2020",
    "0000-01-01",
    "2020-01-02 03:04:05",
    "2020-01-02T03:04:05.123456Z",
    "2020-01-02 03:04:05+02:00",
    "2020-01-02 24:00:00",
    "infinity",
    "epoch",
    "9999-12-31 23:59:59",
    "12345678901234567890123",
    ".5",
    "5.",
    ".",
    "-.5e1",
    "1.255",
    "0.285",
    "1e400",
    "1e-400",
    "a.b|c",
    "aa",
    "aab",
    "0" * 60,
    "4.9e-324",
    "\t7\n",
    "x" * 100,
    "2020-03-29 02:30:00",
    "12:00",
    "a b",
    "a$3b$1c$2",
    "$2$1",
]
BYTES = [
    b"",
    b"a",
    b"abc",
    "é".encode(),
    "𠮷".encode(),
    b"\x00\x01",
    b"\xff",
    b"\xc3",
    b"ab" * 60,
    b"\xed\xa0\x80",
    b"12",
]


def _whole(bits: int) -> list[int]:
    edge = 1 << (bits - 1)
    return sorted({0, 1, -1, 2, -2, 3, 7, -7, 10, 31, 60, 100, -100, edge - 1, -edge, edge - 2, edge >> 1, 1 - edge})


def _decimals(precision: int, scale: int) -> list[Decimal]:
    edge = 10**precision - 1
    found = {
        0,
        1,
        -1,
        5,
        -5,
        edge,
        -edge,
        10**scale % (edge + 1),
        edge // 2,
        285 % (edge + 1),
        -1005 % (edge + 1),
        49,
        50,
        -50,
        15,
        25,
    }
    return [Decimal(f"{each}E-{scale}") for each in sorted(found)]


@dataclass(frozen=True)
class Column:
    """A type, with its edge values as Arrow takes them."""

    type: DataType
    values: Sequence[Any]


def _nested() -> dict[str, Column]:
    ints: list[Any] = [[], [1], [1, 2, 3], [None], [None, 5, -5], [2147483647, -2147483648, 0], [3, 3, 3]]
    texts: list[Any] = [[], [""], ["a", "b"], [None], [None, "z", ""], ["日", "a", "👍"], [" "]]
    doubles: list[Any] = [
        [],
        [0.0, -0.0],
        [float("nan"), 1.0],
        [None, 1.5],
        [float("inf"), float("-inf")],
        [float("nan"), None],
    ]
    inner = StructType([StructField("a", IntegerType()), StructField("b", StringType())])
    structs: list[Any] = [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": -5, "b": ""}, {"a": 2147483647, "b": "日"}]
    last_day, last_time = 2**31 - 1, 2**63 - 1  # to the engine, infinity
    days: list[Any] = [[], [0], [18_321, None], [last_day], [5, -last_day], [-last_day - 1], [DAY_1, DAY_9999 + 1]]
    times: list[list[Any]] = [[], [0, -1], [None], [last_time], [-last_time - 1], [-last_time + 1, 5], TIMES[5:12]]
    moment = StructType([StructField("at", TimestampType())])
    return {
        "days": Column(ArrayType(DateType()), days),
        "moments": Column(ArrayType(moment), [[{"at": each} for each in some] for some in times]),
        "ints": Column(ArrayType(IntegerType()), ints),
        "texts": Column(ArrayType(StringType()), texts),
        "doubles": Column(ArrayType(DoubleType()), doubles),
        "nested": Column(ArrayType(ArrayType(IntegerType())), [[], [[1], [2, 3]], [None], [[], [None]], [[1], None]]),
        "items": Column(ArrayType(inner), [[], structs, [None], structs[:1]]),
        "counts": Column(
            MapType(StringType(), IntegerType()),
            [[], [("k", 1)], [("k", None), ("z", 2)], [("", 5)], [("日", 7), ("k", 0)]],
        ),
        "st": Column(inner, structs),
    }


COLUMNS: dict[str, Column] = {
    **{
        name: Column(simple(name), _whole(bits))
        for name, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64))
    },
    "float": Column(simple("float"), FLOATS),
    "double": Column(simple("double"), DOUBLES),
    **{
        f"dec{precision}_{scale}": Column(DecimalType(precision, scale), _decimals(precision, scale))
        for precision, scale in ((5, 2), (10, 0), (15, 15), (18, 6), (38, 10))
    },
    "string": Column(simple("string"), TEXTS),
    "binary": Column(simple("binary"), BYTES),
    "boolean": Column(simple("boolean"), [True, False]),
    "date": Column(simple("date"), DAYS),
    "timestamp": Column(simple("timestamp"), TIMES),
    "timestamp_ntz": Column(simple("timestamp_ntz"), TIMES),
    **_nested(),
}
TWICE = ("a", "b", "c")
"""Columns of each type, so that an expression has two or three different ones."""


def schema() -> StructType:
    """Return the columns of the rows."""
    fields = [StructField(f"{name}_{copy}", each.type) for name, each in COLUMNS.items() for copy in TWICE]
    return StructType([StructField("n", IntegerType()), *fields])


def edge_rows(count: int, seed: int) -> pa.RecordBatch:
    """Return rows: in each column every edge value of its type and null, again and again, shuffled."""
    pick = random.Random(seed)
    types = arrow_schema(schema())
    arrays: list[pa.Array] = [pa.array(range(count), pa.int32())]
    for each in COLUMNS.values():
        for _ in TWICE:
            values: list[Any] = []
            while len(values) < count:
                some = [None, *each.values]
                pick.shuffle(some)
                values += some
            arrays.append(pa.array(values[:count], types.field(len(arrays)).type))
    return pa.RecordBatch.from_arrays(arrays, schema=types)


@dataclass(frozen=True)
class Pair:
    """An expression, as a SELECT of ours and as Spark have it."""

    ours: str
    spark: str
    stricter: tuple[str, ...]
    """Which rows may fail here and not in Spark; none if empty."""


OPERATORS = {
    **{sign: (f"$1 {sign} $2",) * 2 for sign in ("+", "-", "*", "/", "%", "||", *rules.COMPARISONS)},
    "//": ("$1 // $2", "$1 div $2"),
    "in": ("$1 IN ($2, $3)", "$1 IN ($2, $3)"),
    "between": ("$1 BETWEEN $2 AND $3",) * 2,
    "and": ("$1 AND $2",) * 2,
    "or": ("$1 OR $2",) * 2,
    "not": ("NOT $1",) * 2,
    "case": ("CASE WHEN boolean_a THEN $1 ELSE $2 END",) * 2,
    "list_value": ("array($1, $2)",) * 2,
    "second_with_fraction": ("EXTRACT(second FROM $1)",) * 2,
    "~~": ("$1 LIKE $2",) * 2,
    "!~~": ("$1 NOT LIKE $2",) * 2,
}
ARITIES = {
    "+": (1, 2),
    "-": (1, 2),
    "in": (3,),
    "between": (3,),
    "coalesce": (2,),
    "nvl": (2,),
    "ifnull": (2,),
    "nullif": (2,),
    "greatest": (2,),
    "least": (2,),
    "not": (1,),
    "if": (3,),
    "nvl2": (3,),
    "concat_ws": (2,),
    "concat": (1,),
    "round": (1, 2),
    **dict.fromkeys(("negative", "abs"), (1,)),
}
MIXED = ("between", "in")
"""Rules with three arguments of any types."""
THREE = {"if": ("boolean", None, None), "nvl2": ("int", None, None), "concat_ws": ("string", None, None)}
"""Of rules with three arguments: the type of the first. Others have the third of the second's type."""


def pairs() -> Iterator[Pair]:
    """Return every expression of the table, for every combination of types that it has a meaning for."""
    for name in sorted(FORMS):
        for takes in sorted({form.takes for form in FORMS[name]}):
            yield from _of_form(name, takes)
    for name in sorted(rules.RULES):
        for arity in ARITIES.get(name, (2,) if name in OPERATORS else (1, 2)):
            yield from _of_rule(name, arity)
    yield from _casts()
    yield from _composed()
    yield from EXTRA


def _of_form(name: str, takes: Sequence[str]) -> Iterator[Pair]:
    columns = [KINDS[each].samples if each in KINDS else list(COLUMNS) for each in takes]
    for chosen in product(*columns):
        yield from _pair(name, [_argument(each, place, takes[place] in KINDS) for place, each in enumerate(chosen)])


def _of_rule(name: str, arity: int) -> Iterator[Pair]:
    if name == "round" and arity == 2:
        for column, digits in product(COLUMNS, KINDS["digits"].samples):
            yield from _pair(name, [_argument(column, 0, False), _argument(digits, 1, True)])
        return
    if name == "array_join":
        for column, by in product(COLUMNS, KINDS["separator"].samples):
            yield from _pair(name, [_argument(column, 0, False), _argument(by, 1, True)])
        return
    # Spark's element_at reads beyond the array, and its JVM crashes, for the smallest INT: so no column of INT.
    places = ("tinyint", "smallint") if "element_at" in name else tuple(COLUMNS)
    chosen: Iterator[tuple[str, ...]] = product(*(COLUMNS, places)[:arity])
    if name in MIXED:
        chosen = product(COLUMNS, repeat=3)
    elif arity == 3:
        first = THREE.get(name, (None,))[0]
        chosen = ((one, two, two) if first is None else (first, one, two) for one, two in product(COLUMNS, repeat=2))
    for columns in chosen:
        yield from _pair(name, [_argument(each, place, False) for place, each in enumerate(columns)])


def _argument(text: str, place: int, is_constant: bool) -> tuple[str, Argument]:
    if not is_constant:
        return f"{text}_{TWICE[place]}", Argument(COLUMNS[text].type)
    if text.lstrip("-").isdigit():
        return text, Argument(IntegerType(), text)
    value = text[2:-1] if text.startswith("r'") else text[1:-1].replace("\\\\", "\\")
    return text, Argument(StringType(), value)


def _pair(name: str, arguments: Sequence[tuple[str, Argument]]) -> Iterator[Pair]:
    try:
        found = rules.meaning(name, [each for _, each in arguments])
    except ConstantError:
        return
    if found is None or found.type.simpleString() == "void":
        return
    texts = [text for text, _ in arguments]
    written = OPERATORS.get(name) or (f"{name}({', '.join(f'${place}' for place in range(1, len(texts) + 1))})",) * 2
    if len(texts) == 1 and name in ("+", "-"):
        written = (f"{name}$1",) * 2
    # At once: a constant may have a $ and a digit in it.
    ours, spark = (re.sub(r"\$(\d)", lambda found: texts[int(found[1]) - 1], each) for each in written)
    yield Pair(ours, spark, found.stricter)


COMPUTED = (
    "$ + 1", "$ - 1", "1 - $", "$ * 2", "$ * -2", "-$", "2147483647 - $", "($ + 1) + 1", "CAST($ + 1 AS BIGINT)",
    "abs($)", "$ + CAST(1 AS TINYINT)", "$ // 2", "$ % 2",
)  # fmt: skip
COMPARED = (
    "$ > 5", "$ < 5", "5 >= $", "$ = 4", "$ <> 3", "$ IN (1, 3)", "$ BETWEEN -1 AND 5", "$ IS NULL",
    "$ IS NOT DISTINCT FROM 3", "CASE WHEN $ > 5 THEN 1 ELSE 2 END",
)  # fmt: skip


def _composed() -> Iterator[Pair]:
    """Return comparisons of what is computed with constants: an engine may move the constants across."""
    for name, computed, compared in product(("tinyint", "int", "bigint", "dec10_0", "double"), COMPUTED, COMPARED):
        if "//" not in computed or "int" in name:
            text = compared.replace("$", f"({computed.replace('$', f'{name}_a')})")
            yield Pair(text, text.replace("//", "div"), ())


def unparenthesised() -> Iterator[Pair]:
    """Return two operators after one another, which ours allows: it may refuse what the engine groups differently."""
    after = (
        "= boolean_b", "<> boolean_b", "IN (true)", "NOT IN (true)", "BETWEEN boolean_b AND boolean_c",
        "NOT BETWEEN boolean_b AND true", "IS NULL", "IS NOT NULL", "IS TRUE", "IS DISTINCT FROM boolean_c",
        "IS NOT DISTINCT FROM boolean_b", "AND boolean_b", "OR boolean_c", "LIKE 'a%'", "= string_a LIKE 'a%'",
        "< boolean_c", "|| string_b",
    )  # fmt: skip
    for first, one, two in product(("boolean_a", "string_a"), after, after):
        text = f"{first} {one} {two}"
        try:
            check_select(f"SELECT {text} AS x FROM records", schema())
        except OptionError:
            continue
        yield Pair(text, text, ())


def _casts() -> Iterator[Pair]:
    targets = [each.type for each in COLUMNS.values()]
    for (name, column), target in product(COLUMNS.items(), targets):
        if not isinstance(target, (ArrayType, MapType, StructType)):
            for function, to_null in (("CAST", False), ("TRY_CAST", True)):
                cast = cast_of(column.type, target, to_null=to_null)
                if cast is not None:
                    text = f"{function}({name}_a AS {target.simpleString()})"
                    yield Pair(text, text, (cast.stricter,) if cast.stricter else ())


LINES = (Path(__file__).parent / "sql_expressions.txt").read_text().splitlines()
EXTRA = [Pair(line.split(" @@ ")[0], line.split(" @@ ")[-1], ()) for line in LINES]
"""What is not in the table, or has precedence to show; where Spark writes it differently, that follows `` @@ ``."""
