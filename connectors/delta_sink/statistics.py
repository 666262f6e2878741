"""Statistics of one data file, in the JSON that Delta's readers skip files by.

A reader skips a file when its statistics show that no row can match, so a bound that is too tight silently loses rows:
if a bound cannot be exact or safely wider, it is omitted. Bounds come from the Parquet footer,
where the writer has collected them anyway; nulls are counted from the rows, since a footer counts the leaves of lists.
The JSON is not escaped: delta-rs (1.6) reads an escaped surrogate pair as another character.

Not bounded: binaries, anything inside lists and maps, floating-point columns with a NaN (Spark, DataFusion and DuckDB
order NaN above all, Parquet leaves it out, pyarrow matches it with nothing), years other than 1 to 9999. A file with
such a value in a column of its own has no bounds at all: where some columns have bounds and others none, delta-rs's
``to_pyarrow_dataset`` (1.6) skips the file for every filter on the others.
Strings are cut to a prefix; an upper bound that was cut is completed with a character above what was cut off: the
highest of ASCII if that will do, as Delta's own writer does, or the highest of all.
Only the columns are covered that Delta's properties ``delta.dataSkippingStatsColumns`` and
``delta.dataSkippingNumIndexedCols`` select, the former before the latter.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

STRING_PREFIX_CHARACTERS = 32
DEFAULT_INDEXED_COLUMNS = 32
FOOTER_TEXT_BYTES = 4096
"""A footer has no bounds of columns with longer ones."""
_HIGHEST = "\U0010ffff"
_HIGHEST_ASCII = "\x7f"
_LISTED = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")
_NAME = re.compile(r"`(?:[^`]|``)*`|[^.`]+")

Path = tuple[str, ...]
"""The names from a top-level column down to a field of a struct."""
SpecialFloat = tuple[Path, str]
"""That a column has `NAN`, or `NEGATIVE_ZERO`."""
NAN = "NaN"
"""Parquet's bounds leave it out, and readers that order it above all skip its row groups by them."""
NEGATIVE_ZERO = "-0.0"
"""Spark (4.2) looks 0.0 up in a dictionary by its bits, and skips row groups that only have this one."""


def covered_columns(schema: pa.Schema, limit: int, chosen: Sequence[Path] | None = None) -> dict[Path, pa.DataType]:
    """Return the leaves that get statistics: those of the ``chosen`` columns, or the first ``limit`` (all if negative).

    A list or map counts as one leaf; a struct that is chosen stands for all its leaves.
    """
    leaves = [leaf for column in schema for leaf in _leaves((column.name,), column.type)]
    if chosen is not None:
        return {path: kind for path, kind in leaves if any(path[: len(each)] == each for each in chosen)}
    return dict(leaves if limit < 0 else leaves[:limit])


def bounded_columns(covered: Mapping[Path, pa.DataType]) -> list[str]:
    """Return the Parquet paths of the columns whose bounds the writer must collect."""
    return [".".join(path) for path, kind in covered.items() if _has_bounds(kind)]


def special_floats(batch: pa.RecordBatch) -> set[SpecialFloat]:
    """Return which columns of a batch have values that readers skip by bounds or dictionaries."""
    found: set[SpecialFloat] = set()
    for top in batch.schema:
        for path, kind in _leaves((top.name,), top.type):
            if pa.types.is_floating(kind):
                column = _descend(batch, path)
                bits = column.view(pa.int32() if kind == pa.float32() else pa.int64())
                if pc.any(pc.is_nan(column)).as_py():
                    found.add((path, NAN))
                if pc.any(pc.equal(bits, -(1 << (kind.bit_width - 1)))).as_py():
                    found.add((path, NEGATIVE_ZERO))
    return found


