"""The engine's parse tree of a SELECT: its nodes, and which of them are allowed.

Anything not allowed here by name is rejected: kinds of nodes and their parts. So new syntax of the engine is rejected
until somebody has checked it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import DataType, StructType

from sparkonce.connectors.sql.paths import TABLE, Path, find
from sparkonce.options import OptionError

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
NODES: Mapping[str, tuple[str, str]] = {
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
REFUSED_NODES = {
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

_NULL_TO_VALUE = (
    "nvl ifnull nvl2 if nullif isnull isnotnull concat_ws list_value struct_pack named_struct transform filter "
    "greatest least CASE CONJUNCTION OPERATOR_COALESCE OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL COMPARE_IN COMPARE_NOT_IN "
    "COMPARE_DISTINCT_FROM COMPARE_NOT_DISTINCT_FROM"
)
_OF_NULL = frozenset(_NULL_TO_VALUE.split())
"""Functions, classes and types of nodes that make a value of null."""
_LIKE = ("~~", "!~~")
TOO_LARGE = "an expression is too large: a function that reads an argument twice doubles what is in it"
NO_INTERVAL = "the number of an interval is a constant: INTERVAL 1 DAY, INTERVAL '-1' DAY"
WAY_OUT = (
    "without the options sql and handOver=ranges, Spark evaluates it in selectExpr (sparkonce ingest: direct=false)"
)
"""What to do with an expression that is not possible here."""
JOINED = "only one table can be read: FROM records; unnest(array) in the list makes a row of each element"


def refused(what: str) -> OptionError:
    """Return the error that the SELECT has something unsupported."""
    return OptionError(f"sql: {what}")


def call(name: str, *arguments: Node) -> Node:
    """Return the call of a function."""
    return function(name, [{"expression": each} for each in arguments])


def function(name: str, arguments: Sequence[Node], alias: str = "") -> Node:
    """Return the call of a function whose arguments may have names."""
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
    return {"class": "CASE", "type": "CASE_EXPR", "case_checks": checks, "else_expr": truth(value=False)}


def truth(*, value: bool) -> Node:
    """Return a constant."""
    literal = {"kind": "BOOLEAN", "text": str(value).lower()}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": literal}


def comparison(kind: str, left: Node, right: Node) -> Node:
    """Return a comparison."""
    return {"class": "COMPARISON", "type": kind, "left": left, "right": right}


def check_precedence(node: Node) -> None:
    """Reject ``x = y IN (...)`` and the like, which Spark reads otherwise and trees show alike. Raises OptionError."""
    if "DISTINCT" in node["type"]:
        return
    left, right = _without_not(node["left"]), _without_not(node["right"])
    if _is_condition(right) or (_is_condition(left) and left["class"] != "OPERATOR"):
        raise refused(
            "x = y IN (...), or BETWEEN or LIKE: Spark compares x with y first, the engine afterwards: "
            "write (y IN (...)) = x or (x = y) IN (...); for BETWEEN and LIKE, IS NOT DISTINCT FROM in place of ="
        )


def _without_not(node: Node) -> Node:
    return _without_not(node["children"][0]) if node.get("type") == "OPERATOR_NOT" else node


def _is_condition(node: Node) -> bool:
    """Return whether it is IN, BETWEEN or LIKE."""
    is_in, is_like = node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"), node.get("function_name") in _LIKE
    return is_in or is_like or node.get("class") == "BETWEEN"


def from_the_left(kind: str, conditions: Sequence[Node]) -> Node:
    """Return AND or OR of conditions, evaluated from the left only until the result is known."""
    *firsts, rest = conditions
    for first in reversed(firsts):
        if may_fail(rest):
            # Not false, of AND: true or null, which do not decide. Of OR, not true.
            undecided = comparison("COMPARE_DISTINCT_FROM", first, truth(value=kind == "CONJUNCTION_OR"))
            rest = case(undecided, rest)
        rest = {"class": "CONJUNCTION", "type": kind, "children": [first, rest]}
    if size(rest) > LARGEST:
        raise refused(TOO_LARGE)
    return rest


def may_fail(part: Any) -> bool:
    """Return whether a row's values may make a rewritten expression fail: any function or cast counts, except LIKE."""
    if isinstance(part, list):
        return any(map(may_fail, part))
    if not isinstance(part, dict):
        return False
    kind = part.get("class")
    if kind == "CAST" and part["child"].get("class") == "CONSTANT":
        return False  # checked when the query starts
    is_like = kind == "FUNCTION" and part["function_name"] in _LIKE
    return (kind in ("FUNCTION", "CAST") and not is_like) or any(map(may_fail, part.values()))


