"""Tables of edge values, and what other programs find in them: with a predicate pushed down, and without.

A reader skips files and row groups by the statistics that a writer left there, and partitions by their values. So each
`Reader` answers a predicate twice: as a filter, which it may push down, and as a column computed for all rows, which it
may not. The two must name the same rows, and, where a reader orders values as Spark does, those of `matches`.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tests.unit.sink.query_by_hand import Query

EPOCH = dt.datetime(1970, 1, 1)
YEAR_US = 31_556_952 * 10**6
FAR_US = 290_000 * YEAR_US
TEXTS = [
    *("", "\0", "a", "a\0", "A", "\x7f", "é", "e\u0301", "İ", "\u2028", "\ud7ff", "\ue000", "\ufffd", "\uffff"),
    *("\U00010000", "\U0001f600", "\U0002000b", "𠮷野家", "\U0002fa1d", "\U00030000", "\U000e0001", "\U000f0000"),
    *("\U00100000", "\U0010fffd", "\U0010ffff", 'q"\\\n\t', "'", "%_", " a", "a ", "NaN", "1", "None", "null"),
    *("a" * 32, "a" * 33, "é" * 40, "日本" * 20, "𠮷" * 40, "\U0010ffff" * 40, "a" * 32 + "\U0002000b", "z" * 2048),
    *("a" * 31 + "\U0002000bz", "é" * 32 + "\uffff", "zz" * 2500),
]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    5.0,
    0.1,
    math.nan,
    math.inf,
    -math.inf,
    1e-45,
    -1e-45,
    16777216.0,
    3.4028234663852886e38,
]
DOUBLES = [
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    1e16,
    0.30000000000000004,
    9007199254740993.0,
]


def wholes(bits: int) -> list[int]:
    """Return whole numbers around the edges of a signed type, and of the doubles that some readers go by."""
    edge = 1 << (bits - 1)
    found = {0, 1, -1, 5, edge - 1, edge - 2, -edge, 1 - edge}
    return sorted(found | ({2**53, 2**53 + 1, -(2**53) - 1} if bits == 64 else set()))


def decimals(precision: int, scale: int) -> list[Decimal]:
    """Return decimals around the edges of a type, with neighbours that doubles cannot tell apart."""
    most = 10**precision - 1
    unscaled = {0, 1, -1, most, -most, most - 1, 1 - most, most // 3, most // 3 + 1, -(most // 7), 10**scale}
    return [
        Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale))
        for value in sorted(unscaled)
        if abs(value) <= most
    ]


def days(*texts: str) -> list[int]:
    return [(dt.date.fromisoformat(text) - EPOCH.date()).days for text in texts]


def micros(*texts: str) -> list[int]:
    return [(dt.datetime.fromisoformat(text) - EPOCH) // dt.timedelta(microseconds=1) for text in texts]


NEAR_DAYS = days("1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "1582-10-04", "1582-10-15", "2024-02-29")
FAR_DAYS = [
    *days("9999-12-31"),
    -106_000_000,
    106_000_000,
    *(each + 1 for each in days("9999-12-31")),
    -719163,
    -800_000,
]
NEAR_TIMES = micros(
    *("1970-01-01", "1969-12-31T23:59:59.999999", "2024-02-29T12:00:00.000999", "2024-02-29T12:00:00.001"),
    *("0001-01-01", "9999-12-31T23:59:59.999999", "1582-10-04T12:00:00", "1900-01-01", "2038-01-19T03:14:08"),
)
FAR_TIMES = [
    FAR_US,
    -FAR_US,
    *(each + 1 for each in micros("9999-12-31T23:59:59.999999")),
    *(each - 1 for each in micros("0001-01-01")),
]


@dataclass(frozen=True)
class Kind:
    """A column, and the values it is tried with: days and microseconds since 1970 for dates and timestamps."""

    column: str
    spark: str
    arrow: pa.DataType
    values: Sequence[Any]
    partition_values: Sequence[Any] = ()

    @property
    def is_float(self) -> bool:
        return bool(pa.types.is_floating(self.arrow))

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(self.arrow))


KINDS = [
    Kind("byte", "tinyint", pa.int8(), wholes(8), wholes(8)),
    Kind("short", "smallint", pa.int16(), wholes(16), wholes(16)),
    Kind("number", "int", pa.int32(), wholes(32), wholes(32)),
    Kind("large", "bigint", pa.int64(), wholes(64), wholes(64)),
    Kind("f", "float", pa.float32(), [float(np.float32(each)) for each in FLOATS]),
    Kind("d", "double", pa.float64(), FLOATS + DOUBLES),
    *(
        Kind(
            f"m{precision}_{scale}",
            f"decimal({precision},{scale})",
            pa.decimal128(precision, scale),
            decimals(precision, scale),
        )
        for precision, scale in [(1, 0), (9, 2), (18, 18), (19, 0), (38, 0), (38, 10), (38, 38)]
    ),
    Kind("text", "string", pa.string(), TEXTS, [each for each in TEXTS if 0 < len(each) < 30]),
    Kind("bytes", "binary", pa.binary(), [b"", b"\0", b"\xff" * 40, b"a", b"\x7f", b"\x80", "𠮷".encode()]),
    Kind("flag", "boolean", pa.bool_(), [True, False], [True, False]),
    Kind("day", "date", pa.date32(), [*NEAR_DAYS, *FAR_DAYS], NEAR_DAYS),
    Kind("at", "timestamp", pa.timestamp("us", "UTC"), [*NEAR_TIMES, *FAR_TIMES], NEAR_TIMES),
    Kind("local", "timestamp_ntz", pa.timestamp("us"), [*NEAR_TIMES, *FAR_TIMES], NEAR_TIMES),
]
STRUCT = Kind("s.x", "double", pa.float64(), FLOATS + DOUBLES), Kind("s.t", "string", pa.string(), TEXTS)


@dataclass(frozen=True)
class Predicate:
    """A condition on one column: ``operator`` with ``values``."""

    kind: Kind
    operator: str
    values: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind.column} {self.operator} {', '.join(map(repr, self.values))}"[:120]


COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def predicates(kinds: Sequence[Kind], values_of: str = "values") -> list[Predicate]:
    """Return each comparison with each value, and what else is pushed down."""
    found = []
    for kind in kinds:
        values = getattr(kind, values_of)
        found += [Predicate(kind, operator, (value,)) for value in values for operator in COMPARISONS]
        found += [Predicate(kind, "IN", pair) for pair in zip(values, [*values[2:], *values[:2]], strict=True)]
        found += [Predicate(kind, "IS NULL"), Predicate(kind, "IS NOT NULL")]
        if kind.is_text:
            found += [Predicate(kind, "starts with", (value[:2],)) for value in values if value]
    return found


def matches(value: Any, predicate: Predicate) -> bool | None:
    """Whether a value matches, by Spark's rules: NaN is equal to itself and above all; text is compared as UTF-8."""
    if predicate.operator == "IS NULL":
        return value is None
    if predicate.operator == "IS NOT NULL":
        return value is not None
    if value is None:
        return None
    own, others = _key(value), [_key(each) for each in predicate.values]
    if predicate.operator == "IN":
        return own in others
    if predicate.operator == "starts with":
        return bool(own.startswith(others[0]))
    (other,) = others
    below, above = own < other, own > other
    return {"=": not (below or above), "<>": below or above, "<": below, "<=": not above, ">": above, ">=": not below}[
        predicate.operator
    ]


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def column(kind: Kind, values: Sequence[Any]) -> pa.Array:
    return storage(kind, values).cast(kind.arrow)


