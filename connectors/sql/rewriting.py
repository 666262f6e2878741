"""Expressions of a SELECT: checked, typed as Spark types them, and rewritten to what the engine evaluates.

Functions, operators and casts are those of `sparkonce.connectors.sql.forms` and `rules`, for the types of their
arguments; others are rejected. Columns become flat columns of the batch (`Inputs`), since the engine converts whole
structs; lambdas' parameters get names that hide none of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from sparkonce.connectors.sql import casts, names, rules, tree
from sparkonce.connectors.sql.constants import ConstantError
from sparkonce.connectors.sql.forms import DATE_PARTS
from sparkonce.connectors.sql.kinds import INTERVALS, IntervalType, kind_of
from sparkonce.connectors.sql.meanings import Argument, Meaning
from sparkonce.connectors.sql.tree import WAY_OUT, Inputs, Node, operator, refused

_COMPARED = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}
_LAMBDAS = ("transform", "filter")
"""Functions of an array and a lambda over its elements."""
_ROUNDED = (
    "CAST(x AS FLOAT) of an INT or BIGINT within another expression: Spark leaves it out before a DOUBLE: "
    "write CAST(x AS DOUBLE)"
)
_LETTERS = ("upper", "lower")
_MOST_UNITS = 1_000_000
"""Of an interval."""
_MICROSECONDS = {"to_hours": 3_600_000_000, "to_minutes": 60_000_000, "to_seconds": 1_000_000}
_WHOLE_UNITS = {
    "to_years": ("to_months", 12),
    "to_months": ("to_months", 1),
    "to_weeks": ("to_days", 7),
    "to_days": ("to_days", 1),
}


@dataclass(frozen=True)
class Typed:
    """An expression that was rewritten."""

    node: Node
    type: DataType
    constant: str | None = None
    """Its text, of a constant."""
    is_rounded: bool = False
    """Whether it is a whole number cast to FLOAT: Spark leaves this cast out where a DOUBLE is made of it."""

    @property
    def argument(self) -> Argument:
        """What rules need to know of it."""
        return Argument(self.type, self.constant)


@dataclass(frozen=True)
class _Scope:
    """A lambda around an expression."""

    parameters: Mapping[str, Typed]
    """By their names in the SELECT in lower case."""


class Rewriter:
    """Rewrites the expressions of one SELECT."""

    def __init__(self, inputs: Inputs, parse: Callable[[str], Node], is_aggregate: Callable[[str], bool]) -> None:
        """``parse`` returns the tree of an expression of the engine."""
        self._inputs, self._parse, self._is_aggregate = inputs, parse, is_aggregate
        self._scopes: list[_Scope] = []
        self._parameters = self._depth = 0
        self.unnested: Node | None = None
        """The array that is unnested, in the item that was rewritten last."""
        self._may_unnest = False
        self._stricter: list[str] = []
        """Of what was rewritten so far: which rows fail that Spark accepts."""

    def item(self, node: Node) -> Typed:
        """Rewrite an item of the list."""
        self.unnested, self._may_unnest = None, True
        try:
            return self.expression(node)
        finally:
            self._may_unnest = False

    def has_elements(self, array: Node) -> Node:
        """Return whether an array, which is rewritten, has elements."""
        return self._filled("len($1) > 0", [array])

    def expression(self, node: Node) -> Typed:
        """Return the expression that the engine evaluates. Raises OptionError for what is not allowed or unknown."""
        self._depth += 1
        if self._depth > tree.DEEPEST:
            raise refused(f"expressions are nested more than {tree.DEEPEST} deep")
        try:
            return self._checked(node)
        finally:
            self._depth -= 1

    def _checked(self, node: Node) -> Typed:
        kind = str(node.get("class"))
        if kind in tree.REFUSED_NODES:
            raise refused(tree.REFUSED_NODES[kind])
        types, parts = tree.NODES.get(kind, ("", ""))
        unknown = {part for part, value in node.items() if value} - tree.ANYWHERE - set(parts.split())
        if kind == "FUNCTION" and len(node["qualified_name"]["path"]) > 1:
            raise refused(f"{'.'.join(node['qualified_name']['path'])}: write functions without a schema")
        if kind == "FUNCTION" and unknown & {"distinct", "filter", "order_bys"}:
            raise refused(f"{node['function_name']}: aggregates are not possible: each record is processed on its own")
        if node.get("type") not in types.split() or unknown:
            raise refused(f"not supported: {node.get('type')}{''.join(f' with {part}' for part in sorted(unknown))}")
        rewritten: Typed = getattr(self, f"_{kind.lower()}")(node)
        return rewritten

    def _all(self, nodes: Sequence[Node]) -> list[Typed]:
        return [self.expression(node) for node in nodes]

    def _meaning(self, name: str, arguments: Sequence[Typed], shown: str = "") -> Meaning:
        """Return a function's or operator's result for arguments. Raises OptionError if it is not possible for them."""
        if any(each.is_rounded for each in arguments):
            raise refused(_ROUNDED)
        try:
            found = rules.meaning(name, [each.argument for each in arguments])
        except ConstantError as error:
            raise refused(f"{shown or name}: {error}; {WAY_OUT}") from None
        if found is None:
            raise refused(names.not_possible(shown or name, [each.argument for each in arguments], WAY_OUT))
        self._stricter.extend(found.stricter)
        return found

    def _parts(self, name: str, arguments: Sequence[Typed], shown: str = "") -> tuple[list[Node], DataType]:
        """Return the arguments in their common type, and the type of the result."""
        found = self._meaning(name, arguments, shown)
        nodes = [each.node for each in arguments]
        return [self._filled(part, nodes) for part in found.parts], found.type

    def _applied(self, name: str, arguments: Sequence[Typed], shown: str = "") -> Typed:
        found = self._meaning(name, arguments, shown)
        return Typed(self._filled(found.engine, [each.node for each in arguments]), found.type)

    def _column_ref(self, node: Node) -> Typed:
        path = node["column_names"]
        for scope in reversed(self._scopes):
            parameter = scope.parameters.get(path[0].lower())
            if parameter is not None:
                for name in path[1:]:
                    parameter = _field_of(parameter, name)
                return parameter
        name, found = self._inputs.column_of(path)
        return Typed(tree.column(name), found)

    def _constant(self, node: Node) -> Typed:
        literal = node["literal"]
        kind, text = str(literal.get("kind")), str(literal.get("text", ""))
        plain = {**deepcopy(node), "alias": ""}
        if kind == "STRING":
            return Typed(plain, StringType(), text)
        if kind in ("NULL_LITERAL", "BOOLEAN"):
            return Typed(plain, NullType() if kind == "NULL_LITERAL" else BooleanType())
        found = rules.constant_type(kind, text)
        if found is None:
            limits = "numbers have at most 38 digits, whole ones fit a BIGINT, those with an exponent a DOUBLE"
            raise refused(f"the constant {text} is not possible: {limits}")
        return Typed(self._filled(found[1], []), found[0], text)

    def _comparison(self, node: Node) -> Typed:
        tree.check_precedence(node)
        both = self._all([node["left"], node["right"]])
        (left, right), kind = self._parts(_COMPARED[node["type"]], both)
        return Typed(tree.comparison(node["type"], left, right), kind)

    def _conjunction(self, node: Node) -> Typed:
        """Return AND or OR as Spark evaluates it: from the left, and only until the result is known.

        The engine evaluates all operands, in WHERE in any order, so a condition would not guard the cast after it.
        """
        conditions, kind = self._parts(node["type"].removeprefix("CONJUNCTION_").lower(), self._all(node["children"]))
        return Typed(tree.from_the_left(node["type"], conditions), kind)

    def _between(self, node: Node) -> Typed:
        three = [self.expression(node[part]) for part in ("input", "lower", "upper")]
        (value, lower, again, upper), kind = self._parts("between", three)
        if value == again and not tree.may_fail(upper):
            return Typed({**node, "alias": "", "input": value, "lower": lower, "upper": upper}, kind)
        both = [
            tree.comparison("COMPARE_GREATERTHANOREQUALTO", value, lower),
            tree.comparison("COMPARE_LESSTHANOREQUALTO", again, upper),
        ]
        within = tree.from_the_left("CONJUNCTION_AND", both)
        return Typed(within if node["type"] == "COMPARE_BETWEEN" else operator("OPERATOR_NOT", within), kind)

    def _operator(self, node: Node) -> Typed:
        kind, children = node["type"], node["children"]
        if kind in ("ARRAY_EXTRACT", "STRUCT_EXTRACT"):
            return self._extracted(kind, children)
        before = len(self._stricter)
        given = self._all(children)
        if kind == "OPERATOR_TRY" and self._stricter[before:]:
            fails = self._stricter[before]
            raise refused(f"TRY would be null where Spark has a value ({fails} fails here): leave TRY out; {WAY_OUT}")
        if kind == "OPERATOR_TRY" and tree.may_skip(children):
            raise refused(
                "TRY would be null where Spark has a value (it skips an operand if another is null): put TRY around "
                f"what fails; {WAY_OUT}"
            )
        if kind == "OPERATOR_TRY":
            return Typed(operator(kind, given[0].node), given[0].type)
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            return Typed(operator(kind, given[0].node), BooleanType())
        name = {"OPERATOR_NOT": "not", "OPERATOR_COALESCE": "coalesce"}.get(kind, "in")
        parts, result = self._parts(name, given)
        return Typed(operator(kind, *parts), result)

    def _extracted(self, kind: str, children: Sequence[Node]) -> Typed:
        if kind == "ARRAY_EXTRACT" and not tree.is_text(children[1]):
            raise refused(
                "array[n] is not possible, since Spark and the engine count differently: "
                "get(array, n) counts from 0, element_at(array, n) from 1"
            )
        if not tree.is_text(children[1]):
            raise refused("a field of a struct is named, as in value.id")
        of, name = self.expression(children[0]), children[1]["literal"].get("text", "")
        if isinstance(of.type, StructType):
            return _field_of(of, name)
        if isinstance(of.type, MapType) and of.type.keyType == StringType() and kind == "ARRAY_EXTRACT":
            return Typed(operator(kind, of.node, tree.text(name)), of.type.valueType)
        raise refused(
            f"['{name}'] is a field of a struct, or the value of a key of a map; found {of.type.simpleString()}"
        )

    def _case(self, node: Node) -> Typed:
        checks = node["case_checks"]
        whens, _ = self._parts("and", self._all([check["when_expr"] for check in checks]), "CASE WHEN")
        results = self._all([*(check["then_expr"] for check in checks), node["else_expr"]])
        thens, kind = self._parts("case", results, "CASE")
        named = [{"when_expr": when, "then_expr": then} for when, then in zip(whens, thens[:-1], strict=True)]
        return Typed({**node, "alias": "", "case_checks": named, "else_expr": thens[-1]}, kind)

    def _lambda(self, _node: Node) -> Typed:
        raise refused(
            "x -> ... is only possible as the second argument of transform(array, ...) and filter(array, ...)"
        )

    def _cast(self, node: Node) -> Typed:
        child, to_null = self.expression(node["child"]), bool(node.get("try_cast"))
        target = _target(node["type_expr"])
        if (
            child.constant is not None
            and child.type == StringType()
            and kind_of(target) in ("date", "timestamp", "timestamp_ntz")
        ):
            try:
                return Typed(self._filled(rules.constant_time(child.constant, kind_of(target)), []), target)
            except ConstantError as error:
                raise refused(str(error)) from None
        if child.is_rounded:
            raise refused(_ROUNDED)
        cast = casts.cast_of(child.type, target, to_null=to_null)
        if cast is None:
            raise refused(names.no_cast(child.type, target, WAY_OUT, to_null=to_null))
        self._stricter.extend([cast.stricter] if cast.stricter else [])
        is_rounded = kind_of(child.type) in ("int", "bigint") and kind_of(target) == "float"
        return Typed(self._filled(cast.engine, [child.node]), target, is_rounded=is_rounded)

    def _function(self, node: Node) -> Typed:
        name, arguments = node["function_name"].lower(), node.get("arguments", [])
        if node.get("order_bys", tree.ORDERS) != tree.ORDERS:
            raise refused(f"{name}: aggregates are not possible: each record is processed on its own")
        given = [each["expression"] for each in arguments]
        if name == "struct_pack":
            return self._struct([str(each.get("name")) for each in arguments], given)
        if any(each.get("name") for each in arguments):
            raise refused(f"{name}: arguments are not named")
        if name in _LAMBDAS and len(given) == 2:
            return self._over_array(name, given)
        if name in ("unnest", "explode"):
            return self._unnest(name, given)
        if name in INTERVALS and len(given) == 1:
            return self._interval(name, given[0])
        if name == "date_part" and len(given) == 2:
            return self._date_part(*given)
        if name == "named_struct":
            return self._named_struct(given)
        if name not in rules.NAMES or name in names.INTERNAL:
            raise names.unknown(name, WAY_OUT, is_aggregate=self._is_aggregate(name))
        if name == "||" and given[1].get("is_operator") and given[1].get("function_name") in ("+", "-"):
            raise refused("a || b + c: Spark joins first, the engine adds first: write concat(a, b + c)")
        if name in _LETTERS and given and given[0].get("function_name", "").lower() in _LETTERS:
            raise refused(f"{name} of upper or lower: Spark leaves out the inner one, which differs for some letters")
        return self._applied(name, self._all(given))

    def _struct(self, fields: Sequence[str], given: Sequence[Node]) -> Typed:
        values = self._all(given)
        lower = [field.lower() for field in fields]
        if len(set(lower)) < len(lower) or not values:
            raise refused(f"fields of a struct have different names, found {', '.join(fields) or 'none'}")
        if any(kind_of(each.type) in ("void", "interval") for each in values):
            raise refused("a field of a struct has a type: cast NULL, as in CAST(NULL AS STRING)")
        pairs = zip(fields, values, strict=True)
        packed = [{"name": name, "expression": value.node} for name, value in pairs]
        kind = StructType([StructField(name, each.type) for name, each in zip(fields, values, strict=True)])
        return Typed(tree.function("struct_pack", packed), kind)

    def _named_struct(self, given: Sequence[Node]) -> Typed:
        if len(given) % 2 or not all(tree.is_text(each) for each in given[::2]):
            raise refused("named_struct takes names, as constants, and values: named_struct('a', x, 'b', y)")
        return self._struct([each["literal"].get("text", "") for each in given[::2]], given[1::2])

    def _interval(self, name: str, node: Node) -> Typed:
        """Return an interval."""
        text = tree.number_of_interval(node)
        unit, kind = INTERVALS[name]
        if not re.fullmatch(r"-?[0-9]{1,7}", text) or abs(int(text)) > _MOST_UNITS:
            raise refused(f"an interval has a whole number of {unit}, at most {_MOST_UNITS}, found {text}")
        if name in _MICROSECONDS:
            engine = f"to_microseconds(CAST({int(text) * _MICROSECONDS[name]} AS BIGINT))"
        else:
            of, times = _WHOLE_UNITS[name]
            engine = f"{of}(CAST({int(text) * times} AS INTEGER))"
        return Typed(self._filled(engine, []), IntervalType(kind))

    def _date_part(self, part: Node, value: Node) -> Typed:
        name = DATE_PARTS.get(part["literal"].get("text", "").lower()) if tree.is_text(part) else None
        if name is None:
            raise refused(f"this part of a date is not possible; there are {', '.join(DATE_PARTS)}")
        return self._applied(name, [self.expression(value)], "EXTRACT")

    def _unnest(self, name: str, arguments: Sequence[Node]) -> Typed:
        if not self._may_unnest or self._scopes:
            raise refused(f"{name} is only possible in the list, neither in WHERE nor within itself or a lambda")
        if self.unnested is not None or len(arguments) != 1:
            raise refused(f"{name} takes one array, once in a SELECT")
        self._may_unnest = False
        array = self.expression(arguments[0])
        if not isinstance(array.type, ArrayType):
            raise refused(f"{name} takes an array, found {array.type.simpleString()}")
        self._may_unnest, self.unnested = True, array.node
        return Typed(tree.call("unnest", array.node), array.type.elementType)

    def _over_array(self, name: str, arguments: Sequence[Node]) -> Typed:
        array, body = self.expression(arguments[0]), arguments[1]
        if body.get("class") != "LAMBDA":
            raise refused(f"{name}: the second argument is a lambda: x -> ...")
        parameter = body["lhs"]
        if parameter.get("class") != "COLUMN_REF" or len(parameter["column_names"]) != 1:
            raise refused(f"{name}: a lambda has one parameter: x -> ...")
        if not isinstance(array.type, ArrayType):
            raise refused(f"{name} takes an array, found {array.type.simpleString()}")
        self._parameters += 1
        renamed = f"p{self._parameters}"
        of = Typed(tree.column(renamed), array.type.elementType)
        with self._inside(_Scope({parameter["column_names"][0].lower(): of})):
            inner = self.expression(body["expr"])
        if name == "filter" and kind_of(inner.type) != "boolean":
            raise refused(f"filter takes a condition, found {inner.type.simpleString()}")
        if kind_of(inner.type) in ("void", "interval"):
            raise refused("transform returns values that have a type: cast NULL, as in CAST(NULL AS STRING)")
        result = array.type if name == "filter" else ArrayType(inner.type)
        return Typed(tree.call(f"list_{name}", array.node, tree.lambda_of(renamed, inner.node)), result)

    @contextmanager
    def _inside(self, scope: _Scope) -> Iterator[None]:
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()

    def _filled(self, template: str, arguments: Sequence[Node]) -> Node:
        """Return a template of the engine's SQL with the arguments in their places (``$1``)."""
        filled: Node = tree.fill(self._parse(template), arguments)
        if tree.size(filled) > tree.LARGEST:
            raise refused(tree.TOO_LARGE)
        return filled


def _field_of(struct: Typed, name: str) -> Typed:
    """Return a field of a struct."""
    if not isinstance(struct.type, StructType):
        raise refused(f"{name} is no field: its type is {struct.type.simpleString()}")
    found = [each for each in struct.type.fields if each.name.lower() == name.lower()]
    found = [each for each in found if each.name == name] or found
    if len(found) != 1:
        raise refused(f"unknown field {name}; there are {', '.join(struct.type.names)}")
    return Typed(operator("STRUCT_EXTRACT", struct.node, tree.text(found[0].name)), found[0].dataType)


def _target(node: Node) -> DataType:
    name, parts = str(node.get("type_name")), node.get("children", [])
    digits = [part.get("literal", {}).get("text", "") for part in parts]
    known = {"type_name", "children", "qualified_name", *tree.ANYWHERE}
    are_digits = all(re.fullmatch("[0-9]{1,2}", each) for each in digits)
    if are_digits and not {part for part, value in node.items() if value} - known:
        target = casts.named_type(name, tuple(map(int, digits)))
        if target is not None:
            return target
    raise refused(f"cannot cast to {name.upper()}; there are {casts.NAMES}")
