"""The page *Rows* of a table: its columns, and the rows that were written last."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import Field
from deltalake.schema import ArrayType, DataType, MapType, StructType

from sparkonce.exactly_once.audit_counting import Coordinates
from sparkonce.jobs.ui.delta.paced import PacedResults
from sparkonce.jobs.ui.delta.rows import FoundRow, RowsFound, UnsearchableError, find_rows
from sparkonce.jobs.ui.delta.tables import TableWatch
from sparkonce.jobs.ui.delta.tracing import SourceRecord, coordinates_of
from sparkonce.jobs.ui.page import Page, PageRequest
from sparkonce.jobs.ui.pages.tables import table_of
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.tables import load_table, table_filesystem


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


_newest: PacedResults[RowsFound] = PacedResults()


@dataclass(frozen=True, slots=True)
class Row:
    """A row, and where it is from: its record, if its columns say, and the version that added its file, if kept."""

    found: FoundRow
    record: SourceRecord | None
    version: int | None


def _data(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    watch = table_of(site, asked.path["table"])
    watch.look()
    found, problem = None, ""
    try:
        found = _newest.get(watch.place, lambda: _read(watch))
    except (UnsearchableError, OffsetStoreError) as error:
        problem = str(error)
    with watch.followed.lock:
        reading = watch.followed.reading()
        schema, by = reading.log.table.schema(), reading.log.table.metadata().partition_columns
    coordinates = coordinates_of(pa.schema(schema.to_arrow()))
    rows = []
    for each in found.rows if found else ():
        version = reading.version_of(each.path)
        rows.append(Row(each, _record(each, coordinates, _topics_of(watch, version)), version))
    columns = [Column.of(each, each.name in by) for each in schema.fields]
    return {"watch": watch, "columns": columns, "found": found, "rows": rows, "problem": problem}


def _read(watch: TableWatch) -> RowsFound:
    """Read rows by a handle of its own: the others wait for the table's lock."""
    location, options = watch.followed.location, watch.followed.storage_options
    return find_rows(load_table(location, options), *table_filesystem(location, options), ())


def _topics_of(watch: TableWatch, version: int | None) -> Collection[str]:
    """Return the topics of which a version's commit has rows, as far as it says."""
    return {tp.topic for state in watch.read([] if version is None else [version]) for _, tp in state.moved}


def _record(row: FoundRow, coordinates: Coordinates | None, topics: Collection[str]) -> SourceRecord | None:
    if coordinates is None:
        return None
    partition, offset = row.values.get(coordinates.partition), row.values.get(coordinates.offset)
    topic = next(iter(topics), None) if len(topics) == 1 else None
    if coordinates.topic is not None:
        topic = row.values.get(coordinates.topic)
    return None if not topic or partition is None or offset is None else SourceRecord(topic, partition, offset)


TABLE_ROWS = Page("/tables/{table}/rows", "Rows", "table_rows.html", _data, interval_s=1.0)