def storage(kind: Kind, values: Sequence[Any]) -> pa.Array:
    """Return values in an array, dates and timestamps as numbers: Python's own end with the year 9999."""
    numbers = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64()}
    return pa.array(values, numbers.get(kind.arrow, kind.arrow))


@dataclass(frozen=True)
class EdgeTable:
    """A table that the sink has written, and its rows, in the order of their ``id``."""

    path: Path
    rows: pa.Table
    kinds: Sequence[Kind]

    def files(self) -> list[str]:
        return [
            str(self.path / name)
            for name in sorted(pa.table(DeltaTable(self.path).get_add_actions())["path"].to_pylist())
        ]

    def values(self, kind: Kind) -> list[Any]:
        """Return a column as `Kind.values` has it."""
        found = self.rows.column(kind.column.split(".")[0])
        if "." in kind.column:
            found = pc.struct_field(found, kind.column.split(".")[1])
        if pa.types.is_temporal(kind.arrow):
            found = found.cast(pa.int32() if pa.types.is_date(kind.arrow) else pa.int64())
        return list(found.to_pylist())


def write_edge_values(root: Path, seed: int) -> EdgeTable:
    """Write every value alone in a file, nulls too, and values that chance has chosen in files of a few row groups."""
    chance = random.Random(seed)
    kinds = [*KINDS, *STRUCT]
    alone = max(len(kind.values) for kind in kinds) + 1
    drawn = {
        kind.column: [*islice(cycle(kind.values), alone - 1), None, *chance.choices([*kind.values, None], k=alone)]
        for kind in kinds
    }
    columns = {kind.column: column(kind, drawn[kind.column]) for kind in KINDS}
    columns["s"] = pa.StructArray.from_arrays([column(kind, drawn[kind.column]) for kind in STRUCT], ["x", "t"])
    rows = pa.table({"id": pa.array(range(2 * alone)), **columns})
    files = [*chunks(range(alone), 1), *chunks(range(alone, 2 * alone), 5)]
    return _write(root, rows, kinds, files, rowGroupRows="2")


