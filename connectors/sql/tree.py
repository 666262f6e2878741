"""The engine's parse tree of a SELECT: checked, and rewritten to what the engine evaluates.

What is not allowed here by name is refused: kinds of nodes, their parts, functions, operators, types. So new syntax of
the engine is refused until somebody looks at it. Columns become flat columns of the batch (`Inputs`), since the engine
would convert whole structs; lambdas' parameters get names that hide none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from sparkonce.connectors.settings.options import OptionError
from sparkonce.connectors.sql import casts, functions
from sparkonce.connectors.sql.paths import TABLE, Path, find

Node = dict[str, Any]
"""A node of the tree, as JSON."""

ANYWHERE = {"class", "type", "alias", "query_location", "query_location_length"}
_COMPARISONS = (
    "COMPARE_EQUAL COMPARE_NOTEQUAL COMPARE_LESSTHAN COMPARE_GREATERTHAN COMPARE_LESSTHANOREQUALTO "
    "COMPARE_GREATERTHANOREQUALTO COMPARE_DISTINCT_FROM COMPARE_NOT_DISTINCT_FROM"
)
_OPERATORS = (
    "COMPARE_IN COMPARE_NOT_IN OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_NOT OPERATOR_COALESCE OPERATOR_TRY "
    "STRUCT_EXTRACT ARRAY_EXTRACT"
)
_NODES: Mapping[str, tuple[str, str]] = {
    "COLUMN_REF": ("COLUMN_REF", "column_names"),
    "CONSTANT": ("VALUE_CONSTANT", "literal"),
    "FUNCTION": ("FUNCTION", "function_name qualified_name arguments is_operator order_bys"),
    "COMPARISON": (_COMPARISONS, "left right"),
    "CONJUNCTION": ("CONJUNCTION_AND CONJUNCTION_OR", "children"),
    "BETWEEN": ("COMPARE_BETWEEN COMPARE_NOT_BETWEEN", "input lower upper"),
    "OPERATOR": (_OPERATORS, "children"),
    "CASE": ("CASE_EXPR", "case_checks else_expr"),
    "CAST": ("OPERATOR_CAST", "child type_expr try_cast"),
    "LAMBDA": ("LAMBDA", "lhs expr syntax_type"),
}
"""The allowed classes of nodes, with their types and parts."""

_SELECT = {"type", "cte_map", "select_list", "from_table", "where_clause", "aggregate_handling"}
_REFUSED_PARTS = {
    "modifiers": "DISTINCT, ORDER BY, LIMIT and OFFSET are not possible: rows are taken batch by batch",
    "group_expressions": "GROUP BY is not possible: each record is processed on its own",
    "having": "HAVING is not possible: each record is processed on its own; WHERE filters records",
    "qualify": "QUALIFY is not possible: each record is processed on its own; WHERE filters records",
    "sample": "samples are not possible: the same records must give the same rows again",
}
_REFUSED_NODES = {
    "WINDOW": "window functions are not possible: each record is processed on its own",
    "SUBQUERY": "subqueries are not possible: only the record itself can be read",
    "PARAMETER": "parameters are not possible: write the value",
    "STAR": "* is only possible as an item of the list, as * or as struct.*",
    "COLLATE": "collations are not possible: text is compared by its bytes",
    "POSITIONAL_REFERENCE": "references by position are not possible: name the column",
}
DEEPEST = 100
LARGEST = 5_000
"""Nodes that an expression may have once it is rewritten."""
ORDERS = {"type": "ORDER_MODIFIER"}
"""What a function call without ORDER BY has."""

_TOO_LARGE = "an expression is too large: a function that reads an argument twice doubles what is in it"
JOINED = "only one table can be read: FROM records; unnest(array) in the list makes a row of each element"


def refused(what: str) -> OptionError:
    """Return the error that the SELECT has something that is not possible."""
    return OptionError(f"sql: {what}")


def call(name: str, *arguments: Node, alias: str = "") -> Node:
    """Return the call of a function."""
    return _function(name, [{"expression": each} for each in arguments], alias)


def _function(name: str, arguments: Sequence[Node], alias: str = "") -> Node:
    return {
        "class": "FUNCTION", "type": "FUNCTION", "alias": alias, "function_name": name,
        "qualified_name": {"path": [name]}, "order_bys": ORDERS, "arguments": list(arguments),
    }  # fmt: skip


def operator(kind: str, *children: Node) -> Node:
    """Return an operator with its operands."""
    return {"class": "OPERATOR", "type": kind, "children": list(children)}


def case(when: Node, then: Node) -> Node:
    """Return ``CASE WHEN when THEN then ELSE false END``."""
    checks = [{"when_expr": when, "then_expr": then}]
    return {"class": "CASE", "type": "CASE_EXPR", "case_checks": checks, "else_expr": _truth(value=False)}


def _truth(*, value: bool) -> Node:
    literal = {"kind": "BOOLEAN", "text": str(value).lower()}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": literal}


def _comparison(kind: str, left: Node, right: Node) -> Node:
    return {"class": "COMPARISON", "type": kind, "left": left, "right": right}


def _from_the_left(kind: str, conditions: Sequence[Node]) -> Node:
    """Return AND or OR of conditions, of which none is evaluated once those before it decide."""
    *firsts, rest = conditions
    for first in reversed(firsts):
        if _may_fail(rest):
            # Not false, of AND: true or null, which do not decide. Of OR, not true.
            undecided = _comparison("COMPARE_DISTINCT_FROM", first, _truth(value=kind == "CONJUNCTION_OR"))
            rest = case(undecided, rest)
        rest = {"class": "CONJUNCTION", "type": kind, "children": [first, rest]}
    if _size(rest) > LARGEST:
        raise refused(_TOO_LARGE)
    return rest


def _may_fail(part: Any) -> bool:
    """Return whether a row's values may make a rewritten expression fail: any function or cast counts, but LIKE."""
    if isinstance(part, list):
        return any(map(_may_fail, part))
    if not isinstance(part, dict):
        return False
    kind = part.get("class")
    is_like = kind == "FUNCTION" and part["function_name"] in functions.LIKE
    return (kind in ("FUNCTION", "CAST") and not is_like) or any(map(_may_fail, part.values()))


