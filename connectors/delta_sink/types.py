"""Delta's column types, as Spark's: which there are, which may partition a table, which hold each other's values."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as t

_SIMPLE = (
    t.BinaryType,
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)
# Not: floating point (NaN, -0.0), binary, and decimals, which delta-rs 1.6 reads back wrongly when negative.
PARTITIONABLE = (
    t.StringType,
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)
_DIGITS = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 19}
"""Decimal digits that hold every value of a whole number's type."""
_WHOLE = tuple(_DIGITS)
_INVALID_IN_NAMES = set(" ,;{}()\n\t=")


def unsupported(data_type: t.DataType) -> t.DataType | None:
    """Return the first type within that Delta does not have, or that this sink does not write; else None."""
    if isinstance(data_type, t.ArrayType):
        return unsupported(data_type.elementType)
    if isinstance(data_type, t.MapType):
        return unsupported(data_type.keyType) or unsupported(data_type.valueType)
    if isinstance(data_type, t.StructType):
        found = (unsupported(field.dataType) for field in data_type.fields)
        return next((inner for inner in found if inner is not None), None)
    if isinstance(data_type, (t.StringType, t.CharType, t.VarcharType)):
        collation = getattr(data_type, "collation", "UTF8_BINARY")
        return None if collation == "UTF8_BINARY" else data_type
    return None if isinstance(data_type, _SIMPLE) else data_type


def unsupported_text(column: str, kind: t.DataType) -> str:
    """Return the message that a column's type cannot be written, and what to do."""
    instead = f"cast it: to_json({column}), for example" if isinstance(kind, t.VariantType) else "cast it"
    return f"column {column}: delta_once cannot write the type {kind.simpleString()}; {instead}"


def plain(data_type: t.DataType) -> t.DataType:
    """Return the type as Delta stores it: nullable everywhere, no char lengths, no metadata."""
    if isinstance(data_type, t.ArrayType):
        return t.ArrayType(plain(data_type.elementType))
    if isinstance(data_type, t.MapType):
        return t.MapType(plain(data_type.keyType), plain(data_type.valueType))
    if isinstance(data_type, t.StructType):
        return plain_struct(data_type)
    if isinstance(data_type, (t.CharType, t.VarcharType)):
        return t.StringType()
    return data_type


def plain_struct(struct: t.StructType) -> t.StructType:
    """As `plain`, of a whole row."""
    return t.StructType([t.StructField(field.name, plain(field.dataType)) for field in struct.fields])


def holds(wide: t.DataType, narrow: t.DataType) -> bool:
    """Whether ``wide`` has every value of ``narrow`` exactly, so that it can be cast without loss."""
    if isinstance(narrow, _WHOLE):
        if isinstance(wide, _WHOLE):
            return _DIGITS[type(wide)] >= _DIGITS[type(narrow)]
        if isinstance(wide, t.DecimalType):
            return wide.precision - wide.scale >= _DIGITS[type(narrow)]
        return isinstance(wide, t.DoubleType) and not isinstance(narrow, t.LongType)
    if isinstance(narrow, t.DecimalType) and isinstance(wide, t.DecimalType):
        whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
        return whole and wide.scale >= narrow.scale
    return isinstance(narrow, t.FloatType) and isinstance(wide, t.DoubleType)


def has_type(data_type: t.DataType, wanted: type[t.DataType] | tuple[type[t.DataType], ...]) -> bool:
    """Whether a type, or one of some, is found anywhere within."""
    if isinstance(data_type, wanted):
        return True
    if isinstance(data_type, t.ArrayType):
        return has_type(data_type.elementType, wanted)
    if isinstance(data_type, t.MapType):
        return has_type(data_type.keyType, wanted) or has_type(data_type.valueType, wanted)
    return isinstance(data_type, t.StructType) and any(has_type(field.dataType, wanted) for field in data_type.fields)


def structs_within(data_type: t.DataType) -> Iterator[t.StructType]:
    """Yield every struct in a type, itself first."""
    if isinstance(data_type, t.ArrayType):
        yield from structs_within(data_type.elementType)
    elif isinstance(data_type, t.MapType):
        yield from structs_within(data_type.keyType)
        yield from structs_within(data_type.valueType)
    elif isinstance(data_type, t.StructType):
        yield data_type
        for field in data_type.fields:
            yield from structs_within(field.dataType)


def name_problems(data_type: t.DataType, *, new: bool) -> list[str]:
    """Name fields, at any depth, that differ only in case, and, of ``new`` ones, names that Delta does not allow."""
    problems = []
    for struct in structs_within(data_type):
        seen: dict[str, str] = {}
        for name in struct.names:
            other = seen.setdefault(name.lower(), name)
            if other is not name:
                problems.append(f"columns {other!r} and {name!r} are the same to Delta; rename one")
            wrong = sorted(_INVALID_IN_NAMES.intersection(name))
            if new and wrong:
                problems.append(f"column {name!r}: Delta allows none of {wrong} in a name; rename it")
    return problems
