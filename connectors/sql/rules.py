"""The result of an expression for its argument types: its type, and the engine's expression.

`meaning` finds it in the table of forms, or by a rule of this module, if its type follows from those of
its arguments: arithmetic, comparisons, choices, arrays, maps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import isinf

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from sparkonce.connectors.sql.arithmetic import ARITHMETIC
from sparkonce.connectors.sql.casts import cast_of, text_of
from sparkonce.connectors.sql.constants import KINDS, date_text, quoted, time_text
from sparkonce.connectors.sql.forms import FORMS, Form
from sparkonce.connectors.sql.kinds import (
    REAL,
    WHOLE,
    common,
    decimal,
    in_engine,
    kind_of,
    same,
    simple,
    wider,
)
from sparkonce.connectors.sql.meanings import Argument, Arguments, Meaning, Rule, all_as, put, widened


def meaning(name: str, arguments: Arguments) -> Meaning | None:
    """Return a function's or operator's result; None if impossible for these arguments. Raises ConstantError."""
    name = ALIASES.get(name, name)
    found = RULES[name](arguments) if name in RULES else None
    for form in FORMS.get(name, ()) if found is None else ():
        found = _of_form(form, arguments)
        if found is not None:
            break
    return found


def _of_form(form: Form, arguments: Arguments) -> Meaning | None:
    if len(form.takes) != len(arguments):
        return None
    values, constants = list[str](), list[str]()
    for place, (wanted, given) in enumerate(zip(form.takes, arguments, strict=True), 1):
        if wanted in KINDS:
            if given.constant is None or (given.type == StringType()) != KINDS[wanted].is_text:
                return None
            values.append(KINDS[wanted].engine(given.type, given.constant, constants))
            constants.append(given.constant)
        else:
            cast = _as_parameter(given.type, wanted)
            if cast is None:
                return None
            values.append(put(cast, place))
    # At once: a constant may have a $ and a digit in it.
    engine = re.sub(r"\$(\d)", lambda found: values[int(found[1]) - 1], form.engine)
    return Meaning(engine, _returned(form.returns), (form.stricter,) if form.stricter else ())


def _returned(name: str) -> DataType:
    if name == "array<string>":
        return ArrayType(StringType())
    return DecimalType(8, 6) if name == "decimal(8,6)" else simple(name)


def _as_parameter(given: DataType, wanted: str) -> str | None:
    """Return ``$1`` converted to a parameter's type; None if that is not possible."""
    if wanted == "number":
        return "CAST($1 AS DOUBLE)" if kind_of(given) in (*WHOLE, *REAL) else None
    if wanted.startswith("="):
        return "$1" if kind_of(given) == wanted[1:] else None
    target = simple(wanted)
    if kind_of(given) == "decimal" and wanted == "double":
        return widened(given, target)
    return widened(given, target) if (found := wider(given, target)) and same(found, target) else None


# Comparisons and choices


def _compared(arguments: Arguments) -> Meaning | None:
    """Return the arguments in their common type, for a comparison."""
    arguments, texts = _dated(arguments)
    target = common([each.type for each in arguments])
    if target is None or kind_of(target) in ("array", "map", "struct", "other", "interval", "void"):
        return None
    cast = [
        text or put(widened(each.type, target), at)
        for at, (each, text) in enumerate(zip(arguments, texts, strict=True), 1)
    ]
    if any(texts):
        cast = [f"CAST({each} AS {in_engine(target)})" for each in cast]
    return Meaning("", BooleanType(), parts=tuple(cast))


def _between(arguments: Arguments) -> Meaning | None:
    """Return the value and its lower bound in the form of a comparison, then the value and its upper bound."""
    if len(arguments) != 3:
        return None
    lower, upper = (_compared([arguments[0], bound]) for bound in arguments[1:])
    if lower is None or upper is None:
        return None
    return Meaning("", BooleanType(), parts=(*lower.parts, upper.parts[0], upper.parts[1].replace("$2", "$3")))