def guarded(node: Node) -> Node:
    """Return what is null for the rows that an expression fails for, and only for these: a struct of its value."""
    return operator("OPERATOR_TRY", _function("struct_pack", [{"name": "v", "expression": node}]))


def column(*names: str) -> Node:
    """Return a reference to a column."""
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": list(names)}


def text(value: str) -> Node:
    """Return a constant."""
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": "STRING", "text": value}}


def select(items: Sequence[Node], table: str, where: Node | None = None) -> Node:
    """Return a whole SELECT."""
    node: Node = {
        "type": "SELECT_NODE", "cte_map": {"map": []}, "select_list": list(items),
        "aggregate_handling": "STANDARD_HANDLING",
        "from_table": {"type": "BASE_TABLE", "table_name": table, "qualified_name": {"path": [table]}},
    }  # fmt: skip
    return node if where is None else {**node, "where_clause": where}


def lambda_of(parameter: str, body: Node) -> Node:
    """Return a lambda with one parameter."""
    return {
        "class": "LAMBDA", "type": "LAMBDA", "lhs": column(parameter), "expr": body, "syntax_type": "LAMBDA_KEYWORD",
    }  # fmt: skip


def check_statements(statements: Sequence[Node]) -> tuple[Node, str]:
    """Return the one SELECT node, and the name that its table has in it.

    Raises:
        OptionError: there is anything besides the list, ``FROM records`` and a WHERE.
    """
    if len(statements) != 1:
        raise refused(f"expected one SELECT, found {len(statements)} statements")
    node = statements[0]["node"]
    for part, why in _REFUSED_PARTS.items():
        if node.get(part):
            raise refused(why)
    if (node.get("cte_map") or {}).get("map"):
        raise refused("WITH is not possible: write one SELECT ... FROM records")
    if node.get("type") != "SELECT_NODE":
        raise refused("expected one SELECT, without UNION, INTERSECT or EXCEPT")
    unknown = [part for part, value in node.items() if value and part not in _SELECT]
    if unknown or node.get("aggregate_handling") != "STANDARD_HANDLING":
        raise refused(f"not possible in this SELECT: {', '.join(unknown) or 'GROUP BY ALL'}")
    return node, _table(node.get("from_table") or {})


