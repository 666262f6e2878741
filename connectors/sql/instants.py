"""Whether an expression has the same result whatever the time zone of the session is, as far as this is known.

A TIMESTAMP is an instant: to compare instants, and to look whether one is null, needs no zone. Whatever else reads or
makes one (texts, dates, parts of a date) counts as dependent. Conservative: what is not known here is dependent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType, TimestampType

from sparkonce.connectors.sql.casts import TYPE_NAMES
from sparkonce.connectors.sql.engine import engine_here
from sparkonce.connectors.sql.forms import FORMS
from sparkonce.connectors.sql.paths import find
from sparkonce.connectors.sql.plain import for_engine
from sparkonce.connectors.sql.tree import Node, check_statements
from sparkonce.options import OptionError

_ZONED = re.compile(r"\d\d:\d\d.*(?:Z|[+-]\d\d:\d\d)\Z", re.ASCII | re.DOTALL)
_OF_INSTANTS = ("unix_seconds", "unix_millis", "unix_micros")
"""Functions of one instant whose results are the same in every zone."""
_MAKERS = {name for name, forms in FORMS.items() if any(form.returns == "timestamp" for form in forms)}
_IN = ("COMPARE_IN", "COMPARE_NOT_IN")


def is_zoneless(text: str, columns: StructType) -> bool:
    """Whether a SELECT that `check_select` has taken has the same result in every zone."""
    node, table = check_statements(engine_here().statements(for_engine(text)))
    expressions = _Expressions(columns, table)
    return all(expressions.is_zoneless(item) for item in node["select_list"])


class _Expressions:
    """The expressions of one SELECT."""

    def __init__(self, columns: StructType, table: str) -> None:
        self._columns, self._table = columns, table

    def is_zoneless(self, node: Node) -> bool:
        """Whether its result is the same in every zone."""
        if not self._has_times(node) or self._is_instant(node):
            return True
        parts, kind = list(_parts(node)), node["type"]
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            return parts[0]["class"] == "COLUMN_REF" or self.is_zoneless(parts[0])
        if kind == "FUNCTION" and node["function_name"].lower() in _OF_INSTANTS:
            return self._is_instant(parts[0]) and parts[0]["class"] != "CONSTANT"
        if node["class"] in ("COMPARISON", "BETWEEN") or kind in _IN:
            if any(map(self._is_instant, parts)):
                return all(map(self._is_instant, parts))
        elif node["class"] in ("FUNCTION", "CAST"):
            if _makes_times(node.get("type_expr", node)):
                return False
        elif node["class"] != "CONJUNCTION" and kind not in ("OPERATOR_NOT", "OPERATOR_COALESCE"):
            return False
        return all(self.is_zoneless(part) and not self._is_instant(part) for part in parts)

    def _is_instant(self, node: Node) -> bool:
        """Whether it is a TIMESTAMP that is the same in every zone; or a constant that becomes one beside another."""
        if node["class"] == "COLUMN_REF":
            return isinstance(self._type(node), TimestampType)
        if node["class"] == "CONSTANT":
            literal = node["literal"]
            text = str(literal.get("text", ""))
            return literal["kind"] == "NULL_LITERAL" or (
                literal["kind"] == "STRING" and _ZONED.search(text) is not None
            )
        if node["class"] == "CAST":
            target = str(node["type_expr"].get("type_name", "")).lower()
            return TYPE_NAMES.get(target) == "timestamp" and self._is_instant(node["child"])
        return node["type"] == "OPERATOR_COALESCE" and all(map(self._is_instant, _parts(node)))

    def _has_times(self, part: Any) -> bool:
        """Whether anything in it is a TIMESTAMP, or becomes one."""
        if isinstance(part, list):
            return any(map(self._has_times, part))
        if not isinstance(part, dict):
            return False
        if part.get("class") == "COLUMN_REF":
            return _holds_times(self._type(part))
        return _makes_times(part) or any(map(self._has_times, part.values()))

    def _type(self, node: Node) -> DataType:
        try:
            return find(node["column_names"], self._columns, self._table).field.dataType
        except OptionError:  # the parameter of a lambda: the array whose elements it stands for is read beside it
            return NullType()


def _makes_times(node: Node) -> bool:
    """Whether a function or a type of a cast is named that makes a TIMESTAMP."""
    function, kind = str(node.get("function_name", "")).lower(), str(node.get("type_name", "")).lower()
    return function in _MAKERS or "timestamp" in f"{function} {kind}".replace("timestamp_ntz", "")


def _parts(node: Node) -> Iterator[Node]:
    """Yield the expressions within one, of the classes whose parts matter here."""
    for name in ("left", "right", "input", "lower", "upper", "child"):
        if name in node:
            yield node[name]
    yield from node.get("children", ())
    yield from (each["expression"] for each in node.get("arguments", ()))


def _holds_times(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_times(field.dataType) for field in kind)
    if isinstance(kind, MapType):
        return _holds_times(kind.keyType) or _holds_times(kind.valueType)
    return _holds_times(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, TimestampType)
