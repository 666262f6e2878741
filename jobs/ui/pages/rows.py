"""The page *Rows* of a table: its columns, and the rows that were written last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import Field
from deltalake.schema import ArrayType, DataType, MapType, StructType

from sparkonce.jobs.ui.delta.paced import PacedResults
from sparkonce.jobs.ui.delta.rows import RowsFound, UnsearchableError
from sparkonce.jobs.ui.delta.tracing import RowTrace, trace_rows
from sparkonce.jobs.ui.page import Page, PageRequest
from sparkonce.jobs.ui.pages.tables import table_of
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.errors import OffsetStoreError


@dataclass(frozen=True, slots=True)
class Column:
    """A column, as pages show it."""

    name: str
    kind: str
    notes: str

    @classmethod
    def of(cls, field: Field, is_partition: bool) -> Column:
        """Return what is said of a field of a table's schema."""
        said = ["not null"] * (not field.nullable) + ["partition column"] * is_partition
        comment = field.metadata.get("comment")
        return cls(field.name, type_words(field.type), ", ".join([*said, *([str(comment)] if comment else [])]))


def type_words(kind: DataType) -> str:
    """Return a type as DDL writes it: `struct<a: int, b: array<string>>`."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{each.name}: {type_words(each.type)}' for each in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_words(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{type_words(kind.key_type)}, {type_words(kind.value_type)}>"
    return {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}.get(kind.type, kind.type)


_newest: PacedResults[tuple[RowsFound, list[RowTrace]]] = PacedResults()


def _data(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    watch = table_of(site, asked.path["table"])
    watch.look()
    found, problem = None, ""
    traces: list[RowTrace] = []
    try:
        found, traces = _newest.get(watch.place, lambda: trace_rows(watch, ()))
    except (UnsearchableError, OffsetStoreError) as error:
        problem = str(error)
    with watch.followed.lock:
        table = watch.followed.reading().log.table
        schema, by = table.schema(), table.metadata().partition_columns
    columns = [Column.of(each, each.name in by) for each in schema.fields]
    return {"watch": watch, "columns": columns, "found": found, "traces": traces, "problem": problem}


TABLE_ROWS = Page("/tables/{table}/rows", "Rows", "table_rows.html", _data, interval_s=1.0)