def parse_paths(text: str) -> list[Path]:
    """Read a list of columns as in ``delta.dataSkippingStatsColumns``: commas, dots, and names in backticks."""
    paths: list[Path] = []
    for listed in _LISTED.findall(text):
        names = [name for name in _NAME.findall(listed.strip()) if name]
        if names:
            paths.append(tuple(_unquoted(name) for name in names))
    return paths


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") and name.endswith("`") and len(name) > 1 else name


def _leaves(path: Path, kind: pa.DataType) -> Iterator[tuple[Path, pa.DataType]]:
    if pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            child = kind.field(position)
            yield from _leaves((*path, child.name), child.type)
    else:
        yield path, kind


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
    )


@dataclass(frozen=True, slots=True)
class LongTexts:
    """Bounds of a column in rows among which are texts that a footer has no bounds of."""

    start: int
    end: int
    low: str
    high: str


@dataclass(slots=True)
class StatisticsCollector:
    """Counts what the footer does not have, while a file is written."""

    columns: Mapping[Path, pa.DataType]
    absent: Sequence[Path] = ()
    """Columns of the table that the file does not have."""
    rows: int = 0
    null_counts: dict[Path, int] = field(default_factory=dict)
    specials: set[SpecialFloat] = field(default_factory=set)
    _grouped: int = 0
    """How many rows are in row groups."""
    _long_texts: dict[Path, list[LongTexts]] = field(default_factory=dict)

    def observe(self, batch: pa.RecordBatch, specials: set[SpecialFloat]) -> None:
        """Count the rows of a batch, which has these `special_floats`."""
        self.rows += batch.num_rows
        self.specials |= specials
        for path in self.columns:
            self.null_counts[path] = self.null_counts.get(path, 0) + _descend(batch, path).null_count

    def observe_groups(self, rows: pa.Table) -> None:
        """Note what the footer will not have of rows that become the next row groups."""
        start, self._grouped = self._grouped, self._grouped + rows.num_rows
        for path, kind in self.columns.items():
            if pa.types.is_string(kind):
                column = _descend(rows, path)
                if (pc.max(pc.binary_length(column)).as_py() or 0) > FOOTER_TEXT_BYTES:
                    found = pc.min_max(column).as_py()
                    noted = LongTexts(start, self._grouped, found["min"], found["max"])
                    self._long_texts.setdefault(path, []).append(noted)

    def to_json(self, footer: pq.FileMetaData) -> str:
        """Return Delta's statistics of the file whose footer this is."""
        lows, highs = self._bounds(footer)
        minimum: dict[str, Any] = {}
        maximum: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for path in self.absent:
            _put(nulls, path, self.rows)
        for path in self.columns:
            _put(nulls, path, self.null_counts.get(path, 0))
            low, high = _lower(lows.get(path)), _upper(highs.get(path))
            if low is not None and high is not None:
                _put(minimum, path, low)
                _put(maximum, path, high)
        bounds = {} if self._lacks_bounds(minimum) else {"minValues": minimum, "maxValues": maximum}
        return _encode({"numRecords": self.rows, **bounds, "nullCount": nulls})

    def _lacks_bounds(self, minimum: Mapping[str, Any]) -> bool:
        """Whether a column has values, but no bounds; fields of structs do not count, since delta-rs ignores them."""
        return any(
            _has_bounds(kind) and path[0] not in minimum and self.null_counts.get(path, 0) < self.rows
            for path, kind in self.columns.items()
            if len(path) == 1
        )

    def _bounds(self, footer: pq.FileMetaData) -> tuple[dict[Path, Any], dict[Path, Any]]:
        """Return the lowest and highest value of each column, only where every row group with values has bounds."""
        lows: dict[Path, Any] = {}
        highs: dict[Path, Any] = {}
        # A column named "a.b" and a field b of a struct a look alike in a footer: neither gets bounds.
        dotted = _names(footer)
        wanted = {
            name: path
            for path, kind in self.columns.items()
            if _has_bounds(kind) and dotted[name := ".".join(path)] == 1
        }
        for text in self._long_texts.keys() & set(wanted.values()):
            noted = self._long_texts[text]
            lows[text], highs[text] = min(each.low for each in noted), max(each.high for each in noted)
        boundless: set[Path] = set()
        start = end = 0
        for group in (footer.row_group(index) for index in range(footer.num_row_groups)):
            start, end = end, end + group.num_rows
            for column in (group.column(index) for index in range(group.num_columns)):
                path = wanted.get(column.path_in_schema)
                if path is None:
                    continue
                found = footer_bounds(column, group.num_rows)
                if found is NO_BOUNDS:
                    noted = self._long_texts.get(path, [])
                    if not any(each.start <= start and end <= each.end for each in noted):
                        boundless.add(path)
                elif found is not None:
                    low, high = found
                    lows[path] = min(lows[path], low) if path in lows else low
                    highs[path] = max(highs[path], high) if path in highs else high
        for path in boundless:
            lows.pop(path, None)
            highs.pop(path, None)
        return lows, highs


NO_BOUNDS: Any = object()
"""A row group with values, but without bounds."""


def _names(footer: pq.FileMetaData) -> Counter[str]:
    """Return how often a column of each name is in a file, whether it gets statistics or not."""
    if footer.num_row_groups == 0:
        return Counter()
    group = footer.row_group(0)
    return Counter(group.column(index).path_in_schema for index in range(group.num_columns))


def footer_bounds(column: pq.ColumnChunkMetaData, rows: int) -> tuple[Any, Any] | None:
    """Return a column's bounds in one row group; None if it has no values, `NO_BOUNDS` if it has no bounds."""
    found = column.statistics
    if found is None:
        return NO_BOUNDS  # type: ignore[no-any-return]
    if found.has_min_max:
        try:
            return found.min, found.max
        except (ValueError, OverflowError, UnicodeDecodeError, pa.ArrowException):
            return NO_BOUNDS  # type: ignore[no-any-return]
    if found.has_null_count and found.null_count == rows:
        return None
    return NO_BOUNDS  # type: ignore[no-any-return]


def _descend(batch: pa.RecordBatch | pa.Table, path: Path) -> pa.Array:
    """Return a field of a struct as a column; where the struct is null, so is the field."""
    column = batch.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _lower(value: Any) -> Any:
    return value[:STRING_PREFIX_CHARACTERS] if isinstance(value, str) else _scalar(value)


def _upper(value: Any) -> Any:
    if not isinstance(value, str):
        return _scalar(value)
    # What is added must not be below what was cut off, so the cut moves past any code point that is the highest.
    cut = _cut(value)
    while cut < len(value) and value[cut] == _HIGHEST:
        cut += 1
    if cut >= len(value):
        return value
    return value[:cut] + (_HIGHEST_ASCII if value[cut] < _HIGHEST_ASCII else _HIGHEST)


def _cut(text: str) -> int:
    """Return how many code points an upper bound keeps: Delta counts those above U+FFFF as two, and splits none."""
    units = 0
    for count, character in enumerate(text):
        if units >= STRING_PREFIX_CHARACTERS:
            return count
        units += 1 if character <= "\uffff" else 2
    return len(text)


def _scalar(value: Any) -> Any:
    """Return a value in Delta's JSON form; None if it has none."""
    if isinstance(value, float):
        # As delta-spark writes infinities: JSON has none.
        return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _encode(value: Any) -> str:
    """Write JSON; unlike ``json``, decimals come out as numbers with all their digits."""
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_encode(inner)}" for key, inner in value.items())
            + "}"
        )
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, ensure_ascii=False)
