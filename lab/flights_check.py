"""Compare the Delta table with the source data, without Spark and without the connectors.

A row is identified by its ``flight_id``. Lost: an id that the table lacks. Duplicated: rows beyond the first of an id.
Each column of both sides, sorted by id, gets a checksum over its values; equal checksums mean equal columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sparkonce.jobs.etl import dataset

KEY = "flight_id"


@dataclass(frozen=True, slots=True)
class ColumnChecksum:
    """One column's checksums (hexadecimal, shortened) in the source data and in the table."""

    name: str
    source: str
    table: str

    @property
    def equal(self) -> bool:
        """Whether the column holds the same values on both sides."""
        return self.source == self.table


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the comparison found."""

    expected: int
    rows: int
    lost: int
    duplicated: int
    columns: tuple[ColumnChecksum, ...]

    @property
    def good(self) -> bool:
        """Nothing lost, nothing twice, every column alike."""
        return (
            self.rows == self.expected
            and self.lost == 0
            and self.duplicated == 0
            and all(column.equal for column in self.columns)
        )

    @property
    def result(self) -> str:
        """The result in one line."""
        return f"RESULT expected={self.expected} rows={self.rows} lost={self.lost} duplicated={self.duplicated}"


def judge(
    table: Path | str, storage_options: Mapping[str, str] | None = None, expected: pa.Table | None = None
) -> Verdict:
    """Read the table with delta-rs and compare it with ``expected``: by default the flights, airlines and planes."""
    found = DeltaTable(table, storage_options=dict(storage_options or {}))
    return compare(dataset.expected() if expected is None else expected, found.to_pyarrow_table())


def compare(expected: pa.Table, found: pa.Table) -> Verdict:
    """Compare ``found`` with ``expected``; columns that ``expected`` lacks are not checked."""
    found_ids = pc.unique(found[KEY])
    lost = expected.num_rows - pc.sum(pc.is_in(expected[KEY], found_ids)).as_py()
    names = sorted(expected.column_names)
    source, table = expected.select(names).sort_by(KEY), found.select(names).sort_by(KEY)
    return Verdict(
        expected=expected.num_rows,
        rows=found.num_rows,
        lost=lost,
        duplicated=found.num_rows - len(found_ids),
        columns=tuple(ColumnChecksum(name, checksum(source[name]), checksum(table[name])) for name in names),
    )


def checksum(column: pa.ChunkedArray) -> str:
    """Return a checksum of the values in their order, independent of chunks and of the type's width."""
    text = pc.fill_null(pc.cast(column, pa.large_string()), "\0null").combine_chunks()
    if isinstance(text, pa.ChunkedArray):
        text = pa.concat_arrays(text.chunks)
    _, offsets, data = text.buffers()
    digest = hashlib.sha256(memoryview(offsets)[: (len(text) + 1) * 8])
    if data is not None:
        digest.update(memoryview(data))
    return digest.hexdigest()[:16]