def _table(source: Node) -> str:
    kind = source.get("type")
    if kind in (None, "EMPTY", "EMPTY_FROM"):
        raise refused("FROM is missing: write SELECT ... FROM records")
    if kind != "BASE_TABLE":
        raise refused(
            {"JOIN": JOINED, "SUBQUERY": _REFUSED_NODES["SUBQUERY"]}.get(str(kind), "only FROM records is possible")
        )
    path = (source.get("qualified_name") or {}).get("path", [])
    if [str(name).lower() for name in path] != [TABLE]:
        raise refused(f"FROM {'.'.join(path)}: the only table is {TABLE}: write FROM {TABLE}")
    if source.get("sample"):
        raise refused(_REFUSED_PARTS["sample"])
    unknown = {part for part, value in source.items() if value} - {*ANYWHERE, "table_name", "qualified_name"}
    if unknown:
        raise refused(f"FROM {TABLE} takes an alias at most, found {', '.join(sorted(unknown))}")
    return str(source.get("alias") or TABLE)


@dataclass
class Inputs:
    """The columns that the engine reads, flat: each path once."""

    schema: StructType
    table: str
    paths: dict[tuple[str, ...], tuple[str, Path]] = field(default_factory=dict)

    def name_of(self, names: Sequence[str]) -> str:
        """Return the flat name of a column.

        Raises:
            OptionError: it is unknown.
        """
        path = find(names, self.schema, self.table)
        return self.paths.setdefault(path.names, (f"c{len(self.paths)}", path))[0]


@dataclass(frozen=True)
class _Scope:
    """A lambda that is around an expression."""

    parameters: Mapping[str, str]
    """Its parameters' new names, by those in the SELECT in lower case."""
    array: Node
    """What it goes over, rewritten."""


