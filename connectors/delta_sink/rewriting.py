"""How delta-rs may write rows that it rewrites, so that no reader loses some by statistics.

delta-rs (1.6) takes bounds of decimals from doubles, leaves NaN out of bounds, and fails at dates outside the years 1
to 9999 (`statistics` says what readers make of that). Such columns get no statistics, neither in footers nor in the
log. What may be -0.0 gets no dictionary, except in structs, whose fields delta-rs's settings cannot name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import ColumnProperties, DeltaTable, WriterProperties

from sparkonce.connectors.delta_sink.statistics import NO_BOUNDS, Path, covered_columns, footer_bounds
from sparkonce.offset_store.data_files import ASKED_AT_ONCE, places
from sparkonce.offset_store.locations import Location

DIGITS_OF_A_DOUBLE = 15


def writer_properties(
    table: DeltaTable, paths: Sequence[str], location: Location, storage_options: Mapping[str, str]
) -> WriterProperties | None:
    """Return the properties to write these files' rows; None if none. Raises OSError or ArrowException."""
    leaves = covered_columns(pa.schema(table.schema().to_arrow()), -1)
    partitions = table.metadata().partition_columns
    leaves = {path: kind for path, kind in leaves.items() if path[0] not in partitions}
    if not any(_must_be_known(kind) or _is_long(kind) for kind in leaves.values()):
        return None
    place_of = places(location, storage_options)

    def footer(path: str) -> pq.FileMetaData:
        filesystem, place = place_of(path)
        return pq.read_metadata(place, filesystem=filesystem)

    with ThreadPoolExecutor(ASKED_AT_ONCE, "footers") as pool:
        footers = list(pool.map(footer, paths))
    bounds = _bounds(footers)
    unsafe = {path for path, kind in leaves.items() if _is_unsafe(kind, bounds.get(".".join(path), ()))}
    zeros = {path for path, kind in leaves.items() if _may_be_zero(kind, bounds.get(".".join(path), ()))}
    return _properties(leaves, unsafe, zeros)


def _properties(leaves: Iterable[Path], unsafe: set[Path], zeros: set[Path]) -> WriterProperties | None:
    in_structs = any(len(path) > 1 for path in unsafe)
    columns = {
        path[0]: ColumnProperties(
            statistics_enabled="NONE" if path in unsafe else "PAGE", dictionary_enabled=path not in zeros
        )
        for path in leaves
        if len(path) == 1 and (in_structs or path in unsafe or path in zeros)
    }
    if not columns and not in_structs:
        return None
    return WriterProperties(
        # As delta-rs's optimize does where it is given no properties.
        compression="ZSTD",
        compression_level=4,
        default_column_properties=ColumnProperties(statistics_enabled="NONE") if in_structs else None,
        column_properties=columns,
    )


def _must_be_known(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_long(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) and kind.precision > DIGITS_OF_A_DOUBLE)


def _is_unsafe(kind: pa.DataType, bounds: Sequence[Any]) -> bool:
    return _is_long(kind) or (_must_be_known(kind) and any(each is NO_BOUNDS for each in bounds))


def _may_be_zero(kind: pa.DataType, bounds: Sequence[Any]) -> bool:
    return bool(pa.types.is_floating(kind)) and any(
        each is not None and (each is NO_BOUNDS or each[0] <= 0 <= each[1]) for each in bounds
    )


def _bounds(footers: Iterable[pq.FileMetaData]) -> dict[str, list[Any]]:
    """Return the `footer_bounds` of each column's row groups."""
    found: dict[str, list[Any]] = {}
    for footer in footers:
        for group in (footer.row_group(index) for index in range(footer.num_row_groups)):
            for column in (group.column(index) for index in range(group.num_columns)):
                found.setdefault(column.path_in_schema, []).append(footer_bounds(column, group.num_rows))
    return found
