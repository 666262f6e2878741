"""Lengths of CHAR(n) and VARCHAR(n), which Delta stores as text with the declared type in the column's metadata.

As Spark does when it writes (`CharVarcharCodegenUtils`): characters are counted, spaces past the length are cut off,
and a CHAR is filled up with spaces. Only columns are handled: what is declared inside a struct, array or map is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of a column's metadata that holds the type as it was declared, in SQL."""
_TYPE = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Length:
    """The length of one column's values."""

    column: str
    """Its name as files have it."""
    name: str = field(compare=False)
    limit: int
    fills: bool
    """Whether shorter values are filled up."""

    def __str__(self) -> str:
        return f"{'CHAR' if self.fills else 'VARCHAR'}({self.limit})"

    def too_long(self, values: pa.Array) -> int | None:
        """Return the first row with a value that does not fit, or None."""
        rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(values, self.limit), " ")
        found = pc.index(pc.greater(pc.binary_length(rest), 0), True).as_py()
        return None if found < 0 else int(found)

    def fit(self, values: pa.Array) -> pa.Array:
        """Return values that are not `too_long` as they are stored."""
        cut = pc.utf8_slice_codeunits(values, 0, self.limit)
        return pc.utf8_rpad(cut, self.limit, " ") if self.fills else cut


def length_of(column: str, name: str, metadata: Mapping[str, Any]) -> Length | None:
    """Return the length that a column's metadata declares; None if there is none, or it is inside another type."""
    found = _TYPE.fullmatch(str(metadata.get(DECLARED, "")).strip())
    return None if found is None else Length(column, name, int(found[2]), found[1].lower() == "char")