class Rewriter:
    """Rewrites the expressions of one SELECT."""

    def __init__(
        self,
        inputs: Inputs,
        parse: Callable[[str], Node],
        type_of: Callable[[Node], str],
        is_aggregate: Callable[[str], bool],
    ) -> None:
        """``parse`` returns the tree of an expression, ``type_of`` the engine's type of a rewritten expression."""
        self._inputs, self._parse, self._type_of, self._is_aggregate = inputs, parse, type_of, is_aggregate
        self._scopes: list[_Scope] = []
        self._parameters = self._depth = 0
        self.unnested: Node | None = None
        """The array that is unnested, in the item that was rewritten last."""
        self._may_unnest = False

    def item(self, node: Node) -> Node:
        """Rewrite an item of the list."""
        self.unnested, self._may_unnest = None, True
        try:
            return self.expression(node)
        finally:
            self._may_unnest = False

    def has_elements(self, array: Node) -> Node:
        """Return whether an array, which is rewritten, has elements."""
        return self._filled("len($1) > 0", [array])

    def expression(self, node: Node) -> Node:
        """Return the expression that the engine evaluates.

        Raises:
            OptionError: something in it is not allowed or unknown.
        """
        self._depth += 1
        if self._depth > DEEPEST:
            raise refused(f"expressions are nested more than {DEEPEST} deep")
        try:
            return self._checked(node)
        finally:
            self._depth -= 1

    def _checked(self, node: Node) -> Node:
        kind = str(node.get("class"))
        if kind in _REFUSED_NODES:
            raise refused(_REFUSED_NODES[kind])
        types, parts = _NODES.get(kind, ("", ""))
        unknown = {part for part, value in node.items() if value} - ANYWHERE - set(parts.split())
        if kind == "FUNCTION" and len(node["qualified_name"]["path"]) > 1:
            raise refused(f"{'.'.join(node['qualified_name']['path'])}: write functions without a schema")
        if kind == "FUNCTION" and unknown & {"distinct", "filter", "order_bys"}:
            raise refused(f"{node['function_name']}: aggregates are not possible: each record is processed on its own")
        if node.get("type") not in types.split() or unknown:
            raise refused(f"not supported: {node.get('type')}{''.join(f' with {part}' for part in sorted(unknown))}")
        rewritten: Node = getattr(self, f"_{kind.lower()}")(node)
        return rewritten

    def _all(self, nodes: Sequence[Node]) -> list[Node]:
        return [self.expression(node) for node in nodes]

    def _column_ref(self, node: Node) -> Node:
        names = node["column_names"]
        for scope in reversed(self._scopes):
            parameter = scope.parameters.get(names[0].lower())
            if parameter is not None:
                found = column(parameter)
                for name in names[1:]:
                    found = operator("STRUCT_EXTRACT", found, text(name))
                return found
        return column(self._inputs.name_of(names))

    def _constant(self, node: Node) -> Node:
        return {**deepcopy(node), "alias": ""}

    def _comparison(self, node: Node) -> Node:
        return {**node, "alias": "", "left": self.expression(node["left"]), "right": self.expression(node["right"])}

    def _conjunction(self, node: Node) -> Node:
        """Return AND or OR as Spark evaluates it: from the left, and not what follows once the result is known.

        The engine evaluates all operands, in WHERE in any order, so a condition would not guard the cast after it.
        """
        return _from_the_left(node["type"], self._all(node["children"]))

    def _between(self, node: Node) -> Node:
        value, lower, upper = (self.expression(node[part]) for part in ("input", "lower", "upper"))
        if not _may_fail(upper):
            return {**node, "alias": "", "input": value, "lower": lower, "upper": upper}
        both = [
            _comparison("COMPARE_GREATERTHANOREQUALTO", value, lower),
            _comparison("COMPARE_LESSTHANOREQUALTO", value, upper),
        ]
        within = _from_the_left("CONJUNCTION_AND", both)
        return within if node["type"] == "COMPARE_BETWEEN" else operator("OPERATOR_NOT", within)

    def _operator(self, node: Node) -> Node:
        kind, children = node["type"], node["children"]
        if kind == "ARRAY_EXTRACT" and not _is_text(children[1]):
            raise refused(
                "array[n] is not possible, since Spark and the engine count differently: "
                "get(array, n) counts from 0, element_at(array, n) from 1"
            )
        if kind == "STRUCT_EXTRACT" and not _is_text(children[1]):
            raise refused("a field of a struct is named, as in value.id")
        return {**node, "alias": "", "children": self._all(children)}

    def _case(self, node: Node) -> Node:
        checks = [
            {part: self.expression(check[part]) for part in ("when_expr", "then_expr")} for check in node["case_checks"]
        ]
        return {**node, "alias": "", "case_checks": checks, "else_expr": self.expression(node["else_expr"])}

    def _lambda(self, _node: Node) -> Node:
        raise refused(
            "x -> ... is only possible as the second argument of transform(array, ...) and filter(array, ...)"
        )

    def _cast(self, node: Node) -> Node:
        child = self.expression(node["child"])
        target = _target(node["type_expr"])
        shown = self._type_here(child)
        template = casts.cast_template(casts.kind_of(shown), target[1], target[0], to_null=bool(node.get("try_cast")))
        if template is None:
            raise refused(f"a value of the engine's type {shown} cannot be cast to {target[0]}")
        return self._filled(template, [child])

    def _type_here(self, node: Node) -> str:
        """Return the engine's type of an expression within the lambdas that are around it."""
        for scope in reversed(self._scopes):
            (parameter,) = scope.parameters.values()
            node = call("list_transform", scope.array, lambda_of(parameter, node))
        shown = self._type_of(node)
        return shown.removesuffix("[]" * len(self._scopes)) if self._scopes else shown

    def _function(self, node: Node) -> Node:
        name, arguments = node["function_name"].lower(), node.get("arguments", [])
        if node.get("order_bys", ORDERS) != ORDERS:
            raise refused(f"{name}: aggregates are not possible: each record is processed on its own")
        if name not in functions.NAMES:
            raise self._unknown(name)
        if name in functions.LAMBDAS and len(arguments) == 2:
            return self._over_array(name, [each["expression"] for each in arguments])
        if name in functions.UNNEST:
            return self._unnest(name, arguments)
        if name == "date_part" and len(arguments) == 2:
            return self._date_part(*(each["expression"] for each in arguments))
        rewritten = [{**each, "expression": self.expression(each["expression"])} for each in arguments]
        if name in functions.JOINED:
            rewritten = [{**each, "expression": self._as_text(each["expression"])} for each in rewritten]
        if name in functions.VARIADIC:
            return _function(functions.VARIADIC[name], rewritten)
        if any(each.get("name") for each in arguments):
            raise refused(f"{name}: arguments are not named")
        return self._named(name, [each["expression"] for each in rewritten])

    def _named(self, name: str, arguments: list[Node]) -> Node:
        if name == "concat" and arguments:
            joined = arguments[0] if len(arguments) > 1 else call("concat", *arguments)
            for each in arguments[1:]:
                joined = self._filled("$1 || $2", [joined, each])
            return joined
        if name in functions.LIKE:
            return _like(name, arguments)
        if name in functions.TYPED and len(arguments) == 1:
            return self._by_kind(name, arguments[0])
        if name in ("+", "-", "*", "/", "%") and len(arguments) == 2:
            return self._arithmetic(name, *arguments)
        template = functions.TEMPLATES.get(f"{name}/{len(arguments)}")
        if template is None:
            counts = " or ".join(str(count) for count in functions.arities(name)) or "some"
            raise refused(f"{name} takes {counts} arguments here, found {len(arguments)}")
        return self._filled(template, arguments)

    def _by_kind(self, name: str, argument: Node) -> Node:
        shown = self._type_here(argument)
        template = functions.TYPED[name].get(casts.kind_of(shown))
        if template is None:
            raise refused(f"{name} takes no value of the engine's type {shown}")
        return self._filled(template, [argument])

    def _as_text(self, node: Node) -> Node:
        """Return what concat joins: text as it is, also bytes and arrays; other values as Spark casts them."""
        kind = casts.kind_of(self._type_here(node))
        template = casts.cast_template(kind, casts.TEXT, "VARCHAR", to_null=False)
        return node if template is None or kind in (casts.TEXT, casts.BYTES) else self._filled(template, [node])

    def _arithmetic(self, sign: str, left: Node, right: Node) -> Node:
        """Return a sum, difference, product or quotient in the type that Spark returns."""
        left, right = (_whole_constant(each) for each in (left, right))
        types = [self._type_here(left), self._type_here(right)]
        kinds = [casts.kind_of(shown) for shown in types]
        result = self._filled(functions.TEMPLATES[f"{sign}/2"], [left, right])
        if kinds == [casts.DATE, casts.INTERVAL]:
            whole = right.get("function_name") in functions.WHOLE_DAYS
            return self._filled(f"CAST($1 AS {'DATE' if whole else 'TIMESTAMPTZ'})", [result])
        if "FLOAT" in types and (sign == "/" or types != ["FLOAT", "FLOAT"]):
            template = f"CAST($1 AS DOUBLE) {sign} CAST($2 AS DOUBLE)"
            return self._filled(template, [left, right])
        return result

    def _date_part(self, part: Node, value: Node) -> Node:
        name = functions.DATE_PARTS.get(part["literal"]["text"].lower()) if _is_text(part) else None
        if name is None:
            raise refused(f"this part of a date is not possible; there are {', '.join(functions.DATE_PARTS)}")
        return self._filled(functions.TEMPLATES[f"{name}/1"], [self.expression(value)])

    def _unknown(self, name: str) -> OptionError:
        if self._is_aggregate(name):
            return refused(
                f"{name.removesuffix('_star')}: aggregates are not possible: each record is processed on its own"
            )
        if name in functions.NOT_REPEATABLE:
            why = "a batch that is written again must have the same rows (timestamp is the record's time)"
            return refused(f"function {name} is unknown or not allowed: {why}")
        near = functions.similar(name)
        hint = f"did you mean {' or '.join(near)}?" if near else "docs/direct_sql.md lists what there is"
        return refused(f"function {name} is unknown or not allowed; {hint}")

    def _unnest(self, name: str, arguments: Sequence[Node]) -> Node:
        if not self._may_unnest or self._scopes:
            raise refused(f"{name} is only possible in the list, neither in WHERE nor within itself or a lambda")
        if self.unnested is not None or len(arguments) != 1 or arguments[0].get("name"):
            raise refused(f"{name} takes one array, once in a SELECT")
        self._may_unnest = False
        array = self.expression(arguments[0]["expression"])
        shown = self._type_here(array)
        if not shown.endswith("[]"):
            raise refused(f"{name} takes an array, found the engine's type {shown}")
        self._may_unnest, self.unnested = True, array
        return call("unnest", array)

    def _over_array(self, name: str, arguments: Sequence[Node]) -> Node:
        array, body = self.expression(arguments[0]), arguments[1]
        if body.get("class") != "LAMBDA":
            raise refused(f"{name}: the second argument is a lambda: x -> ...")
        parameter = body["lhs"]
        if parameter.get("class") != "COLUMN_REF" or len(parameter["column_names"]) != 1:
            raise refused(f"{name}: a lambda has one parameter: x -> ...")
        self._parameters += 1
        renamed = f"p{self._parameters}"
        with self._inside(_Scope({parameter["column_names"][0].lower(): renamed}, array)):
            inner = self.expression(body["expr"])
        return self._filled(functions.TEMPLATES[f"{name}/2"], [array, lambda_of(renamed, inner)])

    @contextmanager
    def _inside(self, scope: _Scope) -> Iterator[None]:
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()

    def _filled(self, template: str, arguments: Sequence[Node]) -> Node:
        """Return a template of the engine's SQL with the arguments in their places (``$1``)."""
        filled: Node = _fill(self._parse(template), arguments)
        if _size(filled) > LARGEST:
            raise refused(_TOO_LARGE)
        return filled