def _dated(arguments: Arguments) -> tuple[list[Argument], list[str]]:
    """Return the arguments with text constants beside dates and times converted, and the engine's text of such."""
    kinds = {kind_of(each.type) for each in arguments}
    names = [name for name in ("timestamp", "timestamp_ntz", "date") if name in kinds]
    found, texts = list(arguments), [""] * len(arguments)
    if not names or "string" not in kinds:
        return found, texts
    for place, each in enumerate(arguments):
        if kind_of(each.type) == "string" and each.constant is not None:
            found[place] = Argument(simple(names[0]))
            texts[place] = constant_time(each.constant, names[0])
    return found, texts


def constant_time(text: str, name: str) -> str:
    """Return a constant date or time as the engine has it. Raises ConstantError if it is none."""
    checked = date_text(text) if name == "date" else time_text(text, zoned=name == "timestamp")
    return f"CAST({quoted(checked)} AS {in_engine(simple(name))})"


def _logical(arguments: Arguments) -> Meaning | None:
    if any(kind_of(each.type) not in ("boolean", "void") for each in arguments):
        return None
    return Meaning("", BooleanType(), parts=tuple(all_as(arguments, BooleanType())))


def _chosen(arguments: Arguments) -> Meaning | None:
    """Return the arguments in their common type, which is the result's."""
    target = common([each.type for each in arguments])
    if target is None or kind_of(target) in ("interval", "other"):
        return None
    return Meaning("", target, parts=tuple(all_as(arguments, target)))


def _first(arguments: Arguments) -> Meaning | None:
    """Of nvl and ifnull: the first that is not null."""
    found = _chosen(arguments) if len(arguments) == 2 else None
    return None if found is None else Meaning(f"coalesce({', '.join(found.parts)})", found.type)


def _if(template: str, *, takes_any: bool) -> Rule:
    """Of if and nvl2: a condition and two values."""

    def rule(arguments: Arguments) -> Meaning | None:
        if len(arguments) != 3 or not (takes_any or kind_of(arguments[0].type) in ("boolean", "void")):
            return None
        found = _chosen(arguments[1:])
        if found is None:
            return None
        second, third = (put(widened(each.type, found.type), place) for place, each in enumerate(arguments[1:], 2))
        return Meaning(template.format(second, third), found.type)

    return rule


def _null_if(arguments: Arguments) -> Meaning | None:
    compared = _compared(arguments) if len(arguments) == 2 else None
    if compared is None:
        return None
    left, right = compared.parts
    return Meaning(f"CASE WHEN {left} = {right} THEN NULL ELSE $1 END", arguments[0].type)


def _is_null(template: str) -> Rule:
    return lambda arguments: Meaning(template, BooleanType()) if len(arguments) == 1 else None


def _extreme(name: str) -> Rule:
    """Of greatest and least."""

    def rule(arguments: Arguments) -> Meaning | None:
        found = _chosen(arguments) if len(arguments) > 1 else None
        if found is None or kind_of(found.type) in ("array", "map", "struct", "void", *REAL):
            return None  # for zeros of different signs, the engine returns another one
        return Meaning(f"{name}({', '.join(found.parts)})", found.type)

    return rule


# Text


def _joined(arguments: Arguments) -> Meaning | None:
    """For concat and ||: text and what is cast to it without a difference, or bytes."""
    if not arguments:
        return None
    if all(kind_of(each.type) == "binary" for each in arguments):
        return Meaning(" || ".join(f"${place}" for place in range(1, len(arguments) + 1)), simple("binary"))
    return _texts(arguments, " || ".join)


def _joined_with(arguments: Arguments) -> Meaning | None:
    """Of concat_ws."""
    if not arguments or kind_of(arguments[0].type) != "string":
        return None
    return _texts(arguments, lambda texts: f"concat_ws({', '.join(texts)})") if len(arguments) > 1 else None


def _texts(arguments: Arguments, join: Callable[[Sequence[str]], str]) -> Meaning | None:
    casts = [text_of(each.type) for each in arguments]
    known = [each for each in casts if each is not None]
    if len(known) < len(casts):
        return None
    texts = [put(each.engine, place) for place, each in enumerate(known, 1)]
    return Meaning(join(texts), StringType(), tuple(each.stricter for each in known if each.stricter))


