"""Spark's types in direct queries: names, the engine's names, and the common type of two.

The rules are those of Spark's `AnsiTypeCoercion` and `DecimalPrecision`, except those that lose digits: two decimals
without a common type of at most 38 digits have none here, and text is never cast to a number implicitly.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

WHOLE = ("tinyint", "smallint", "int", "bigint")
REAL = ("float", "double")
TIMES = ("timestamp", "timestamp_ntz")
MOST_DIGITS = 38
INTERVALS = {
    "to_years": ("years", "months"), "to_months": ("months", "months"), "to_weeks": ("weeks", "days"),
    "to_days": ("days", "days"), "to_hours": ("hours", "time"), "to_minutes": ("minutes", "time"),
    "to_seconds": ("seconds", "time"),
}  # fmt: skip
"""The parser's functions for ``INTERVAL n unit``, with the kind of interval."""

_SIMPLE: dict[str, tuple[DataType, str]] = {
    "tinyint": (ByteType(), "TINYINT"),
    "smallint": (ShortType(), "SMALLINT"),
    "int": (IntegerType(), "INTEGER"),
    "bigint": (LongType(), "BIGINT"),
    "float": (FloatType(), "FLOAT"),
    "double": (DoubleType(), "DOUBLE"),
    "string": (StringType(), "VARCHAR"),
    "binary": (BinaryType(), "BLOB"),
    "boolean": (BooleanType(), "BOOLEAN"),
    "date": (DateType(), "DATE"),
    "timestamp": (TimestampType(), "TIMESTAMPTZ"),
    "timestamp_ntz": (TimestampNTZType(), "TIMESTAMP"),
}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The digits of the decimal that holds every value of an integer type."""


class IntervalType(DataType):
    """An interval of a constant number of months, days or seconds: only added to a date or a time."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def simpleString(self) -> str:  # noqa: N802  # Spark's name
        """Return its name in messages."""
        return f"interval of {self.kind}"


def simple(name: str) -> DataType:
    """Return the type of a simple name."""
    return _SIMPLE[name][0]


def kind_of(given: DataType) -> str:
    """Return the name of a simple type, or the kind of another type."""
    if isinstance(given, IntervalType):
        return "interval"
    for nested, name in ((DecimalType, "decimal"), (ArrayType, "array"), (MapType, "map"), (StructType, "struct")):
        if isinstance(given, nested):
            return name
    name = given.simpleString()
    return name if name in _SIMPLE or name == "void" else "other"


def in_engine(given: DataType) -> str:
    """Return the engine's name of a simple type or a decimal."""
    if isinstance(given, DecimalType):
        return f"DECIMAL({given.precision}, {given.scale})"
    return _SIMPLE[given.simpleString()][1]


def same(left: DataType, right: DataType) -> bool:
    """Return whether two types are the same, but for what may be null in them."""
    return left.simpleString() == right.simpleString()


def decimal(precision: int, scale: int) -> DecimalType | None:
    """Return a decimal, or None if there is none of so many digits."""
    return DecimalType(precision, scale) if precision <= MOST_DIGITS else None


def as_decimal(given: DataType) -> DecimalType | None:
    """Return the decimal that holds a whole number or decimal; None for other types."""
    if isinstance(given, DecimalType):
        return given
    digits = _DIGITS.get(given.simpleString())
    return None if digits is None else DecimalType(digits, 0)


def wider(left: DataType, right: DataType) -> DataType | None:
    """Return the common type of two types; None if there is none, or none that is exact."""
    if same(left, right):
        return left
    if isinstance(left, NullType) or isinstance(right, NullType):
        return right if isinstance(left, NullType) else left
    names = [kind_of(left), kind_of(right)]
    if all(name in (*WHOLE, *REAL) for name in names):
        if all(name in WHOLE for name in names):
            return simple(max(names, key=WHOLE.index))
        return simple("double")
    if "decimal" in names:
        return _wider_decimal(left, right, names)
    if set(names) in ({"date", "timestamp"}, {"timestamp", "timestamp_ntz"}):
        return simple("timestamp")
    return simple("timestamp_ntz") if set(names) == {"date", "timestamp_ntz"} else None


def _wider_decimal(left: DataType, right: DataType, names: Sequence[str]) -> DataType | None:
    if any(name in REAL for name in names):
        return simple("double")
    first, second = as_decimal(left), as_decimal(right)
    if first is None or second is None:
        return None
    scale = max(first.scale, second.scale)
    return decimal(max(first.precision - first.scale, second.precision - second.scale) + scale, scale)


def common(types: Sequence[DataType]) -> DataType | None:
    """Return the common type of several types."""
    found: DataType | None = NullType()
    for each in types:
        found = None if found is None else wider(found, each)
    return found