def _fill(part: Any, arguments: Sequence[Node]) -> Any:
    if isinstance(part, list):
        return [_fill(each, arguments) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("class") == "PARAMETER":
        return deepcopy(arguments[int(part["identifier"]) - 1])
    return {key: _fill(value, arguments) for key, value in part.items()}


def _size(part: Any) -> int:
    """Return how many nodes there are."""
    if isinstance(part, list):
        return sum(map(_size, part))
    return 1 + sum(map(_size, part.values())) if isinstance(part, dict) else 0


def _like(name: str, arguments: Sequence[Node]) -> Node:
    pattern = arguments[1]
    if _is_text(pattern) and "\\" not in pattern["literal"].get("text", ""):
        return {**call(functions.LIKE[name], *arguments), "is_operator": True}
    return call(functions.ESCAPED[name], *arguments, text("\\"))


def _whole_constant(node: Node) -> Node:
    """Return a small whole number as an INT, as Spark reads it; the engine would take the other operand's type."""
    literal = node.get("literal", {})
    if literal.get("kind") != "INTEGER" or abs(int(literal["text"])) >= 2**31:
        return node
    return {
        "class": "CAST", "type": "OPERATOR_CAST", "child": node,
        "type_expr": {"class": "TYPE", "type": "TYPE", "type_name": "INTEGER", "qualified_name": {"path": ["INTEGER"]}},
    }  # fmt: skip


def _is_text(node: Node) -> bool:
    return node.get("class") == "CONSTANT" and node["literal"].get("kind") == "STRING"


def _target(node: Node) -> tuple[str, str]:
    name, parts = str(node.get("type_name")), node.get("children", [])
    digits = [part.get("literal", {}).get("text", "") for part in parts]
    known = {"type_name", "children", "qualified_name", *ANYWHERE}
    if not {part for part, value in node.items() if value} - known and all(each.isdigit() for each in digits):
        target = casts.engine_type(name, tuple(map(int, digits)))
        if target is not None:
            return target
    raise refused(f"cannot cast to {name.upper()}; there are {casts.NAMES}")