def _cast_to(name: str) -> Rule:
    """Of date, to_date, to_timestamp."""

    def rule(arguments: Arguments) -> Meaning | None:
        cast = cast_of(arguments[0].type, simple(name)) if len(arguments) == 1 else None
        return None if cast is None else Meaning(cast.engine, simple(name), (cast.stricter,) if cast.stricter else ())

    return rule


# Arrays and maps


def _at(fails: str, failure: str) -> str:
    """Return an element of an array, that fails on a condition unless the array is null."""
    return f"list_extract($1, CASE WHEN $1 IS NOT NULL AND ({fails}) THEN {failure} ELSE CAST($2 AS INTEGER) END)"


def _element(template: str) -> Rule:
    """For get, element_at, try_element_at: an array and an index."""

    def rule(arguments: Arguments) -> Meaning | None:
        if len(arguments) != 2 or not isinstance(arguments[0].type, ArrayType):
            return None
        if kind_of(arguments[1].type) not in ("tinyint", "smallint", "int"):
            return None
        return Meaning(template, arguments[0].type.elementType)

    return rule


def _of_array(template: str, result: Callable[[ArrayType], DataType | None]) -> Rule:
    """Of functions of one array."""

    def rule(arguments: Arguments) -> Meaning | None:
        if len(arguments) != 1 or not isinstance(arguments[0].type, ArrayType):
            return None
        found = result(arguments[0].type)
        return None if found is None else Meaning(template, found)

    return rule


def _ordered(array: ArrayType) -> DataType | None:
    return None if kind_of(array.elementType) in ("array", "map", "struct", "other") else array.elementType


def _exactly_ordered(array: ArrayType) -> DataType | None:
    """Of arrays without two zeros."""
    return None if kind_of(array.elementType) in REAL else _ordered(array)


def _contains(arguments: Arguments) -> Meaning | None:
    if len(arguments) != 2 or not isinstance(arguments[0].type, ArrayType):
        return None
    inner = arguments[0].type.elementType
    if _ordered(arguments[0].type) is None or not same(wider(inner, arguments[1].type) or LongType(), inner):
        return None
    value = put(widened(arguments[1].type, inner), 2)
    return Meaning(
        f"CASE WHEN {value} IS NULL THEN NULL WHEN list_contains($1, {value}) THEN true "
        "WHEN len(list_filter($1, lambda each: each IS NULL)) = 0 THEN false END",
        BooleanType(),
    )


def _flat(arguments: Arguments) -> Meaning | None:
    inner = arguments[0].type.elementType if len(arguments) == 1 and isinstance(arguments[0].type, ArrayType) else None
    if not isinstance(inner, ArrayType):
        return None
    return Meaning("CASE WHEN len(list_filter($1, lambda each: each IS NULL)) = 0 THEN flatten($1) END", inner)


def _array_text(arguments: Arguments) -> Meaning | None:
    """Of array_join: nulls are left out."""
    if len(arguments) != 2 or kind_of(arguments[1].type) != "string" or not isinstance(arguments[0].type, ArrayType):
        return None
    if kind_of(arguments[0].type.elementType) != "string" or arguments[1].constant is None:
        return None
    by = quoted(arguments[1].constant)
    return Meaning(f"coalesce(array_to_string($1, {by}), CASE WHEN $1 IS NOT NULL THEN '' END)", StringType())


def _size(arguments: Arguments) -> Meaning | None:
    if len(arguments) != 1 or not isinstance(arguments[0].type, (ArrayType, MapType)):
        return None
    engine = "len($1)" if isinstance(arguments[0].type, ArrayType) else "cardinality($1)"
    return Meaning(f"CAST({engine} AS INTEGER)", IntegerType())


def _of_map(template: str, result: Callable[[MapType], DataType]) -> Rule:
    def rule(arguments: Arguments) -> Meaning | None:
        if len(arguments) != 1 or not isinstance(arguments[0].type, MapType):
            return None
        return Meaning(template, result(arguments[0].type))

    return rule


