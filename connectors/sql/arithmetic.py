"""The types and results of arithmetic, as in Spark's `DecimalPrecision` and `AnsiTypeCoercion`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import DataType, DateType, DecimalType, DoubleType, LongType, TimestampType

from sparkonce.connectors.sql.constants import KINDS
from sparkonce.connectors.sql.kinds import (
    REAL,
    TIMES,
    WHOLE,
    IntervalType,
    as_decimal,
    common,
    decimal,
    in_engine,
    kind_of,
    same,
)
from sparkonce.connectors.sql.meanings import Argument, Arguments, Meaning, Rule, all_as


def _operands(arguments: Arguments) -> list[DataType]:
    """Return the types of two operands: a whole constant beside a decimal has as many digits as written."""
    types = [each.type for each in arguments]
    if any(isinstance(each, DecimalType) for each in types):
        for place, each in enumerate(arguments):
            if kind_of(each.type) in WHOLE and each.constant is not None:
                types[place] = DecimalType(len(each.constant.lstrip("-0")) or 1, 0)
    return types


def _decimals(types: Sequence[DataType]) -> list[DecimalType] | None:
    found = [as_decimal(each) for each in types]
    if not any(isinstance(each, DecimalType) for each in types) or None in found:
        return None
    return [each for each in found if each is not None]


def _as_decimals(arguments: Arguments, types: Sequence[DecimalType]) -> list[str]:
    return [
        f"${place}" if same(each.type, of) else f"CAST(${place} AS {in_engine(of)})"
        for place, (each, of) in enumerate(zip(arguments, types, strict=True), 1)
    ]


def _arithmetic(sign: str) -> Rule:
    def rule(arguments: Arguments) -> Meaning | None:
        if len(arguments) == 1 and sign in "+-":
            return _signed(sign, arguments[0])
        if len(arguments) != 2:
            return None
        if sign in "+-" and kind_of(arguments[0].type) in ("date", *TIMES):
            return _moved(sign, arguments)
        decimals = _decimals(_operands(arguments))
        if decimals is not None:
            return _of_decimals(sign, arguments, decimals)
        target = common([each.type for each in arguments])
        if target is None or kind_of(target) not in (*WHOLE, *REAL):
            return None
        if sign == "/":
            target = DoubleType()
        left, right = all_as(arguments, target)
        if sign == "%" and kind_of(target) in WHOLE and arguments[1].constant in (None, "-1"):
            engine = f"CASE WHEN {right} = -1 THEN {left} - {left} ELSE {left} % {right} END"  # else MIN % -1 fails
        else:
            engine = f"{left} {sign} {right}"
        return Meaning(engine, target)

    return rule


def _is_exact(given: DataType) -> bool:
    """Return whether Spark negates every value exactly: it rounds decimals to 34 digits."""
    if isinstance(given, DecimalType):
        return given.precision <= 34
    return kind_of(given) in (*WHOLE, *REAL)


def _signed(sign: str, argument: Argument) -> Meaning | None:
    if not _is_exact(argument.type):
        return None
    return Meaning(f"{sign}$1", argument.type)


def _of_decimals(sign: str, arguments: Arguments, types: Sequence[DecimalType]) -> Meaning | None:
    """Return a result as Spark's `DecimalPrecision` has it, if it needs no rounding: at most 38 digits."""
    left, right = types
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if sign in "+-":
        result = decimal(whole + scale + 1, scale)
        operands = None if result is None else [result, result]
    elif sign == "*":
        result = decimal(left.precision + right.precision + 1, left.scale + right.scale)
        operands = None if result is None else [DecimalType(result.precision, left.scale), right]  # otherwise 18 digits
    elif sign == "%":
        least = min(left.precision - left.scale, right.precision - right.scale)
        result, inner = decimal(max(least + scale, 1), scale), decimal(whole + scale, scale)
        operands = None if inner is None else [inner, inner]
    else:
        return None
    if result is None or operands is None:
        return None
    texts = _as_decimals(arguments, operands)
    return Meaning(f"CAST({texts[0]} {sign} {texts[1]} AS {in_engine(result)})", result)


def _moved(sign: str, arguments: Arguments) -> Meaning | None:
    """Return a date or time with an interval, or a date with days, added or subtracted."""
    start, by = arguments
    if kind_of(start.type) == "date" and kind_of(by.type) in ("tinyint", "smallint", "int"):
        return Meaning(f"$1 {sign} CAST($2 AS INTEGER)", DateType(), ("days beyond the year 5,881,580",))
    if not isinstance(by.type, IntervalType):
        return None
    target = TimestampType() if kind_of(start.type) == "date" and by.type.kind == "time" else start.type
    # Without a zone, which is UTC: with one, the engine's calendar has Julian years.
    local = "$1" if kind_of(start.type) in ("date", "timestamp_ntz") else "CAST($1 AS TIMESTAMP)"
    return Meaning(f"CAST({local} {sign} $2 AS {in_engine(target)})", target, ("years beyond 290,000",))


def _divided(arguments: Arguments) -> Meaning | None:
    if len(arguments) != 2 or any(kind_of(each.type) not in WHOLE for each in arguments):
        return None
    left, right = all_as(arguments, LongType())
    return Meaning(f"{left} // {right}", LongType())


def _absolute(arguments: Arguments) -> Meaning | None:
    if len(arguments) != 1 or not _is_exact(arguments[0].type):
        return None
    return Meaning("abs($1)", arguments[0].type)


def _stepped(name: str) -> Rule:
    """For floor and ceil: of integers and decimals."""

    def rule(arguments: Arguments) -> Meaning | None:
        if len(arguments) != 1:
            return None
        (given,) = arguments
        if kind_of(given.type) in WHOLE:
            return Meaning("CAST($1 AS BIGINT)", LongType())
        if not isinstance(given.type, DecimalType):
            return None
        if not given.type.scale:
            return Meaning("$1", given.type)
        result = DecimalType(given.type.precision - given.type.scale + 1, 0)
        return Meaning(f"CAST({name}($1) AS {in_engine(result)})", result)

    return rule


def _rounded(arguments: Arguments) -> Meaning | None:
    """Of integers and decimals: to a constant number of digits."""
    if not 1 <= len(arguments) <= 2:
        return None
    given, digits = arguments[0].type, arguments[1].constant if len(arguments) == 2 else "0"
    if digits is None or (len(arguments) == 2 and kind_of(arguments[1].type) != "int"):
        return None
    KINDS["digits"].check(digits, ())
    if kind_of(given) in WHOLE:
        return Meaning("$1", given)
    if not isinstance(given, DecimalType):
        return None
    scale = min(given.scale, int(digits))
    result = decimal(given.precision - given.scale + 1 + scale, scale)
    return None if result is None else Meaning(f"CAST($1 AS {in_engine(result)})", result)


ARITHMETIC: Mapping[str, Rule] = {
    **{sign: _arithmetic(sign) for sign in ("+", "-", "*", "/", "%")},
    "mod": _arithmetic("%"),
    "negative": _arithmetic("-"),
    "//": _divided,
    "abs": _absolute,
    "floor": _stepped("floor"),
    "ceil": _stepped("ceil"),
    "round": _rounded,
}