def may_skip(part: Any, *, hidden: bool = False) -> bool:
    """Return whether Spark may have a value where an operand fails here.

    It skips an operand if another one is null. That shows if something around it, such as ``coalesce``, makes a value
    of null; ``IN`` is true for the first that is equal.
    """
    if isinstance(part, list):
        return any(may_skip(each, hidden=hidden) for each in part)
    if not isinstance(part, dict):
        return False
    hides = part.get("function_name") in _OF_NULL or part.get("type") in _OF_NULL or part.get("class") in _OF_NULL
    if (hidden or part.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN")) and _has_operand_that_fails(part):
        return True
    return any(may_skip(each, hidden=hidden or hides) for each in part.values())


def _has_operand_that_fails(node: Node) -> bool:
    operands = [each["expression"] for each in node.get("arguments", [])]
    if node.get("class") == "COMPARISON":
        operands = [node["left"], node["right"]]
    elif node.get("class") == "BETWEEN":
        operands = [node["input"], node["lower"], node["upper"]]
    elif node.get("type") in ("COMPARE_IN", "COMPARE_NOT_IN"):
        operands = node["children"]
    varying = [each for each in operands if each.get("class") != "CONSTANT"]
    return len(varying) > 1 and any(map(may_fail, varying))


def guarded(node: Node) -> Node:
    """Return an expression that is null only for the rows for which an expression fails: a struct of its value."""
    return operator("OPERATOR_TRY", function("struct_pack", [{"name": "v", "expression": node}]))


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
    """Return the one SELECT node, and its table's name. Raises OptionError for more than list, FROM and WHERE."""
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
            {"JOIN": JOINED, "SUBQUERY": REFUSED_NODES["SUBQUERY"]}.get(str(kind), "only FROM records is possible")
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

    def column_of(self, names: Sequence[str]) -> tuple[str, DataType]:
        """Return the flat name of a column, and its type. Raises OptionError if it is unknown."""
        path = find(names, self.schema, self.table)
        return self.paths.setdefault(path.names, (f"c{len(self.paths)}", path))[0], path.field.dataType


def fill(part: Any, arguments: Sequence[Node]) -> Any:
    """Return a template's tree with the arguments in their places (``$1``)."""
    if isinstance(part, list):
        return [fill(each, arguments) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("class") == "PARAMETER":
        return deepcopy(arguments[int(part["identifier"]) - 1])
    return {key: fill(value, arguments) for key, value in part.items()}


def size(part: Any) -> int:
    """Return how many nodes there are."""
    if isinstance(part, list):
        return sum(map(size, part))
    return 1 + sum(map(size, part.values())) if isinstance(part, dict) else 0


def number_of_interval(node: Node) -> str:
    """Return the constant in an interval, inside the parser's casts and ``trunc``. Raises OptionError if it is none."""
    while node.get("class") != "CONSTANT":
        given = node.get("arguments", [])
        if node.get("class") == "CAST" and node["type_expr"].get("type_name") in ("INTEGER", "BIGINT", "DOUBLE"):
            node = node["child"]
        elif node.get("function_name") == "trunc" and len(given) == 1:
            node = given[0]["expression"]
        else:
            raise refused(NO_INTERVAL)
    return str(node["literal"].get("text", ""))


def is_text(node: Node) -> bool:
    """Return whether it is a constant that is text."""
    return node.get("class") == "CONSTANT" and node["literal"].get("kind") == "STRING"