def _entries(given: MapType) -> DataType:
    entry = StructType([StructField("key", given.keyType, nullable=False), StructField("value", given.valueType)])
    return ArrayType(entry)


def _array(arguments: Arguments) -> Meaning | None:
    found = _chosen(arguments) if arguments else None
    if found is None or kind_of(found.type) == "void":
        return None
    return Meaning(f"list_value({', '.join(found.parts)})", ArrayType(found.type))


_NO_ELEMENT = "CAST('element_at: no element ' || $2 || ' in an array of ' || len($1) AS INTEGER)"
COMPARISONS = ("=", "<>", "<", ">", "<=", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
RULES: Mapping[str, Rule] = {
    **ARITHMETIC,
    **dict.fromkeys((*COMPARISONS, "in"), _compared),
    "between": _between,
    **dict.fromkeys(("and", "or", "not"), _logical),
    **dict.fromkeys(("coalesce", "case"), _chosen),
    "nvl": _first,
    "ifnull": _first,
    "if": _if("CASE WHEN $1 THEN {} ELSE {} END", takes_any=False),
    "nvl2": _if("CASE WHEN $1 IS NOT NULL THEN {} ELSE {} END", takes_any=True),
    "nullif": _null_if,
    "isnull": _is_null("$1 IS NULL"),
    "isnotnull": _is_null("$1 IS NOT NULL"),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "concat": _joined,
    "||": _joined,
    "concat_ws": _joined_with,
    "date": _cast_to("date"),
    "to_date": _cast_to("date"),
    "to_timestamp": _cast_to("timestamp"),
    "get": _element("CASE WHEN $2 >= 0 THEN list_extract($1, CAST($2 AS BIGINT) + 1) END"),
    "try_element_at": _element(_at("$2 = 0", "CAST('try_element_at: no element ' || $2 AS INTEGER)")),
    "element_at": _element(_at("abs(CAST($2 AS BIGINT)) > len($1) OR $2 = 0", _NO_ELEMENT)),
    "array_max": _of_array("list_max($1)", _exactly_ordered),
    "array_min": _of_array("list_min($1)", _exactly_ordered),
    "array_contains": _contains,
    "array_join": _array_text,
    "array_size": _of_array("CAST(len($1) AS INTEGER)", lambda _: IntegerType()),
    "flatten": _flat,
    "size": _size,
    "cardinality": _size,
    "map_keys": _of_map("map_keys($1)", lambda given: ArrayType(given.keyType)),
    "map_values": _of_map("map_values($1)", lambda given: ArrayType(given.valueType)),
    "map_entries": _of_map("map_entries($1)", _entries),
    "list_value": _array,
}

ALIASES = {"ceiling": "ceil", "signum": "sign", "array": "list_value"}
"""Other names of the same."""
NAMES = frozenset([*FORMS, *RULES, *ALIASES])


_LONGEST_WHOLE = 100
"""Characters of a whole constant; Python reads no more than some thousands."""


def constant_type(kind: str, text: str) -> tuple[DataType, str] | None:
    """Return Spark's type of a constant, and the engine's text of it; None if there is none."""
    if kind == "INTEGER":
        if len(text) > _LONGEST_WHOLE or not -(2**63) <= int(text) < 2**63 or "_" in text:
            return None
        found: DataType = IntegerType() if -(2**31) <= int(text) < 2**31 else LongType()
        return found, f"CAST({text} AS {in_engine(found)})"
    if kind == "NUMERIC" and "_" not in text:
        if "e" in text.lower():
            return None if isinf(float(text)) else (DoubleType(), f"CAST('{text}' AS DOUBLE)")
        number = Decimal(text).as_tuple()
        assert isinstance(number.exponent, int)
        scale = max(-number.exponent, 0)
        exact = decimal(max(len(number.digits), scale), scale)
        return None if exact is None else (exact, f"CAST('{text}' AS {in_engine(exact)})")
    return None