def write_partitions(root: Path) -> EdgeTable:
    """Write every value as a partition's."""
    kinds = [kind for kind in KINDS if kind.partition_values]
    count = max(len(kind.partition_values) for kind in kinds)
    drawn = {kind.column: [*islice(cycle([*kind.partition_values, None]), count + 1)] for kind in kinds}
    rows = pa.table(
        {"id": pa.array(range(count + 1)), **{kind.column: column(kind, drawn[kind.column]) for kind in kinds}}
    )
    return _write(root, rows, kinds, [list(range(count + 1))], partitionBy=",".join(kind.column for kind in kinds))


def _write(
    root: Path, rows: pa.Table, kinds: Sequence[Kind], files: Sequence[Sequence[int]], **options: Any
) -> EdgeTable:
    """Write a table in one commit, with one task for each of ``files``."""
    query = Query(root, schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True), **options)
    query.log(0, 10)
    query.commit(0, query.tasks_with(rows.take(pa.array(each)).to_batches() for each in files))
    return EdgeTable(query.table, rows, kinds)


def chunks(found: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (found[start : start + size] for start in range(0, len(found), size))


class Reader(ABC):
    """A program that reads a table."""

    name: str
    orders_floats_as_spark = True

    def skips_wrongly(self, predicate: Predicate) -> bool:
        """Whether it finds too little or too much by this predicate whoever wrote the files."""
        return False

    @abstractmethod
    def filtered(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        """Yield the rows of each predicate, as a filter."""

    @abstractmethod
    def computed(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        """Yield the rows of each predicate, as a column of all rows."""


def differences(reader: Reader, table: EdgeTable, asked: Sequence[Predicate]) -> list[str]:
    """Return where a reader finds other rows with a filter than without, or than `matches`."""
    found = []
    values = {kind.column: table.values(kind) for kind in table.kinds}
    answers = zip(asked, reader.filtered(table, asked), reader.computed(table, asked), strict=True)
    for predicate, filtered, computed in answers:
        as_spark = reader.orders_floats_as_spark or not predicate.kind.is_float
        column = values[predicate.kind.column]
        wanted = [number for number, value in enumerate(column) if matches(value, predicate)] if as_spark else computed
        if not filtered == computed == wanted:
            lacks, has = sorted(set(wanted) - set(filtered)), sorted(set(filtered) - set(wanted))
            told = f"with a filter it lacks the rows {lacks} and has {has}; without, {computed}"
            found.append(f"{reader.name}: {predicate}: {told}")
    return found


class SqlReader(Reader):
    """A program with SQL, in which `literal` writes a value."""

    @abstractmethod
    def literal(self, kind: Kind, value: Any) -> str:
        """Return a value as a constant of the column's type."""

    def name_of(self, kind: Kind) -> str:
        return kind.column

    def condition(self, predicate: Predicate) -> str:
        name = self.name_of(predicate.kind)
        values = [self.literal(predicate.kind, each) for each in predicate.values]
        if predicate.operator == "IN":
            return f"{name} IN ({', '.join(values)})"
        if predicate.operator == "starts with":
            return self.starts_with(name, values[0])
        return " ".join([name, predicate.operator, *values])

    def starts_with(self, name: str, prefix: str) -> str:
        return f"starts_with({name}, {prefix})"


class Spark(SqlReader):
    """Spark, through delta-spark or, with ``files``, from the Parquet files alone."""

    def skips_wrongly(self, predicate: Predicate) -> bool:
        """It does not find 0.0 by -0.0 in a file that has a dictionary for the column."""
        return any(str(value) == "-0.0" for value in predicate.values)

    def __init__(self, spark: SparkSession, *, files: bool = False, at_once: int = 40) -> None:
        self.name = "Spark on the files" if files else "Spark"
        self._spark, self._files, self._at_once = spark, files, at_once

    def _view(self, table: EdgeTable) -> None:
        reader = self._spark.read
        frame = reader.parquet(*table.files()) if self._files else reader.format("delta").load(str(table.path))
        frame.createOrReplaceTempView("edges")

    def filtered(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        self._view(table)
        for some in chunks(asked, self._at_once):
            branches = [
                f"SELECT {number} AS p, id FROM edges WHERE {self.condition(each)}" for number, each in enumerate(some)
            ]
            rows = self._spark.sql(" UNION ALL ".join(branches)).collect()
            found: list[list[int]] = [[] for _ in some]
            for row in rows:
                found[row.p].append(row.id)
            yield from (sorted(each) for each in found)

    def computed(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        self._view(table)
        for some in chunks(asked, 500):
            names = [f"{self.condition(each)} AS p{number}" for number, each in enumerate(some)]
            rows = self._spark.sql(f"SELECT id, {', '.join(names)} FROM edges").collect()
            yield from (sorted(row.id for row in rows if row[number + 1]) for number in range(len(some)))

    def starts_with(self, name: str, prefix: str) -> str:
        return f"startswith({name}, {prefix})"

    def literal(self, kind: Kind, value: Any) -> str:
        if kind.is_text:
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        if kind.spark == "date":
            return f"date_from_unix_date({value})"
        if kind.spark == "timestamp":
            return f"timestamp_micros({value})"
        if kind.spark == "timestamp_ntz":
            return f"CAST(timestamp_micros({value}) AS timestamp_ntz)"
        return f"CAST('{value}' AS {kind.spark})"


class DataFusion(SqlReader):
    """delta-rs's own SQL."""

    name = "DataFusion"
    orders_floats_as_spark = False

    def _query(self, table: EdgeTable) -> QueryBuilder:
        return QueryBuilder().register("edges", DeltaTable(table.path))

    def filtered(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        query = self._query(table)
        for each in asked:
            rows = pa.table(query.execute(f"SELECT id FROM edges WHERE {self.condition(each)}").read_all())
            yield sorted(rows["id"].to_pylist())

    def computed(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        query = self._query(table)
        for some in chunks(asked, 100):
            names = [f"({self.condition(each)}) AS p{number}" for number, each in enumerate(some)]
            rows = pa.table(query.execute(f"SELECT id, {', '.join(names)} FROM edges").read_all())
            yield from (sorted(rows.filter(rows[f"p{number}"])["id"].to_pylist()) for number in range(len(some)))

    def name_of(self, kind: Kind) -> str:
        return "".join(f"['{name}']" if index else name for index, name in enumerate(kind.column.split(".")))

    def literal(self, kind: Kind, value: Any) -> str:
        arrow = {
            "date": "Date32",
            "timestamp": 'Timestamp(Microsecond, Some("UTC"))',
            "timestamp_ntz": "Timestamp(Microsecond, None)",
        }
        numbers = {
            "tinyint": "Int8",
            "smallint": "Int16",
            "int": "Int32",
            "bigint": "Int64",
            "float": "Float32",
            "double": "Float64",
        }
        if kind.is_text:
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        if isinstance(value, bool):
            return str(value).lower()
        if kind.spark in arrow:
            number = f"arrow_cast({value}, '{'Int32' if kind.spark == 'date' else 'Int64'}')"
            return f"arrow_cast({number}, '{arrow[kind.spark]}')"
        if kind.spark in numbers:
            return f"arrow_cast('{value}', '{numbers[kind.spark]}')"
        return f"arrow_cast('{value:f}', 'Decimal128({kind.arrow.precision}, {kind.arrow.scale})')"


class Dataset(Reader):
    """delta-rs's ``to_pyarrow_table(filters=…)``, and what rests on it."""

    name = "to_pyarrow_table"
    orders_floats_as_spark = False

    def skips_wrongly(self, predicate: Predicate) -> bool:
        """pyarrow takes bounds for proof that values are below NaN, and looks 0.0 up in a list by its sign."""
        if not predicate.kind.is_float:
            return False
        return any(math.isnan(value) or (value == 0 and predicate.operator == "IN") for value in predicate.values)

    def _expression(self, predicate: Predicate) -> Any:
        kind = predicate.kind
        field = pc.field(*kind.column.split("."))
        values = column(kind, predicate.values)
        if predicate.operator == "IN":
            return field.isin(values)
        if predicate.operator == "starts with":
            return pc.starts_with(field, predicate.values[0])
        if not predicate.values:
            return field.is_null() if predicate.operator == "IS NULL" else field.is_valid()
        value = values[0]
        by = {
            "=": field == value,
            "<>": field != value,
            "<": field < value,
            "<=": field <= value,
            ">": field > value,
            ">=": field >= value,
        }
        return by[predicate.operator]

    def filtered(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        dataset = DeltaTable(table.path).to_pyarrow_dataset()
        for each in asked:
            yield sorted(dataset.to_table(columns=["id"], filter=self._expression(each))["id"].to_pylist())

    def computed(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        rows = DeltaTable(table.path).to_pyarrow_table()
        for each in asked:
            yield sorted(rows.filter(self._expression(each))["id"].to_pylist())


class DuckDB(SqlReader):
    """DuckDB on the Parquet files, or, with ``delta``, by its extension for Delta."""

    def __init__(self, *, delta: str | None = None) -> None:
        self.name = "DuckDB's Delta" if delta else "DuckDB"
        self._delta = delta

    def skips_wrongly(self, predicate: Predicate) -> bool:
        """It takes a row group of one text and nulls without a dictionary, which pyarrow writes too, for nulls only."""
        return predicate.operator == "IS NULL" and (predicate.kind.is_text or predicate.kind.spark == "binary")

    @contextmanager
    def _source(self, table: EdgeTable) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """Connect, and return what to select from."""
        with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            if self._delta is None:
                yield connection, f"read_parquet({table.files()})"
            else:
                connection.load_extension(self._delta)
                yield connection, f"delta_scan('{table.path}')"

    def filtered(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        with self._source(table) as (connection, source):
            for each in asked:
                rows = connection.execute(f"SELECT id FROM {source} WHERE {self.condition(each)}").fetchall()
                yield sorted(number for (number,) in rows)

    def computed(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        with self._source(table) as (connection, source):
            for some in chunks(asked, 100):
                names = ", ".join(f"({self.condition(each)})" for each in some)
                rows = connection.execute(f"SELECT id, {names} FROM {source}").fetchall()
                yield from (sorted(row[0] for row in rows if row[number + 1]) for number in range(len(some)))

    def name_of(self, kind: Kind) -> str:
        return ".".join(f'"{name}"' for name in kind.column.split("."))

    def literal(self, kind: Kind, value: Any) -> str:
        made = {"date": f"(DATE '1970-01-01' + {value})", "timestamp": f"make_timestamptz({value})"}
        made["timestamp_ntz"] = f"make_timestamp({value})"
        if kind.is_text:
            return f"decode(from_hex('{value.encode().hex()}'))"
        if isinstance(value, bytes):
            return f"from_hex('{value.hex()}')"
        if kind.spark in made:
            return made[kind.spark]
        return (
            f"CAST('{value:f}' AS {kind.spark})" if isinstance(value, Decimal) else f"CAST('{value}' AS {kind.spark})"
        )


class Polars(Reader):
    """Polars, by ``scan_delta``: where it is installed."""

    name = "Polars"

    def _expression(self, predicate: Predicate) -> Any:
        pl: Any = import_module("polars")

        kind = predicate.kind
        names = kind.column.split(".")
        field = pl.col(names[0]) if len(names) == 1 else pl.col(names[0]).struct.field(names[1])
        if predicate.operator == "IN":
            return field.is_in(pl.Series(column(kind, predicate.values)).implode())
        if predicate.operator == "starts with":
            return field.str.starts_with(predicate.values[0])
        if not predicate.values:
            return field.is_null() if predicate.operator == "IS NULL" else field.is_not_null()
        value = pl.lit(pl.Series(storage(kind, predicate.values))[0], dtype=pl.Series(storage(kind, [])).dtype).cast(
            pl.Series(column(kind, [])).dtype
        )
        by = {
            "=": field == value,
            "<>": field != value,
            "<": field < value,
            "<=": field <= value,
            ">": field > value,
            ">=": field >= value,
        }
        return by[predicate.operator]

    def filtered(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        pl: Any = import_module("polars")

        frame = pl.scan_delta(str(table.path))
        for each in asked:
            yield sorted(frame.filter(self._expression(each)).select("id").collect()["id"].to_list())

    def computed(self, table: EdgeTable, asked: Sequence[Predicate]) -> Iterator[list[int]]:
        pl: Any = import_module("polars")

        frame = pl.read_delta(str(table.path))
        for each in asked:
            found = frame.select("id", self._expression(each).alias("p"))
            yield sorted(found.filter(pl.col("p").fill_null(value=False))["id"].to_list())
