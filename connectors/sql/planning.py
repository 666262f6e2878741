"""From the text of a SELECT to the columns copied from the batch and those that the engine computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from sparkonce.connectors.sql import tree
from sparkonce.connectors.sql.engine import ROWS, Engine, engine_here
from sparkonce.connectors.sql.kinds import kind_of
from sparkonce.connectors.sql.paths import Path, every, find, within
from sparkonce.connectors.sql.plain import Item, PlainSelect, for_engine, read_plain
from sparkonce.connectors.sql.rewriting import Rewriter
from sparkonce.connectors.sql.tree import Inputs, Node, case, operator, refused
from sparkonce.connectors.sql.types import arrow_schema, check_type, same_kinds

ROW = "row"
"""The engine's column with the number of the input's row."""
ELEMENT = "element"
LONGEST_TEXT = 100_000
"""In characters; the parser's time and memory grow with it."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the output."""

    name: str
    field: StructField
    path: Path | None
    """The path that it is copied from; None if the engine computes it."""
    name_in_engine: str = ""


def inputs_of(inputs: Sequence[tuple[str, Path]], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that the engine reads, by their flat names, and `ROW`."""
    numbers = pa.array(np.arange(rows.num_rows, dtype=np.int32))
    arrays = [path.of(rows) for _, path in inputs]
    return pa.RecordBatch.from_arrays([numbers, *arrays], names=[ROW, *(name for name, _ in inputs)])


@dataclass(frozen=True, slots=True)
class Condition:
    """WHERE without the columns."""

    query: str
    """Returns `ROW` of the rows that remain."""
    inputs: tuple[tuple[str, Path], ...]
    """The columns that it reads, by their flat names."""

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The columns and fields of structs that it reads, by their paths."""
        return frozenset(path.names for _, path in self.inputs)


@dataclass(frozen=True, slots=True)
class Computed:
    """The engine's part."""

    query: str
    """Returns `ROW` and the computed columns of the rows that remain."""
    failing: str
    """Returns `ROW`, and whether WHERE and each computed column fail; of all rows, and never fails itself."""
    parts: tuple[str, ...]
    """The descriptions of the columns of ``failing``, except the first."""
    inputs: tuple[tuple[str, Path], ...]
    """The columns that it reads, by their flat names."""
    condition: Condition | None
    keeps_rows: bool
    """Each row of the input is one of the output: no WHERE, no arrays unnested."""


def plan(text: str, columns: StructType) -> tuple[tuple[Output, ...], Computed | None]:
    """Return the columns of the output, and the engine's part, if any. Raises OptionError as `check_select`."""
    if len(text) > LONGEST_TEXT:
        raise refused(f"the text has {len(text)} characters, at most {LONGEST_TEXT} are possible")
    plain = read_plain(text)
    outputs, computed = (_plain(plain, columns), None) if plain else _with_engine(text, columns)
    _check_names(outputs)
    return tuple(outputs), computed


def _plain(select: PlainSelect, columns: StructType) -> list[Output]:
    return [output for item in select.items for output in _taken(item, columns, select.table)]


def _taken(item: Item, columns: StructType, table: str) -> list[Output]:
    """Return the columns that are copied unchanged."""
    if not item.star:
        path = find(item.names, columns, table)
        return [_output(item.alias or item.names[-1], path)]
    is_table = len(item.names) == 1 and item.names[0].lower() == table.lower()
    if not item.names or (is_table and item.names[0].lower() not in {name.lower() for name in columns.names}):
        paths = every(columns)
    else:
        paths = within(find(item.names, columns, table))
    return [_output(path.names[-1], path) for path in paths]


def _output(name: str, path: Path) -> Output:
    return Output(name, path.field, path)


def _check_names(outputs: Sequence[Output]) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen:
            raise refused(f"two columns are called {output.name} (compared without case); rename one with AS")
        seen.add(output.name.lower())


def _with_engine(text: str, columns: StructType) -> tuple[list[Output], Computed | None]:
    return _Planner(engine_here(), columns).plan(text)


class _Planner:
    """Plans one SELECT that the engine has read."""

    def __init__(self, engine: Engine, columns: StructType) -> None:
        self._engine, self._columns = engine, columns

    def plan(self, text: str) -> tuple[list[Output], Computed | None]:
        node, self._table = tree.check_statements(self._engine.statements(for_engine(text)))
        self._inputs = Inputs(self._columns, self._table)
        self._rewriter = Rewriter(self._inputs, self._engine.expression, self._engine.is_aggregate)
        self._items: list[Node] = []
        self._guarded: list[tuple[Node, bool]] = []
        """The same, each as one value per row that is null if it fails; and whether it unnests."""
        self._unnests = 0
        self._elements: Node | None = None
        """Whether a row has elements, if these are unnested."""
        where = self._where(node["where_clause"]) if node.get("where_clause") else None
        inputs_of_where = tuple(self._inputs.paths.values())
        drafts = [draft for item in node["select_list"] for draft in self._item(item)]
        if where is None and not self._items:
            return drafts, None
        query = self._query(where)
        self._check_kinds(query, drafts)
        names = [draft.name for draft in drafts if draft.path is None]
        return drafts, Computed(
            query,
            self._failing(where),
            tuple((["WHERE"] if where else []) + names),
            tuple(self._inputs.paths.values()),
            None if where is None else Condition(self._condition(where), inputs_of_where),
            keeps_rows=where is None and not self._unnests,
        )

    def _where(self, node: Node) -> Node:
        rewritten = self._rewriter.expression(node)
        if kind_of(rewritten.type) != "boolean":
            raise refused(f"WHERE takes a condition, found a value of the type {rewritten.type.simpleString()}")
        return rewritten.node

    def _item(self, node: Node) -> list[Output]:
        """Return the columns of an item of the list, those that are computed without their types."""
        alias = node.get("alias") or ""
        if node.get("class") == "COLUMN_REF":
            return _taken(Item(tuple(node["column_names"]), alias or None), self._columns, self._table)
        if node.get("class") == "STAR":
            return _taken(_star(node), self._columns, self._table)
        if not alias:
            raise refused(f"column {len(self._items) + 1} of those that are computed has no name; give it one with AS")
        typed = self._rewriter.item(node)
        rewritten = guarded = typed.node
        check_type(alias, typed.type)
        if self._rewriter.unnested is not None:
            self._unnests += 1
            self._elements = operator("OPERATOR_TRY", self._rewriter.has_elements(self._rewriter.unnested))
            guarded = _each_element(rewritten, self._rewriter.unnested)
        if self._unnests > 1:
            raise refused("unnest is possible once in a SELECT")
        name = f"x{len(self._items)}"
        self._items.append({**rewritten, "alias": name})
        self._guarded.append((tree.guarded(guarded), guarded is not rewritten))
        return [Output(alias, StructField(alias, typed.type), None, name)]

    def _query(self, where: Node | None) -> str:
        return self._engine.text_of(tree.select([tree.column(ROW), *self._items], ROWS, where))

    def _condition(self, where: Node) -> str:
        return self._engine.text_of(tree.select([tree.column(ROW)], ROWS, where))

    def _failing(self, where: Node | None) -> str:
        """Return the query that finds failures: rows that WHERE drops, or without elements, have none."""
        checks = []
        for guarded, unnests in self._guarded:
            check = operator("OPERATOR_IS_NULL", guarded)
            checks.append(check if unnests or self._elements is None else case(self._elements, check))
        if where is not None:
            checks = [case(operator("OPERATOR_TRY", where), check) for check in checks]
            checks.insert(0, operator("OPERATOR_IS_NULL", tree.guarded(where)))
        named = [{**check, "alias": f"f{place}"} for place, check in enumerate(checks)]
        return self._engine.text_of(tree.select([tree.column(ROW), *named], ROWS))

    def _check_kinds(self, query: str, outputs: Sequence[Output]) -> None:
        """Check that the engine returns the types of the rules."""
        kinds = self._engine.schema_of(query, self._no_rows())
        for output in outputs:
            if output.path is None:
                found = kinds.field(output.name_in_engine).type
                wanted = arrow_schema(StructType([output.field])).field(0).type
                if not same_kinds(found, wanted):
                    raise refused(f"column {output.name}: the engine returns {found}, Spark {wanted}; cast it")

    def _no_rows(self) -> pa.RecordBatch:
        fields = [pa.field(ROW, pa.int32())]
        schema = arrow_schema(
            StructType([StructField(name, path.field.dataType) for name, path in self._inputs.paths.values()])
        )
        return pa.RecordBatch.from_pylist([], pa.schema([*fields, *schema]))


def _star(node: Node) -> Item:
    unknown = {part for part, value in node.items() if value} - {"class", "type", "relation_name", *tree.ANYWHERE}
    if unknown:
        raise refused(f"* takes nothing here, found {', '.join(sorted(unknown))}; name the columns")
    relation = node.get("relation_name")
    return Item((relation,) if relation else (), star=True)


def _each_element(node: Any, array: Node) -> Node:
    """Return an item with unnest as one array: the item for each element."""
    return tree.call("list_transform", array, tree.lambda_of(ELEMENT, _with_element(node)))


def _with_element(part: Any) -> Any:
    if isinstance(part, list):
        return [_with_element(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("function_name") == "unnest":
        return tree.column(ELEMENT)
    return {key: _with_element(value) for key, value in part.items()}
